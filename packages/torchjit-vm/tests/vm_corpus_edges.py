"""Programs at the edges of the language and the library that gave other results than CPython once."""

# mypy: ignore-errors

from __future__ import annotations

import collections
import copy
import heapq
import inspect
import itertools
import types

from vm_corpus import N, program


class Index:
    def __init__(self, number, log):
        self.number, self.log = number, log

    def __index__(self):
        self.log.append(self.number)
        return self.number


def errors(*actions):
    found = []
    for action in actions:
        try:
            found.append(action())
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return found


@program(N(2.0), [1, 2, 3])
def slices_of_no_step(x, items):
    log = []
    parts = errors(
        lambda: items[::0],
        lambda: (1, 2)[::0],
        lambda: "ab"[::0],
        lambda: range(3)[::0],
        lambda: items.__delitem__(slice(None, None, 0)),
        lambda: items.__setitem__(slice(None, None, 0), [1]),
        lambda: items[Index(0, log) : Index(3, log) : Index(2, log)],
    )
    return parts, log, x + 1


@program(N(2.0))
def names_of_super(x):
    class Base:
        pass

    class Below(Base):
        def parts(self):
            found = super()
            return (
                found.__thisclass__ is Below,
                found.__self__ is self,
                found.__self_class__ is type(self),
                found.__class__,
            )

    class Lowest(Below):
        pass

    return Below().parts(), Lowest().parts(), x + 1


@program(N(2.0))
def match_arguments_that_are_wrong(x):
    class Numbers:
        __match_args__ = (1,)

    class Twice:
        __match_args__ = ("a", "a")
        a = 1

    def match(subject):
        match subject:
            case Numbers(1):
                return "number"
            case Twice(1, 1):
                return "twice"

    def named(subject):
        match subject:
            case Twice(1, a=1):
                return "named"

    return errors(lambda: match(Numbers()), lambda: match(Twice()), lambda: named(Twice())), x + 1


@program(N(2.0), [])
def groups_are_derived_once(x, log):
    class Group(ExceptionGroup):
        def derive(self, exceptions):
            log.append(len(exceptions))
            return Group(self.message + "!", exceptions)

    try:
        try:
            raise Group("g", [ValueError(1), TypeError(2), KeyError(3)])
        except* ValueError:
            raise
        except* KeyError as error:
            log.append(error.message)
    except Group as error:
        log.append((error.message, repr(error.exceptions), repr(error.subgroup(TypeError))))
    return log, x + 1


@program(N(2.0))
def empty_heaps(x):
    return errors(lambda: heapq.heappop([]), lambda: heapq.heapreplace([], 1), lambda: heapq.heappushpop([], 1)), x + 1


@program(N(2.0), [], breaks=3)
def subclasses_of_variables(x, log):
    class Base:
        pass

    class Below(Base):  # noqa: F841  known to its base
        pass

    print("break")
    return [cls.__name__ for cls in Base.__subclasses__()], x + 1


@program(N(2.0))
def orders_of_sets(x):
    table = {5: 1, 3: 2, 17: 3, 33: 1}
    a, b = {33, 1, 65, 97, 17}, {1, 2, 65, 129}
    changed, other = set(a), a.copy()
    changed.add(257)
    changed.discard(1)
    other |= b
    other -= {33}
    found = [
        *(
            {1, 2} ^ table.keys(),
            {1, 2} | table.keys(),
            table.keys() ^ {1, 2},
            table.keys() | {8, 1},
            table.keys() & [17, 3],
        ),
        *(set(table), {*table, 1}, frozenset([33, 1, 17, 5]), a, b, a | b, a - b, a ^ b, a & b, changed, other),
        *(set(a | b), a.union(b, [5]), a.intersection([65, 1]), a.difference([1]), {i * 16 for i in range(6)}),
        *(a.symmetric_difference(table), a.union(table), set(range(0, 200, 32)), frozenset(changed) | {7}),
    ]
    return [list(s) for s in found], x + 1


