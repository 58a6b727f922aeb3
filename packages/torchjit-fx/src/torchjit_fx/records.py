"""Meta records: everything about a tensor that its data does not decide, interned.

Equal records are one object, so that a metadata lookup hashes and compares them by identity.
"""

from __future__ import annotations

from typing import Any, final

import attrs
import torch

from torchjit_core.expr import Expr
from torchjit_fx.followed_classes import is_followed

__all__ = ["DETACHED", "RecordTable", "TensorRecord", "Wrapping", "is_structseq", "key_set_of", "kind_of"]

Dim = int | Expr
DETACHED = 2
"""Of an inference tensor that was detached outside of inference mode: it may be written to there."""

_PLAIN_TYPES = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})


@final
@attrs.frozen(eq=False)
class TensorRecord:
    """Metadata of a dense tensor.

    Attributes:
        dtype, device: as torch has them; the device has its index.
        sizes, strides: ints, or expressions where symbolic. Strides and `offset` count elements.
        offset: from the start of the storage; inputs of a graph count from their own start (see `CallDomain.input`).
        requires_grad, is_leaf: as autograd has them.
        conj, neg: the lazy conjugate and negative bits.
        inference: made under inference mode: false, true, or `DETACHED`.
        symbolic: some size, stride or the offset is an expression.
        wrapping: of a tensor that consists of others; such records are not interned.
    """

    dtype: torch.dtype
    device: torch.device
    sizes: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    offset: Dim
    requires_grad: bool
    is_leaf: bool
    conj: bool
    neg: bool
    inference: int
    symbolic: bool
    wrapping: Wrapping | None = None


@final
@attrs.frozen(eq=False)
class Wrapping:
    """What a tensor of a wrapper subclass consists of, as its `__tensor_flatten__` says.

    Attributes:
        cls: the class.
        names: of the attributes that hold the parts.
        parts: for each, the record of a tensor, or the object that it is (a `DeviceMesh`).
        context: what the class needs besides to put the tensor together; a copy.
    """

    cls: Any
    names: tuple[str, ...]
    parts: tuple[Any, ...]
    context: Any


@final
class RecordTable:
    """Interns records."""

    __slots__ = ("_table",)

    def __init__(self) -> None:
        self._table: dict[tuple[Any, ...], TensorRecord] = {}

    def get(
        self,
        dtype: torch.dtype,
        device: torch.device,
        sizes: tuple[Dim, ...],
        strides: tuple[Dim, ...],
        offset: Dim,
        flags: tuple[bool, bool, bool, bool, int],
    ) -> TensorRecord:
        """The record with these fields; `flags` are requires_grad, is_leaf, conj, neg, inference."""
        key = (dtype, device, sizes, strides, offset, flags)
        found = self._table.get(key)
        if found is None:
            symbolic = not all(type(n) is int for n in (*sizes, *strides, offset))
            found = self._table[key] = TensorRecord(dtype, device, sizes, strides, offset, *flags, symbolic)
        return found

    def as_inference(self, r: TensorRecord, kind: int) -> TensorRecord:
        """The record of such a tensor made under inference mode, or as a view of one."""
        return self.get(r.dtype, r.device, r.sizes, r.strides, r.offset, (False, True, r.conj, r.neg, kind))

    def clear(self) -> None:
        self._table.clear()


_KINDS: dict[int, tuple[bool, bool, bool, bool]] = {}
"""By dispatch key set: plain, conj, neg, inference. The key set decides all four."""


def key_set_of(t: torch.Tensor) -> int:
    """The dispatch key set, in the form that guards compare."""
    return torch._C._dispatch_keys(t).raw_repr()


def kind_of(t: torch.Tensor, key_set: int) -> tuple[bool, bool, bool, bool]:
    """(plain, conj, neg, inference) of a tensor; plain: dense, of no transform, so that a graph can hold it.

    A tensor of another type than torch.Tensor, Parameter, Buffer and followed subclasses is not plain.
    """
    if type(t) in _PLAIN_TYPES:
        return _kind_by_keys(t, key_set)
    if not is_followed(type(t)):
        return (False, False, False, False)
    with torch._C.DisableTorchFunctionSubclass():  # its class sees nothing of this
        kind = _kind_by_keys(t, key_set)
    return (kind[0] and not kind[3], *kind[1:])


def _kind_by_keys(t: torch.Tensor, key_set: int) -> tuple[bool, bool, bool, bool]:
    found = _KINDS.get(key_set)
    if found is None:
        plain = t.layout is torch.strided and not t.is_nested and not t.is_quantized
        plain = plain and not torch._C._functorch.is_functorch_wrapped_tensor(t)
        found = _KINDS[key_set] = (plain, t.is_conj(), t.is_neg(), t.is_inference())
    return found


def is_structseq(cls: type) -> bool:
    """Is this one of torch's named result types (`torch.return_types.max`)?"""
    return issubclass(cls, tuple) and cls.__module__ == "torch.return_types"
