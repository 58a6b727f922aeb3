"""Iterators in emitted code: made over what they iterate over, and advanced to where they stand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from torchjit_vm.capture import dicts, iteration, runtime
from torchjit_vm.capture.coroutines import AwaitIterator
from torchjit_vm.capture.objects.dict import storage_class
from torchjit_vm.capture.raw import to_raw
from torchjit_vm.capture.rebuild import Rebuilder
from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.values import Const, DictValue, SetValue

__all__: list[str] = []


def _rebuild_sequence(out: Rebuilder, self: iteration.SequenceIterator) -> str:
    sequence = out.expr(self.sequence)
    if self.index >= 1 << 62:
        return "iter(())"
    return (_deque_iterator if self.size >= 0 else _sequence_iterator)(out, self, sequence)


def _sequence_iterator(out: Rebuilder, self: iteration.SequenceIterator, sequence: str) -> str:
    """Over a list or tuple. Its position is set when the sequence has its items: C does not take one behind the end."""
    if self.step < 0 and self.index < 0:
        return "iter(())"
    if self.sequence in out.domain.touched or self.sequence in out.early:
        start = "list.__reversed__" if self.step < 0 else "iter"
        name = out.assign(f"{start}({sequence})")
        if self.index or self.step < 0:
            out.at_end(f"{name}.__setstate__({self.index})")
        return name
    if self.step < 0:
        return f"{out.runtime(runtime.reversed_iterator)}({sequence}, {self.index})"
    return f"{out.runtime(runtime.list_iterator)}({sequence}, {self.index})" if self.index else f"iter({sequence})"


def _owned_iterator(out: Rebuilder, self: iteration.ListIterator) -> str:
    """Over what is left of a dict or set; the real iterator notices when its size changes."""
    owner = self.owner
    if isinstance(owner, (DictValue, SetValue)) and self.stale(out.domain):
        entries = owner.entries or {}
        size = dicts.dict_length(out.domain, owner) if isinstance(owner, DictValue) else len(entries)
        return f"{out.runtime(runtime.stale_iterator)}({out.expr(owner)}, {size})"
    iterated = None if self.done or owner in out.domain.touched else _iterated(out, self)
    if iterated is None:
        return f"iter([{out.join(self.items[self.index :])}])"
    return f"{out.runtime(runtime.advanced)}(iter({iterated}), {self.index})"


def _iterated(out: Rebuilder, self: iteration.ListIterator) -> str | None:
    """What a real iterator would give the same items of; None if that is not known."""
    owner = self.owner
    if isinstance(owner, SetValue):
        constant = all(type(item) is Const for item in self.items)  # else a set's order may be another one
        return out.expr(owner) if constant else None
    if not isinstance(owner, DictValue) or not owner.loaded or self.kind == "reversed":
        return None
    if self.kind == "keys" and self.items != [entry[0] for entry in owner.entries.values() if entry is not None]:
        return None
    storage, held = storage_class(owner.cls), out.expr(owner)
    # A mapping proxy asks what it is for; a class of dictionaries may have a method of that name.
    return f"{held}.{self.kind}()" if storage is object else f"{out.runtime(storage)}.{self.kind}({held})"


def _deque_iterator(out: Rebuilder, self: iteration.SequenceIterator, sequence: str) -> str:
    if self.stale(out.domain):
        return f"{out.runtime(runtime.stale_iterator)}({sequence}, {len(self.sequence.items or ())})"
    if self.sequence in out.domain.touched:  # which is written to later than here
        return f"iter([{out.join((self.sequence.items or [])[self.index :])}])"
    return f"{out.runtime(runtime.advanced)}(iter({sequence}), {self.index})"


def _rebuild_zip(out: Rebuilder, self: iteration.ZipIterator) -> str:
    return f"zip({out.join(self.inner)}{', strict=True' if self.strict else ''})"


def _rebuild_filter(out: Rebuilder, self: iteration.FilterIterator) -> str:
    return f"filter({'None' if self.function is None else out.expr(self.function)}, {out.expr(self.inner)})"


def _rebuild_real(out: Rebuilder, self: iteration.RealIterator) -> str:
    if self.repeated is not None:
        return f"{out.runtime(itertools.repeat)}({out.expr(self.repeated)})"
    return f"{out.runtime(itertools.count)}{self.source.__reduce__()[1]!r}"


def _rebuild_indexing(out: Rebuilder, self: iteration.Indexing) -> str:
    """Its position is set when a changed sequence has its items."""
    sequence = out.expr(self.sequence)
    if self.sequence not in out.domain.touched:
        return f"{out.runtime(runtime.list_iterator)}({sequence}, {self.index})"
    name = out.assign(f"iter({sequence})")
    out.at_end(f"{name}.__setstate__({self.index})")
    return name


def _rebuild_chain(out: Rebuilder, self: iteration.ChainIterator) -> str:
    chain = out.runtime(itertools.chain)
    rest = f"{chain}.from_iterable({out.expr(self.pending)})"
    return rest if self.current is None else f"{chain}({out.expr(self.current)}, {rest})"


_EXPRESSIONS: dict[type[iteration.IteratorValue], Callable[[Rebuilder, Any], str]] = {
    iteration.SequenceIterator: _rebuild_sequence,
    iteration.RangeIterator: lambda out, self: f"iter({self.range[self.index :]!r})",
    iteration.ListIterator: _owned_iterator,
    iteration.EnumerateIterator: lambda out, self: f"enumerate({out.expr(self.inner)}, {self.count})",
    iteration.ZipIterator: _rebuild_zip,
    iteration.MapIterator: lambda out, self: f"map({out.expr(self.function)}, {out.join(self.inner)})",
    iteration.FilterIterator: _rebuild_filter,
    iteration.RealIterator: _rebuild_real,
    iteration.Indexing: _rebuild_indexing,
    AwaitIterator: lambda out, self: f"{out.expr(self.coroutine)}.__await__()",
    iteration.ChainIterator: _rebuild_chain,
}


def _named(expression: Callable[[Rebuilder, Any], str]) -> Callable[[Rebuilder, Any], str]:
    return lambda out, self: out.assign(expression(out, self))


register(
    iteration.IteratorValue,
    TypeSlots(
        type_of=lambda domain, self: self.python_type,
        raw=lambda domain, self: [to_raw(domain, v) for v in domain.unpack_all(self)],
    ),
)
register(
    iteration.RealIterator,
    TypeSlots(type_of=lambda domain, self: itertools.count if self.repeated is None else itertools.repeat),
)
for _kind, _expression in _EXPRESSIONS.items():
    register(_kind, TypeSlots(rebuild=_named(_expression)))
