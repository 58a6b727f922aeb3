"""Guard programs answer as the guards' own definitions do, whatever the objects look like."""

from __future__ import annotations

import collections
import gc
import math
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchjit_core.guards import (
    MISSING,
    Ambient,
    ClassAttrIs,
    DictContains,
    DictKeys,
    Different,
    Guard,
    IdIs,
    InstanceLacks,
    LengthIs,
    Predicate,
    SameObject,
    SymbolicCondition,
    TypeIs,
    ValueEquals,
)
from torchjit_core.paths import AccessPath, Arg, Pinned
from torchjit_guards import GuardProgram
from torchjit_guards.flat import FlatProgram

X, Y = Arg.of(0, "x"), Arg.of(1, "y")


def reference(guards: list[Guard], gather: list[AccessPath], slots: tuple[Any, ...]) -> bool:
    try:
        return all([g.check(slots) for g in guards]) and bool([p.resolve(slots) for p in gather] or True)
    except Exception:
        return False


def agree(guards: list[Guard], slots: tuple[Any, ...], gather: list[AccessPath] | None = None) -> bool:
    """Check the program by a walk and by its snapshot against the definition; return the answer."""
    gather = gather or []
    program = GuardProgram(guards, gather, len(slots))
    answer = agree_program(program, guards, slots, gather)
    assert agree_program(restored(program, len(slots)), guards, slots, gather) is answer
    return answer


def restored(program: GuardProgram, nslots: int) -> GuardProgram:
    """The program as an entry on disk holds it, which is not lowered again."""
    assert program.flat is not None
    assert program.where is not None
    flat, where = object.__new__(FlatProgram), program.where
    flat.__restore_state__(program.flat.__stored_state__())
    again = GuardProgram.of_flat(flat, nslots, lambda: flat.raised(where))
    assert told(again.guards) == told(program.guards)
    assert again.gather == program.gather
    return again


def told(guards: tuple[Guard, ...]) -> dict[Any, Any]:
    """What is tested, and whose line relied on it."""
    return {guard.key(): getattr(guard, "location", None) for guard in guards}


def agree_program(program: GuardProgram, guards: list[Guard], slots: tuple[Any, ...], gather: list[AccessPath]) -> bool:
    want = reference(guards, gather, slots)
    for _ in range(3):
        assert program.check(slots) is want, [str(g) for g in guards]
        got = program(*slots)
        assert (got is not None) is want
        if got is not None:
            for value, path in zip(got, gather, strict=True):
                expected = path.resolve(slots)
                assert value is expected or (type(value) is type(expected) and value == expected)
    assert (program.explain(slots) is None) is want
    return want


class Plain:
    kind = "class"

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class Inline:
    """Keeps its values inline: nobody has asked for its __dict__."""

    def __init__(self, a: Any, b: Any) -> None:
        self.a = a
        self.b = b


class Slotted:
    __slots__ = ("a",)

    def __init__(self, a: Any) -> None:
        self.a = a


class WithProperty:
    @property
    def a(self) -> int:
        return 7

    def __getattr__(self, name: str) -> Any:
        if name == "ghost":
            return "boo"
        raise AttributeError(name)


class Meta(type):
    pass


class OfMeta(metaclass=Meta):
    a = 5


class FakeDict:
    @property
    def __dict__(self) -> dict[str, int]:  # type: ignore[override]
        return {"a": 1}


class StrSub(str):
    pass


