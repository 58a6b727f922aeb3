"""Object graphs come back from documents as they were."""

from __future__ import annotations

import datetime
import decimal
import fractions
import functools
import json
import math
from collections import OrderedDict, deque
from concurrent.futures import ThreadPoolExecutor
from types import FunctionType, MethodType
from typing import Any

import pytest

from torchjit_core.expr import symbol
from torchjit_core.guards import MISSING, ClassAttrIs, IdIs, MroIs, TypeIs, ValueEquals
from torchjit_core.location import CodeLocation
from torchjit_core.paths import Arg, Pinned
from torchjit_core.storing import NotStorable, NotYetStorable, made_by, maker
from torchjit_store import forms, ours
from torchjit_store.deferred import Deferred
from torchjit_store.document import NOT_STORABLE
from torchjit_store.forms import Document, FormatError, decode, encode
from torchjit_store.shapes import ClassShape
from torchjit_store.stale import Stale
from torchjit_store.testing import NoExternals, Table, again

ATOMS = [
    None, True, False, 0, 1, -1, 2**70, -(2**200), 0.5, -0.0, math.inf, -math.inf, "", "é", "\ud800x", b"", b"\x00\xff", 1j, complex(-0.0, math.inf),
    Ellipsis, NotImplemented,
]  # fmt: skip


@pytest.mark.parametrize("atom", ATOMS, ids=repr)
def test_atoms(atom: Any) -> None:
    found = again([atom])[0]
    assert type(found) is type(atom) and repr(found) == repr(atom)


def test_nan_and_equal_numbers_of_other_types() -> None:
    nan, *rest = again((math.nan, 1, 1.0, True, 0.0, -0.0))
    assert math.isnan(nan)
    assert list(map(repr, rest)) == ["1", "1.0", "True", "0.0", "-0.0"]


def test_containers() -> None:
    made = {
        "a": [1, (2, 3), {4}, frozenset({5})],
        (1, "b"): slice(1, None, 2),
        7: range(3),
        None: deque([1], 4),
        "o": OrderedDict(z=1, a=2),
    }
    found = again(made)
    assert found == made and list(found) == list(made)
    assert found[None].maxlen == 4 and type(found["o"]) is OrderedDict and list(found["o"]) == ["z", "a"]


def test_what_is_deferred_is_read_when_it_is_asked_for() -> None:
    shared, own = [1], object()
    table = Table()
    path = Arg.of(0, "x").attr("weight")
    cycle: list[Any] = []
    cycle.append(cycle)
    value = (shared, TypeIs(path, int, CodeLocation("f.py", "f", 3)), {"own": own, "cycle": cycle})
    document = encode([shared, Deferred(value)], table, NoExternals())
    assert "weight" not in json.dumps(document.data)
    read: Any = decode(document, table, NoExternals())
    first, deferred = read
    assert first == [1]
    table.objects = []  # objects of the program were found at once
    found = deferred.get()
    assert found is deferred.get()
    assert found[0] is first
    assert found[1].path is path
    assert found[1].location == CodeLocation("f.py", "f", 3)
    assert found[2]["own"] is own
    assert found[2]["cycle"][0] is found[2]["cycle"]


def test_deferred_values_that_share_objects_and_hold_others() -> None:
    inner = ["inner"]
    first, second = again([Deferred((inner, 1)), Deferred([Deferred(inner), 2])])
    assert first.get() == (["inner"], 1)
    assert second.get()[1] == 2
    assert second.get()[0].get() == ["inner"]


def test_what_the_program_must_be_like_is_compared_at_once() -> None:
    class Base:
        limit = 3000

    table = Table()
    document = encode(
        [Deferred((ClassAttrIs(Base, "limit", Base.limit), MroIs(Base, Base.__mro__)))], table, NoExternals()
    )
    assert [guard.cls for guard in decode(document, table, NoExternals())[0].get()] == [Base, Base]  # type: ignore[index]
    Base.limit = 3001
    with pytest.raises(Stale, match="limit changed"):
        decode(document, table, NoExternals())


def test_deferred_values_for_many_threads() -> None:
    (deferred,) = again([Deferred([1, 2])])
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: deferred.get(), range(64)))
    assert all(value is found[0] for value in found)


def test_what_is_met_twice_is_one_object() -> None:
    shared: list[int] = [1]
    first, second = again([shared, (shared, shared)])
    assert second[0] is first and second[1] is first


@pytest.mark.parametrize("outer", ["list", "dict", "tuple in list", "tuple first"])
def test_cycles(outer: str) -> None:
    held: Any = {"list": [], "dict": {}}.get(outer, [])
    inner = (held, 1)
    if isinstance(held, dict):
        held["me"] = held
        assert (found := again(held))["me"] is found
    elif outer == "list":
        held.append(held)
        assert (found := again(held))[0] is found
    else:
        held.append(inner)
        found = again(inner if outer == "tuple first" else held)
        assert (found[0][0] if outer == "tuple first" else found[0][0]) is found


