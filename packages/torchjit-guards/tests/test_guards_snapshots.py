"""Snapshots: a program that has been hit compares the memory that it read, and never answers otherwise than a walk."""

from __future__ import annotations

import collections
import gc
import random
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchjit_core.guards import (
    ClassAttrIs,
    DictContains,
    DictKeys,
    Guard,
    IdIs,
    InstanceLacks,
    LengthIs,
    Predicate,
    TypeIs,
    ValueEquals,
)
from torchjit_core.paths import AccessPath, Arg, Pinned
from torchjit_guards import GuardProgram, _c
from torchjit_guards import program as program_module

X, Y = Arg.of(0, "x"), Arg.of(1, "y")


class Box:
    """An object with attributes; slots of tests are boxes."""

    limit: Any = 3

    def __init__(self, **members: Any) -> None:
        self.__dict__.update(members)

    def method(self) -> None:
        """A class attribute."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...


class Loose:
    """An object whose attributes stay inline: nobody asks for its `__dict__`."""

    def __init__(self) -> None:
        self.first: Any = 1000
        self.second: Any = "two"


def definition(guards: list[Guard], gather: Sequence[AccessPath], slots: tuple[Any, ...]) -> tuple[Any, ...] | None:
    try:
        if all(guard.check(slots) for guard in guards):
            return tuple(path.resolve(slots) for path in gather)
    except Exception:  # a walk that fails is a miss
        return None
    return None


def same(program: GuardProgram, guards: list[Guard], gather: Sequence[AccessPath], slots: tuple[Any, ...]) -> bool:
    """Two calls that must answer as the definitions do; whether it was a hit."""
    for _ in range(2):
        want, got = definition(guards, gather, slots), program(*slots)
        assert (got is None) == (want is None), (want, got)
        assert got is None or all(a is b or a == b for a, b in zip(got, want or (), strict=True))
    return got is not None


def warm(program: GuardProgram, *slots: Any) -> tuple[int, int, int]:
    """Call until a snapshot serves; what it says of itself."""
    for _ in range(3):
        assert program(*slots) is not None
    assert program.snapshot is not None and program.snapshot[2] > 0
    return program.snapshot


def test_a_snapshot_serves_after_some_hits() -> None:
    before = _c.snapshot_after(3)
    try:
        guards: list[Guard] = [ValueEquals(X.instance_attr("a"), 1)]
        program = GuardProgram(guards, [X.instance_attr("b")], 1)
    finally:
        assert _c.snapshot_after(before) == 3
    box = Box(a=1, b="found")
    for _ in range(4):
        assert program.snapshot is None
        assert program(box) == ("found",)
    assert program.snapshot is not None and program.snapshot[2] == 0
    assert program(box) == ("found",)
    assert program.snapshot[1:] == (0, 1), "no op is left over, one hit"
    with pytest.raises(ValueError):
        _c.snapshot_after(-1)


def world() -> tuple[Box, list[Guard], list[AccessPath]]:
    """An object graph with everything that a walk can go through, guards about all of it, and paths to gather."""

    def closure(value: Any) -> Callable[[], Any]:
        def inner(a: int = 7) -> Any:
            return value

        return inner

    x = Box(
        numbers=[1000, 2000, 3000],
        pair=(1, "b"),
        table={"k": 5, "deep": {"z": 1.5}},
        ordered=collections.OrderedDict(p=1),
        child=Box(name="n", flag=True),
        loose=Loose(),
        function=closure(4),
        keyed={1: "one"},
    )
    attr = X.instance_attr
    function = attr("function")
    guards: list[Guard] = [
        TypeIs(X, Box),
        InstanceLacks(X, "limit"),
        ClassAttrIs(Box, "limit", Box.limit),
        ClassAttrIs(Box, "method", Box.method),
        TypeIs(attr("numbers"), list),
        LengthIs(attr("numbers"), 3),
        ValueEquals(attr("numbers").item(1), 2000),
        TypeIs(attr("pair"), tuple),
        ValueEquals(attr("pair").item(1), "b"),
        TypeIs(attr("table"), dict),
        DictContains(attr("table"), "absent", present=False),
        ValueEquals(attr("table").item("k"), 5),
        TypeIs(attr("table").item("deep"), dict),
        DictKeys(attr("table").item("deep"), ("z",)),
        ValueEquals(attr("table").item("deep").item("z"), 1.5),
        TypeIs(attr("ordered"), collections.OrderedDict),
        LengthIs(attr("ordered"), 1),
        TypeIs(attr("child"), Box),
        InstanceLacks(attr("child"), "extra"),
        ValueEquals(attr("child").instance_attr("name"), "n"),
        IdIs(attr("child").instance_attr("flag"), True),
        ValueEquals(attr("loose").instance_attr("first"), 1000),
        ValueEquals(attr("loose").instance_attr("second"), "two"),
        IdIs(function.attr("__code__"), x.function.__code__),
        ValueEquals(function.attr("__defaults__"), (7,)),
        ValueEquals(function.attr("__closure__").item(0).cell(), 4),
        ValueEquals(attr("keyed").item(1), "one"),
    ]
    gather = [attr("numbers").item(0), attr("child"), attr("table").item("deep"), attr("loose").instance_attr("first")]
    return x, guards, gather


def changes(x: Box) -> dict[str, Callable[[], Any]]:
    """Ways to change the world; some change nothing that is guarded."""
    f: Any = x.function

    def other_default() -> None:
        f.__defaults__ = (8,)

    def other_cell() -> None:
        f.__closure__[0].cell_contents = 5

    return {
        "attribute": lambda: setattr(x, "unrelated", object()),
        "dict replaced": lambda: setattr(x, "__dict__", dict(x.__dict__)),
        "dict with less": lambda: x.__dict__.pop("pair"),
        "list item": lambda: x.numbers.__setitem__(1, 2001),
        "equal list item": lambda: x.numbers.__setitem__(1, int("2000")),
        "gathered item": lambda: x.numbers.__setitem__(0, 999),
        "list grows": lambda: x.numbers.extend([1] * 50),
        "list replaced": lambda: setattr(x, "numbers", [1000, 2000, 3000]),
        "tuple": lambda: setattr(x, "pair", (1, "c")),
        "equal tuple": lambda: setattr(x, "pair", (1, "".join(["b"]))),
        "dict item": lambda: x.table.__setitem__("k", 6),
        "key appears": lambda: x.table.__setitem__("absent", 0),
        "deep item": lambda: x.table["deep"].__setitem__("z", 2.5),
        "deep key": lambda: x.table["deep"].__setitem__("y", 0),
        "deep replaced": lambda: x.table.__setitem__("deep", {"z": 1.5}),
        "ordered grows": lambda: x.ordered.__setitem__("q", 1),
        "child attribute": lambda: setattr(x.child, "name", "m"),
        "child flag": lambda: setattr(x.child, "flag", 1),
        "child shadows": lambda: setattr(x.child, "extra", 1),
        "child replaced": lambda: setattr(x, "child", Box(name="n", flag=True)),
        "child's class": lambda: setattr(x.child, "__class__", type("Other", (Box,), {})),
        "inline value": lambda: setattr(x.loose, "first", 1001),
        "inline value equal": lambda: setattr(x.loose, "first", int("1000")),
        "inline deleted": lambda: delattr(x.loose, "first"),
        "inline made a dict": lambda: x.loose.__dict__,
        "inline by dict": lambda: x.loose.__dict__.update(second="three"),
        "inline more": lambda: setattr(x.loose, "third", 3),
        "code": lambda: setattr(f, "__code__", (lambda: f).__code__),
        "default": other_default,
        "cell": other_cell,
        "shadow": lambda: setattr(x, "limit", 1),
        "int key": lambda: x.keyed.__setitem__(1, "uno"),
        "class attribute": lambda: setattr(Box, "limit", 4),
        "class attribute added": lambda: setattr(Box, "new", 4),
        "type": lambda: setattr(x, "numbers", (1000, 2000, 3000)),
    }


@pytest.fixture(autouse=True)
def class_as_it_was() -> Iterator[None]:
    """Tests change the class."""
    yield
    Box.limit = 3
    if "new" in Box.__dict__:
        del Box.new  # type: ignore[attr-defined]


@pytest.fixture(params=["tags", "no instance tags", "no tags"])
def tags(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each state of trust in dict tags; the second one is Python 3.13.0."""
    found = program_module.TRUSTED_TAGS
    _c.trust_tags(*{"tags": found, "no instance tags": (found[0], False), "no tags": (False, False)}[request.param])
    yield request.param
    _c.trust_tags(*found)


