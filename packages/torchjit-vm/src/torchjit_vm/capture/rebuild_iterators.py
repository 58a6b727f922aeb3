"""Iterators in emitted code: made over what they iterate over, and advanced to where they stand."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from torchjit_core.reasons import GraphBreak
from torchjit_vm.capture import dicts, iteration, runtime
from torchjit_vm.capture.coroutines import AwaitIterator
from torchjit_vm.capture.reasons import REBUILD
from torchjit_vm.capture.rebuild_containers import storage_class
from torchjit_vm.capture.values import Const, DictValue, Obj, SetValue

if TYPE_CHECKING:
    from torchjit_vm.capture.rebuild import Rebuilder

__all__ = ["iterator_expr"]


def iterator_expr(out: Rebuilder, value: iteration.IteratorValue) -> str:
    if isinstance(value, iteration.SequenceIterator):
        sequence = out.expr(value.sequence)
        if value.index >= 1 << 62:
            return "iter(())"
        if value.size >= 0:
            return _deque_iterator(out, value, sequence)
        return _sequence_iterator(out, value, sequence)
    if isinstance(value, iteration.RangeIterator):
        return f"iter({value.range[value.index :]!r})"
    if isinstance(value, iteration.ListIterator):
        return _owned_iterator(out, value)
    if isinstance(value, iteration.EnumerateIterator):
        return f"enumerate({out.expr(value.inner)}, {value.count})"
    if isinstance(value, iteration.ZipIterator):
        strict = ", strict=True" if value.strict else ""
        return f"zip({out.join(value.inner)}{strict})"
    if isinstance(value, iteration.MapIterator):
        return f"map({out.expr(value.function)}, {out.join(value.inner)})"
    if isinstance(value, iteration.FilterIterator):
        return f"filter({'None' if value.function is None else out.expr(value.function)}, {out.expr(value.inner)})"
    if isinstance(value, iteration.RealIterator):
        if value.repeated is not None:
            return f"{out.runtime(itertools.repeat)}({out.expr(value.repeated)})"
        return f"{out.runtime(itertools.count)}{value.source.__reduce__()[1]!r}"
    if isinstance(value, iteration.Indexing):
        start = out.runtime(runtime.list_iterator)
        return f"{start}({out.expr(value.sequence)}, {value.index})"
    if isinstance(value, AwaitIterator):
        return f"{out.expr(value.coroutine)}.__await__()"
    if isinstance(value, iteration.ChainIterator):
        chain = out.runtime(itertools.chain)
        rest = f"{chain}.from_iterable({out.expr(value.pending)})"
        return rest if value.current is None else f"{chain}({out.expr(value.current)}, {rest})"
    raise GraphBreak(REBUILD, type(value).__name__, out.domain.location())


def _sequence_iterator(out: Rebuilder, value: iteration.SequenceIterator, sequence: str) -> str:
    """Over a list or tuple. Its position is set when the sequence has its items: C does not take one behind the end."""
    if value.step < 0 and value.index < 0:
        return "iter(())"
    if value.sequence in out.domain.touched or value.sequence in out.early:
        start = "list.__reversed__" if value.step < 0 else "iter"
        name = out.assign(f"{start}({sequence})")
        if value.index or value.step < 0:
            out.at_end(f"{name}.__setstate__({value.index})")
        return name
    if value.step < 0:
        return f"{out.runtime(runtime.reversed_iterator)}({sequence}, {value.index})"
    return f"{out.runtime(runtime.list_iterator)}({sequence}, {value.index})" if value.index else f"iter({sequence})"


def _owned_iterator(out: Rebuilder, value: iteration.ListIterator) -> str:
    """Over what is left of a dict or set; the real iterator notices when its size changes."""
    owner, rest = value.owner, value.items[value.index :]
    if isinstance(owner, Obj) and value.stale(out.domain):
        entries = owner.entries or {}
        size = sum(e is not None for e in entries.values())
        if isinstance(owner, DictValue):
            size = dicts.dict_length(out.domain, owner)
        return f"{out.runtime(runtime.stale_iterator)}({out.expr(owner)}, {size})"
    if isinstance(owner, DictValue) and not value.done and owner not in out.domain.touched:
        keys = [entry[0] for entry in owner.entries.values() if entry is not None]
        if owner.loaded and value.kind != "reversed" and (value.kind != "keys" or keys == value.items):
            storage, held = storage_class(owner.cls), out.expr(owner)
            # A mapping proxy asks what it is for; a class of dictionaries may have a method of that name.
            view = f"{held}.{value.kind}()" if storage is object else f"{out.runtime(storage)}.{value.kind}({held})"
            return f"{out.runtime(runtime.advanced)}(iter({view}), {value.index})"
    constant = all(type(item) is Const for item in value.items)  # else a set's order may be another one
    if isinstance(owner, SetValue) and constant and not value.done and owner not in out.domain.touched:
        return f"{out.runtime(runtime.advanced)}(iter({out.expr(owner)}), {value.index})"
    return f"iter([{out.join(rest)}])"


def _deque_iterator(out: Rebuilder, value: iteration.SequenceIterator, sequence: str) -> str:
    if value.stale(out.domain):
        return f"{out.runtime(runtime.stale_iterator)}({sequence}, {len(value.sequence.items or ())})"
    if value.sequence in out.domain.touched:  # which is written to later than here
        return f"iter([{out.join((value.sequence.items or [])[value.index :])}])"
    return f"{out.runtime(runtime.advanced)}(iter({sequence}), {value.index})"
