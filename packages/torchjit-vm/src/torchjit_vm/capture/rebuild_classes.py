"""Classes that the region made, in emitted code: made anew in each call, then changed as the region changed them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from torchjit_core.paths import AccessPath
from torchjit_vm.capture.class_making import make_class, part_of
from torchjit_vm.capture.effect_records import MadeClass
from torchjit_vm.capture.values import Const, FunctionValue, Known, Obj, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.rebuild import Rebuilder

__all__ = ["NotRemade", "check_constant", "class_expr", "known_expr", "pinned_expr"]


@final
class NotRemade(Exception):
    """Emitted code cannot do with a class that the region made what the program does: its statement must run for real."""

    def __init__(self, made: MadeClass, detail: str) -> None:
        super().__init__(detail)
        self.made, self.detail = made, detail


def known_expr(out: Rebuilder, obj: object) -> str | None:
    """An expression for an object that is, or belongs to, a class that the region made; None for others."""
    domain = out.domain
    if isinstance(obj, type) and obj in domain.made_classes:
        return class_expr(out, obj)
    part = domain.class_parts.get(id(obj))
    if part is not None:
        return out.assign(f"{out.runtime(part_of)}({class_expr(out, part[0])}, {part[1]!r})")
    value = domain.interned.get(id(obj)) if id(obj) in domain.stand_in_ids else None
    return None if value is None or type(value) is Known else out.expr(value)


def pinned_expr(out: Rebuilder, path: AccessPath) -> str | None:
    """The same for what a path leads to that starts at such an object.

    Raises:
        NotRemade: it is something inside the object.
    """
    root = path.root().key
    found = known_expr(out, root)
    if found is not None and path.base is not None:
        raise NotRemade(_owner(out, root), f"something inside the class is needed: {path}")
    return found


def _owner(out: Rebuilder, obj: Any) -> MadeClass:
    """The class that an object is, or belongs to."""
    domain = out.domain
    cls = domain.class_parts[id(obj)][0] if id(obj) in domain.class_parts else obj
    return domain.made_classes.get(cls) or next(iter(domain.made_classes.values()))


def class_expr(out: Rebuilder, cls: type) -> str:
    """The class of this call."""
    found = out.classes.get(cls)
    if found is not None:
        if not found:
            raise NotRemade(out.domain.made_classes[cls], f"{cls.__qualname__} is needed for its own making")
        return found
    out.classes[cls] = ""
    made = out.domain.made_classes[cls]
    if made.make is None:
        assert made.before is not None  # see MadeClass
        class_expr(out, made.before)
        if out.classes[cls]:
            return out.classes[cls]
        raise NotRemade(made, f"a decorator's class {cls.__qualname__} is needed before the decorator runs")
    bases = "".join(out.expr(b) + ", " for b in made.bases)
    later = {k for k, v in made.namespace.items() if made.make is make_class and _put_off(k, v)}
    namespace = ", ".join(f"{k!r}: {'None' if k in later else out.expr(v)}" for k, v in made.namespace.items())
    keywords = ", ".join(f"{k!r}: {out.expr(v)}" for k, v in made.keywords.items())
    make, meta = out.runtime(made.make), out.expr(made.meta)
    name = out.assign(f"{make}({meta}, {made.name!r}, ({bases}), {{{namespace}}}, {{{keywords}}})", "x")
    out.classes[cls] = name
    for key, value in made.namespace.items():
        if key in later:
            out.write(f"type.__setattr__({name}, {key!r}, {out.expr(value)})")
    _replay(out, cls, name)
    return name


def _put_off(key: str, value: Value) -> bool:
    """May this be stored after the class is made? It may hold instances of the class."""
    if key.startswith("__") or isinstance(value, (Const, Known, FunctionValue)):
        return False
    return not (isinstance(value, Obj) and value.cls in (staticmethod, classmethod, property))


def _replay(out: Rebuilder, cls: type, name: str) -> None:
    """What happened to the class after it was made."""
    for entry in out.domain.made_classes[cls].log:
        if entry[0] == "set":
            out.write(f"type.__setattr__({name}, {entry[1]!r}, {out.expr(entry[2])})")
        elif entry[0] == "delete":
            out.write(f"type.__delattr__({name}, {entry[1]!r})")
        else:
            _, function, rest, named, result = entry
            texts = [name, *map(out.expr, rest), *(f"{k}={out.expr(v)}" for k, v in named.items())]
            text = f"{out.constant(function, '_' + getattr(function, '__name__', 'decorator'))}({', '.join(texts)})"
            if result is None:
                out.write(text)
            else:
                out.classes[result] = out.assign(text, "x")
                _replay(out, result, out.classes[result])


def check_constant(out: Rebuilder, obj: object) -> None:
    """A constant that is computed at capture may not hold such a class.

    Raises:
        NotRemade: it does.
    """
    if _holds_made_class(out, obj):
        raise NotRemade(next(iter(out.domain.made_classes.values())), "a constant with the class is needed")


def _holds_made_class(out: Rebuilder, obj: object) -> bool:
    """Is this constant a container with such a class?"""
    if isinstance(obj, (tuple, frozenset)):
        return any(_holds_made_class(out, item) for item in obj)
    return isinstance(obj, type) and obj in out.domain.made_classes