@pytest.mark.parametrize("name", sorted(changes(world()[0])))
def test_every_change_is_seen(name: str, tags: str) -> None:
    x, guards, gather = world()
    program = GuardProgram(guards, gather, 1)
    words, left, _ = warm(program, x)
    assert words > 20
    assert left < len(program.listing().splitlines()) / 2, "most ops are decided by words"
    changes(x)[name]()
    same(program, guards, gather, (x,))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_sequences_of_changes(data: st.DataObject) -> None:
    x, guards, gather = world()
    Box.limit = 3
    program = GuardProgram(guards, gather, 1)
    for _ in range(data.draw(st.integers(1, 12))):
        for _ in range(data.draw(st.integers(0, 3))):
            same(program, guards, gather, (x,))
        name = data.draw(st.sampled_from(sorted(changes(world()[0]))))
        try:
            changes(x)[name]()
        except (AttributeError, KeyError):
            continue  # an earlier change has taken what this one needs
    same(program, guards, gather, (x,))


@pytest.mark.usefixtures("older_objects_rest")
def test_an_address_that_is_used_again() -> None:
    """Objects that die and are born at the same place: the words tell them apart."""
    guards: list[Guard] = [TypeIs(X, Box), ValueEquals(X.instance_attr("a").item(0), 1000)]
    gather = [X.instance_attr("a").item(0)]
    program = GuardProgram(guards, gather, 1)
    places = set()
    for i in range(2000):
        box = Box(a=[1000 + i % 2])
        places.add(id(box))
        same(program, guards, gather, (box,))
        del box
    assert len(places) < 2000, "some address must have been used again"
    gc.collect()


