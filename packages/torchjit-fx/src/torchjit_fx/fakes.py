"""Fake tensors from records and records from fake tensors, under the one fake mode of a capture."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, final

import attrs
import torch

from torchjit_core.expr import Expr
from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.known_results import fake_tensor
from torchjit_fx.leaves import Raw
from torchjit_fx.records import DETACHED, RecordTable, TensorRecord
from torchjit_fx.versions import CaptureFakeMode, FakeTensor
from torchjit_fx.wrapper_values import assembled, described, tensor_records

__all__ = ["FakeFactory"]

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class _WithHistory(torch.autograd.Function):
    """Gives a fresh fake a grad_fn: it stands for a tensor that was computed from something requiring grad."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        return make()

    @staticmethod
    def backward(ctx: Any, *grads: Raw) -> Raw:
        raise RuntimeError("fake tensors of a capture have no backward")


@functools.cache
def _anchor() -> torch.Tensor:
    """Something that requires grad."""
    with torch.inference_mode(False):
        return torch.empty((), device="meta", requires_grad=True)


@final
@attrs.define(eq=False)
class FakeFactory:
    """Converts between records and fakes.

    Args:
        mode: the fake mode of the capture.
        records: where records are interned.
        sym_int: makes the torch.SymInt of an expression.
        expression: the expression (or int) of a torch.SymInt.
    """

    mode: CaptureFakeMode
    records: RecordTable
    sym_int: Callable[[Expr], Any]
    expression: Callable[[Any], int | Expr]

    def make(self, record: TensorRecord) -> torch.Tensor:
        """A new fake tensor with this metadata, alone on its memory."""
        if record.inference:
            with torch.inference_mode():
                return self._bare(record)
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False):
                return self._with_grad(record)
        return self._with_grad(record)

    def _with_grad(self, record: TensorRecord) -> torch.Tensor:
        if not record.requires_grad:
            return self._bare(record)
        if record.is_leaf:
            return self._bare(record).requires_grad_()
        with torch.enable_grad():
            return _WithHistory.apply(_anchor(), lambda: self._bare(record))  # type: ignore[no-any-return]

    def _bare(self, record: TensorRecord) -> torch.Tensor:
        """It as if nothing was differentiated."""
        sizes: Raw = record.sizes
        strides: Raw = record.strides
        if record.symbolic:
            sizes = [n if type(n) is int else self.sym_int(n) for n in sizes]
            strides = [n if type(n) is int else self.sym_int(n) for n in strides]
        if record.wrapping is not None:
            with self.mode, torch.no_grad():
                return assembled(record, map(self._bare, tensor_records(record)))  # type: ignore[no-any-return]
        t = fake_tensor(self.mode, sizes, strides, record.dtype, record.device)
        if record.conj or record.neg:
            with self.mode:
                t = t.conj() if record.conj else t
                return torch._neg_view(t) if record.neg else t
        return t

    def describe(self, t: torch.Tensor) -> TensorRecord:
        """The record of a fake.

        Raises:
            GraphBreak: it is sparse, nested or quantised, of a class that a graph cannot hold, or autograd refuses it.
        """
        if type(t) is not FakeTensor and type(t) not in _PLAIN:
            return described(t, self.describe)
        if t.layout is not torch.strided or t.is_nested or t.is_quantized:
            raise GraphBreak(breaks.UNSUPPORTED_TENSOR, f"the result is {t.layout}")
        sizes: tuple[Any, ...] = tuple(t.shape)
        strides: tuple[Any, ...] = t.stride()
        offset: Raw = t.storage_offset()
        if any(type(n) is not int for n in (*sizes, *strides, offset)):
            sizes = tuple(n if type(n) is int else self.expression(n) for n in sizes)
            strides = tuple(n if type(n) is int else self.expression(n) for n in strides)
            offset = offset if type(offset) is int else self.expression(offset)
        try:
            flags = (t.requires_grad, t.is_leaf, t.is_conj(), t.is_neg(), t.is_inference())
        except RuntimeError as error:  # a view whose history was cut off by a write under another grad mode
            raise GraphBreak(breaks.META_FAILED, str(error).splitlines()[0][:200]) from error
        return self.records.get(t.dtype, t.device, sizes, strides, offset, flags)

    def describe_again(self, t: torch.Tensor, before: TensorRecord) -> TensorRecord:
        """The record of a fake after a write. Fakes do not know which inference tensors were detached."""
        record = self.describe(t)
        return self.records.as_inference(record, DETACHED) if before.inference == DETACHED else record
