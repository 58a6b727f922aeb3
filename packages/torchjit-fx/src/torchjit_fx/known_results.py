"""Results of operators on fakes that one capture has met before: made again from their metadata, not by the operator.

torch has such a table for the whole process. To ask it takes half of what an operator costs that is in it, in Python that looks at 17 properties of each tensor;
a model's equal layers ask it thousands of times. The conditions here are those of torch's table (`FakeTensorMode._validate_cache_key` and
what follows it), and stricter where that costs nothing: only operators of torch that write to no argument, on tensors without values.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, TypeAlias, final

import attrs
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from torchjit_fx.eager_rules.rule import NamedValues, Overload, Sizes, Value, Values

__all__ = ["UNKNOWN", "Known", "KnownResults", "Like", "fake_tensor"]

Key: TypeAlias = "tuple[Any, ...]"
UNKNOWN = object()

_TAGS = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view})
_LIFTS = frozenset({"aten::lift", "aten::lift_fresh", "aten::lift_fresh_copy"})
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_NUMBERS = frozenset({int, float, bool, complex})
_PLAIN = frozenset({type(None), str, torch.dtype, torch.layout, torch.memory_format})


@final
class _NoKey(Exception):
    """An argument that says more than its metadata, or nothing that can be compared."""


def fake_tensor(
    mode: FakeTensorMode, sizes: Sizes, strides: Sizes, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """A new fake tensor. Without a dispatch through the mode it costs a third."""
    elements = torch.empty_strided(sizes, strides, dtype=dtype, device="meta")
    return FakeTensor(mode, elements, device)


@final
@attrs.frozen
class Like:
    """What one result is like; `offset` is None for a tensor with memory of its own, else the place in the first argument's."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    offset: int | None

    def made(self, mode: FakeTensorMode, args: Values) -> torch.Tensor:
        """A new one."""
        if self.offset is None:
            return fake_tensor(mode, self.sizes, self.strides, self.dtype, self.device)
        memory = args[0].untyped_storage()
        place = torch.empty(0, dtype=self.dtype, device="meta").set_(memory, self.offset, self.sizes, self.strides)
        return FakeTensor(mode, place, self.device)


@final
@attrs.frozen
class Known:
    """All results, in a container of this kind; None: there is one."""

    results: tuple[Like | None, ...]
    kind: type | None

    def made(self, mode: FakeTensorMode, args: Values) -> Value:
        """New results."""
        if self.kind is None:
            return self.results[0].made(mode, args)  # type: ignore[union-attr]  # the only result is a tensor
        return self.kind([None if like is None else like.made(mode, args) for like in self.results])


@final
class KnownResults:
    """Of the calls of one capture on tensors whose sizes are all known."""

    def __init__(self) -> None:
        self._known: dict[Key, Known] = {}

    def key(self, mode: FakeTensorMode, func: Overload, args: Values, kwargs: NamedValues) -> Key | None:
        """What decides on the results; None for a call that has to be made."""
        if not args or type(args[0]) not in (FakeTensor, list) or not _may_repeat(func):
            return None
        try:
            given = tuple([_key(value, mode) for value in args])
            named = tuple([(name, _key(value, mode)) for name, value in kwargs.items()]) if kwargs else ()
        except _NoKey:
            return None
        ambient = torch.get_default_dtype(), torch.is_inference_mode_enabled(), torch._C._get_default_device()
        return func, ambient, given, named

    def again(self, mode: FakeTensorMode, key: Key, args: Values) -> Value:
        """The results of a call that was made before, or `UNKNOWN`."""
        known = self._known.get(key)
        return UNKNOWN if known is None else known.made(mode, args)

    def note(self, mode: FakeTensorMode, key: Key, args: Values, results: Value) -> None:
        """Remember what a call has given, if the same can be made again."""
        # torch's references give tuples with names; who called the operator gets a plain one all the same
        kind = list if type(results) is list else tuple if isinstance(results, tuple) else None
        several = [results] if kind is None else results
        try:
            likes = _described(mode, args, several)
        except (RuntimeError, NotImplementedError):  # no strides, no memory: another layout
            return
        if likes is not None and (kind is not None or likes[0] is not None):
            self._known[key] = Known(likes, kind)


@functools.cache
def _may_repeat(func: Overload) -> bool:
    """Do the metadata of its arguments decide on its results, and does it do nothing else?"""
    if func.namespace != "aten" or func._schema.name in _LIFTS or not _TAGS.isdisjoint(func.tags):
        return False
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _COMPOSITE):  # type: ignore[no-untyped-call]
        return False  # a view sometimes
    return not any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments)


def _key(value: Value, mode: FakeTensorMode) -> Any:
    """What there is to know of an argument.

    Raises:
        _NoKey: see there.
    """
    kind = type(value)
    if kind is FakeTensor:
        if value.fake_mode is not mode or value.constant is not None:
            raise _NoKey
        return (
            value.shape, value.stride(), value.dtype, value.fake_device, value.storage_offset(), value.requires_grad,
            torch._C._dispatch_keys(value).raw_repr(), value.untyped_storage().nbytes(),
        )  # fmt: skip
    if kind in _NUMBERS:
        return kind, value
    if kind is tuple or kind is list:
        return tuple([_key(item, mode) for item in value])
    if kind in _PLAIN or (kind is torch.device and (value.type == "cpu" or value.index is not None)):
        return value
    raise _NoKey


def _described(mode: FakeTensorMode, args: Values, results: Values) -> tuple[Like | None, ...] | None:
    """What results are like; None if one is no plain tensor, or lies where a new one would not."""
    first = args[0].untyped_storage()._cdata if type(args[0]) is FakeTensor else None
    taken = {t.untyped_storage()._cdata for t in _fakes(args) if t is not args[0]} - {first}
    likes: list[Like | None] = []
    for value in results:
        if value is None:
            likes.append(None)
            continue
        if type(value) is not FakeTensor or value.constant is not None or any(value is arg for arg in args):
            return None
        memory = value.untyped_storage()._cdata
        if memory in taken:
            return None
        if memory != first:
            taken.add(memory)
        offset = int(value.storage_offset()) if memory == first else None
        like = Like(tuple(value.shape), tuple(value.stride()), value.dtype, value.fake_device, offset)
        if not _is_twin(like.made(mode, args), value):
            return None
        likes.append(like)
    return tuple(likes)


def _fakes(values: Values) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _fakes(value)


def _is_twin(made: torch.Tensor, found: torch.Tensor) -> bool:
    """Do two tensors of equal sizes and strides agree in all else?"""
    keys = torch._C._dispatch_keys
    return (
        keys(made).raw_repr() == keys(found).raw_repr()
        and made.requires_grad == found.requires_grad
        and int(made.storage_offset()) == int(found.storage_offset())
        and made.untyped_storage().nbytes() == found.untyped_storage().nbytes()
    )