def test_arguments_that_differ_are_left_over() -> None:
    """A slot that is another object each time ends a few snapshots, then is looked at by its own ops."""
    fixed = Box(a=1, b=[1, 2])
    guards: list[Guard] = [
        ValueEquals(X.instance_attr("a"), 1),
        LengthIs(X.instance_attr("b"), 2),
        ValueEquals(Y.instance_attr("a"), 2),
        TypeIs(Y, Box),
    ]
    gather = [X.instance_attr("b"), Y.instance_attr("c")]
    program = GuardProgram(guards, gather, 2)
    kept = [Box(a=2, c=i) for i in range(200)]
    for box in kept:
        assert program(fixed, box) == (fixed.b, box.c)
    assert program.snapshot is not None
    words, left, hits = program.snapshot
    assert hits > 100 and left > 0 and words > 0
    for box in kept:
        box.a = 3
        assert program(fixed, box) is None
    assert program(fixed, Box(a=2, c="c")) == (fixed.b, "c")
    fixed.a = 2
    assert program(fixed, Box(a=2, c="c")) is None


def test_state_that_changes_with_each_call_is_left_over() -> None:
    x = Box(steps=0, child=Box(a=1), other=Box(b=[5]))
    child = X.instance_attr("child").instance_attr("a")
    guards: list[Guard] = [TypeIs(X.instance_attr("steps"), int), ValueEquals(child, 1)]
    gather = [X.instance_attr("steps"), Y.instance_attr("b").item(0)]
    program = GuardProgram(guards, gather, 2)
    for i in range(300):
        x.steps = i
        assert program(x, x.other) == (i, 5)
    assert program.snapshot is not None and program.snapshot[2] > 100
    x.child.a = 2
    assert program(x, x.other) is None


