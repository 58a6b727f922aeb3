"""Why a call did not match: the first guard that fails, with what was expected and what was met."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchjit_core.guards import (
    Ambient,
    ClassAttrIs,
    DictContains,
    DictKeys,
    Guard,
    IdIs,
    InstanceLacks,
    LengthIs,
    Miss,
    MroIs,
    Slots,
    SymbolicCondition,
    TensorMatches,
    TypeIs,
    ValueEquals,
    dict_items,
)
from torchjit_core.handlers import raised_in_handler
from torchjit_core.paths import AccessPath
from torchjit_core.showing import shown
from torchjit_guards.tensors import key_difference, key_set_holds, matches, plain_facts

__all__ = ["explain"]


def explain(guards: Sequence[Guard], gather: Sequence[AccessPath], slots: Slots) -> Miss | None:
    """The first guard that does not hold over `slots`, else the first gathered path that leads nowhere, else None."""
    for guard in guards:
        try:
            holds = matches(guard, slots) if isinstance(guard, TensorMatches) else guard.check(slots)
            if holds and _extra(guard, slots):
                continue
            expected, actual = _difference(guard, slots)
        except Exception as error:  # a walk that fails is a miss, whatever the failure
            if raised_in_handler(error):
                raise
            expected, actual = str(guard), _error_text(error)
        location = getattr(guard, "location", None)
        return Miss(guard, expected, actual, location, f"{guard}: expected {expected}, got {actual}")
    for path in gather:
        try:
            path.resolve(slots)
        except Exception as error:  # as above
            if raised_in_handler(error):
                raise
            return Miss(None, f"{path} exists", _error_text(error), None, f"{path} cannot be reached: {error!r}")
    return None


def _extra(guard: Guard, slots: Slots) -> bool:
    return not isinstance(guard, TensorMatches) or key_set_holds(guard, guard.path.resolve(slots))


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _type_name(tp: type) -> str:
    return f"{tp.__module__}.{tp.__qualname__}"


def _names(classes: Sequence[type]) -> str:
    return ", ".join(c.__qualname__ for c in classes)


def _difference(guard: Guard, slots: Slots) -> tuple[str, str]:
    """What the guard expects, and what there is."""
    tell = _DIFFERENCES.get(type(guard))
    return ("true", "false") if tell is None else tell(guard, slots)


def _keys_difference(wanted: list[Any], keys: list[Any]) -> tuple[str, str]:
    """All keys of small dicts; of larger ones those that differ, which would be cut off behind the others."""
    if len(wanted) + len(keys) > 6 and all(type(key) is str for key in (*wanted, *keys)):
        lost, added = [k for k in wanted if k not in keys], [k for k in keys if k not in wanted]
        if lost or added:
            return _with(lost, added), _with(added, lost)
    return shown(wanted), shown(keys)


def _with(present: list[str], absent: list[str]) -> str:
    parts = [f"with {shown(present)}"] if present else []
    return ", ".join(parts + ([f"without {shown(absent)}"] if absent else []))


def _tensor_difference(guard: TensorMatches, tensor: object) -> tuple[str, str]:
    if type(tensor) is not guard.type:
        return _type_name(guard.type), _type_name(type(tensor))
    plain, guard = plain_facts(guard, tensor)
    if guard.type is not type(plain):
        return "requires_grad and is_leaf as recorded", "another"
    t: Any = plain  # after the comparison mypy would know it as `object`
    fields: list[tuple[str, Any, Any]] = [
        ("dtype", guard.dtype, t.dtype),
        ("device", guard.device, t.device),
        ("requires_grad", guard.requires_grad, t.requires_grad),
        ("number of dimensions", len(guard.sizes), t.dim()),
    ]
    fields += [
        (f"size({i})", want, t.size(i)) for i, want in enumerate(guard.sizes) if i < t.dim() and want is not None
    ]
    strides = guard.strides or ()
    fields += [
        (f"stride({i})", want, t.stride(i)) for i, want in enumerate(strides) if i < t.dim() and want is not None
    ]
    if guard.offset is not None:
        fields.append(("storage offset", guard.offset, t.storage_offset()))
    if guard.is_leaf is not None:
        fields.append(("is_leaf", guard.is_leaf, t.is_leaf))
    for name, want, got in fields:
        if want != got:
            return f"{name} {want}", f"{name} {got}"
    return key_difference(guard, tensor)


def _condition_difference(guard: SymbolicCondition, slots: Slots) -> tuple[str, str]:
    return guard.expression, ", ".join(f"{path} = {shown(path.resolve(slots))}" for _, path in guard.names)


_DIFFERENCES: dict[type[Guard], Callable[[Any, Slots], tuple[str, str]]] = {
    TypeIs: lambda g, slots: (_type_name(g.type), _type_name(type(g.path.resolve(slots)))),
    IdIs: lambda g, slots: (shown(g.obj), shown(g.path.resolve(slots))),
    ValueEquals: lambda g, slots: (shown(g.value), shown(g.path.resolve(slots))),
    LengthIs: lambda g, slots: (str(g.length), str(len(g.path.resolve(slots)))),
    DictKeys: lambda g, slots: _keys_difference(list(g.keys), [k for k, _ in dict_items(g.path.resolve(slots))]),
    DictContains: lambda g, slots: ("present", "absent") if g.present else ("absent", "present"),
    InstanceLacks: lambda g, slots: ("absent", "present"),
    ClassAttrIs: lambda g, slots: (shown(g.obj), shown(getattr(g.cls, g.name, "nothing"))),
    MroIs: lambda g, slots: (_names(g.mro), _names(g.cls.__mro__)),
    TensorMatches: lambda g, slots: _tensor_difference(g, g.path.resolve(slots)),
    SymbolicCondition: _condition_difference,
    Ambient: lambda g, slots: (shown(g.value), shown(g.read())),
}
"""By the kind of guard; others hold or do not."""
