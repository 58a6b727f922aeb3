"""Every method of the built-in containers, numbers and strings, with fitting and unfitting arguments, against CPython.

The receiver is once an argument (real: changes are written back) and once made in the region.
"""

from __future__ import annotations

import copy
import functools
import itertools
import os
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import pytest
from vm_compare import outcome
from vm_lazy import Jit, Num

from torchjit_vm import interpret


class List(list[Any]):
    """Subclasses without methods of their own."""


class Dict(dict[Any, Any]):
    pass


class Set(set[Any]):
    pass


class Tuple(tuple[Any, ...]):
    pass


RECEIVERS: dict[str, Any] = {
    "list": [3, 1, 2, 1], "List": List([3, 1, 2, 1]), "dict": {"a": 1, "b": 2}, "Dict": Dict(a=1, b=2), "set": {1, 2, 3},
    "Set": Set([1, 2, 3]), "frozenset": frozenset([1, 2]), "tuple": (1, 2, 1), "Tuple": Tuple((1, 2, 1)),
    "deque": deque([1, 2, 3]), "bounded": deque([1, 2, 3], 3), "OrderedDict": OrderedDict(a=1, b=2),
    "defaultdict": defaultdict(list, a=1), "Counter": Counter("aab"), "str": "Abc a", "bytes": b"abca", "int": 5,
    "float": 2.5, "bool": True, "range": range(1, 9, 2), "complex": 1 + 2j,
}  # fmt: skip
ARGUMENTS: list[tuple[Any, ...]] = [
    (), (1,), ("a",), (0, 7), ("a", 7), ([1, 9],), ({"a": 5, "z": 6},), (None,), (-1,), ([("k", 1)],), ({1, 8},), (1, 2, 3), ((1, 5),),
    ("zz", None), (5,),
]  # fmt: skip
_OBJECT = {
    "__class__", "__init_subclass__", "__subclasshook__", "__new__", "__getattribute__", "__dir__", "__sizeof__", "__reduce__",
    "__reduce_ex__", "__getstate__", "__doc__", "__getnewargs__", "__repr__", "__str__", "__hash__", "__setattr__", "__delattr__",
    "__class_getitem__", "__dict__", "__weakref__", "__module__", "__init__", "__getformat__", "__set_name__", "__missing__",
}  # fmt: skip
EVERYTHING = bool(os.environ.get("TORCHJIT_ALL_METHODS"))
_ITEMS_DIFFER = {"__iter__", "__reversed__"}  # iterators that are compared by what they yield, in tests of their own


OTHER_WORDS = ("bool.", "OrderedDict.update", "OrderedDict.pop", "OrderedDict.move_to_end")
"""Where CPython's exception has other words, or none, for the subclass than for the class that implements the method."""


def kind(described: Any) -> Any:
    """The class of the exception that a call ended with, or a mark of its own."""
    (_, how), what = described[1][1]
    return what[0] if how == "raised" else object()


def names(receiver: Any) -> list[str]:
    return [n for n in dir(receiver) if n not in _OBJECT | _ITEMS_DIFFER and callable(getattr(receiver, n))]


def call_given(x: Any, receiver: Any, method: str, args: tuple[Any, ...]) -> Any:
    result = getattr(receiver, method)(*args)
    return x + 1, result, receiver


@functools.cache
def maker(name: str) -> Any:
    receiver = RECEIVERS[name]
    namespace = dict(globals())
    text = {"bounded": "deque([1, 2, 3], 3)", "defaultdict": "defaultdict(list, a=1)"}.get(name, repr(receiver))
    text = {
        "List": "List([3, 1, 2, 1])",
        "Dict": "Dict(a=1, b=2)",
        "Set": "Set([1, 2, 3])",
        "Tuple": "Tuple((1, 2, 1))",
    }.get(name, text)
    exec(
        f"def call_made(x, method, args):\n    r = {text}\n    result = getattr(r, method)(*args)\n    return x + 1, result, r\n",
        namespace,
    )
    return namespace["call_made"]


@pytest.mark.parametrize("name", RECEIVERS)
def test_every_method(name: str) -> None:
    """Equal results, changes and exceptions; on both domains."""
    different = []
    for number, (method, args) in enumerate(itertools.product(names(RECEIVERS[name]), ARGUMENTS)):
        calls: list[tuple[Any, tuple[Any, ...]]] = [
            (call_given, (Num(1), RECEIVERS[name], method, args)),
            (maker(name), (Num(1), method, args)),
        ]
        # In turns: an odd number of arguments gives every method both receivers. All of it takes twice as long.
        for function, given in calls if EVERYTHING else [calls[number % 2]]:
            label = f"{name}.{method}{args}"
            expected = outcome(function, copy.deepcopy(given))
            for run in (Jit(function), functools.partial(interpret, function)):
                actual = outcome(run, copy.deepcopy(given))
                if actual != expected and not (label.startswith(OTHER_WORDS) and kind(actual) is kind(expected)):
                    different.append(f"{label}: {expected[1]} but {actual[1]}")
    assert not different, "\n".join(d[:400] for d in different[:400])