def test_python_code_in_the_middle(tags: str) -> None:
    """Predicates and properties run after the words; what was found stays alive meanwhile."""
    x = Box(a=[object(), 1000], b=1)

    class Property:
        @property
        def value(self) -> int:
            x.__dict__["a"] = [object(), 1000]  # drops what the program has borrowed
            gc.collect(0)  # a full one takes a second where torch is loaded
            return 5

    y = Property()
    guards: list[Guard] = [
        ValueEquals(X.instance_attr("a").item(1), 1000),
        ValueEquals(Y.attr("value"), 5),
        Predicate(X.instance_attr("a").item(0), lambda o: type(o) is object, "is an object"),
    ]
    gather = [X.instance_attr("a").item(0), X.instance_attr("a")]
    program = GuardProgram(guards, gather, 2)
    for _ in range(300):
        got = program(x, y)
        assert got is not None and type(got[0]) is object and got[1][0] is got[0]


def test_a_program_that_calls_itself() -> None:
    """A predicate runs the program again and drops the snapshot under way."""
    x = Box(a=1, b=[1])
    depth = 0

    def again(value: object) -> bool:
        nonlocal depth
        if depth < 3:
            depth += 1
            x.b = [1]
            assert program(x) is not None
            depth -= 1
        return True

    guards: list[Guard] = [ValueEquals(X.instance_attr("a"), 1), Predicate(X.instance_attr("b"), again, "calls")]
    program = GuardProgram(guards, [X.instance_attr("b")], 1)
    for _ in range(50):
        assert program(x) == ([1],)


def test_references_stay_balanced() -> None:
    marker, number = object(), 10**6
    x = Box(a=[marker, number], child=Box(m=marker))
    guards: list[Guard] = [ValueEquals(X.instance_attr("a").item(1), 10**6)]
    gather = [X.instance_attr("a").item(0), X.instance_attr("child").instance_attr("m"), X]
    program = GuardProgram(guards, gather, 1)
    warm(program, x)
    before = [sys.getrefcount(o) for o in (marker, number, x, x.a, x.child)]
    for _ in range(100):
        program(x)
        program.check((x,))
    assert [sys.getrefcount(o) for o in (marker, number, x, x.a, x.child)] == before


@pytest.mark.usefixtures("older_objects_rest")
def test_a_snapshot_keeps_nothing_alive() -> None:
    class Weak(Box):
        pass

    x = Weak(a=Weak(b=1))
    program = GuardProgram([ValueEquals(X.instance_attr("a").instance_attr("b"), 1)], [X.instance_attr("a")], 1)
    warm(program, x)
    seen = [weakref.ref(x), weakref.ref(x.a)]
    del x
    gc.collect()
    assert [r() for r in seen] == [None, None]
    other = Weak(a=Weak(b=2))
    assert program(other) is None
    other.a.b = 1
    assert program(other) == (other.a,)


def test_globals_and_modules() -> None:
    module = types.ModuleType("made")
    module.__dict__.update(a=1, f=len)
    names: dict[str, Any] = {"made": module, "flag": True}
    root, inside = Pinned.of(names, "globals"), Pinned.of(module, "made")
    guards: list[Guard] = [
        IdIs(root.item("made"), module),
        IdIs(root.item("flag"), True),
        IdIs(inside.instance_attr("f"), len),
    ]
    program = GuardProgram(guards, [inside.instance_attr("a")], 0)
    assert warm(program)[1] == 0
    rng = random.Random(0)
    for i in range(200):
        what = rng.choice(("f", "flag", "a", "new", "nothing"))
        if what == "f":
            module.__dict__["f"] = rng.choice((len, abs))
        elif what == "flag":
            names["flag"] = rng.choice((True, False))
        elif what == "a":
            module.__dict__["a"] = i
        elif what == "new":
            names[f"n{i}"] = i
        same(program, guards, [inside.instance_attr("a")], ())
