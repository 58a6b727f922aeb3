"""What kinds of values do together: each operation over operands of many kinds, against plain execution, in one region."""

from __future__ import annotations

import enum
import operator
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from vm_compare import check


class Items(list):  # type: ignore[type-arg]
    pass


class Claiming(list):  # type: ignore[type-arg]
    __hash__ = None

    def __eq__(self, other: object) -> Any:
        return "own"

    def __add__(self, other: object) -> Any:
        return "sum"

    def __radd__(self, other: object) -> Any:
        return "reflected sum"


class Unrepeatable(list):  # type: ignore[type-arg]
    def __mul__(self, count: object) -> Any:
        return NotImplemented


class Pair(tuple):  # type: ignore[type-arg]
    pass


class Name(str):
    pass


class Count(int):
    pass


class Level(enum.IntEnum):
    TWO = 2


class Holder:
    def __init__(self) -> None:
        self.a = 1


class Namespace(types.SimpleNamespace):
    pass


class Single(dict):  # type: ignore[type-arg]
    __hash__ = None

    def __eq__(self, other: Any) -> Any:
        return super().__eq__(other) and len(other) == 1


class Unordered:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> Any:
        return NotImplemented

    def __lt__(self, other: object) -> Any:
        return NotImplemented


class Number:
    def __index__(self) -> int:
        return 2


class Reflected:
    def __radd__(self, other: object) -> Any:
        return ("radd", other)

    def __ror__(self, other: object) -> Any:
        return ("ror", other)

    def __rmul__(self, other: object) -> Any:
        return ("rmul", other)


class Declining:
    """Its methods have no answer."""

    def __add__(self, other: object) -> Any:
        return NotImplemented

    def __imul__(self, other: object) -> Any:
        return NotImplemented


class Union(set):  # type: ignore[type-arg]
    def __or__(self, other: object) -> Any:
        return NotImplemented

    def __ror__(self, other: object) -> Any:
        return "ror"


def outcomes(operation: Callable[[Any, Any], Any], pairs: Sequence[tuple[Any, Any]]) -> list[Any]:
    found: list[Any] = []
    for left, right in pairs:
        try:
            found.append(operation(left, right))
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return found


def equality() -> Any:
    pairs: list[tuple[Any, Any]] = [
        (vars(Holder()), {"a": 1}), ({"a": 1}, vars(Holder())), (vars(Holder()), vars(Holder())),
        (Items([1]), Claiming([1])), (Claiming([1]), Items([1])), ([1], Claiming([1])), ((1,), [1]), (Items([1]), [1]),
        (types.SimpleNamespace(a=1), types.SimpleNamespace(a=1)), (types.SimpleNamespace(a=1), 1),
        (Name("a"), "a"), ("a", Name("a")), (Count(2), 2.0), (Level.TWO, 2), (Count(2), Level.TWO),
        (b"x", bytearray(b"x")), (bytearray(b"x"), "x"), ({1}, frozenset({1})), ({1}, {1: 1}.keys()), ({1}, [1]),
        ({}.values(), {}.values()), (Single(a=1), {"a": 1}), ({"a": 1}, Single(a=1)), (OrderedDict(a=1), {"a": 1}),
        (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)), (Unordered(), 1), (slice(1), slice(1)), ([].append, [].append),
    ]  # fmt: skip
    return outcomes(operator.eq, pairs), outcomes(operator.ne, pairs)


def order() -> Any:
    pairs: list[tuple[Any, Any]] = [
        (Items([1]), [2]), ([1], (1,)), ({}, {}), ({1}, {1, 2}), ({1}, [1]), ({1: 2}.items(), {(1, 2)}),
        (Name("a"), 1), (1, Name("a")), (1, bytearray(b"")), (bytearray(b"a"), 1), (bytearray(b"a"), b"b"),
        (b"a", bytearray(b"b")), (slice(1), 3), (slice(1, 2), slice(1, 3)), (Count(3), "x"), (1.5, Count(2)),
        ({}.keys(), 1), (Unordered(), 1), (1, Unordered()), (object, 1), (deque([1]), deque([2])),
    ]  # fmt: skip
    return outcomes(operator.lt, pairs), outcomes(operator.ge, pairs)


def methods_of_c() -> Any:
    return dict.__eq__({}, 1), set.__lt__({1}, {1, 2}), deque([1]).__eq__(deque([1])), OrderedDict(a=1).__eq__({"a": 1})


