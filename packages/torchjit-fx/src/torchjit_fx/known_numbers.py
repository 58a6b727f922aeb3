"""Numbers in a module's state: `self.stride = torch.tensor(2)` as a buffer, read where Python needs a number.

Such a buffer of integers or truth values, on the CPU, is what it was at capture as long as its guard holds; and so is what the region
computes from it alone. Only where Python asks for the number it is taken: everything else stays a tensor. A buffer that was seen with two
values varies, and breaks the graph as any other tensor does. Tensors that the region makes of constants alone (`torch.tensor([2])`), and what it
computes from them, are known as well.
"""

from __future__ import annotations

import math
import types
from typing import Any, final

import torch

from torchjit_core.guards import ValueEquals
from torchjit_fx.assigned_data import AssignedData
from torchjit_fx.flatten import map_raw
from torchjit_fx.leaves import Function, InputLeaf, Raw, RawArgs, RawKwargs, Step, Target, TensorLeaf
from torchjit_fx.outcomes import follow
from torchjit_fx.protocols import CaptureContext, SymbolicSizes

__all__ = ["KnownNumbers"]

_MOST_ELEMENTS = 256
_MADE_OF_CONSTANTS = frozenset(
    {torch.tensor, torch.zeros, torch.ones, torch.full, torch.arange, torch.eye, torch.linspace, torch.logspace}
)
"""Factories that draw no random numbers and leave no element open."""
_INTEGERS = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})


class _Unknown(Exception):
    """The tensor depends on something else."""


@final
class KnownNumbers:
    """What one capture knows of tensors with one element."""

    def __init__(self, sizes: SymbolicSizes, assigned: AssignedData) -> None:
        self._sizes = sizes
        self._assigned = assigned
        self._found: dict[int, tuple[TensorLeaf, torch.Tensor, dict[int, InputLeaf]]] = {}
        self._steps: dict[int, tuple[Step, Any, dict[int, InputLeaf]]] = {}
        self._varying: set[int] = set()

    def value(self, leaf: TensorLeaf, capture: CaptureContext) -> Raw:
        """The number in a tensor, guarded; None if it is not known."""
        if leaf.record.device.type != "cpu" or leaf.record.sizes != ():
            return None
        found = self.tensor(leaf, capture)
        return None if found is None else found.item()

    def tensor(self, leaf: TensorLeaf, capture: CaptureContext) -> torch.Tensor | None:
        """What a small tensor holds, guarded; None if it is not known."""
        roots: dict[int, InputLeaf] = {}
        try:
            found = self._tensor(leaf, roots)
        except _Unknown:
            return None
        self._guard(roots, capture)
        return found

    def _guard(self, roots: dict[int, InputLeaf], capture: CaptureContext) -> None:
        for root in roots.values():
            path = root.path.computed(number_in)
            capture.guard(ValueEquals(path, number_in(root.real), capture.location()))

    def result(self, fn: Function, args: RawArgs, kwargs: RawKwargs, capture: CaptureContext) -> Raw:
        """What a call gives that is given known tensors only, as real tensors; None if it is not."""
        roots: dict[int, InputLeaf] = {}

        def real(arg: Raw) -> Raw:
            if not isinstance(arg, TensorLeaf):
                raise _Unknown
            return self._tensor(arg, roots)

        try:
            found = _call(fn, map_raw(args, real), map_raw(kwargs, real))
        except (_Unknown, RuntimeError):
            return None
        tensors = found if type(found) is tuple else (found,)
        if not all(type(t) is torch.Tensor and t.dtype in _INTEGERS and t.numel() <= _MOST_ELEMENTS for t in tensors):
            return None
        self._guard(roots, capture)
        return found

    def settled(
        self, args: RawArgs, kwargs: RawKwargs, capture: CaptureContext
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments of a call that needs numbers, with those that are known; None if none is."""
        changed = False

        def number(leaf: Raw) -> Raw:
            nonlocal changed
            found = (
                self.value(leaf, capture) if isinstance(leaf, TensorLeaf) and leaf.record.dtype in _INTEGERS else None
            )
            changed |= found is not None
            return leaf if found is None else found

        first = args[:1] if args and isinstance(args[0], TensorLeaf) else ()
        rest = map_raw(args[len(first) :], number)
        named = {k: map_raw(v, number) for k, v in kwargs.items()}
        return ((*first, *rest), named) if changed else None

    def _tensor(self, leaf: TensorLeaf, roots: dict[int, InputLeaf]) -> torch.Tensor:
        """The real tensor.

        Raises:
            _Unknown: it depends on more than such buffers.
        """
        if leaf.record.device.type != "cpu" or (leaf.storage is not None and leaf.storage.written):
            raise _Unknown
        if isinstance(leaf, InputLeaf):
            self._check(leaf)
            roots[id(leaf)] = leaf
            return leaf.real
        found = self._found.get(id(leaf))
        if found is not None:
            roots.update(found[2])
            return found[1]
        step = leaf.step
        if step is None or not _is_small(leaf):
            raise _Unknown
        made, own = self._made_by(step)
        result = follow(made, leaf.way)
        if (
            type(result) is not torch.Tensor
            or result.shape != leaf.record.sizes
            or result.dtype is not leaf.record.dtype
        ):
            raise _Unknown
        self._found[id(leaf)] = leaf, result, own
        roots.update(own)
        return result

    def _made_by(self, step: Step) -> tuple[Any, dict[int, InputLeaf]]:
        """What a step gives, and the buffers that it hangs on."""
        known = self._steps.get(id(step))
        if known is not None:
            return known[1:]
        if step.effect or step.written or step.scope is not None or not all(map(_is_small, step.results)):
            raise _Unknown
        if not isinstance(step.target, str | types.BuiltinFunctionType):
            raise _Unknown  # a function of the program
        own: dict[int, InputLeaf] = {}
        holds_leaf = False

        def real(arg: Raw) -> Raw:
            nonlocal holds_leaf
            if not isinstance(arg, TensorLeaf):
                raise _Unknown  # a size that varies
            holds_leaf = True
            return self._tensor(arg, own)

        args, kwargs = map_raw(step.args, real), map_raw(step.kwargs, real)
        if not holds_leaf and step.target not in _MADE_OF_CONSTANTS:
            raise _Unknown  # a factory function: it may draw
        made = _call(step.target, args, kwargs)
        self._steps[id(step)] = step, made, own
        return made, own

    def _check(self, leaf: InputLeaf) -> None:
        r = leaf.entry
        if not leaf.static or r.dtype not in _INTEGERS or r.sizes != () or r.device.type != "cpu":
            raise _Unknown
        if id(leaf) in self._assigned.values:
            raise _Unknown
        if id(leaf) in self._found:
            return
        if id(leaf) in self._varying or self._sizes.varies(number_in(leaf.real), leaf.path.computed(number_in)):
            self._varying.add(id(leaf))
            raise _Unknown
        self._found[id(leaf)] = leaf, leaf.real, {}


def _call(target: Target, args: RawArgs, kwargs: RawKwargs) -> Raw:
    with torch.no_grad():
        if isinstance(target, str):
            return getattr(args[0], target)(*args[1:], **kwargs)
        return target(*args, **kwargs)


def _is_small(leaf: TensorLeaf) -> bool:
    r = leaf.record
    if r.sizes == ():
        return True
    whole = [n for n in r.sizes if type(n) is int]
    return len(whole) == len(r.sizes) and math.prod(whole) <= _MOST_ELEMENTS


def number_in(tensor: torch.Tensor) -> int | bool:
    """What a guard compares."""
    return tensor.item()  # type: ignore[return-value]
