"""`dynamic_shapes=` of `compile`: which sizes of which arguments vary, as data beside the program.

The specification is that of `torch.export`, or upstream's of torch.compile (`ShapesSpec`). While a call is captured, its arguments
carry the marks that follow, as if the program had called `mark_dynamic`; afterwards they are as before.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import torch

from torchjit_core.marks import SizeMark
from torchjit_core.reasons import UserError, UserTypeError, reason
from torchjit_core.user_errors import unknown_name
from torchjit_fx.marks import MARKS

if TYPE_CHECKING:
    import torchjit_vm

__all__ = ["DynamicShapes"]

BAD_SHAPES = reason(
    "TJ-API-044",
    "dynamic_shapes does not describe the arguments",
    "It names arguments, and for tensors among them says of dimensions: True, a torch.export.Dim, or None for a constant.",
    "For instance dynamic_shapes={'x': {0: torch.export.Dim('batch', max=64)}, 'mask': {0: True, 1: None}}.",
)


@final
class DynamicShapes:
    """What `compile(dynamic_shapes=...)` was given.

    Args:
        given: by the names of arguments, or in their order. Of each: a dict from dimension, or a sequence by dimension, for a tensor;
            a sequence or a dict by keys for such arguments; None for sizes that are constants.

    Raises:
        UserError: it is neither.
    """

    def __init__(self, given: Any) -> None:
        given = _plain(given)
        if isinstance(given, str) or not isinstance(given, (Mapping, Sequence)):
            raise UserTypeError(BAD_SHAPES, f"got a {type(given).__name__}, want a dict by names of arguments")
        self._given: Mapping[str, Any] | Sequence[Any] = given

    @classmethod
    def of(cls, model: Any, given: Any) -> DynamicShapes | None:
        """What was given for the arguments of a function or module; None if nothing was.

        Raises:
            UserError: as the class itself and `check`.
        """
        if given is None:
            return None
        made = cls(given)
        made.check(model)
        return made

    def check(self, model: Any) -> None:
        """Does it fit the parameters of what is compiled?

        Raises:
            UserError: there is no argument of such a name (the nearest ones are told), or there are fewer.
        """
        called = model.forward if isinstance(model, torch.nn.Module) else model
        try:
            parameters = inspect.signature(called, follow_wrapped=False).parameters
        except (TypeError, ValueError):  # a C function that does not tell
            return
        kinds = {p.kind for p in parameters.values()}
        names = [name for name, p in parameters.items() if p.kind not in _VARIADIC]
        if not isinstance(self._given, Mapping):
            if len(self._given) > len(names):
                raise UserError(BAD_SHAPES, f"{len(self._given)} entries for the arguments {', '.join(names)}")
            self._given = dict(zip(names, self._given, strict=False))
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            for name in self._given:
                if name not in names and name not in ("*args", "**kwargs"):
                    raise unknown_name("argument", name, names)

    @contextlib.contextmanager
    def marked(self, region: torchjit_vm.Region, slots: tuple[Any, ...]) -> Iterator[None]:
        """The tensors among these arguments carry marks.

        Raises:
            UserError: an argument is not what was said.
        """
        given = self._given if isinstance(self._given, Mapping) else {}
        arguments = _arguments(region, slots)
        marks: list[tuple[torch.Tensor, dict[int, SizeMark]]] = []
        sizes: dict[int, int] = {}
        for name, spec in given.items():
            if name in arguments:
                _collect(name, spec, arguments[name], marks, sizes)
        before = [(tensor, tensor.__dict__.get(MARKS)) for tensor, _ in marks]
        try:
            for tensor, own in marks:
                tensor.__dict__[MARKS] = {**own, **tensor.__dict__.get(MARKS, {})}
            yield
        finally:
            for tensor, old in reversed(before):
                if old is None:
                    tensor.__dict__.pop(MARKS, None)
                else:
                    tensor.__dict__[MARKS] = old


def _arguments(region: torchjit_vm.Region, slots: tuple[Any, ...]) -> dict[str, Any]:
    """The arguments of a call by name, with `*args` and `**kwargs`."""
    code = region.code
    count = code.co_argcount + code.co_kwonlyargcount
    named = dict(zip(code.co_varnames, slots[:count], strict=False))
    rest = list(slots[count:])
    if code.co_flags & 0x04:
        positional = rest.pop(0)
        if region.forwarded is not None:
            known = [name for name in region.forwarded if not name.startswith("*")]
            named.update(zip(known, positional, strict=False))
            positional = positional[len(known) :]
        named["*args"] = positional
    if code.co_flags & 0x08:
        named.update(rest[0])
        named["**kwargs"] = rest[0]
    return named


def _plain(spec: Any) -> Any:
    """Upstream's classes as dicts and lists."""
    if not type(spec).__module__.startswith("torch."):
        return spec
    plain = _SPECS.get(type(spec).__name__)
    return spec if plain is None else plain(spec)


