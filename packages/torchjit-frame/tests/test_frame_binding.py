"""Argument binding is CPython's: every signature, every call, the same slots or the same TypeError."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchjit_frame import Entry, FrontDoor

NAMES = ["a", "b", "c", "d", "e", "f"]


@st.composite
def signatures(draw: st.DrawFn) -> str:
    """The text of a parameter list over a prefix of NAMES."""
    positional_only, positional, keyword_only = (draw(st.integers(0, 2)) for _ in range(3))
    names = iter(NAMES)
    defaults_from = draw(st.integers(0, positional_only + positional))
    parts = []
    for i in range(positional_only + positional):
        parts.append(next(names) + (f"='d{i}'" if i >= defaults_from else ""))
        if i + 1 == positional_only:
            parts.append("/")
    star = draw(st.booleans())
    if star or keyword_only:
        parts.append("*args" if star else "*")
    if star and draw(st.booleans()) is False and keyword_only == 0:
        keyword_only = draw(st.integers(0, 1))
    for i in range(keyword_only):
        parts.append(next(names) + (f"='k{i}'" if draw(st.booleans()) else ""))
    if draw(st.booleans()):
        parts.append("**kwargs")
    if parts and parts[-1] == "*":
        parts.pop()
    return ", ".join(parts)


calls = st.tuples(
    st.lists(st.integers(), max_size=6),
    st.dictionaries(st.sampled_from([*NAMES, "args", "kwargs", "zz", "".join(["a", ""])]), st.integers(), max_size=5),
)


def outcome(call: Callable[..., Any], args: list[int], kwargs: dict[str, Any]) -> Any:
    try:
        return call(*args, **kwargs)
    except TypeError as error:
        return type(error), str(error)


def define(signature: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(f"def function({signature}):\n    return dict(locals())", namespace)
    made: Callable[..., Any] = namespace["function"]
    return made


@settings(max_examples=150, deadline=None)
@given(signatures(), st.lists(calls, min_size=1, max_size=6))
def test_binding_is_cpythons(signature: str, shapes: list[tuple[list[int], dict[str, Any]]]) -> None:
    function = define(signature)
    count = len(inspect.signature(function).parameters)
    names = function.__code__.co_varnames[:count]
    door = FrontDoor(function, lambda door, slots: None)
    assert (door.nslots, door.slot_names) == (count, names)
    specialised = FrontDoor(function, lambda door, slots: None)
    specialised.append(Entry(lambda *slots: slots, lambda *slots: dict(zip(names, slots, strict=True))))
    for args, kwargs in shapes:
        expected = outcome(function, args, kwargs)
        # A miss, the original runs: same outcome. A hit: the target saw the very locals.
        assert outcome(door, args, kwargs) == expected
        assert outcome(specialised, args, kwargs) == expected
        if isinstance(expected, dict):
            slots = door.bind(tuple(args), kwargs)
            assert dict(zip(names, slots, strict=True)) == expected
            assert list(expected.get("kwargs", {})) == list(dict(zip(names, slots, strict=True)).get("kwargs", {}))
            assert door.enter(*slots) == expected
        else:
            assert outcome(door.bind, [tuple(args), kwargs], {})[0] is TypeError  # type: ignore[list-item]


def test_many_slots() -> None:
    names = [f"p{i}" for i in range(40)]
    namespace: dict[str, Any] = {}
    exec(f"def function({', '.join(names)}): return ({', '.join(names)})", namespace)
    function = namespace["function"]
    door = FrontDoor(function, lambda door, slots: None)
    keywords = {name: i for i, name in enumerate(names)}
    assert door(**keywords) == door(*range(40)) == tuple(range(40))
    door.append(Entry(lambda *slots: slots, lambda *slots: slots[::-1]))
    assert door(**keywords) == door(*range(40)) == tuple(range(40))[::-1]


def test_string_subclass_keywords_are_left_to_cpython() -> None:
    class Name(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Name.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    def function(a: int, **more: int) -> Any:
        return a, list(more)

    door = FrontDoor(function, lambda door, slots: None)
    door.append(Entry(lambda *slots: slots, lambda *slots: "hit"))
    assert door(**{Name("".join(["a"])): 1}) == (1, [])  # not the interned string
    assert Name.compared <= 2


def test_keyword_arguments_dict_is_fresh() -> None:
    def function(**more: int) -> dict[str, int]:
        more["added"] = 1
        return more

    given_dict = {"x": 1}
    door = FrontDoor(function, lambda door, slots: None)
    assert door(**given_dict) == {"x": 1, "added": 1}
    door.append(Entry(lambda *slots: slots, lambda more: more.update(added=1)))
    door(**given_dict)
    assert given_dict == {"x": 1}


class Module:
    """As nn.Module is called."""

    def __init__(self) -> None:
        self.hooks: dict[int, Any] = {}

    def call(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)  # type: ignore[attr-defined]


@settings(max_examples=150)
@given(signatures(), calls)
def test_spellings_that_bind_alike_have_the_same_slots(text: str, call: tuple[list[Any], dict[str, Any]]) -> None:
    args, kwargs = call
    namespace: dict[str, Any] = {}
    exec(
        f"def forward(self{', ' if text else ''}{text.replace('/, ', '').replace(', /', '')}): return locals()",
        namespace,
    )
    module = type("M", (Module,), {"forward": namespace["forward"]})()
    door = FrontDoor(Module.call, lambda door, slots: None, forwards=("forward", ("hooks",), ()))
    try:
        wanted = module.forward(*args, **kwargs)
    except TypeError:
        return
    _, positional, keywords = door.bind((module, *args), kwargs)
    assert module.forward(*positional, **keywords) == wanted
    names = list(inspect.signature(module.forward).parameters.values())
    by_name = [p.name for p in names if p.kind is p.POSITIONAL_OR_KEYWORD]
    if len(args) <= len(by_name):  # the other extreme: everything by name, backwards
        spelled = dict(reversed([(name, wanted[name]) for name in by_name if name in wanted]))
        assert door.bind((module,), {**spelled, **kwargs})[1:] == (positional, keywords)
        assert list(door.bind((module,), {**spelled, **kwargs})[2]) == list(keywords)


def test_spellings_are_kept_where_somebody_sees_them() -> None:
    everywhere: dict[int, Any] = {}
    door = FrontDoor(Module.call, lambda door, slots: None, forwards=("forward", ("hooks",), (everywhere,)))

    class Plain(Module):
        def forward(self, x: int, k: int = 1) -> int:
            return x + k

    def bound() -> Any:
        return door.bind((module,), {"x": 5, "k": 1})[1:]

    module: Any = Plain()
    cls: Any = Plain
    assert bound() == ((5,), {})
    for seen in (everywhere, module.hooks):
        seen[0] = "hook"
        assert bound() == ((), {"x": 5, "k": 1})
        seen.clear()
    module.forward = "its own"
    assert bound() == ((), {"x": 5, "k": 1})
    del module.forward
    Plain.forward.__defaults__ = (2,)
    assert bound() == ((5, 1), {})
    cls.forward = staticmethod(lambda x, k: x)
    assert bound() == ((), {"x": 5, "k": 1})
    cls.forward = lambda self, k, x: x
    assert bound() == ((1, 5), {})
    cls.__getattribute__ = lambda self, name: object.__getattribute__(self, name)
    assert bound() == ((), {"x": 5, "k": 1})


def test_only_functions_that_pass_everything_on_forward() -> None:
    for function in (lambda self, x: x, lambda *args, **kwargs: 0, lambda self, *args: 0):
        with pytest.raises(TypeError, match="forwards"):
            FrontDoor(function, lambda door, slots: None, forwards=("forward", (), ()))
    for wrong in (1, ("forward",), (1, (), ()), ("forward", (1,), ()), ("forward", (), (1,))):
        with pytest.raises(TypeError):
            FrontDoor(Module.call, lambda door, slots: None, forwards=wrong)  # type: ignore[arg-type]
