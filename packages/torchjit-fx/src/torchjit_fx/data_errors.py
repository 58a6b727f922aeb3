"""Operations that raise for what is in their tensors: in a `try` of the program they run for real, where it may catch the error.

In a graph they raise when it runs, past the program's `except`.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.functional as F

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.leaves import TensorLeaf

__all__ = ["may_raise", "refuse_in_try"]

_METHODS = (
    "cholesky", "inverse", "multinomial", "gather", "index_select", "take", "index_add", "index_add_", "index_copy", "index_copy_",
    "index_put", "index_put_", "scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_",
    "cholesky_solve", "take_along_dim", "bernoulli",
)  # fmt: skip
_LINEAR_ALGEBRA = (
    "cholesky", "inv", "solve", "eig", "eigh", "eigvals", "eigvalsh", "svd", "svdvals", "lstsq", "pinv", "lu_solve", "ldl_factor",
    "tensorinv", "tensorsolve", "matrix_rank",
)  # fmt: skip
_LOSSES = (
    "embedding", "embedding_bag", "nll_loss", "cross_entropy", "binary_cross_entropy", "ctc_loss", "one_hot", "multi_margin_loss",
    "gumbel_softmax", "grid_sample",
)  # fmt: skip


def _raising() -> frozenset[Any]:
    spaces = (
        (torch.Tensor, _METHODS),
        (torch, _METHODS),
        (torch.linalg, _LINEAR_ALGEBRA),
        (F, _LOSSES),
        (torch, _LOSSES),
    )
    found = [getattr(space, name, None) for space, names in spaces for name in names]
    return frozenset(f for f in found if f is not None)


_RAISING = _raising()
_ITEMS = frozenset({operator.getitem, operator.setitem, torch.Tensor.__getitem__, torch.Tensor.__setitem__})


def refuse_in_try(fn: Any, args: tuple[Any, ...], capture: Any) -> None:
    """Break the graph at a call that may raise an error which the program catches.

    Raises:
        GraphBreak: it is one.
    """
    if may_raise(fn, args) and capture.may_catch():
        raise GraphBreak(breaks.DATA_ERROR, getattr(fn, "__name__", str(fn)), capture.location())


def may_raise(fn: Any, args: tuple[Any, ...]) -> bool:
    """May this function, or method given by its name, raise for what is in its tensors?"""
    if isinstance(fn, str):
        fn = getattr(torch.Tensor, fn, None)
    return fn in _RAISING or (fn in _ITEMS and len(args) > 1 and _is_read(args[1]))


def _is_read(index: Any) -> bool:
    items = index if isinstance(index, tuple | list) else (index,)
    return any(isinstance(i, TensorLeaf) and i.record.dtype is not torch.bool for i in items)