def sums_and_products() -> Any:
    pairs: list[tuple[Any, Any]] = [
        ([1], [2]), ([1], (2,)), ((1,), (2,)), (Items([1]), [2]), ([1], Claiming([2])), (Claiming([2]), 1), ([1], Reflected()),
        (Pair((1,)), (2,)), (deque([1], 2), deque([2, 3])), (deque([1]), [1]), (b"a", bytearray(b"b")), (bytearray(b"a"), b"b"),
        (bytearray(b"a"), 1), ("a", 1), (None, [1]), ([1], None), ("a", Reflected()), ([1], 2), (2, [1]), ([1], Number()),
        (Number(), [1]), ([1], 1.5), ("a", Number()), (Number(), "a"), (b"a", True), (Declining(), 1), (1, Declining()),
        (Declining(), Declining()), (deque([1, 2], 3), 2), (2, bytearray(b"ab")),
    ]  # fmt: skip
    repeated: list[tuple[Any, Any]] = [
        ([1], Level.TWO), (Level.TWO, (1,)), (Pair((1,)), 2), (Unrepeatable([1]), 2), (Count(3), "ab"), (Name("a"), "b"),
    ]  # fmt: skip
    return outcomes(operator.add, pairs), outcomes(operator.mul, pairs), outcomes(operator.mul, repeated)


def unions() -> Any:
    pairs: list[tuple[Any, Any]] = [
        ({1}, {2}), ({1}, [2]), ({1}, {2: 3}.keys()), ([1], {2: 3}.keys()), ({1: 2}.items(), {(1, 2)}), (frozenset({1}), {2}),
        ({1}, Union({2})), (Union({1}), {2}), ({1: 2}.values(), {1}), ({1: 2}.keys(), 3), ({1: 1}, {2: 2}), ({1}, Reflected()),
        ({1: 1}, OrderedDict(a=1)), (OrderedDict(a=1), {1: 1}), ({1: 1}, defaultdict(list, a=1)), (defaultdict(int), {1: 2}),
        (Single(a=1), {2: 3}), ({1: 1}, 3), ({1: 1}, [(1, 2)]), (types.MappingProxyType({1: 2}), {3: 4}), (1, [1]),
    ]  # fmt: skip
    return outcomes(operator.or_, pairs), outcomes(operator.sub, pairs)


def in_place(x: list[int]) -> Any:
    pairs: list[tuple[Any, Any]] = [
        (x, (3,)), ({1}, {2}), ({1: 2}, [(3, 4)]), ((1,), (2,)), ([1], Number()), (bytearray(b"a"), b"x"), (deque([1], 3), [2]),
        (frozenset({1}), {2}), ("a", "b"), (defaultdict(int), {1: 2}), ([1], 3), ([1], "x"), ({1}, [2]), ({1: 2}, 3), ((1,), [2]),
    ]  # fmt: skip
    added = [outcomes(f, pairs) for f in (operator.iadd, operator.ior, operator.isub)]
    repeated: list[tuple[Any, Any]] = [([1], Number())]
    return added, outcomes(operator.imul, repeated), pairs


PROGRAMS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (equality, ()), (order, ()), (methods_of_c, ()), (sums_and_products, ()), (unions, ()), (in_place, ([1, 2],)),
]  # fmt: skip


@pytest.mark.parametrize(("program", "args"), PROGRAMS, ids=[p.__name__ for p, _ in PROGRAMS])
def test_operands_of_many_kinds(program: Callable[..., Any], args: tuple[Any, ...]) -> None:
    jit = check(program, *args)
    assert [(b.reason.id, b.detail) for c in jit.captured for b in c.breaks] == []


class Counting(dict):  # type: ignore[type-arg]
    def __or__(self, other: Any) -> Any:
        return ("or", super().__or__(other))

    def __len__(self) -> int:
        return super().__len__() + 10


class Logged(list):  # type: ignore[type-arg]
    def __contains__(self, item: object) -> bool:
        return not super().__contains__(item)

    def __add__(self, other: Any) -> Any:
        return ("add", super().__add__(other))

    def __iter__(self) -> Any:
        return map(str, super().__iter__())


def methods_that_call_slots() -> Any:
    of_sets: Any = set
    counting, logged, queue = Counting(a=1), Logged([1, 2]), deque([1], 2)
    deque.__iadd__(queue, [2, 3])
    return (
        counting | {"b": 2}, len(counting), 1 in logged, logged + [3], list(logged), list.__mul__([1], 2), tuple.__add__((1,), (2,)),
        of_sets.__and__({1, 2}, {2}), of_sets.__ror__({1}, {2}), of_sets.__sub__({1}, [1]), dict.__ior__({1: 2}, {3: 4}), queue,
        deque.__contains__(queue, 3), {1: 2}.keys().__and__([1]), {1: 2}.items().__contains__((1, 2)), slice(1).__eq__(slice(1)),
        frozenset.__xor__(frozenset([1]), {2}), OrderedDict.__len__(OrderedDict(a=1)), list.__getitem__([1, 2], slice(1)),
        outcomes(list.__mul__, [([1], "x")]), outcomes(list.__getitem__, [([1], 5)]),
    )  # fmt: skip


def test_methods_that_call_slots() -> None:
    jit = check(methods_that_call_slots)
    assert [(b.reason.id, b.detail) for c in jit.captured for b in c.breaks] == []