class Weird:
    """A key whose comparison runs Python code."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return str(self.text) == str(getattr(other, "text", other))


def test_two_paths_share_their_prefix() -> None:
    program = GuardProgram([TypeIs(X.attr("a").attr("b"), int), TypeIs(X.attr("a").attr("c"), int)], [], 1)
    assert program.listing().count("LOAD_ATTR") == 3


class DictLen(dict[str, int]):
    def __len__(self) -> int:
        return 3


class ListLen(list[int]):
    def __len__(self) -> int:
        return 3


class PlainDict(dict[str, int]):
    pass


Pair = collections.namedtuple("Pair", "a b")


HELD = Plain()
OBJECTS: list[Callable[[], Any]] = [
    lambda: Plain(a=1, b=2),
    lambda: Plain(),
    lambda: Inline(1, "b"),
    lambda: Slotted(1),
    WithProperty,
    OfMeta,
    lambda: OfMeta,
    FakeDict,
    lambda: types.SimpleNamespace(a=1),
    lambda: types.ModuleType("m"),
    lambda: {"a": 1, "b": 2},
    lambda: {Weird("a"): 1},
    lambda: collections.OrderedDict(a=1),
    lambda: collections.defaultdict(list, a=1),
    lambda: [1, 2, 3],
    lambda: DictLen(a=1, b=2),
    lambda: ListLen([1, 2]),
    lambda: PlainDict(a=1, b=2),
    lambda: Pair(1, 2),
    lambda: (1, 2),
    lambda: {1, 2},
    lambda: "text",
    lambda: b"ab",
    lambda: 1,
    lambda: True,
    lambda: 1.0,
    lambda: -0.0,
    lambda: math.nan,
    lambda: 2**70,
    lambda: None,
    lambda: types.CellType(3),
    lambda: types.CellType(),
    lambda: lambda: 0,
    lambda: len,
    lambda: Plain().__init__,  # type: ignore[misc]
    lambda: [].append,
    lambda: lambda a=1, *, b=2: a,
    lambda: Exception("e"),
    lambda: weakref.ref(HELD),
    lambda: weakref.ref(Plain()),
]


def object_guards(p: AccessPath) -> list[Guard]:
    return [
        TypeIs(p, Plain), TypeIs(p, int), IdIs(p, None), IdIs(p, True), LengthIs(p, 2), LengthIs(p, 3),
        ValueEquals(p, 1), ValueEquals(p, True), ValueEquals(p, 1.0), ValueEquals(p, -0.0), ValueEquals(p, math.nan),
        ValueEquals(p, "text"), ValueEquals(p, b"ab"), ValueEquals(p, None), ValueEquals(p, (1, 2)), ValueEquals(p, 2**70),
        ValueEquals(p, (1, True)), ValueEquals(p, frozenset({1, 2})),
        DictKeys(p, ("a", "b")), DictKeys(p, ("b", "a")), DictKeys(p, ("a",)), DictContains(p, "a", True),
        DictContains(p, "z", False), InstanceLacks(p, "a"), InstanceLacks(p, "z"), InstanceLacks(p, "__dict__"),
        TypeIs(p.attr("a"), int), TypeIs(p.attr("ghost"), str), TypeIs(p.attr("__class__"), type), IdIs(p.attr("a"), 1),
        ValueEquals(p.attr("kind"), "class"), TypeIs(p.instance_attr("a"), int), ValueEquals(p.instance_attr("a"), 1),
        TypeIs(p.item(0), int), TypeIs(p.item("a"), int), TypeIs(p.item(-1), int), TypeIs(p.item(9), int),
        ValueEquals(p.cell(), 3), IdIs(p.type_of(), int), TypeIs(p.computed(len), int), ValueEquals(p.computed(repr), "3"), TypeIs(p.referent(), Plain), TypeIs(p.type_of(), Meta), TypeIs(p.size(0), int),
        TypeIs(p.attr("__code__"), types.CodeType),
        *(IdIs(p.attr(name), None) for name in ("__defaults__", "__kwdefaults__", "__closure__", "__self__")),
        *(TypeIs(p.attr(name), kind) for name in ("__self__", "__func__") for kind in (Plain, list, types.FunctionType)),
        TypeIs(p.attr("__defaults__"), tuple),
        IdIs(p.attr("__globals__"), globals()),
        ValueEquals(p.instance_attr("__name__"), "m"), TypeIs(p.attr("__name__"), str),
    ]  # fmt: skip


@pytest.mark.parametrize("make", OBJECTS, ids=lambda f: repr(type(f())))
def test_each_guard_on_each_kind_of_object(make: Callable[[], Any]) -> None:
    obj = make()
    for guard in object_guards(X):
        agree([guard], (obj,))
    for guard in object_guards(Pinned.of(obj, "obj")):
        agree([guard], ())


def test_one_program_meets_objects_of_every_kind() -> None:
    # the hints of a program belong to the last object it saw, and must never be believed for another
    objects = [make() for make in OBJECTS]
    for guard in object_guards(X):
        program = GuardProgram([guard], [], 1)
        for obj in [*objects, *reversed(objects)]:
            agree_program(program, [guard], (obj,), [])


def test_gather_returns_the_very_objects() -> None:
    a, b = object(), object()
    program = GuardProgram([], [X.attr("a"), X.attr("a"), X.instance_attr("b").item(1), Y], 2)
    y = object()
    assert program(Plain(a=a, b=(0, b)), y) == (a, a, b, y)
    assert program(Plain(a=a), y) is None


def test_class_attributes_follow_the_class() -> None:
    class Base:
        def f(self) -> None: ...

    class Derived(Base):
        pass

    f = Base.__dict__["f"]
    guards: list[Guard] = [ClassAttrIs(Derived, "f", f), ClassAttrIs(Derived, "g", MISSING)]
    program = GuardProgram(guards, [], 0)
    assert program.listing().count("CHECK_CLASS") == 1
    assert agree_program(program, guards, (), [])
    Base.g = 1  # type: ignore[attr-defined]
    assert not agree_program(program, guards, (), [])
    del Base.g  # type: ignore[attr-defined]
    assert agree_program(program, guards, (), [])
    Derived.f = f  # type: ignore[method-assign]
    assert agree_program(program, guards, (), [])
    Derived.f = lambda self: None  # type: ignore[method-assign]
    assert not agree_program(program, guards, (), [])


def test_same_and_different() -> None:
    a, b = [1], [1]
    assert agree([SameObject(X, Y)], (a, a))
    assert not agree([SameObject(X, Y)], (a, b))
    many = [Arg.of(i, f"a{i}") for i in range(300)]
    objects = tuple(object() for _ in many)
    assert agree([Different(tuple(many))], objects)
    assert not agree([Different(tuple(many))], (*objects[:-1], objects[7]))


def test_ambient_and_predicate() -> None:
    state = {"mode": 1}
    guards: list[Guard] = [
        Ambient("mode", lambda: state["mode"], 1),
        Predicate(X, lambda x: x > 0, "x > 0"),
        Ambient("nan", lambda: math.inf, math.inf),
    ]
    program = GuardProgram(guards, [], 1)
    assert agree_program(program, guards, (1,), [])
    assert not agree_program(program, guards, (-1,), [])
    assert not agree_program(program, guards, ("text",), [])
    state["mode"] = 2
    assert not agree_program(program, guards, (1,), [])
    del state["mode"]
    assert not agree_program(program, guards, (1,), [])


def test_unknown_guard_classes_are_asked() -> None:
    class Odd(Guard):
        def key(self) -> tuple[Any, ...]:
            return ("odd",)

        def check(self, slots: Any) -> bool:
            return bool(slots[0] % 2)

    assert agree([Odd()], (3,))
    assert not agree([Odd()], (2,))


def test_python_code_may_drop_what_was_walked() -> None:
    # `a` dies while the property runs: nothing borrowed from it may be used afterwards
    class Evil:
        def __init__(self) -> None:
            self.inner = Plain(leaf=["payload"])

        @property
        def trap(self) -> int:
            self.__dict__.clear()
            gc.collect(0)
            return 1

    leaf = X.instance_attr("inner").instance_attr("leaf")
    guards: list[Guard] = [TypeIs(leaf, list), ValueEquals(X.attr("trap"), 1), ValueEquals(leaf.item(0), "payload")]
    program = GuardProgram(guards, [leaf], 1)
    for _ in range(50):
        got = program(Evil())
        assert got is not None and got[0] == ["payload"]


def test_a_program_may_lose_its_last_reference_while_it_runs() -> None:
    holder: dict[str, GuardProgram] = {}

    def clears(x: object) -> bool:
        holder.clear()
        return True

    program = GuardProgram([Predicate(X, clears, "clears"), TypeIs(X, int)], [X], 1)
    holder["program"] = program
    del program
    assert holder["program"](3) == (3,)


def test_interrupts_propagate_and_errors_are_misses() -> None:
    def interrupt(x: object) -> bool:
        raise KeyboardInterrupt

    program = GuardProgram([Predicate(X, interrupt, "interrupt")], [], 1)
    with pytest.raises(KeyboardInterrupt):
        program(1)
    with pytest.raises(TypeError, match="takes 1 slots"):
        program()
    with pytest.raises(TypeError, match="no keyword"):
        program(x=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="slot 1"):
        GuardProgram([TypeIs(Y, int)], [], 1)


@pytest.mark.usefixtures("older_objects_rest")
def test_cycles_are_collected_and_references_balance() -> None:
    obj = Plain()
    program = GuardProgram([IdIs(X, obj), TypeIs(Pinned.of(obj, "o").attr("x"), int)], [X], 1)
    setattr(obj, "program", program)
    dead = weakref.ref(obj)
    capsule = program.__torchjit_guard__
    del obj, program
    gc.collect()
    assert dead() is not None  # the capsule keeps the program
    del capsule
    gc.collect()
    assert dead() is None


def test_references_balance() -> None:
    import sys

    inner = object()
    obj = Plain(a=inner, b=[inner])
    program = GuardProgram(
        [TypeIs(X.attr("a"), object), Predicate(X.attr("b"), bool, "b")], [X.attr("a"), X.instance_attr("b").item(0)], 1
    )
    before = [sys.getrefcount(o) for o in (inner, obj, obj.b)]
    for _ in range(100):
        program(obj)
        program.check((obj,))
        program.check((3,))
    assert [sys.getrefcount(o) for o in (inner, obj, obj.b)] == before


names = st.sampled_from(["a", "b", "c"])
atoms = st.one_of(st.integers(-3, 3), st.booleans(), st.none(), st.floats(), st.sampled_from(["a", "bb", ""]))
values = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(names, st.integers(0, 2)), inner, max_size=3),
        st.dictionaries(names, inner, max_size=3).map(collections.OrderedDict),
        st.builds(lambda d: Plain(**d), st.dictionaries(names, inner, max_size=3)),
        st.builds(Inline, inner, inner),
        st.builds(Slotted, inner),
    ),
    max_leaves=12,
)


def all_paths(path: AccessPath, value: Any, depth: int = 0) -> list[AccessPath]:
    """Paths into the value, and near misses."""
    found = [path]
    if depth < 3:
        if isinstance(value, Plain | Inline):
            for name in value.__dict__ if isinstance(value, Plain) else ("a", "b"):
                found += all_paths(path.instance_attr(name), getattr(value, name), depth + 1)
                found.append(path.attr(name))
        elif isinstance(value, dict):
            for key, item in value.items():
                found += all_paths(path.item(key), item, depth + 1)
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                found += all_paths(path.item(index), item, depth + 1)
    return found


def true_guards(path: AccessPath, value: Any) -> list[Guard]:
    guards: list[Guard] = [TypeIs(path, type(value))]
    if isinstance(value, list | tuple | dict | str):
        guards.append(LengthIs(path, len(value)))
    if isinstance(value, dict):
        guards += [DictKeys(path, tuple(value)), DictContains(path, "a", "a" in value)]
    if isinstance(value, int | float | str | None):
        guards.append(ValueEquals(path, value))
    if isinstance(value, Plain | Inline):
        guards += [InstanceLacks(path, "zz"), ClassAttrIs(type(value), "nope", MISSING)]
    if type(value) is not float:
        guards.append(IdIs(path, value))
    return guards


@st.composite
def mutation(draw: st.DrawFn) -> Callable[[Any], None]:
    which, name, value, steps = (
        draw(st.integers(0, 5)),
        draw(names),
        draw(values),
        draw(st.lists(st.integers(0, 3), max_size=3)),
    )

    def mutate(root: Any) -> None:
        target = root
        for step in steps:  # walk to some object inside
            inside = list(getattr(target, "__dict__", {}).values()) if not isinstance(target, dict | list | tuple) else (
                list(target.values()) if isinstance(target, dict) else list(target)
            )  # fmt: skip
            if not inside:
                break
            target = inside[step % len(inside)]
        if isinstance(target, dict):
            if which == 0 and target:
                target.pop(next(iter(target)))
            else:
                target[name] = value
        elif isinstance(target, list):
            if which == 0 and target:
                target.pop()
            elif target and which < 3:
                target[0] = value
            else:
                target.append(value)
        elif isinstance(target, Plain | Inline):
            if which == 0:
                target.__dict__ = {name: value}
            elif which == 1:
                target.__dict__.pop(name, None)
            elif which == 2:
                target.__class__ = Plain if type(target) is Inline else Inline
            else:
                setattr(target, name, value)

    return mutate


@settings(max_examples=120, deadline=None)
@given(value=values, mutations=st.lists(mutation(), max_size=4), data=st.data())
def test_programs_agree_after_mutations(
    value: Any, mutations: list[Callable[[Any], None]], data: st.DataObject
) -> None:
    paths = all_paths(X, value)
    candidates = [g for p in paths for g in true_guards(p, p.resolve((value,)))]
    guards = data.draw(st.lists(st.sampled_from(candidates), max_size=16, unique_by=id))
    gather = data.draw(st.lists(st.sampled_from(paths), max_size=3))
    program = GuardProgram(guards, gather, 1)
    assert agree_program(program, guards, (value,), gather)
    stored = restored(program, 1)
    for mutate in mutations:
        mutate(value)
        agree_program(program, guards, (value,), gather)
        agree_program(stored, guards, (value,), gather)


int_terms = st.recursive(
    st.one_of(st.sampled_from(["a", "b"]), st.integers(-9, 9).map(lambda n: f"({n})"), st.just(str(2**61))),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        inner.map(lambda t: f"(-{t})"),
        inner.map(lambda t: f"({t}) ** 3"),
    ),
    max_leaves=6,
)
conditions = st.recursive(
    st.tuples(int_terms, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), int_terms).map(" ".join),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})"),
        inner.map(lambda t: f"not ({t})"),
        st.tuples(int_terms, int_terms, int_terms).map(lambda t: f"{t[0]} < {t[1]} <= {t[2]}"),
    ),
    max_leaves=4,
)


@settings(max_examples=120, deadline=None)
@given(
    condition=conditions,
    a=st.one_of(st.integers(-20, 20), st.integers()),
    b=st.one_of(st.integers(-20, 20), st.booleans(), st.floats()),
)
def test_conditions_are_python_s(condition: str, a: int, b: Any) -> None:
    agree([SymbolicCondition(condition, (("a", X), ("b", Y)))], (a, b))


def test_tags_that_cannot_be_trusted_are_not() -> None:
    # whatever the interpreter, a program must notice an attribute written to an object whose __dict__ was taken out
    obj = Inline(1, 2)
    members = obj.__dict__
    guards: list[Guard] = [
        ValueEquals(X.instance_attr("a"), 1),
        InstanceLacks(X, "z"),
        ValueEquals(X.instance_attr("b"), 2),
    ]
    program = GuardProgram(guards, [X.instance_attr("a")], 1)

    def write(value: int) -> None:
        obj.a = value

    for i in range(200):
        write(i % 2)
        assert agree_program(program, guards, (obj,), [X.instance_attr("a")]) is (i % 2 == 1)
    assert members["a"] == 1


def test_a_program_skips_what_a_tag_vouches_for() -> None:
    d: dict[str, Any] = {f"k{i}": i for i in range(20)}
    guards: list[Guard] = [ValueEquals(X.item(k), v) for k, v in d.items()]
    program = GuardProgram(guards, [X.item("k3")], 1)
    assert program.listing().count("GROUP_END") == 1
    assert agree_program(program, guards, (d,), [X.item("k3")])
    d["k7"] = 70
    assert not agree_program(program, guards, (d,), [X.item("k3")])
    d["k7"] = 7
    assert agree_program(program, guards, (d,), [X.item("k3")])
    other = dict(d, k3=99)
    assert not agree_program(program, guards, (other,), [X.item("k3")])
    assert agree_program(program, guards, (d,), [X.item("k3")])


def test_this_interpreter_s_tags() -> None:
    from torchjit_guards import program, tags

    assert program.TRUSTED_TAGS == (tags.dicts_work(), tags.instances_work())
    assert program.TRUSTED_TAGS[0], "dict tags should work up to Python 3.13"


def test_keys_compared_by_python_code_are_compared_each_time() -> None:
    key = Weird("a")
    d = {key: 1}
    guards: list[Guard] = [TypeIs(X.item("a"), int), DictContains(X, "a", True)]
    program = GuardProgram(guards, [], 1)
    assert agree_program(program, guards, (d,), [])
    key.text = "b"  # equal to "a" no more, with the same hash in the table and the same tag
    assert not agree_program(program, guards, (d,), [])


def test_threads_share_a_program() -> None:
    import threading

    objects = [Plain(a=Plain(b=i), c="x") for i in range(4)]
    path = X.instance_attr("a").instance_attr("b")
    program = GuardProgram([TypeIs(path, int), ValueEquals(X.attr("c"), "x")], [path], 1)
    wrong: list[object] = []

    def work(k: int) -> None:
        for i in range(3000):
            objects[k].__dict__["a"] = Plain(b=k * 10000 + i)
            if program(objects[k]) != (k * 10000 + i,):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_miss_names_what_differs() -> None:
    from torchjit_core.location import CodeLocation

    where = CodeLocation("f.py", "f", 3)
    miss = GuardProgram([ValueEquals(X.attr("a"), 3, where)], [], 1).explain((Plain(a=4),))
    assert miss is not None and (miss.expected, miss.actual, miss.location) == ("3", "4", where)
    miss = GuardProgram([TypeIs(X, int)], [], 1).explain(("s",))
    assert miss is not None and miss.actual == "builtins.str" and "type(x) is builtins.int" in miss.text
    miss = GuardProgram([], [X.attr("a")], 1).explain((1,))
    assert miss is not None and miss.guard is None and "AttributeError" in miss.actual
