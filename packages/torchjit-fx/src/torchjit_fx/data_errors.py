"""Operations that raise for what is in their tensors, in a `try` of the program.

In a graph they raise when it runs, past the program's `except`. Then the region's own code runs in its place, and shows where the
error goes. For that the graph must raise wherever the operation does, whatever a compiler makes of it: a step of its own tests the
indices, or sees to it that the operation runs as a whole. Where that is not known, or the code may not run in the graph's place,
the operations run for real, between two graphs.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, final

import torch
import torch.nn.functional as F

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.assertions import FINISHED, IN_RANGE
from torchjit_fx.flatten import map_raw
from torchjit_fx.leaves import SymLeaf, TensorLeaf

if TYPE_CHECKING:
    from torchjit_fx.domain import TensorDomain
    from torchjit_fx.protocols import CaptureContext
    from torchjit_fx.tracing import Recorder

__all__ = ["CaughtErrors", "may_raise"]

_ALONG = (
    "gather", "index_select", "index_add", "index_add_", "index_copy", "index_copy_", "scatter", "scatter_", "scatter_add",
    "scatter_add_", "scatter_reduce", "scatter_reduce_",
)  # fmt: skip
"""They take a dimension and indices into it, none of them negative."""
_METHODS = (
    "cholesky", "inverse", "multinomial", "take", "index_put", "index_put_", "cholesky_solve", "take_along_dim", "bernoulli",
)  # fmt: skip
_LINEAR_ALGEBRA = (
    "cholesky", "inv", "solve", "eig", "eigh", "eigvals", "eigvalsh", "svd", "svdvals", "lstsq", "pinv", "lu_solve", "ldl_factor",
    "tensorinv", "tensorsolve", "matrix_rank",
)  # fmt: skip
_LOSSES = (
    "embedding", "embedding_bag", "nll_loss", "cross_entropy", "binary_cross_entropy", "ctc_loss", "one_hot", "multi_margin_loss",
    "gumbel_softmax", "grid_sample",
)  # fmt: skip


def _functions(*spaces: tuple[Any, tuple[str, ...]]) -> frozenset[Any]:
    found = [getattr(space, name, None) for space, names in spaces for name in names]
    return frozenset(f for f in found if f is not None)


_ALONG_DIMENSION = _functions((torch.Tensor, _ALONG), (torch, _ALONG))
_CLASSES = frozenset({F.cross_entropy, F.nll_loss})
_INDEXING = _ALONG_DIMENSION | _CLASSES | {F.embedding}
_ITEMS = frozenset({operator.getitem, operator.setitem, torch.Tensor.__getitem__, torch.Tensor.__setitem__})
_PUTS = _functions((torch.Tensor, ("index_put", "index_put_")), (torch, ("index_put", "index_put_")))
_AS_A_WHOLE = _functions(
    (torch, ("cholesky", "inverse", "multinomial")),
    (torch.Tensor, ("cholesky", "inverse", "multinomial")),
    (torch.linalg, _LINEAR_ALGEBRA),
)
"""Compilers call them as they are."""
_RAISING = _INDEXING | _functions(
    (torch.Tensor, _METHODS), (torch, _METHODS), (torch.linalg, _LINEAR_ALGEBRA), (F, _LOSSES), (torch, _LOSSES)
)


def may_raise(fn: Any, args: tuple[Any, ...]) -> bool:
    """May this function, or method given by its name, raise for what is in its tensors? GPUs find an index out of range too late for that."""
    if isinstance(fn, str):
        fn = getattr(torch.Tensor, fn, None)
    if fn in _ITEMS:
        return len(args) > 1 and _is_read(args[1]) and not _on_a_device(args)
    return fn in _RAISING and not (fn in _INDEXING and _on_a_device(args))


def _is_read(index: Any) -> bool:
    items = index if isinstance(index, tuple | list) else (index,)
    return any(isinstance(i, TensorLeaf) and i.record.dtype is not torch.bool for i in items)


def _on_a_device(args: tuple[Any, ...]) -> bool:
    return isinstance(args[0], TensorLeaf) and args[0].record.device.type != "cpu"


@final
class CaughtErrors:
    """The operations of one region whose errors the program may catch.

    Args:
        allowed: they may be captured.

    Attributes:
        marks: of those that were.
        in_blocks: there are others in blocks that seldom catch errors: `with`, and a `try` of a library.
        tested: the indices of the call that is being done are tested.
    """

    def __init__(self, *, allowed: bool) -> None:
        self.allowed = allowed
        self.marks: list[tuple[int, GraphBreak]] = []
        self.in_blocks = False
        self.tested = False

    def call(
        self, domain: TensorDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], capture: CaptureContext
    ) -> Any:
        """Do such a call.

        Raises:
            GraphBreak: it runs for real.
        """
        recorder = domain.recorder
        why = GraphBreak(breaks.DATA_ERROR, getattr(fn, "__name__", str(fn)), capture.location())
        stays = self.allowed and capture.runs_again() and recorder.scope is None and not recorder.checkpointed
        ranges = _ranges(fn, args, kwargs) if stays and fn not in _AS_A_WHOLE else None
        if not stays or (ranges is None and fn not in _AS_A_WHOLE):
            raise why
        mark, before = capture.mark(), len(recorder.steps)
        for index, base, dim, negative, ignored in ranges or ():
            size = domain.dimension(base, dim, capture)
            recorder.add_test(IN_RANGE, (index, size, negative, ignored), capture)
        self.tested = ranges is not None
        try:
            result = domain.call_plainly(fn, args, kwargs, capture)
        except GraphBreak:
            del recorder.steps[before:]
            raise
        finally:
            self.tested = False

        def finish(leaf: Any) -> Any:
            if isinstance(leaf, TensorLeaf):
                recorder.add_test(FINISHED, (leaf,), capture)
            return leaf

        if ranges is None:
            map_raw(result, finish)
        self.marks.append((mark, why))
        return result

    def may_assert(self, recorder: Recorder, capture: CaptureContext) -> bool:
        """May an assertion be tested where its error has to come in its place?"""
        if not self.allowed or recorder.checkpointed or not capture.runs_again():
            return False
        where = capture.location()
        self.marks.append((capture.mark(), GraphBreak(breaks.DATA_DEPENDENT, "the truth of a tensor", where)))
        return True

    def settle(self, repeatable: bool, capture: CaptureContext) -> None:
        """The region ends. If its code may not run in place of its graph, the capture breaks at the first of the calls."""
        if self.marks and not repeatable:
            capture.break_at_mark(*self.marks[0])


_Range = tuple[TensorLeaf, TensorLeaf, int, bool, int | None]
"""Indices, the tensor and its dimension that they go to, may they be negative, and what else they may be."""


def _ranges(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[_Range] | None:
    """What to test before such a call; None: that is not known."""
    if fn in _ITEMS and not kwargs:
        return _of_items(args[0], args[1] if isinstance(args[1], tuple) else (args[1],))
    if fn in _PUTS:
        indices = args[1] if len(args) > 1 else kwargs.get("indices")
        return _of_items(args[0], tuple(indices)) if isinstance(indices, tuple | list) else None
    if fn is F.embedding and len(args) >= 2 and (args[3] if len(args) > 3 else kwargs.get("max_norm")) is None:
        found = _range(args[0], args[1], 0)
    elif fn in _CLASSES and len(args) >= 2 and isinstance(args[0], TensorLeaf):
        ignored = args[4] if len(args) > 4 else kwargs.get("ignore_index", -100)
        found = _range(args[1], args[0], min(len(args[0].record.sizes) - 1, 1), ignored=ignored)
    elif fn in _ALONG_DIMENSION:
        dim, index = (args[k] if len(args) > k else kwargs.get(name) for k, name in ((1, "dim"), (2, "index")))
        found = _range(index, args[0], dim)
    else:
        return None
    return None if found is None else [found]


def _of_items(base: Any, index: tuple[Any, ...]) -> list[_Range] | None:
    """Of `base[index]`."""
    if not isinstance(base, TensorLeaf):
        return None
    consumed = [_consumed(item) for item in index]
    if None in consumed or sum(item is ... for item in index) > 1:
        return None
    rank, total = len(base.record.sizes), sum(n for n in consumed if n is not None)
    dim, ranges = 0, []
    for item, n in zip(index, consumed, strict=True):
        if isinstance(item, TensorLeaf) and item.record.dtype is not torch.bool:
            found = _range(item, base, dim, negative=True)
            if found is None:
                return None
            ranges.append(found)
        dim += rank - total if item is ... else n or 0
    return ranges


def _consumed(item: Any) -> int | None:
    """How many dimensions an item of an index goes to."""
    if isinstance(item, TensorLeaf):
        return len(item.record.sizes) if item.record.dtype is torch.bool else 1
    if item is None or item is ...:
        return 0
    return 1 if type(item) in (int, slice, SymLeaf) else None


def _range(index: Any, base: Any, dim: Any, *, negative: bool = False, ignored: Any = None) -> _Range | None:
    if not (isinstance(index, TensorLeaf) and isinstance(base, TensorLeaf) and type(dim) is int):
        return None
    if ignored is not None and type(ignored) is not int:
        return None
    rank = len(base.record.sizes)
    fits = -rank <= dim < rank and index.record.dtype in (torch.int64, torch.int32, torch.int16, torch.int8)
    return (index, base, dim % rank, negative, ignored) if fits else None