@program(N(2.0), breaks=1)
def orders_of_sets_that_leave(x):
    table = {i * 16: i for i in range(7)}
    first, second, third = set(table), table.keys() | {3}, frozenset(table)
    taken = {64, 0, 32, 16, 8}
    taken.remove(64)
    taken.add(128)
    print("break")
    return list(first), list(second), list(third), sorted(taken), x + 1


@program(N(2.0))
def equal_elements(x):
    return [*{True, 1}], [*{1, True, 1.0}], [*{1.0}.union([1])], [*{True} & {1}], [*frozenset((True, 1))], x + 1


@program(N(2.0))
def empty_slots_and_getattr(x):
    class Slotted:
        __slots__ = ("kept",)
        hidden = property(None)

        def __getattr__(self, name):
            return f"asked for {name}"

    thing = Slotted()
    before = thing.kept, thing.hidden, thing.other
    thing.kept = x
    return before, thing.kept


@program(N(2.0))
def raised_classes_and_notes(x):
    class Strange(Exception):
        def __new__(cls, *args):
            return 5

    def chained():
        raise ValueError from Strange

    def raised():
        raise Strange

    error = ValueError("v")
    error.add_note("first")
    found = errors(lambda: error.add_note(5), raised)
    return [(name, text.replace(__name__, "")) for name, text in found if name], error.__notes__, x + 1


@program(N(2.0))
def factories_of_dicts(x):
    return errors(lambda: collections.defaultdict(5), lambda: collections.defaultdict(None)["a"]), x + 1


@program(N(2.0), breaks=2)
def annotations_and_signatures(x):
    def f(a, b: int = 2, *, c: str = "c") -> str:
        return a

    return f.__annotations__, str(inspect.signature(f)), str(inspect.signature(f)), x + 1


@program(N(2.0))
def descriptors_that_only_take(x):
    log = []

    class Set:
        def __set__(self, owner, value):
            log.append(value)

    class Delete:
        def __delete__(self, owner):
            log.append("deleted")

    class Thing:
        set, delete = Set(), Delete()

    thing = Thing()
    thing.set = x
    found = errors(
        lambda: type(thing.set).__name__,
        lambda: dict(vars(thing)),
        lambda: delattr(thing, "delete"),
        lambda: setattr(thing, "delete", 1),
        lambda: delattr(thing, "set"),
    )
    thing.__dict__["set"], thing.__dict__["delete"] = 5, 6
    return found, thing.set, thing.delete, errors(lambda: delattr(thing, "delete")), dict(vars(thing)), log


class Kept:
    def __set__(self, owner, value):
        owner.__dict__["kept"] = value


class Keeps:
    item = Kept()


@program(N(2.0), Keeps())
def descriptors_that_keep(x, keeps):
    keeps.item = x
    keeps.__dict__["item"] = 3
    return keeps.item, keeps.kept


@program(N(2.0))
def locals_of_a_class_body(x):
    class Made:
        for name in ("first", "second"):
            locals()[name] = name
        locals().update(third=3)
        known = sorted(key for key in locals() if key[0] != "_")

    return Made.first, Made.second, Made.third, Made.known, x + 1