def test_paths_are_interned_again() -> None:
    obj = object()
    paths = (
        Arg.of(0, "x"), Arg.of(1, "args", ("a", "*b")), Pinned.of(obj, "here"), Arg.of(0, "x").attr("weight"), Arg.of(0, "x").instance_attr("a"),
        Arg.of(0, "x").attr("f").cell(), Arg.of(0, "x").item(1), Arg.of(0, "x").item(True), Arg.of(0, "x").item((1, "k")),
        Arg.of(0, "x").type_of(), Arg.of(0, "x").referent(), Arg.of(0, "x").size(2), Arg.of(0, "x").stride(0), Arg.of(0, "x").offset(),
    )  # fmt: skip
    for before, after in zip(paths, again(paths), strict=True):
        assert after is before


def test_guards() -> None:
    class Held:
        pass

    x, where = Arg.of(0, "x"), CodeLocation("f.py", "f", 3, 3, 1, 9)
    default = (1, 2)
    guards = [
        TypeIs(x, Held, where), IdIs(x, default), ClassAttrIs(Held, "a", MISSING), ValueEquals(x.attr("n"), (1, -0.0)), MroIs(Held, Held.__mro__),
        TypeIs(x.attr("n"), int, CodeLocation("f.py", "f", 3, 3, 1, 9)),
    ]  # fmt: skip
    found = again(guards)
    assert [g.key() for g in found] == [g.key() for g in guards]
    assert found[0].location == where and found[1].location is None
    assert found[1].obj is default and found[2].obj is MISSING


def test_an_object_compared_by_identity_is_that_object_everywhere() -> None:
    default = [1]
    copied, guard = again((default, IdIs(Arg.of(0, "x"), default)))
    assert copied is default and guard.obj is default


def test_other_bases_are_stale() -> None:
    class First:
        pass

    class Second:
        pass

    class Held(First):
        pass

    table = Table()
    document = encode(MroIs(Held, Held.__mro__), table, NoExternals())
    Held.__bases__ = (Second,)
    with pytest.raises(Stale, match="Held"):
        decode(document, table, NoExternals())


def test_equal_atoms_of_a_class_are_the_class_own() -> None:
    class Held:
        rate, size, name = 0.5, 1000, "two words"

    values = dict(vars(Held))
    guards = [ClassAttrIs(Held, name, values[name]) for name in ("rate", "size", "name")]
    table = Table()
    document = encode(guards, table, NoExternals())
    Held.rate, Held.size, Held.name = float("0.5"), int("1000"), " ".join(["two", "words"])  # as in another process
    found: Any = decode(document, table, NoExternals())
    assert all(guard.check(()) for guard in found)
    Held.rate = 0.25
    with pytest.raises(Stale, match="rate"):
        decode(document, table, NoExternals())


def test_expressions_are_interned_again() -> None:
    a, b = symbol("a"), symbol("b")
    expressions = (a, a + b * 2, (a * a + b) // (b + 1), a % 7)
    for before, after in zip(expressions, again(expressions), strict=True):
        assert after is before


def emitted(source: str, name: str, **names: Any) -> FunctionType:
    namespace = {"__emitted__": True, "__name__": "program", **names}
    exec(compile(source, "program.py", "exec"), namespace)
    return namespace[name]  # type: ignore[no-any-return]


def test_generated_functions_share_their_globals() -> None:
    first = emitted(
        "def odd(n): return n and even(n - 1)\ndef even(n, k=len): return not n or odd(n - 1)\nunread = object()\n",
        "odd",
    )
    odd, even = again((first, first.__globals__["even"]))
    assert odd.__globals__ is even.__globals__ and odd.__globals__["even"] is even
    assert odd(3) and not odd(4)
    assert "unread" not in odd.__globals__ and odd.__globals__["__emitted__"] is True
    assert even.__defaults__ == (len,)


def test_a_programs_list_in_emitted_code_is_that_list() -> None:
    held: list[int] = []
    function = emitted("def f(x): held.append(x); return held", "f", held=held)
    assert again(function)(1) is held
    with pytest.raises(NotStorable, match=r"entry.__globals__\['held'\].*refused"):
        encode(function, Table(held), NoExternals())


def test_places_follow_the_program() -> None:
    class Moved(Table):
        def moved(self, filename: str, line: int) -> tuple[str, int]:
            return ("now.py", line + 10) if filename == "program.py" else (filename, line)

    table = Moved()
    function = emitted("\n\ndef f(x):\n    def g():\n        return 1 / x\n    return g()\n", "f")
    where = CodeLocation("program.py", "f", 4, 5, 0, 3)
    back: Any = decode(encode((function, where), table, NoExternals()), table, NoExternals())
    found, at = back
    assert found.__code__.co_filename == "now.py" and found.__code__.co_firstlineno == 13
    with pytest.raises(ZeroDivisionError) as raised:
        found(0)
    assert [entry.lineno + 1 for entry in raised.traceback[1:]] == [16, 15]
    assert (at.filename, at.lineno, at.end_lineno) == ("now.py", 14, 15)


def test_refusals_tell_the_way() -> None:
    lock = object()
    with pytest.raises(NotStorable, match=r"entry\[1\]\['k'\]\[0\]: refused"):
        encode((1, {"k": [lock]}), Table(lock), NoExternals())


def test_damage_is_a_format_error() -> None:
    document = encode([1, "a"], Table(), NoExternals())
    for data in (
        None,
        {},
        {**document.data, "format": 0},
        {**document.data, "root": -1},
        {**document.data, "batches": [["list", [], 10**12, 0, []]]},
    ):
        with pytest.raises(FormatError):
            decode(Document(data, ()), Table(), NoExternals())


def test_atoms_compared_by_identity_are_those_of_the_program() -> None:
    x, text = Arg.of(0, "x"), "".join(["two ", "words"])
    guards = [IdIs(x, obj) for obj in (text, 10**30, "name", 3, None, ())]
    assert all(a.obj is b.obj for a, b in zip(guards, again(guards), strict=True))
    with pytest.raises(NotStorable):
        encode(guards, Table(text), NoExternals())
    encode(guards, Table("name", ()), NoExternals())


def test_nested_functions_of_torchjit() -> None:
    document = encode(forms.decode, Table(), NoExternals())
    assert decode(document, Table(), NoExternals()) is forms.decode
    setter = ClassShape({}, True).setter("other")
    other = again(setter)
    assert other is not setter and other.__code__ is setter.__code__
    held: Any = ForTest([1])
    other(held, 3)
    assert held.other == 3


class ForTest:
    """Stands for a class of torchjit's."""

    __stored_exactly__ = ("mine",)

    def __init__(self, mine: list[int]) -> None:
        self.mine, self.copied = mine, mine[:]


def test_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ForTest, "__module__", "torchjit_store.forms")
    monkeypatch.setattr(forms, "ForTest", ForTest, raising=False)
    first: Any = ForTest([1, 2])
    first.me = first
    found = again((first, first))
    assert found[0] is found[1] and type(found[0]) is ForTest
    assert found[0].mine is first.mine and found[0].copied is not first.copied
    assert found[0].copied == [1, 2] and found[0].__dict__["me"] is found[0]


