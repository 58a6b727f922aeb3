"""Guards: whatever changes between two calls, the captured function notices what it relied on."""

from __future__ import annotations

import copy
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vm_compare import outcome
from vm_lazy import Jit, Num

FACTOR = 2
SETTINGS: dict[str, Any] = {"mode": "a", "nested": {"depth": 1}, "list": [1, 2]}


class Layer:
    gain = 3
    hooks: dict[str, Any] = {}

    def __init__(self, scale: Any) -> None:
        self.scale = scale
        self.enabled = True
        self.parts: list[Any] = [1]
        self.table: dict[str, Any] = {"k": 5}
        self.ordered: Any = OrderedDict(a=1)

    def apply(self, x: Any, extra: int = 1) -> Any:
        return x * self.scale + extra

    def __getattr__(self, name: str) -> Any:
        if name == "lazy":
            return 7
        raise AttributeError(name)

    @property
    def size(self) -> int:
        return len(self.parts)


class Other(Layer):
    def apply(self, x: Any, extra: int = 1) -> Any:
        return x - extra


def helper(x: Any, n: int = 4) -> Any:
    return x + n


def make() -> Callable[..., Any]:
    bias = 10
    notes: list[Any] = []

    def model(layer: Any, x: Any, other: Any) -> Any:
        y = layer.apply(x) * FACTOR + bias
        if layer.enabled and not layer.hooks:
            y = helper(y)
        if "k" in layer.table:
            y = y + layer.table["k"]
        for part in layer.parts:
            y = y + part
        for key, value in layer.ordered.items():
            y = y + value + len(key)
        if getattr(layer, "missing", None) is not None:
            y = y * 2
        if layer is other:
            y = y - 1
        y = y + layer.size + layer.gain + layer.lazy + len(SETTINGS["list"]) + SETTINGS["nested"]["depth"]
        return y, SETTINGS["mode"], len(notes), isinstance(layer, Other), layer.scale

    model.change = lambda v: notes.append(v)  # type: ignore[attr-defined]
    return model


def _set_global(value: Any) -> Callable[[Any, Any], None]:
    def run(state: Any, model: Any) -> None:
        globals()["FACTOR"] = value

    return run


def _append(parts: Any) -> None:
    if isinstance(parts, list):
        parts.append(3)


def _replace_first(parts: Any) -> None:
    if isinstance(parts, list):
        parts[0] = 8


def _defaults(state: Any, model: Any) -> None:
    helper.__defaults__ = (9,)


def _code(state: Any, model: Any) -> None:
    helper.__code__ = (lambda x, n=4: x - n).__code__


def _method(state: Any, model: Any) -> None:
    Layer.apply = lambda self, x, extra=1: x + self.scale  # type: ignore[method-assign]


def _cell(state: Any, model: Any) -> None:
    names = model.__code__.co_freevars
    model.__closure__[names.index("bias")].cell_contents += 1