class Settings(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__

    @property
    def derived(self):
        return self.missing.x

    @property
    def absent(self):
        raise AttributeError("absent")


class Copied:
    def __deepcopy__(self, memo):
        return type(self)(self)


class Strict(Copied, dict):
    __getattr__ = dict.__getitem__


@program(N(2.0), Settings(first=1, inner=Settings(second=2)), Strict(first=1))
def items_as_attributes(x, settings, strict):
    settings.first += 1
    settings.third = x
    settings.removed = 3
    del settings.removed
    made = Settings(a=1)
    made.b = x * made.a
    found = errors(
        lambda: settings.derived,
        lambda: settings.absent,
        lambda: getattr(settings, "nothing", 5),
        lambda: hasattr(settings, "nothing"),
        lambda: hasattr(strict, "nothing"),
        lambda: delattr(settings, "nothing"),
        lambda: object.__setattr__(settings, "aside", 4),
    )
    return found, settings.inner.second * x, list(settings), vars(settings), made, made.b, settings.third, strict.first


class Counts(Copied, list):
    __getattr__ = list.count


class Bounded(collections.deque):
    maxlen = property(lambda self: 1)


@program(N(2.0), Counts("aba"), Bounded("ab"))
def containers_that_answer_for_any_name(x, counts, bounded):
    counts.append("b")
    bounded.append("c")
    made = Bounded("abc")
    made.append("d")
    return counts.a, counts.b, counts.maxlen, list(counts), list(bounded), bounded.maxlen, list(made), x + 1


class Answers:
    """Answers to any name, and notes that it was asked."""

    def __init__(self, log, answer):
        self.log, self.answer = log, answer

    def __getattr__(self, name):
        if name == "log":
            raise AttributeError(name)
        self.log.append(name)
        return self.answer


@program(N(2.0), breaks=2)
def objects_that_answer_for_any_name(x):
    log = []
    nothing, number = Answers(log, None), Answers(log, lambda *given: 3)
    found = errors(
        lambda: copy.deepcopy([number]),
        lambda: copy.deepcopy(Settings(first=[1])),
        lambda: isinstance(1, nothing),
        lambda: issubclass(nothing, int),
        lambda: {}.update(nothing),
        lambda: collections.OrderedDict().update(nothing),
    )
    return found, log, x + 1


@program(N(2.0))
def copies_of_objects_that_answer_for_any_name(x):
    log = []
    return errors(lambda: type(copy.copy(Answers(log, None)))), log, x + 1


@program(N(2.0))
def heaps_from_the_other_end(x):
    asked = []

    class Item:
        def __init__(self, size):
            self.size = size

        def __lt__(self, other):
            asked.append((self.size, other.size))
            return self.size < other.size

    sizes = [3, 1, 4, 1, 5, 9, 2, 6]
    smallest = [item.size for item in heapq.nsmallest(3, map(Item, sizes))]
    merged = list(heapq.merge([4, 2, 1], [5, 3], [3], reverse=True))
    return smallest, heapq.nsmallest(2, sizes, key=lambda n: -n), heapq.nsmallest(3, []), merged, asked, x + 1


class Plain:
    pass


class Slotted:
    __slots__ = ("x",)


@program(N(2.0), types.SimpleNamespace(a=1), collections.deque([1]), breaks=None)
def classes_in_messages(x, given, queue):
    made = types.SimpleNamespace(b=2)
    found = []
    for value in (given, made, queue, collections.OrderedDict(), Plain(), Slotted(), 1, "a", [], itertools.count()):
        found += errors(
            lambda v=value: v.missing,
            lambda v=value: object.__getattribute__(v, "missing"),
            lambda v=value: type(v).missing,
            lambda v=value: v(),
            lambda v=value: v @ 1,
            lambda v=value: max(**v) and None,
        )
    for value in (given, made, Plain(), Slotted(), 1):
        found += errors(
            lambda v=value: len(v),
            lambda v=value: [*v],
            lambda v=value: max(*v),
            lambda v=value: {**v},
            lambda v=value: iter(v),
            lambda v=value: next(v),
            lambda v=value: reversed(v),
            lambda v=value: v[0],
            lambda v=value: [1][v] if v != 1 else None,
            lambda v=value: (1, 2).__getitem__(v) if v != 1 else None,
            lambda v=value: v.__delattr__("missing"),
            lambda v=value: range(v) if v != 1 else None,
            lambda v=value: v.__enter__,
            lambda v=value: v < v,
            lambda v=value: -v,
            lambda v=value: getattr(1, v),
        )
        try:
            with value:
                pass
        except TypeError as error:
            found.append(str(error))
    return found, x + 1
