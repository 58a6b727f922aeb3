"""What random programs (`benchmarks/fuzz.py`) showed to be different from CPython, reduced."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,attr-defined,no-any-return,type-arg"

from __future__ import annotations

import collections
import enum
import functools
from typing import Any

from vm_corpus import N, program


class Bag:
    """Its items are asked for in every way that C code knows."""

    def __init__(self, log: list[Any], length: Any = 2, hint: Any = NotImplemented) -> None:
        self.log, self.length, self.hint = log, length, hint

    def __len__(self) -> Any:
        self.log.append("len")
        if isinstance(self.length, Exception):
            raise self.length
        return self.length

    def __iter__(self) -> Any:
        self.log.append("iter")
        return iter([1, 2])


class Hinted:
    def __init__(self, log: list[Any], hint: Any) -> None:
        self.log, self.hint = log, hint

    def __length_hint__(self) -> Any:
        self.log.append("hint")
        if isinstance(self.hint, Exception):
            raise self.hint
        return self.hint

    def __iter__(self) -> Any:
        return iter("ab")


class Plain:
    pass


def tried(log: list[Any], *actions: Any) -> None:
    for action in actions:
        try:
            log.append(action())
        except Exception as error:
            log.append((type(error), error.args))


@program(N(2.0), [], breaks=0)
def lengths_are_asked_for(x, log):
    for bag in (
        Bag(log),
        Bag(log, TypeError("t")),
        Bag(log, KeyError("k")),
        Bag(log, -1),
        Hinted(log, 3),
        Hinted(log, -1),
        Hinted(log, "h"),
    ):
        tried(
            log,
            lambda: list(bag),
            lambda: tuple(bag),
            lambda: sorted(bag),
            lambda: [*bag, 1],
            lambda: set(bag),
            lambda: [0].extend(bag),
            lambda: max(bag),
        )
    tried(
        log,
        lambda: Hinted(log, TypeError()).log is log,
        lambda: list(Hinted(log, ValueError("v"))),
        lambda: (lambda *a: a)(*Bag(log)),
    )
    return x + 1


@program(N(2.0), [], breaks=0)
def items_that_were_taken_stay(x, log):
    def failing():
        yield 1
        yield 2
        raise KeyError("third")

    def pairs():
        yield "a", 1
        raise ValueError("second")

    class Mapping:
        def keys(self):
            return ["p", "q"]

        def __getitem__(self, key):
            if key == "q":
                raise LookupError(key)
            return key * 2

    items: list[Any] = [0]
    found: set[Any] = {0}
    table: dict[Any, Any] = {}
    broken: list[Any] = [("c", 1), ("d",)]
    mixed: list[Any] = [5, []]
    tried(
        log,
        lambda: items.extend(failing()),
        lambda: found.update(failing()),
        lambda: table.update(pairs()),
        lambda: table.update(Mapping()),
    )
    tried(log, lambda: items.__iadd__(failing()), lambda: table.update(broken), lambda: found.update(mixed))
    return items, sorted(found), table, x + 1


@program(N(2.0), [1, 2], breaks=0)
def items_are_there_at_once(x, items):
    items.extend(len(items) for _ in range(3))
    items += (sum(items) for _ in range(2))
    return x + 1


@program(N(2.0), Plain(), breaks=0)
def attributes_that_come_back_are_last(x, given):
    given.a, given.b, given.c = 1, 2, x
    del given.a
    given.d = 3
    given.a = 4
    made = Plain()
    made.p, made.q = 1, 2
    del made.p
    made.p = x
    return list(vars(given)), list(vars(made)), made


@program(N(2.0), Plain(), breaks=1)
def attributes_of_before_that_come_back(x, given):
    given.__dict__.update(a=1, b=2)
    given.seen = float(x)  # a break: now they were there before
    value = given.a
    del given.a
    given.a = value
    return list(vars(given)), x + 1


@program(N(2.0), [], breaks=0)
def deletions_of_items(x, log):
    def delete(value, key):
        del value[key]

    for value in (0, None, 1.5, "ab", (1,), b"a", range(3), frozenset({1})):
        tried(log, lambda: delete(value, 0), lambda: delete(value, "k"))
    return x + 1


class Demanding(Exception):
    def __init__(self, code):
        super().__init__(code)


@program(N(2.0), [], breaks=0)
def thrown_into_generators(x, log):
    def generator():
        try:
            yield 1
        except TypeError as error:
            log.append(str(error))
        yield 2

    def started():
        made = generator()
        next(made)
        return made

    tried(
        log,
        lambda: generator().throw(StopIteration(3)),
        lambda: started().throw(StopIteration(3)),
        lambda: started().throw(Demanding),
    )
    tried(log, lambda: started().throw(3), lambda: generator().throw(Demanding), lambda: generator().throw(int))
    return x + 1


@program(N(2.0), [], breaks=1)
def generators_that_ended_keep_their_names(x, log):
    def generator():
        yield 1

    made = generator()
    made.close()
    log.append(made)
    return [g.__name__ for g in log], x + 1


@program(N(2.0), [], breaks=1)
def iterators_of_lists_that_grew(x, items):
    items.append(1)
    items.append(2)
    forward, backward = iter(items), reversed(items)
    next(forward), next(backward)
    holder = [forward, backward]
    holder.append(holder)
    made = [3, holder]
    holder.append(made)
    inner = iter(made)
    next(inner)
    number = float(x)
    return list(forward), list(backward), [type(i) for i in inner], number


@program(N(2.0), [], breaks=0)
def groups_of_one(x, log):
    try:
        raise KeyError("k")
    except* LookupError as group:
        log.append((group.args, type(group.args[1])))
    return x + 1


class Watching:
    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def __eq__(self, other: object) -> bool:
        self.log.append(other)
        return NotImplemented

    def __hash__(self) -> int:
        return 7


@program(N(2.0), Watching([]))
def members_of_classes_are_not_compared(x, watching):
    class Made:
        member = watching

    return Made().member is watching, x + 1


LOOKUPS = (KeyError, IndexError)


@program(N(2.0), [], breaks=0)
def tuples_of_classes_of_before(x, log, nothing=()):
    def failing(kind):
        try:
            raise kind
        except nothing:
            return "nothing"
        except LOOKUPS:
            return "lookup"

    def nested():
        try:
            raise KeyError
        except (ValueError, LOOKUPS):  # type: ignore[misc]
            return "nested"

    tried(log, lambda: failing(KeyError), lambda: failing(TypeError), nested)
    return x + 1


NAMED = {len, str.upper, list.append, int, None}


@program(N(2.0), breaks=0)
def sets_of_c_functions(x):
    return [f in NAMED for f in (len, max, str.upper, str.lower, list.append, int, float)], x + 1


@program(N(2.0), [], breaks=0)
def items_are_taken_one_by_one(x, log):
    class Number:
        def __init__(self, value):
            self.value = value

        def __radd__(self, other):
            log.append(("radd", self.value))
            return self.value

        def __gt__(self, other):
            log.append(("gt", self.value, other.value))
            return self.value > other.value

        def __lt__(self, other):
            log.append(("lt", self.value, other.value))
            return self.value < other.value

        def __hash__(self):
            log.append(("hash", self.value))
            return 5

    def some(*values, of=lambda v: v):
        for v in values:
            log.append(("item", v))
            yield of(v)

    def key(v):
        log.append(("key", v))
        return -v

    total = functools.reduce(lambda a, b: log.append((a, b)) or a + b, some(1, 2, 3))
    smallest, largest = min(some(3, 1, 2), key=key), max(some(3, 1, 2, of=Number)).value
    added = sum(some(1, 2, of=Number))
    made = len(set(some(1, 2, of=Number))), len(dict.fromkeys(some(1, 2, of=Number)))
    tried(
        log,
        lambda: collections.deque().extendleft(some(1)),
        lambda: functools.reduce(max, ()),
        lambda: max(some(), default=7),
        lambda: min([]),
    )
    return total, smallest, largest, added, made, x + 1


@program(N(2.0), [], breaks=0)
def sets_take_what_they_need(x, log):
    for name in ("issuperset", "isdisjoint", "issubset", "intersection", "difference", "union"):
        for mine in ({1, 2}, frozenset({9}), set()):
            for values in ((1, 9, 2, 3), (1, 2, 3), (), (5, 6)):
                items = iter(values)
                log.append((name, getattr(mine, name)(items), list(items), getattr(mine, name)(set(values))))
    items = iter((5, 1, 2))
    log.append(({1: 1}.keys().isdisjoint(items), list(items)))
    return x + 1


@program(N(2.0), [], breaks=0)
def keys_are_compared_once(x, log):
    class Key:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            log.append(("hash", self.n))
            return 3

        def __eq__(self, other):
            log.append((self.n, getattr(other, "n", other)))
            return isinstance(other, Key) and self.n == other.n

    table: Any = {Key(1): "a", Key(2): "b"}
    log.append((table.get(Key(1)), table[Key(2)], Key(3) in table, table.get(3)))
    table[Key(2)] = "c"
    table.setdefault(Key(4), "d")
    log.append((table.pop(Key(1)), table.pop(Key(9), None), len(table)))
    del table[Key(2)]
    some = {Key(1), Key(2), Key(1)}
    some.add(Key(2))
    some.discard(Key(1))
    log.append((Key(2) in some, len(some)))
    return x + 1


class Color(enum.Enum):
    RED = 1
    GREEN = 2

    @classmethod
    def _missing_(cls, value):
        SOUGHT.append(value)
        return cls.GREEN if value == 5 else None


SOUGHT: list[Any] = []


@program(N(2.0), [], breaks=0)
def values_that_an_enum_lacks(x, log):
    tried(log, lambda: Color(1), lambda: Color(5), lambda: Color(7), lambda: Color(Color.RED))
    found = list(SOUGHT)
    SOUGHT.clear()
    return x + 1, found


@program(N(2.0), [], breaks=0)
def what_reverse_takes(x, log):
    values: Any = (Plain(), [], None, 1.5, True, 0)
    for given in values:
        tried(log, lambda given=given: sorted([1, 2], reverse=given))
    return x + 1


@program(N(2.0), [], breaks=5)
def hooks_of_classes_with_slots(x, log):
    class Bare:
        __slots__ = ("extra",)

        def __init_subclass__(cls, tag=0):
            log.append((cls.__name__, tag, [c.__name__ for c in cls.__mro__]))

    class Wide(Bare, tag=1):
        pass

    class Narrow(Bare, tag=2):
        __slots__ = ("more",)

    class Items(list):
        def __init_subclass__(cls, **named):
            log.append((cls.__name__, named))

    class Tagged(Items, name="n"):
        __slots__ = ("z",)

    made = Wide(), Narrow(), Tagged([1])
    made[0].other, made[0].extra, made[1].more, made[2].z = 1, 2, 3, 4
    tried(log, lambda: setattr(made[1], "other", 1))
    return x + 1, vars(made[0]), made[1].more, made[2]


@program(N(2.0), [])
def part_of_a_group_raised_again_after_a_break(x, log):
    try:
        try:
            raise ExceptionGroup("group", [ValueError(1), KeyError("q")])
        except* ValueError as error:
            log.append(error.exceptions)
            if x > 1:
                raise
    except ExceptionGroup as error:
        log.append((error.message, error.exceptions))
    return x + 1
