"""NumPy arrays that a region makes.

What depends on no tensor is computed by NumPy itself at capture, on an array that is the capture's own: an *array of constants*. Once
torch sees its memory, or it comes from a tensor (`tensor.numpy()`), the array is a tensor of the graph, see `numpy_graph`.
Where an array leaves the region, the run makes a real one: a copy of the constants, or the tensor's `numpy()`.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any, final

import attrs
import torch

from torchjit_core.forks import caught_warnings
from torchjit_core.guards import TypeIs
from torchjit_core.paths import AccessPath
from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.leaves import Function, InputLeaf, Raw, RawArgs, RawKwargs, TensorLeaf
from torchjit_fx.numpy.facts import FOLDED, IN_PLACE, NUMPY_SCALARS, PLAIN_ATOMS, WRITING, numpy_module
from torchjit_fx.protocols import CaptureContext

__all__ = ["ArrayLeaf", "Arrays", "holds_array", "is_captured", "name_of", "with_arrays"]

_np = numpy_module
_MOST_BYTES = 1 << 24
"""Of an array of constants, which the graph holds."""

_OPERATORS = frozenset(
    {operator.getitem, operator.setitem, operator.delitem, operator.contains, len, float, int, bool, complex, abs, operator.abs,
     operator.index, operator.truth, operator.not_, sum, divmod, round, min, max, operator.neg, operator.pos, operator.invert,
     operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow, operator.matmul,
     operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift, operator.eq, operator.ne, operator.lt,
     operator.le, operator.gt, operator.ge, pow, str, repr, format, *IN_PLACE}
)  # fmt: skip


@final
@attrs.define(eq=False)
class Memory:
    """What arrays of constants lie on: the array that owns it, and its tensor, once the graph has one."""

    root: Raw
    leaf: TensorLeaf | None = None


@final
@attrs.define(eq=False, repr=False)
class ArrayLeaf:
    """An array, or a NumPy scalar, of the region.

    Attributes:
        real: of an array of constants, the capture's own array.
        memory: what that lies on.
        leaf: the tensor that it is in the graph, sharing memory.
        scalar: it is a NumPy scalar, not an array.
        path: of an array that was there before, where the guards find it; `real` is this array then.
    """

    real: Raw
    memory: Memory | None
    leaf: TensorLeaf | None = None
    scalar: bool = False
    path: AccessPath | None = None

    @property
    def constant(self) -> bool:
        """Does NumPy compute with it at capture?"""
        return self.memory is not None and self.memory.leaf is None

    def __repr__(self) -> str:
        return f"<ArrayLeaf {self.real if self.leaf is None else self.leaf}>"


@final
class Arrays:
    """The arrays of one capture."""

    def __init__(self, domain: CallDomain) -> None:
        self.domain = domain
        self._known: dict[int, ArrayLeaf] = {}
        self._memories: dict[int, Memory] = {}
        self.used = False

    def type_of(self, array: ArrayLeaf) -> type:
        """What `type(x)` gives."""
        if not array.scalar:
            return _np.ndarray  # type: ignore[no-any-return]
        return torch.empty(0, dtype=array.leaf.record.dtype).numpy().dtype.type  # type: ignore[union-attr]

    # ---- arrays of constants

    def fold(self, fn: Function, args: RawArgs, kwargs: RawKwargs, capture: CaptureContext) -> Raw:
        """Let NumPy compute with constants; NotImplemented where there are others among the arguments.

        Raises:
            GraphBreak: it is not a function that only computes, warns, or fails; the run for real then shows it.
        """
        try:
            real_args = [_real(a) for a in args]
            real_kwargs = {k: _real(v) for k, v in kwargs.items()}
        except _NotConstant:
            return NotImplemented
        name = name_of(fn)
        if not (id(fn) in FOLDED or fn in _OPERATORS):
            raise GraphBreak(breaks.NUMPY, name, capture.location())
        written = id(fn) in WRITING or fn in IN_PLACE or fn is operator.setitem or "out" in kwargs
        kept: list[tuple[Any, Any]] = []
        if written:
            if self.domain.recorder.scope is not None:
                raise GraphBreak(breaks.NUMPY, f"{name} in code that runs later", capture.location())
            kept = [(m.root, m.root.copy()) for m in self._memories.values() if m.root.flags.writeable]
        try:
            with caught_warnings(), _np.errstate(divide="raise", over="raise", invalid="raise"):
                warnings.simplefilter("error")  # a warning must be seen
                result = fn(*real_args, **real_kwargs)
            return self._wrap(result)
        except Exception as error:
            for root, before in kept:
                root[...] = before
            raise GraphBreak(breaks.NUMPY, f"{name}: {error}", capture.location()) from error

    def _wrap(self, result: Raw) -> Raw:
        if type(result) is _np.ndarray:
            return self.array(result)
        if type(result) in (tuple, list) or (isinstance(result, tuple) and hasattr(result, "_fields")):
            items = [self._wrap(item) for item in result]
            return items if type(result) is list else result._make(items) if hasattr(result, "_make") else tuple(items)
        if type(result) in PLAIN_ATOMS or isinstance(result, (*NUMPY_SCALARS, _np.dtype)) or result is NotImplemented:
            return result
        raise TypeError(f"a {type(result).__name__}")

    def array(self, real: Raw) -> ArrayLeaf:
        """The leaf of an array that NumPy has made or given back."""
        found = self._known.get(id(real))
        if found is not None:
            return found
        root = real
        while type(root.base) is _np.ndarray:
            root = root.base
        if root.base is not None or real.dtype.kind not in "biufcUSMm" or root.nbytes > _MOST_BYTES:
            raise TypeError(f"an array of {real.dtype}, {root.nbytes} bytes")
        memory = self._memories.setdefault(id(root), Memory(root))
        self.used = True
        found = self._known[id(real)] = ArrayLeaf(real, memory)
        return found

    # ---- tensors

    def made(self, leaf: TensorLeaf, scalar: bool = False) -> ArrayLeaf:
        """The array on the memory of a tensor of the graph."""
        self.used = True
        return ArrayLeaf(None, None, leaf, scalar)

    def tensor(self, array: ArrayLeaf, capture: CaptureContext) -> TensorLeaf:
        """The tensor on the array's memory.

        Raises:
            GraphBreak: torch has no such tensors.
        """
        if array.leaf is None:
            array.leaf = self._view(array, capture) if array.path is None else self._read(array, array.path, capture)
        if array.leaf.record.requires_grad:
            raise GraphBreak(breaks.NUMPY, "an array of a tensor that requires grad", capture.location())
        return array.leaf

    def input(self, real: Raw, path: AccessPath, capture: CaptureContext) -> ArrayLeaf:
        """An array that was there before: nothing is relied on but its type, until a call is given it."""
        capture.guard(TypeIs(path, _np.ndarray, capture.location()))
        self.used = True
        return ArrayLeaf(real, None, path=path)

    def _read(self, array: ArrayLeaf, path: AccessPath, capture: CaptureContext) -> InputLeaf:
        leaf: InputLeaf = self.domain.input(tensor_of_array(array.real), path.computed(tensor_of_array), capture)
        self.domain.memory.add_array(leaf, capture)
        return leaf

    def _view(self, array: ArrayLeaf, capture: CaptureContext) -> TensorLeaf:
        memory: Raw = array.memory
        if memory.leaf is None:  # from here on, everything on this memory is in the graph
            for other in self._known.values():
                if other.memory is memory:
                    _layout(other, capture)
            memory.leaf = self.snapshot(memory.root, capture)
        layout = _layout(array, capture)
        if layout == _layout(ArrayLeaf(memory.root, memory), capture):
            return memory.leaf  # type: ignore[no-any-return]
        return self.domain.recorder.call(torch.Tensor.as_strided, (memory.leaf, *layout), {}, capture)  # type: ignore[no-any-return]

    def constant(self, real: Raw, capture: CaptureContext) -> InputLeaf:
        """A tensor with the values that an array of constants has now; nothing may write to it."""
        try:
            values = torch.from_numpy(_np.array(real, order="K", copy=True))
        except (TypeError, ValueError) as error:
            raise GraphBreak(breaks.NUMPY, str(error), capture.location()) from error
        leaf: InputLeaf = self.domain.input(values, None, capture)
        return leaf

    def snapshot(self, real: Raw, capture: CaptureContext) -> TensorLeaf:
        """A new tensor with the values that an array of constants has now."""
        return self.domain.recorder.call(torch.clone, (self.constant(real, capture),), {}, capture)  # type: ignore[no-any-return]

    # ---- the end of a region

    def makers(
        self, asked: Sequence[ArrayLeaf], place: Callable[[TensorLeaf], int], capture: CaptureContext
    ) -> list[Callable[[Any, Any], Any]]:
        """For each array a function of the graph's results and a dict of one run that makes the real array.

        Args:
            asked: the arrays.
            place: asks the graph for a tensor, and gives its place among the results.
        """
        return [
            _constants(a) if a.constant else _of_result(place(a.leaf or self._view(a, capture)), a.scalar)
            for a in asked
        ]


def tensor_of_array(array: Raw) -> torch.Tensor:
    """The tensor on an array's memory, for guards and as the input of a graph.

    Raises:
        TypeError: torch has none, or the array cannot be written.
    """
    if not is_captured(array):
        raise TypeError(f"a graph takes no such {type(array).__name__}")
    return torch.from_numpy(array)


def is_captured(array: Raw) -> bool:
    """Can a graph take this array?"""
    if _np is None or type(array) is not _np.ndarray or array.dtype.kind not in "bifuc" or not array.dtype.isnative:
        return False
    size = array.dtype.itemsize
    return (
        size <= _MOST_ITEM[array.dtype.kind]
        and array.flags.writeable
        and all(n >= 0 and n % size == 0 for n in array.strides)
    )


_MOST_ITEM = {"b": 1, "i": 8, "f": 8, "u": 1, "c": 16}
"""Bytes of the largest type of each kind that torch computes with."""


def with_arrays(target: Callable[..., Any] | None, makers: list[Callable[[Any, Any], Any]]) -> Function:
    """`target`, whose results are followed by the arrays that the makers make."""

    def run(*inputs: Raw) -> Raw:
        results = () if target is None else target(*inputs)
        roots: dict[int, Any] = {}
        return [*results, *[make(results, roots) for make in makers]]

    return run


def _layout(array: ArrayLeaf, capture: CaptureContext) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Sizes, strides and offset of a view, as torch counts them.

    Raises:
        GraphBreak: torch has no such view.
    """
    real, root = array.real, array.memory.root  # type: ignore[union-attr]
    size = real.dtype.itemsize
    offset = real.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    if real.dtype != root.dtype or any(n < 0 or n % size for n in (*real.strides, offset)):
        raise GraphBreak(breaks.NUMPY, "a view that torch has not", capture.location())
    if not real.flags.writeable:
        raise GraphBreak(breaks.NUMPY, "an array that is not writeable", capture.location())
    return real.shape, tuple(n // size for n in real.strides), offset // size


def name_of(fn: Function) -> str:
    """How reports call it."""
    return str(getattr(fn, "__qualname__", None) or getattr(fn, "__name__", repr(fn)))


def _of_result(place: int, scalar: bool) -> Callable[[Any, Any], Any]:
    def make(results: Raw, roots: dict[int, Any]) -> Raw:
        array = results[place].detach().numpy()
        return array[()] if scalar else array

    return make


def _constants(array: ArrayLeaf) -> Callable[[Any, Any], Any]:
    memory: Raw = array.memory
    root, real = memory.root, array.real
    offset = real.__array_interface__["data"][0] - root.__array_interface__["data"][0]

    def make(results: Raw, roots: dict[int, Any]) -> Raw:
        fresh = roots.get(id(root))
        if fresh is None:
            fresh = roots[id(root)] = _np.array(root, order="K", copy=True)
            fresh.flags.writeable = root.flags.writeable
        if real is root:
            return fresh
        made = _np.ndarray(real.shape, real.dtype, fresh.ravel("K"), offset, real.strides)
        made.flags.writeable = real.flags.writeable
        return made

    return make


class _NotConstant(Exception):
    """An argument that NumPy cannot compute with at capture."""


def _real(arg: Raw) -> Raw:
    """The argument for NumPy.

    Raises:
        _NotConstant: it has none.
    """
    cls = type(arg)
    if cls is ArrayLeaf:
        if arg.constant:
            return arg.real
    elif cls in PLAIN_ATOMS or isinstance(arg, (*NUMPY_SCALARS, type, _np.dtype)):
        return arg
    elif cls is tuple or cls is list:
        return cls([_real(item) for item in arg])
    elif cls is torch.Size:
        return tuple([_real(item) for item in arg])
    elif cls is slice:
        return slice(_real(arg.start), _real(arg.stop), _real(arg.step))
    raise _NotConstant


def holds_array(arg: Raw) -> bool:
    """Is an array among these arguments?"""
    cls = type(arg)
    if cls is ArrayLeaf:
        return True
    if cls is tuple or cls is list:
        return any(map(holds_array, arg))
    return cls is slice and any(map(holds_array, (arg.start, arg.stop, arg.step)))