MUTATIONS: dict[str, Callable[[Any, Any], None]] = {
    "scale": lambda s, m: setattr(s["layer"], "scale", 5),
    "scale type": lambda s, m: setattr(s["layer"], "scale", 5.0),
    "scale num": lambda s, m: setattr(s["layer"], "scale", Num(2)),
    "disabled": lambda s, m: setattr(s["layer"], "enabled", False),
    "truthy": lambda s, m: setattr(s["layer"], "enabled", 1),
    "parts": lambda s, m: _append(s["layer"].parts),
    "parts item": lambda s, m: _replace_first(s["layer"].parts),
    "parts new": lambda s, m: setattr(s["layer"], "parts", [4, 4]),
    "parts tuple": lambda s, m: setattr(s["layer"], "parts", (4, 4)),
    "table": lambda s, m: s["layer"].table.pop("k", None),
    "table value": lambda s, m: s["layer"].table.update(k=6),
    "ordered": lambda s, m: s["layer"].ordered.update(b=2),
    "order": lambda s, m: s["layer"].ordered.move_to_end("a"),
    "present": lambda s, m: setattr(s["layer"], "missing", 1),
    "class": lambda s, m: setattr(s["layer"], "__class__", Other),
    "class gain": lambda s, m: setattr(Layer, "gain", 4),
    "instance gain": lambda s, m: setattr(s["layer"], "gain", 6),
    "class missing": lambda s, m: setattr(Layer, "missing", 2),
    "instance method": lambda s, m: setattr(s["layer"], "apply", lambda x: x * 100),
    "instance lazy": lambda s, m: setattr(s["layer"], "lazy", 1),
    "hooks": lambda s, m: Layer.hooks.update(h=1),
    "dict replaced": lambda s, m: setattr(s["layer"], "__dict__", {**s["layer"].__dict__, "scale": 11}),
    "mode": lambda s, m: SETTINGS.update(mode="b"),
    "nested": lambda s, m: SETTINGS["nested"].update(depth=2),
    "list": lambda s, m: SETTINGS["list"].append(3),
    "global": _set_global(6),
    "global num": _set_global(Num(3)),
    "global bool": _set_global(True),
    "defaults": _defaults,
    "code": _code,
    "method": _method,
    "cell": _cell,
    "notes": lambda s, m: m.change(1),
    "alias": lambda s, m: s.update(other=s["layer"]),
    "no alias": lambda s, m: s.update(other=Layer(1)),
    "x": lambda s, m: s.update(x=Num(9)),
    "x float": lambda s, m: s.update(x=Num(9.5)),
}


class _Restore:
    """Puts the module's globals, the classes and the helper back."""

    def __enter__(self) -> None:
        self.saved = (copy.deepcopy(SETTINGS), FACTOR, helper.__defaults__, helper.__code__, dict(vars(Layer)))

    def __exit__(self, *exc: object) -> None:
        settings_, factor, helper.__defaults__, helper.__code__, members = self.saved
        SETTINGS.clear()
        SETTINGS.update(settings_)
        globals()["FACTOR"] = factor
        Layer.hooks.clear()
        for name in ("gain", "apply"):
            setattr(Layer, name, members[name])
        if "missing" in vars(Layer):
            del Layer.missing  # type: ignore[attr-defined]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(sorted(MUTATIONS)), min_size=1, max_size=6))
def test_mutations(names: list[str]) -> None:
    with _Restore():
        model = make()
        jit = Jit(model)
        state: dict[str, Any] = {"layer": Layer(3), "x": Num(1), "other": None}
        _same(jit, model, state)
        for name in names:
            MUTATIONS[name](state, model)
            _same(jit, model, state)
            _same(jit, model, state)


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_each_mutation(name: str) -> None:
    with _Restore():
        model = make()
        jit = Jit(model)
        state: dict[str, Any] = {"layer": Layer(3), "x": Num(1), "other": None}
        _same(jit, model, state)
        MUTATIONS[name](state, model)
        _same(jit, model, state)


def _same(jit: Jit, model: Callable[..., Any], state: dict[str, Any]) -> None:
    args = state["layer"], state["x"], state["other"]
    expected = outcome(model, args)
    actual = outcome(jit, args)
    assert actual == expected


def test_unrelated_changes_hit() -> None:
    """What was not read does not matter."""

    def model(layer: Any, x: Any) -> Any:
        return layer.apply(x)

    jit = Jit(model)
    layer = Layer(3)
    for n in range(3):
        layer.parts.append(n)
        layer.table["new"] = n
        setattr(layer, f"attribute{n}", n)
        assert jit(layer, Num(n)).value == model(layer, Num(n)).value
    assert len(jit.captured) == 1


def test_store_then_read_under_two_paths() -> None:
    """A store is seen through every path, and paths that were two objects must stay so."""

    def model(a: Any, b: Any, x: Any) -> Any:
        a.scale = x + 1
        return b.scale

    jit = Jit(model)
    one, two = Layer(1), Layer(2)
    assert jit(one, two, Num(1)) == 2
    assert jit(one, one, Num(1)).value == 2
    assert jit(two, one, Num(5)).value == 2
    assert jit(two, two, Num(5)).value == 6


