"""May the version tags of dicts vouch that nothing changed? Tested once, at import, on this very interpreter.

CPython (up to 3.13) gives a dict a new tag, never used before, with each change; a guard program then skips what it
looked up in a dict whose tag is the old one. In 3.13.0 writing an attribute of an object that keeps its values
inline changes the object's dict without a new tag (fixed in 3.13.1): then such dicts are
looked up every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torchjit_guards._c import dict_tag

__all__ = ["dicts_work", "instances_work"]


def _dict_changes() -> Iterator[Callable[[dict[str, Any]], Any]]:
    yield lambda d: d.__setitem__("a", object())
    yield lambda d: d.update(a=object())
    yield lambda d: d.update({"a": object(), "b": object()})
    yield lambda d: d.__ior__({"c": object()})
    yield lambda d: d.setdefault("d", object())
    yield lambda d: d.pop("d")
    yield lambda d: d.__delitem__("c")
    yield lambda d: d.popitem()
    yield lambda d: d.clear()
    yield lambda d: d.update({"x": 1, "y": 2})


def dicts_work() -> bool:
    """Is each state of a plain dict given a tag of its own?"""
    plain: dict[str, Any] = {"a": object()}
    seen = {0, dict_tag(plain)}
    for change in _dict_changes():
        change(plain)
        tag = dict_tag(plain)
        if tag in seen:
            return False
        seen.add(tag)
    for fresh in ({}, {"a": 1}, dict(plain), plain.copy(), {**plain}, {k: 1 for k in "ab"}):
        # an empty dict has nothing to vouch for; others must not share a tag
        tag = dict_tag(fresh)
        if fresh and tag in seen:
            return False
        seen.add(tag)
    return True


class _Object:
    def __init__(self) -> None:
        self.first: Any = 1
        self.second: Any = 2


def _write(obj: _Object, value: Any) -> None:
    obj.first = value


def instances_work() -> bool:
    """Does each way of writing an attribute change the tag of the object's dict, also once the bytecode is specialised?"""
    for warm in (False, True):
        obj = _Object()
        if warm:  # the interpreter specialises the store for objects without a dict first
            for i in range(64):
                _write(obj, i)
        members = obj.__dict__
        for i in range(64):
            before = dict_tag(members)
            if i % 3 == 0:
                setattr(obj, "second", object())  # noqa: B010  # the slow path of a store is what is tested
            else:
                _write(obj, object())
            if dict_tag(members) == before:
                return False
        before = dict_tag(members)
        del obj.first
        if dict_tag(members) == before:
            return False
    return True