def _plain_shapes(spec: Any) -> Any:
    if spec.assumptions:
        raise UserError(BAD_SHAPES, "assumptions of a ShapesSpec; state them with torch._check in the program")
    return _plain(spec._params) if spec._params is not None else {}


def _plain_params(spec: Any) -> dict[str, Any]:
    rest = {"*args": spec._varargs, "**kwargs": spec._varkw}
    return {**spec._named_args, **{name: said for name, said in rest.items() if said is not None}}


_SPECS: dict[str, Callable[[Any], Any]] = {
    "ShapesSpec": _plain_shapes,
    "ParamsSpec": _plain_params,
    "TensorSpec": list,
    "DictSpec": lambda spec: dict(spec.items()),
    "SeqSpec": lambda spec: list(spec._entries),
}


def _collect(
    name: str, spec: Any, value: Any, marks: list[tuple[torch.Tensor, dict[int, SizeMark]]], sizes: dict[int, int]
) -> None:
    spec = _plain(spec)
    if isinstance(value, torch.Tensor):
        marks.append((value, _marks_of_tensor(name, spec, value, sizes)))
    elif spec is None:
        return
    elif isinstance(value, Mapping) and isinstance(spec, Mapping):
        for key, inner in spec.items():
            if key not in value:
                raise UserError(BAD_SHAPES, f"{name} has no key {key!r}")
            _collect(f"{name}[{key!r}]", inner, value[key], marks, sizes)
    elif isinstance(value, (list, tuple)) and isinstance(spec, (list, tuple)):
        if len(spec) != len(value):
            raise UserError(BAD_SHAPES, f"{len(spec)} entries for {name}, which has {len(value)}")
        for i, (inner, each) in enumerate(zip(spec, value, strict=True)):
            _collect(f"{name}[{i}]", inner, each, marks, sizes)
    else:
        number = "; a number becomes a symbol once it changes" if isinstance(value, (int, float)) else ""
        raise UserError(BAD_SHAPES, f"{spec!r} for {name}, a {type(value).__name__}{number}")


def _marks_of_tensor(name: str, spec: Any, tensor: torch.Tensor, sizes: dict[int, int]) -> dict[int, SizeMark]:
    if spec is None:
        return dict.fromkeys(range(tensor.dim()), SizeMark("static"))
    if isinstance(spec, (list, tuple)):
        if len(spec) != tensor.dim():
            raise UserError(BAD_SHAPES, f"{len(spec)} entries for {name}, which has {tensor.dim()} dimensions")
        spec = dict(enumerate(spec))
    if not isinstance(spec, Mapping):
        raise UserError(BAD_SHAPES, f"{spec!r} for the tensor {name}, want a dict from dimension")
    marks = {}
    for dim, said in spec.items():
        if type(dim) is not int or not -tensor.dim() <= dim < tensor.dim():
            raise UserError(BAD_SHAPES, f"dimension {dim!r} of {name}, which has {tensor.dim()}")
        marks[dim % tensor.dim()] = _mark_of_size(f"dimension {dim} of {name}", said, tensor.shape[dim], sizes)
    return marks


def _mark_of_size(where: str, said: Any, size: int, sizes: dict[int, int]) -> SizeMark:
    """The mark, if this size may be; `sizes` are those of the symbols that have been met, which stand for one size each."""
    if type(said) is int and said != size:
        raise UserError(BAD_SHAPES, f"{where} is {size}, not {said}")
    mark = _mark(where, said)
    if not (mark.lower or 0) <= size <= (size if mark.upper is None else mark.upper):
        raise UserError(BAD_SHAPES, f"{where} is {size}, outside of {said!r}")
    shared = mark.kind == "dynamic" and said is not True and type(said).__name__ != "_DimHint"
    if shared and sizes.setdefault(id(said), size) != size:
        raise UserError(BAD_SHAPES, f"{where} is {size}, but {said!r} was {sizes[id(said)]} before")
    return mark


def _mark(where: str, said: Any) -> SizeMark:
    """What is said of one dimension."""
    if said is True:
        return SizeMark("dynamic")
    if said is None or type(said) is int:
        return SizeMark("static")
    kind = type(said).__name__
    if kind == "_DimHint":  # Dim.AUTO and its kind
        hint = said.type.name
        if hint == "DYNAMIC":
            return SizeMark("dynamic", *_range(said))
        return SizeMark("static" if hint == "STATIC" else "maybe")
    if kind in ("Dim", "ShapeVar", "IntVar"):
        return SizeMark("dynamic", *_range(said))
    raise UserError(BAD_SHAPES, f"{said!r} for {where}, want True, None, an int or a Dim that stands for itself")


def _range(said: Any) -> tuple[int | None, int | None]:
    """The declared sizes; symbols begin at 2 anyway, and an infinite end is none."""
    lower, upper = getattr(said, "min", None), getattr(said, "max", None)
    return (
        lower if type(lower) is int and lower > 1 else None,
        upper if type(upper) is int and upper < _ENDLESS else None,
    )


_ENDLESS = 2**62
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