def test_fresh_closures_do_not_recompile() -> None:
    """A function argument that is made anew for each call is known by its code."""

    def model(f: Any, x: Any) -> Any:
        return f(x)

    jit = Jit(model)
    for n in range(4):
        assert jit(lambda v: v + 1, Num(n)).value == n + 1
    assert len({id(c) for c in jit.captured}) <= 4  # one per lambda expression

    def maker(k: int) -> Any:
        return lambda v: v * k

    again = Jit(model)
    assert [again(maker(2), Num(n)).value for n in range(4)] == [0, 2, 4, 6]
    assert len(again.captured) == 1
    assert again(maker(3), Num(1)).value == 3


# Methods that a class gains between two calls: name, what it gives, and what the program does with an object `m` of the class.
_GAINED: list[tuple[type, tuple[Any, ...], str, Callable[..., Any], Callable[[Any], Any]]] = [
    (int, (3,), "__gt__", lambda self, other: "gained", lambda m: (m > 2, 2 < m, sorted([m, 2]))),
    (int, (3,), "__iter__", lambda self: iter([2]), lambda m: 2 in m),
    (float, (2.0,), "__eq__", lambda self, other: True, lambda m: (m == 5.0, 5.0 == m, m in [7.0])),
    (float, (2.0,), "__lt__", lambda self, other: False, lambda m: (m < 3.0, 3.0 > m, min(m, 3.0))),
    (float, (2.0,), "__index__", lambda self: 1, lambda m: [1, 2, 3][m]),
    (str, ("a",), "__index__", lambda self: 1, lambda m: (1, 2, 3)[m]),
    (bytes, (b"x",), "__index__", lambda self: 1, lambda m: [1, 2, 3].__getitem__(m)),
    (tuple, ((1,),), "__int__", lambda self: 9, lambda m: int(m)),
    (tuple, ((1,),), "__float__", lambda self: 9.5, lambda m: float(m)),
    (tuple, ((1,),), "__copy__", lambda self: "gained", lambda m: copy.copy(m)),
    (tuple, ((1,),), "__lt__", lambda self, other: "gained", lambda m: (m < (2,), (2,) > m)),
    (deque, ([1],), "__radd__", lambda self, other: "gained", lambda m: deque([2]) + m),
    (list, ([1],), "__radd__", lambda self, other: "gained", lambda m: [2] + m),
    (set, ([1],), "__rsub__", lambda self, other: "gained", lambda m: {1, 2} - m),
    (OrderedDict, ({"a": 1},), "keys", lambda self: [], lambda m: ({**m}, dict(m))),
    (object, (), "__setattr__", lambda self, name, value: "gained", lambda m: setattr(m, "x", 1)),
    (object, (), "__delattr__", lambda self, name: "gained", lambda m: delattr(m, "x")),
]


@pytest.mark.parametrize(("base", "args", "name", "method", "use"), _GAINED)
@pytest.mark.parametrize("made", [True, False], ids=["inside", "outside"])
def test_a_method_that_a_class_gains_is_seen(
    base: type, args: Any, name: str, method: Any, use: Callable[[Any], Any], made: bool
) -> None:
    def program(cls: Any, given: Any, x: Any) -> Any:
        m = cls(*args) if made else given
        try:
            return x + 1, use(m)
        except (TypeError, AttributeError) as error:
            return x, type(error)

    cls: Any = type("Gaining", (base,), {})
    jit = Jit(program)
    for _ in range(2):
        assert outcome(jit, (cls, cls(*args), Num(1))) == outcome(program, (cls, cls(*args), Num(1)))
    setattr(cls, name, method)
    if name == "__eq__":
        cls.__hash__ = lambda self: 1
    assert outcome(jit, (cls, cls(*args), Num(1))) == outcome(program, (cls, cls(*args), Num(1)))


def test_copies_of_tuples_with_classes_of_their_own_are_new() -> None:
    class Point(tuple[int, int]):
        pass

    def program(x: Any, m: Any) -> Any:
        made = copy.copy(m)
        return x, made is m, type(made).__name__, made == m, made.__dict__

    point = Point((1, 2))
    point.tag = 5  # type: ignore[attr-defined]
    assert Jit(program)(Num(1), point)[1:] == program(Num(1), point)[1:]
