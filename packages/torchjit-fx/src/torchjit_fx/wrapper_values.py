"""Tensors of wrapper subclasses: taken apart into the tensors they consist of, and put together again.

Source: the protocol of `__tensor_flatten__` and `__tensor_unflatten__` in torch/utils/_python_dispatch.py (torch 2.15).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

import torch

from torchjit_core.reasons import GraphBreak, reason
from torchjit_core.storing import never_stored, relied_on
from torchjit_fx import breaks
from torchjit_fx.followed_classes import is_wrapper
from torchjit_fx.records import TensorRecord, Wrapping

__all__ = [
    "DISTRIBUTED", "Assembling", "Below", "Pieces", "WholeCall", "assembled", "coerced", "described", "is_same_wrapping", "part_of", "pieces_of",
    "tensor_records",
]  # fmt: skip

_C: Any = torch._C
DISTRIBUTED = reason(
    "TJ-STORE-066",
    "a tensor that is distributed over processes",
    "Which part of it lies here, and what is sent where, is compiled into the graph of this process: another rank must not load it.",
)


def _wrapping_of(t: torch.Tensor, describe: Callable[[torch.Tensor], TensorRecord]) -> Wrapping:
    """What a tensor consists of; `describe` gives the records of its parts."""
    flattened: Any = t.__tensor_flatten__()  # type: ignore[attr-defined]
    names, context = flattened
    parts = [getattr(t, name) for name in names]
    records = tuple([describe(part) if isinstance(part, torch.Tensor) else part for part in parts])
    return Wrapping(type(t), tuple(names), records, _copied(context))


def described(t: torch.Tensor, describe: Callable[[torch.Tensor], TensorRecord]) -> TensorRecord:
    """The record of a tensor that is no plain one.

    Raises:
        GraphBreak: it is of a class that a graph cannot hold, or of a kind.
    """
    if not is_wrapper(type(t)):
        raise GraphBreak(breaks.UNSUPPORTED_TENSOR, f"a {type(t).__name__}")
    relied_on(type(t))  # its methods run where the graph is traced
    if type(t).__module__.startswith("torch.distributed"):
        never_stored(DISTRIBUTED, f"a {type(t).__name__}")
    with _C.DisableTorchFunctionSubclass():
        if t.layout is not torch.strided or t.is_conj() or t.is_neg() or t.is_inference():
            raise GraphBreak(breaks.UNSUPPORTED_TENSOR, f"a {type(t).__name__} of this layout or mode")
        # Of what the region makes they hold for the whole graph: each other size gets a graph of its own.
        sizes, strides = tuple(map(int, t.shape)), tuple(map(int, t.stride()))
        flags = (t.requires_grad, t.is_leaf, False, False, False)
        return TensorRecord(t.dtype, t.device, sizes, strides, 0, *flags, False, _wrapping_of(t, describe))


def tensor_records(record: TensorRecord) -> list[TensorRecord]:
    """The records of the plain tensors that one consists of; its own, if it is one."""
    if record.wrapping is None:
        return [record]
    parts = [part for part in record.wrapping.parts if isinstance(part, TensorRecord)]
    return [plain for part in parts for plain in tensor_records(part)]


def assembled(record: TensorRecord, pieces: Iterator[torch.Tensor]) -> Any:
    """The tensor that consists of these."""
    wrapping = record.wrapping
    if wrapping is None:
        return next(pieces)
    parts = [assembled(part, pieces) if isinstance(part, TensorRecord) else part for part in wrapping.parts]
    inner = dict(zip(wrapping.names, parts, strict=True))
    made = wrapping.cls.__tensor_unflatten__(inner, _copied(wrapping.context), torch.Size(record.sizes), record.strides)  # type: ignore[arg-type]
    return made.detach() if made.requires_grad and not torch.is_grad_enabled() else made


def pieces_of(t: Any, wrapping: Wrapping | None) -> list[torch.Tensor]:
    """The plain tensors that a tensor consists of."""
    if wrapping is None:
        return [t]
    parts = zip(wrapping.names, wrapping.parts, strict=True)
    inner = [(getattr(t, name), part.wrapping) for name, part in parts if isinstance(part, TensorRecord)]
    return [piece for part, of_part in inner for piece in pieces_of(part, of_part)]


def is_same_wrapping(t: Any, wrapping: Wrapping) -> bool:
    """Does a tensor consist of parts of the same kinds, by the same context?"""
    if type(t) is not wrapping.cls:
        return False
    names, context = t.__tensor_flatten__()
    if tuple(names) != wrapping.names or not _equal(context, wrapping.context):
        return False
    for name, part in zip(names, wrapping.parts, strict=True):
        found = getattr(t, name)
        if not isinstance(part, TensorRecord):
            if not _equal(found, part):
                return False
        elif part.wrapping is not None:
            if not is_same_wrapping(found, part.wrapping):
                return False
        elif not isinstance(found, torch.Tensor):
            return False
    return True


def _copied(context: Any) -> Any:
    """A context of its own: the program may change the containers in it."""
    cls = type(context)
    if cls is dict:
        return {key: _copied(value) for key, value in context.items()}
    if cls is list:
        return [_copied(item) for item in context]
    if cls is tuple:
        return tuple([_copied(item) for item in context])
    return set(context) if cls is set else context


def _equal(a: Any, b: Any) -> bool:
    """Equal and of the same types throughout; what cannot be compared is not."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, torch.Tensor):
        return False
    if type(a) is dict:
        return list(a) == list(b) and all(_equal(a[key], b[key]) for key in a)
    if type(a) in (list, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    with contextlib.suppress(Exception):  # the objects are the program's
        return bool(a == b)
    return False


# ---- in graphs, and around them


@final
class Below:
    """Calls a function without asking the classes of its arguments, as `DisableTorchFunctionSubclass` does: they were asked."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = getattr(function, "__name__", "call")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _C.DisableTorchFunctionSubclass():
            return self.function(*args, **kwargs)


@final
class WholeCall:
    """Calls a function with constants of the program among its arguments.

    Args:
        function: what is called.
        place: gives its arguments, with these tensors in their places.
    """

    def __init__(
        self, function: Callable[..., Any], place: Callable[[Iterator[torch.Tensor]], tuple[Any, dict[str, Any]]]
    ) -> None:
        self.function = function
        self.place = place
        self.__name__ = function.__name__

    def __call__(self, *tensors: torch.Tensor) -> Any:
        args, kwargs = self.place(iter(tensors))
        return self.function(*args, **kwargs)


def part_of(whole: Any, name: str) -> Any:
    """One of the tensors that a tensor consists of."""
    return getattr(whole, name)


@final
class Assembling:
    """Puts a tensor together out of plain ones.

    If it takes part in autograd, the first argument is the carrier: a tensor with its sizes that has no memory, for gradients that
    are plain tensors.

    Attributes:
        record: of the tensor.
        gradient: of the gradient that a backward last gave, where that consists of others; None: it was plain.
    """

    def __init__(self, record: TensorRecord) -> None:
        self.record = record
        self.gradient: TensorRecord | None = None
        self.__name__ = f"assemble_{record.wrapping.cls.__name__}"  # type: ignore[union-attr]

    def __call__(self, *pieces: torch.Tensor) -> torch.Tensor:
        return _with_history(_Assemble, self, pieces)

    def taken_apart(self, whole: torch.Tensor) -> list[torch.Tensor]:
        """The reverse, for autograd, too: the carrier, and the plain tensors."""
        with torch.enable_grad(), _C.DisableTorchFunctionSubclass():
            return list(_TakeApart.apply(self, whole))


def _with_history(function: Any, how: Assembling | Pieces, pieces: Iterable[torch.Tensor]) -> torch.Tensor:
    """The tensor that consists of the pieces: for autograd, where it has a part in it, by one of the functions below."""
    if not how.record.requires_grad:
        with torch.no_grad():
            return assembled(how.record, iter(pieces))  # type: ignore[no-any-return]
    with torch.enable_grad():
        return function.apply(how, *pieces)  # type: ignore[no-any-return]


class _Assemble(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, how: Assembling, carrier: torch.Tensor, *pieces: torch.Tensor) -> Any:
        ctx.how, ctx.count = how, len(pieces)
        return assembled(how.record, iter(pieces))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        how: Assembling = ctx.how
        cls: Any = type(gradient)
        if not is_wrapper(cls):
            how.gradient = None
            return None, gradient, *[None] * ctx.count
        how.gradient = described(gradient, _bare_record)
        pieces = pieces_of(gradient, how.gradient.wrapping)
        if len(pieces) != ctx.count:
            raise RuntimeError(
                f"a gradient of {type(gradient).__name__} that consists of other tensors than what it is of"
            )
        return None, None, *pieces


class _TakeApart(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, how: Assembling, whole: torch.Tensor) -> Any:
        ctx.how = how
        pieces = [piece.view_as(piece) for piece in pieces_of(whole, how.record.wrapping)]
        ctx.mark_non_differentiable(*[p for p in pieces if not (p.is_floating_point() or p.is_complex())])
        ctx.set_materialize_grads(False)
        carrier = torch.empty((), dtype=whole.dtype, device=whole.device).expand(whole.shape)
        return carrier, *pieces

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        carried, *pieces = gradients
        record = ctx.how.gradient
        if record is None:
            return None, carried
        return None, assembled(record, iter(pieces))


def _bare_record(t: torch.Tensor) -> TensorRecord:
    cls: Any = type(t)
    if is_wrapper(cls):
        return described(t, _bare_record)
    return TensorRecord(t.dtype, t.device, tuple(t.shape), t.stride(), 0, False, True, False, False, False, False)


@final
class Pieces:
    """Takes a result apart at the graph's end; around the graph it is put together again.

    Attributes:
        record: of the result.
        tangent: of the gradient that it is given in a backward.
    """

    def __init__(self, record: TensorRecord, tangent: TensorRecord) -> None:
        self.record = record
        self.tangent = tangent
        self.__name__ = "pieces"

    def __call__(self, whole: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if not self.record.requires_grad:
            return tuple(pieces_of(whole, self.record.wrapping))
        with torch.enable_grad():
            return tuple(_Pieces.apply(self, whole))

    def together(self, pieces: Iterable[torch.Tensor]) -> torch.Tensor:
        """The result, for autograd, too."""
        return _with_history(_Together, self, pieces)


class _Pieces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, how: Pieces, whole: torch.Tensor) -> Any:
        ctx.how = how
        return tuple([piece.view_as(piece) for piece in pieces_of(whole, how.record.wrapping)])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, assembled(ctx.how.tangent, iter(gradients))


class _Together(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, how: Pieces, *pieces: torch.Tensor) -> Any:
        ctx.how = how
        return assembled(how.record, iter(pieces))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        wrapping: Wrapping = ctx.how.tangent.wrapping
        return None, *pieces_of(coerced(gradient, wrapping), wrapping)


def coerced(gradient: Any, wrapping: Wrapping) -> Any:
    """A gradient as the backward was compiled for.

    Raises:
        RuntimeError: it cannot be made so.
    """
    if is_same_wrapping(gradient, wrapping):
        return gradient
    coerce = getattr(gradient, "__coerce_same_metadata_as_tangent__", None)
    made = (
        None if coerce is None else coerce(wrapping.context, None if type(gradient) is wrapping.cls else wrapping.cls)
    )
    if made is None:
        raise RuntimeError(
            f"the backward of a compiled graph is given a {type(gradient).__name__} as the gradient of a "
            f"{wrapping.cls.__name__}: {breaks.WRAPPER_TANGENT.id}"
        )
    return made
