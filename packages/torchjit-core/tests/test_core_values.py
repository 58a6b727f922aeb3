"""Access paths, guards as data, reasons, locations and events."""

import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from torchjit_core import events
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
    distinct,
)
from torchjit_core.location import CodeLocation
from torchjit_core.paths import AccessPath, Arg, Pinned
from torchjit_core.reasons import GraphBreak, UserError, all_reasons, find_reason, reason
from torchjit_core.showing import shown

X = Arg.of(0, "x")
CLASS = object()


class Thing:
    shared = "class"

    def __init__(self) -> None:
        self.inner = {"k": [1, 2.0, (3, "three")]}


def test_paths_are_interned_and_typed() -> None:
    assert X.attr("a").item(1) is X.attr("a").item(1)
    assert X.item(1) is not X.item(True)
    assert X.item(1) is not X.item(1.0)
    other: object = X.instance_attr("a")
    assert X.attr("a") is not other


def test_paths_resolve_and_print() -> None:
    thing = Thing()
    path = X.instance_attr("inner").item("k").item(2).item(1)
    assert path.resolve((thing,)) == "three"
    assert str(path) == "x.inner['k'][2][1]"
    assert path.root() is X
    assert [str(p) for p in path.steps()][0] == "x"

    def outer() -> Any:
        value = 5
        return lambda: value

    assert Pinned.of(outer(), "f").attr("__closure__").item(0).cell().resolve(()) == 5


def test_paths_cannot_be_built_past_the_interning() -> None:
    with pytest.raises(TypeError, match="interned"):
        AccessPath()


@pytest.mark.parametrize(
    ("guard", "good", "bad"),
    [
        (TypeIs(X, int), 1, True),
        (IdIs(X, Thing), Thing, object),
        (ValueEquals(X, 1), 1, True),
        (ValueEquals(X, 0.0), 0.0, -0.0),
        (ValueEquals(X, float("nan")), float("nan"), 1.0),
        (ValueEquals(X, (1, "a")), (1, "a"), (1.0, "a")),
        (LengthIs(X, 2), [1, 2], [1]),
        (DictKeys(X, ("a", "b")), {"a": 1, "b": 2}, {"b": 1, "a": 2}),
        (DictContains(X, "a", True), {"a": 1}, {}),
        (DictContains(X, "a", False), {}, {"a": 1}),
        (InstanceLacks(X, "gone"), SimpleNamespace(), SimpleNamespace(gone=1)),
        (SameObject(X.item(0), X.item(1)), [CLASS, CLASS], [1, 2]),
        (Different((X.item(0), X.item(1))), [[], []], [1, 1]),
        (SymbolicCondition("s0 % 4 == 0 and s0 > 3", (("s0", X),)), 8, 6),
        (Predicate(X, lambda v: v > 3, "x > 3"), 4, 3),
    ],
)
def test_guards_check_both_ways(guard: Guard, good: Any, bad: Any) -> None:
    assert guard.check((good,)) is True
    assert guard.check((bad,)) is False
    assert str(guard)


def test_class_guards_follow_the_mro() -> None:
    class Child(Thing):
        pass

    guard, absent = ClassAttrIs(Child, "shared", "class"), ClassAttrIs(Child, "nothing", MISSING)
    held = Thing.shared
    assert ClassAttrIs(Child, "shared", held).check(()) and absent.check(())
    assert guard.key() == ClassAttrIs(Child, "shared", "class").key()
    Child.shared = "other"
    assert not ClassAttrIs(Child, "shared", held).check(())


def test_ambient_reads_now() -> None:
    state = [1]
    guard = Ambient("state", lambda: state[0], 1)
    assert guard.check(())
    state[0] = 2
    assert not guard.check(())


def test_distinct_keeps_the_first_of_equals() -> None:
    one, again, other = ValueEquals(X, 1), ValueEquals(X, 1), ValueEquals(X, True)
    assert distinct([one, again, other]) == [one, other]


def test_reasons_register_once_and_errors_pickle() -> None:
    made = reason("TJ-TST-990", "a test", "It exists for a test.", "Do nothing.")
    assert reason("TJ-TST-990", "a test", "It exists for a test.", "Do nothing.") is made
    with pytest.raises(ValueError, match="taken"):
        reason("TJ-TST-990", "another", "")
    with pytest.raises(ValueError, match="malformed"):
        reason("nonsense", "x", "")
    assert find_reason("TJ-TST-990") is made and made in all_reasons()
    error = GraphBreak(made, "why", CodeLocation(__file__, "f", 1))
    copy = pickle.loads(pickle.dumps(error))
    assert copy.reason is made and str(copy) == str(error)
    assert "hint: Do nothing." in str(error) and "TJ-TST-990: a test: why" in str(error)
    assert isinstance(UserError(made), ValueError)


def test_locations_render_the_line_with_carets() -> None:
    line = test_locations_render_the_line_with_carets.__code__.co_firstlineno
    shown = CodeLocation(__file__, "f", line, line, 4, 7).render().splitlines()
    assert shown[1].strip().startswith("def test_locations")
    assert shown[2] == "        ^^^"
    assert CodeLocation("<nowhere>", "f", 3).render() == 'File "<nowhere>", line 3, in f'


def test_events_reach_listeners_with_the_compile_id() -> None:
    heard: list[tuple[str, dict[str, Any]]] = []
    events.emit("nobody")
    with events.listen(lambda kind, fields: heard.append((kind, fields))), events.using_compile_id("0/1"):
        with events.phase("capture"):
            pass
        events.emit_lazy("graph", lambda: {"nodes": 3})
    assert [k for k, _ in heard] == ["phase", "graph"]
    assert heard[0][1]["name"] == "capture" and heard[1][1]["compile_id"] == "0/1"
    assert not events.listening()


def test_shown_runs_no_code_of_the_program() -> None:
    class Loud(list[int]):
        def __repr__(self) -> str:
            raise ValueError("its own")

        __getattribute__ = __repr__  # type: ignore[assignment, misc]

    class Quiet(int):
        pass

    texts = {
        "test_shown_runs_no_code_of_the_program.<locals>.Loud": Loud,
        "<test_shown_runs_no_code_of_the_program.<locals>.Loud object>": Loud(),
        "[1, 'a', [<list of 1>]]": [1, "a", [[2]]],
        "(1.5,)": (1.5,),
        "{'k': None}": {"k": None},
        "5": Quiet(5),
        "len": len,
        "set()": set(),
    }
    for text, obj in texts.items():
        assert shown(obj) == text
    assert shown("a" * 200) == repr("a" * 200)[:77] + "..."
