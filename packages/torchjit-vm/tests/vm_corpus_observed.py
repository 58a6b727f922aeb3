"""What a program can observe beside its results: what was sought in vain, objects that die, containers that change below an iterator."""

# mypy: ignore-errors
# ruff: noqa
# The programs are meant to be odd, and wrong on purpose here and there.

from __future__ import annotations

import weakref
from collections import Counter, OrderedDict, defaultdict, deque

from vm_corpus import N, program


# ---------------------------------------------------------------------- what an error says was sought
class Plain:
    @property
    def read_only(self):
        return 1

    @property
    def broken(self):
        return self.nothing


class Slotted:
    __slots__ = ("slot",)


class Answers:
    def __getattr__(self, name):
        raise AttributeError(name)


class Refuses:
    def __getattribute__(self, name):
        raise AttributeError("own", name="mine", obj=3)


def _tell(act, obj):
    try:
        act(obj)
    except AttributeError as error:
        return error.name, error.obj is obj, str(error)


@program(N(1))
def sought_attribute(x):
    found = [
        _tell(lambda o: o.nothing, o)
        for o in (x, Plain(), Slotted(), Answers(), [1], {}, (), len, Plain, "text", 3, None)
    ]
    found += [
        _tell(lambda o: o.slot, Slotted()),
        _tell(lambda o: o.broken, Plain()),
        _tell(lambda o: getattr(o, "a"), Plain()),
    ]
    found.append(_tell(lambda o: object.__getattribute__(o, "zz"), Plain()))
    found.append(_tell(lambda o: o.any, Refuses()))
    return found


def _set(obj, name):
    setattr(obj, name, 1)


@program(N(1))
def sought_place_of_a_store(x):
    return [
        _tell(lambda o: _set(o, "other"), Slotted()),
        _tell(lambda o: _set(o, "read_only"), Plain()),
        _tell(lambda o: delattr(o, "nothing"), Plain()),
        _tell(lambda o: delattr(o, "read_only"), Plain()),
        _tell(lambda o: _set(o, "a"), 3),
    ]


@program(N(1))
def sought_in_super(x):
    class Below(Plain):
        def ask(self):
            return super().nothing

    try:
        Below().ask()
    except AttributeError as error:
        return error.name, str(error)


@program(N(1))
def sought_import(x):
    try:
        from collections import nothing_there
    except ImportError as error:
        return (
            error.name,
            error.msg,
            error.path is not None,
            getattr(error, "name_from", 0),
            isinstance(error, AttributeError),
        )


@program(N(1))
def sought_variables(x):
    def free():
        return later

    found = []
    for act in (free, lambda: no_such_global, lambda: [local for _ in (1,) if local]):
        try:
            act()
        except NameError as error:
            found.append((error.name, str(error)))
    if x is None:
        later = local = 1
    return found


@program(N(1))
def an_error_that_says_it_itself(x):
    found = []
    for error in (
        AttributeError("a"),
        AttributeError("b", name="n"),
        AttributeError("c", obj=x),
        AttributeError("d", name=None),
    ):

        class Raises:
            def __getattr__(self, name):
                raise error

        try:
            Raises().sought
        except AttributeError as caught:
            found.append((caught.name, caught.obj is x, type(caught.obj).__name__))
    return found


@program(N(1))
def fields_of_errors(x):
    found = []
    for act in (lambda: b"\xff".decode(), lambda: "\udc80".encode(), lambda: getattr(3, "nothing"), lambda: int("x")):
        try:
            act()
        except (ValueError, AttributeError) as error:
            found += [getattr(error, n, "none") for n in ("reason", "start", "end", "encoding", "name", "obj", "args")]
    for error in (
        ImportError("a"),
        ImportError("b", name="n", path="p"),
        ImportError(1, 2),
        SystemExit(3),
        SystemExit(),
        StopIteration(5),
    ):
        found += [getattr(error, n, "none") for n in ("name", "path", "msg", "code", "value", "args")]
    return found


# ---------------------------------------------------------------------- objects that die
class Thing:
    def __init__(self, value):
        self.value = value


@program(N(1), breaks=1)
def held_by_a_variable_that_is_not_read_again(x):
    names = weakref.WeakValueDictionary()
    thing = Thing(x)
    names["a"] = thing
    print("here")
    return len(names), names["a"].value


# ---------------------------------------------------------------------- containers that change below an iterator
def _grows(container, grow):
    try:
        for item in container:
            grow(item)
    except RuntimeError as error:
        return str(error)


def _grows_after_print(container, grow):
    try:
        for item in container:
            print(item)
            grow(item)
    except RuntimeError as error:
        return str(error)


def _print_after_growing(container, grow):
    try:
        for item in container:
            grow(item)
            print(item)
    except RuntimeError as error:
        return str(error)


def _all(loop):
    one, two, members, line = {"a": 1}, OrderedDict(a=1, b=2), {1, 2, 3}, deque([1, 2])
    counts, lists = Counter("ab"), defaultdict(list, a=[])
    return [
        loop(one, lambda key: one.setdefault(key + "x", 1)),
        loop(two, lambda key: two.setdefault(key + "x", 1)),
        loop(members, members.discard),
        loop(line, line.append),
        loop(counts.items(), lambda pair: counts.update([pair[0] * 2])),
        loop(lists.values(), lambda value: lists["b"].append(value)),
        (one, two, sorted(members), line, counts, lists),
    ]


@program(N(1))
def containers_that_grow(x):
    return _all(_grows)


@program(N(1), breaks=None)
def containers_that_grow_after_a_break(x):
    return _all(_grows_after_print)


@program(N(1), breaks=None)
def containers_that_grow_before_a_break(x):
    return _all(_print_after_growing)


@program(N(1), breaks=None)
def iterators_of_containers_go_on(x):
    table, line, seen = {"a": 1, "b": x}, deque([1, 2, 3], maxlen=3), []
    for key, value in table.items():
        print(key)
        table[key] = value
        seen.append(value)
    for value in line:
        print(value)
        seen.append(value)
    for value in {1, 2, 3}:
        print(value)
        seen.append(value)
    return seen


@program({"a": 1, "b": 2}, deque([1, 2]), breaks=None)
def arguments_that_grow(table, line):
    found = []
    table["c"] = 3
    for container, grow in ((table, lambda key: table.pop(key)), (line, line.append)):
        try:
            for item in container:
                grow(item)
                print(item)
        except RuntimeError as error:
            found.append(str(error))
    return found


@program(N(2.0), [], breaks=1)
def references_that_call_back(x, log):
    thing = Plain()
    reference = weakref.ref(thing, lambda _: log.append("gone"))  # noqa: F841  held by this variable only
    more = [weakref.ref(thing, lambda _: log.append("gone too"))]  # noqa: F841
    print("break")
    del thing
    return log, x + 1