class Restored:
    """Stands for a class of torchjit's that says itself what it is stored as."""

    def __init__(self, number: int) -> None:
        self.number, self.lock = number, object()

    def __stored_state__(self) -> dict[str, object]:
        if self.number < 0:
            raise NotYetStorable(NOT_STORABLE, "not yet")
        return {"number": self.number}

    def __restore_state__(self, state: dict[str, Any]) -> None:
        self.__init__(state["number"] + 1)  # type: ignore[misc]


def test_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Restored, "__module__", "torchjit_store.forms")
    monkeypatch.setattr(forms, "Restored", Restored, raising=False)
    assert again([Restored(3)])[0].number == 4
    with pytest.raises(NotYetStorable, match=r"entry\[0\]: not yet"):
        encode([Restored(-1)], Table(), NoExternals())


def test_what_a_maker_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(n: int) -> Any:
        return made_by(type("Made", (), {"n": n}), make, n)

    monkeypatch.setattr(make, "__module__", "torchjit_store.forms")
    monkeypatch.setattr(make, "__qualname__", "make")
    monkeypatch.setattr(forms, "make", make, raising=False)
    monkeypatch.setattr(ours, "_is_defined_by_us", lambda obj: True)
    with pytest.raises(ValueError, match="no maker|not declared"):
        make(1)
    maker(make)
    found = again([make(5)])
    assert found[0].n == 5


def test_constants_are_stored_by_name() -> None:
    assert again([MISSING, TABLE])[0] is MISSING
    assert again({"x": MISSING})["x"] is MISSING


TABLE = {"a": 1}


def method_of(held: list[int], n: int) -> tuple[list[int], int]:
    return held, n


def test_methods_and_partials() -> None:
    held = [1]
    join, append, partial, method = again(
        ("-".join, held.append, functools.partial(method_of, held, n=2), MethodType(method_of, held))
    )
    assert join(["a", "b"]) == "a-b"
    append(2)
    assert partial() == ([1, 2], 2) and held == [1]
    assert method(3)[0] is partial()[0]


def test_numbers_of_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    before = [
        numpy.float32(1.5),
        numpy.float64("nan"),
        numpy.int8(-3),
        numpy.bool_(True),
        numpy.complex64(1 - 2j),
        numpy.uint64(2**63),
    ]
    for was, found in zip(before, again(before), strict=True):
        assert type(found) is type(was) and found.tobytes() == was.tobytes()


def test_dates_and_the_like_are_made_again() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    before = [
        datetime.date(2020, 1, 4), datetime.datetime(2020, 1, 4, 5, tzinfo=zone), datetime.timedelta(3, 4, 5), datetime.time(3, 4),
        zone, decimal.Decimal("1.50"), fractions.Fraction(2, 3),
    ]  # fmt: skip

    class Elsewhere(Table):
        def reference(self, obj: object) -> int:
            raise NotStorable(NOT_STORABLE, "")

    document = encode(before, Elsewhere(), NoExternals())
    found: Any = decode(Document(json.loads(json.dumps(document.data)), document.blobs), Table(), NoExternals())
    for was, now in zip(before, found, strict=True):
        assert now == was and type(now) is type(was) and now is not was and repr(now) == repr(was)
