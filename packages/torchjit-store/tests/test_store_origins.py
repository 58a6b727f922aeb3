"""References: what is found again in another process, and what counts as changed. A module's source run anew stands for that process."""

from __future__ import annotations

import gc
import json
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from torchjit_core.storing import NotStorable
from torchjit_store.finder import Finder, Stale
from torchjit_store.fingerprints import mro
from torchjit_store.origins import Origins
from torchjit_store.search import Search

NAME = "store_origins_program"

SOURCE = '''
"""A program."""
import collections
import enum
import functools
import inspect
import operator
import re
import weakref


class Mode(enum.Enum):
    FAST = 1


class Base:
    pass


class Config(Base):
    limit = 3

    def __init__(self):
        self.size = 4


CONFIG = Config()
HOOKS = collections.OrderedDict()
ITEMS = {"first": [CONFIG, object()]}
PATTERN = re.compile("a+")
SIGN = functools.partial(pow, 2)
PICK = operator.itemgetter(1)
POINT = collections.namedtuple("Point", "x y")(1, HOOKS)
KINDS = frozenset({1, Base})
class Liar(list):
    __class__ = property(lambda self: type)


LIAR = Liar()
APPEND = LIAR.append
SEEN = weakref.WeakKeyDictionary({Config: 1})
HANDLERS = {Base: [1], Config: [2]}


def plain(x):
    return x + 1


def with_defaults(x, k=2.0, *, act=plain, cls=Base):
    return act(x) * k


plain.mark = 1


def outer(k):
    def inner(x):
        return x * k + 5
    return inner


MADE = outer(3)


def dispatched(name):
    def fn(x):
        return x
    fn.__module__, fn.__name__ = __name__, name
    return fn


pick = dispatched("pick")
ALIASED = dispatched("other")


def logged(function):
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*args):
        signature.bind(*args)
        return function(*args)
    return wrapper


@logged
def decorated(x, times=1):
    return x * times


class FrontDoor:
    """As compiled functions are: what is compiled is in a slot."""

    __slots__ = ("__wrapped__",)

    def __init__(self, function):
        self.__wrapped__ = function


FrontDoor.__module__ = "torchjit_frame"


@FrontDoor
def compiled(x):
    return x + 15


class Net:
    scale = 2
    rate = 2.5

    def forward(self, x):
        return [v for v in (lambda y: y + 7)(x)]

    @property
    def width(self):
        return 8

    @staticmethod
    def helper(x, n=3):
        return x + n

    @classmethod
    def build(cls):
        return cls()

    @functools.cached_property
    def slow(self):
        return 9

    @functools.lru_cache
    def cached(self):
        return 10

    @logged
    def wrapped(self, x):
        return x - 11

    @functools.singledispatchmethod
    def told(self, value):
        return 12

    @told.register
    def _(self, value: int):
        return 13

    @told.register
    def _(self, value: str):
        return 14
'''


def run(source: str, filename: str = "/old/place/program.py") -> types.ModuleType:
    module = types.ModuleType(NAME)
    module.__file__ = filename
    sys.modules[NAME] = module
    exec(compile(source, filename, "exec"), module.__dict__)
    return module


@pytest.fixture(autouse=True)
def _no_trace() -> Iterator[None]:
    yield
    sys.modules.pop(NAME, None)


FUNCTIONS: list[Callable[[Any], Any]] = [
    lambda m: m.plain, lambda m: m.with_defaults, lambda m: m.outer, lambda m: m.MADE, lambda m: m.decorated,
    lambda m: m.compiled.__wrapped__, lambda m: m.decorated.__wrapped__, lambda m: m.Net.forward, lambda m: m.Net.__dict__["helper"].__func__,
    lambda m: m.Net.build.__func__, lambda m: m.Net.__dict__["width"].fget, lambda m: m.Net.__dict__["slow"].func,
    lambda m: m.Net.__dict__["cached"].__wrapped__, lambda m: m.Net.wrapped, lambda m: m.Net.wrapped.__wrapped__,
    lambda m: m.Net.__dict__["told"].dispatcher.registry[int], lambda m: m.Net.__dict__["told"].dispatcher.registry[str],
]  # fmt: skip

OBJECTS: list[Callable[[Any], Any]] = [
    *FUNCTIONS,
    lambda m: m.compiled, lambda m: m, lambda m: m.__dict__, lambda m: m.Base, lambda m: m.Config, lambda m: m.Config.__mro__, lambda m: m.CONFIG,
    lambda m: m.CONFIG.__dict__, lambda m: m.HOOKS, lambda m: m.ITEMS["first"], lambda m: m.ITEMS["first"][1],
    lambda m: m.PATTERN, lambda m: m.SIGN, lambda m: m.PICK, lambda m: m.POINT, lambda m: m.KINDS, lambda m: m.Mode.FAST,
    lambda m: m.pick, lambda m: m.ALIASED, lambda m: m.plain.__code__, lambda m: m.MADE.__code__,
    lambda m: m.MADE.__closure__, lambda m: m.MADE.__closure__[0], lambda m: m.with_defaults.__defaults__,
    lambda m: m.with_defaults.__kwdefaults__, lambda m: m.decorated.__closure__[1],
    lambda m: m.decorated.__closure__[1].cell_contents, lambda m: m.decorated.__closure__[0].cell_contents,
    lambda m: m.Net.__dict__["width"], lambda m: m.Net.__dict__["helper"], lambda m: m.Net.__dict__["build"],
    lambda m: m.Net.__dict__["slow"], lambda m: m.Net.__dict__["cached"], lambda m: m.Net.wrapped.__closure__,
    lambda m: signature_of(m)._parameters, lambda m: signature_of(m).parameters["times"],
    lambda m: type(m.POINT).__dict__["y"], lambda m: m.Net.__dict__["rate"], lambda m: dict.__new__,
    lambda m: len, lambda m: list.append, lambda m: object.__init__, lambda m: type, lambda m: json, lambda m: json.dumps,
    lambda m: type.__dict__["__dict__"], lambda m: gc.get_referents(m.Net.__dict__)[0], lambda m: m.HANDLERS[m.Config],
    lambda m: next(iter(m.SEEN.data)), lambda m: m.APPEND,
    lambda m: type(m.POINT).__new__.__globals__, lambda m: type(iter(())), lambda m: type(iter({}.values())),
    lambda m: type(iter(m.HOOKS)), lambda m: type(reversed([])),
]  # fmt: skip


def signature_of(module: Any) -> Any:
    (found,) = [c.cell_contents for c in module.decorated.__closure__ if hasattr(c.cell_contents, "parameters")]
    return found


def stored(module: Any, objects: list[Any], functions: list[Any]) -> tuple[Any, list[Any]]:
    origins = Origins(functions)
    references = [origins.reference(obj) for obj in objects]
    return json.loads(json.dumps(origins.table())), references


def test_everything_is_found_again_in_a_program_that_is_the_same() -> None:
    module = run(SOURCE)
    table, references = stored(module, [get(module) for get in OBJECTS], [get(module) for get in FUNCTIONS])
    again = run(SOURCE)
    finder = Finder(table)
    for number, (get, reference) in enumerate(zip(OBJECTS, references, strict=True)):
        assert finder.find(reference) is get(again), number


@pytest.mark.parametrize(
    "before, after",
    [
        ("class Config(Base)", "# a comment\n\n\nclass Config(Base)"),
        ('"""A program."""', '"""Another\nprogram,\nlonger."""'),
        ("def outer(k)", "def another(z):\n    return z - 1\n\n\ndef outer(k)"),
        ("        return 8", "        return 8\n\n    def depth(self):\n        return 6"),
        ("plain.mark = 1", "plain.mark = 2"),
        ("limit = 3", "limit = 4"),  # class attributes and contents of instances are guarded
        ("self.size = 4", "self.size = 5"),
        ("outer(3)", "outer(4)"),  # a cell's content, too
    ],
)
def test_edits_elsewhere_are_none(before: str, after: str) -> None:
    assert before in SOURCE
    module = run(SOURCE)
    table, references = stored(module, [get(module) for get in OBJECTS], [get(module) for get in FUNCTIONS])
    again = run(SOURCE.replace(before, after), "/new/place/moved.py")
    finder = Finder(table)
    assert [finder.find(r) is get(again) for r, get in zip(references, OBJECTS, strict=True)] == [True] * len(OBJECTS)
    line = module.Net.forward.__code__.co_firstlineno
    assert finder.moved("/old/place/program.py", line) == (
        "/new/place/moved.py",
        again.Net.forward.__code__.co_firstlineno,
    )
    assert finder.moved("/elsewhere.py", 3) == ("/elsewhere.py", 3)


@pytest.mark.parametrize(
    "before, after, what",
    [
        ("x + 1", "x + 2", "the code of store_origins_program.plain changed"),
        ("x + 1", "x + 1.0", "plain"),
        ("x + 15", "x + 16", "the code of what store_origins_program.compiled compiles changed"),
        ("@FrontDoor\n", "", "compiled"),
        ("@FrontDoor\ndef compiled", "compiled = FrontDoor(plain)\ndef other", "compiled"),
        ("x + 1", "x - 1", "plain"),
        ("k=2.0", "k=5.0", "store_origins_program.with_defaults changed"),
        ("k=2.0", "k=2", "with_defaults"),
        ("act=plain", "act=abs", "with_defaults"),
        ("cls=Base", "cls=Config", "with_defaults"),
        ("cls=Base", "kls=Base", "with_defaults"),
        ("* k + 5", "* k + 6", "outer"),
        ("MADE = outer(3)", "MADE = plain", "MADE"),
        ("rate = 2.5", "rate = 3.5", "Net.rate changed"),
        ("y + 7", "y + 8", "Net.forward"),
        ("y: y + 7", "z: z + 7", "Net.forward"),
        ("return 8", "return 80", "width"),
        ("n=3", "n=4", "helper"),
        ("    @property\n", "    @functools.cached_property\n", "width"),
        ("return 9", "return 90", "slow"),
        ("return 10", "return 100", "cached"),
        ("x - 11", "x - 12", "wrapped"),
        ("    @logged\n", "", "wrapped"),
        ("@logged\ndef", "def", "decorated"),
        ("plain.mark = 1", "plain._torchdynamo_disable = True", "plain"),
        ("@logged\ndef", "@functools.lru_cache\n@logged\ndef", "decorated"),
        ("times=1", "times=2", "decorated"),
        ("signature.bind(*args)\n", "signature.bind_partial(*args)\n", "decorated"),
        ("FAST = 1", "FAST = 2", "Mode"),
        ("FAST = 1", "SLOW = 1", "Mode"),
        ('"a+"', '"b+"', "PATTERN"),
        ("partial(pow, 2)", "partial(pow, 3)", "SIGN"),
        ("partial(pow, 2)", "partial(divmod, 2)", "SIGN"),
        ("itemgetter(1)", "itemgetter(2)", "PICK"),
        ("(1, HOOKS)", "(2, HOOKS)", "POINT"),
        ("(1, HOOKS)", "(1, ITEMS)", "POINT"),
        ("frozenset({1, Base})", "frozenset({1, Config})", "KINDS"),
        ("class Config(Base)", "class Config", "Config"),
        ("    limit = 3\n", "    limit = 3\n    __slots__ = ('size',)\n", "Config"),
        ("PATTERN = re", "PATTERNS = re", "PATTERN is gone"),
        ("return x + 1", "return (\n        x + 1)", "plain"),  # positions, which tracebacks show
    ],
)
def test_edits_of_what_is_relied_on_are_seen(before: str, after: str, what: str) -> None:
    assert before in SOURCE
    module = run(SOURCE)
    table, _ = stored(module, [get(module) for get in OBJECTS], [get(module) for get in FUNCTIONS])
    run(SOURCE.replace(before, after, 1))
    with pytest.raises(Stale) as raised:
        Finder(table)
    assert what in raised.value.what


def test_roots_lead_to_what_no_module_holds() -> None:
    def local(scale: float) -> Any:
        held = [scale]
        return lambda x: x * held[0]

    one, two = local(2.0), local(3.0)
    with pytest.raises(NotStorable, match="no way back"):
        Origins([one])
    table, (function, cell) = stored_below([one], [one, one.__closure__[0]])
    finder = Finder(table, [two])
    assert finder.find(cell) is two.__closure__[0]
    assert finder.find(function) is two
    with pytest.raises(Stale):
        Finder(table, [lambda x: x])
    with pytest.raises(Stale, match="arguments"):
        Finder(table)


def test_what_a_factory_gave_to_a_global_object_needs_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that reads `os.environ` relies on the function that encodes the name; torch and transformers hold more than is searched."""
    monkeypatch.setattr(Search, "_LIMIT", 0)
    encode = os.environ.encodekey
    table, (found,) = stored_below([], [encode])
    assert Finder(table).find(found) is encode


def test_what_is_held_beside_something_found_is_found_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration's class holds the function that sets its attributes, and validators that this calls: transformers' do."""
    monkeypatch.setattr(Search, "_LIMIT", 1000)

    class Checked:
        first: Any
        checks: dict[str, list[Any]]

    def rooted() -> Any:
        held = Checked()
        held.first, held.checks = (lambda: 1), {"size": [lambda: 2]}
        return [held, [[object() for _ in range(10)] for _ in range(300)]]

    one, two = rooted(), rooted()
    table, found = stored_below([one], [one[0].first, one[0].checks["size"][0]])
    finder = Finder(table, [two])
    assert [finder.find(reference) for reference in found] == [two[0].first, two[0].checks["size"][0]]


def stored_below(roots: list[Any], objects: list[Any]) -> tuple[Any, list[Any]]:
    origins = Origins([], roots)
    references = [origins.reference(obj) for obj in objects]
    return json.loads(json.dumps(origins.table())), references


def test_code_alone_is_found_by_its_name_and_file() -> None:
    module = run(SOURCE)
    lambdas = [c for c in module.Net.forward.__code__.co_consts if isinstance(c, types.CodeType)]
    codes = [module.MADE.__code__, module.Net.wrapped.__wrapped__.__code__, *lambdas]
    table, references = stored(module, codes, codes)
    again = run(SOURCE, "/new/place/moved.py")
    finder = Finder(table)
    assert finder.find(references[1]) is again.Net.wrapped.__wrapped__.__code__
    assert [finder.find(r).co_filename for r in references] == ["/new/place/moved.py"] * len(codes)  # type: ignore[attr-defined]
    run(SOURCE.replace("x - 11", "x - 12"))
    with pytest.raises(Stale, match="wrapped"):
        Finder(table)


def test_no_code_of_the_program_runs() -> None:
    source = """
class Meta(type):
    def __getattribute__(cls, name): raise AssertionError(name)
class Touchy(metaclass=Meta):
    def __getattribute__(self, name): raise AssertionError(name)
    def __eq__(self, other): raise AssertionError
    def __hash__(self): raise AssertionError
    def __repr__(self): raise AssertionError
    @property
    def __dict__(self): raise AssertionError
class Items(dict):
    def __getitem__(self, key): raise AssertionError
    def items(self): raise AssertionError
    def __iter__(self): raise AssertionError
def __getattr__(name): raise AssertionError(name)
INNER = object()
ITEMS = Items(touchy=[object.__new__(Touchy), INNER])
del INNER
def function(x, y=ITEMS): return x
"""
    module = run(source)
    wanted: list[Callable[[Any], Any]] = [
        lambda m: m.__dict__["Touchy"], lambda m: dict.__getitem__(m.ITEMS, "touchy")[0],
        lambda m: dict.__getitem__(m.ITEMS, "touchy")[1], lambda m: m.function,
    ]  # fmt: skip
    table, references = stored(module, [get(module) for get in wanted], [module.function])
    again = run(source)
    finder = Finder(table)
    assert all(finder.find(r) is get(again) for r, get in zip(references, wanted, strict=True))


def test_what_has_no_rule_is_refused_with_its_type() -> None:
    module = run("import random\nDICE = random.Random(3)\ndef roll(): return DICE.random()\n")
    with pytest.raises(NotStorable, match="an instance of random.Random") as raised:
        Origins([module.roll]).reference(module.DICE)
    assert raised.value.reason.id == "TJ-STORE-020"


def test_modules_that_are_not_imported_are_a_miss() -> None:
    module = run(SOURCE)
    table, _ = stored(module, [module.plain], [])
    del sys.modules[NAME]
    with pytest.raises(Stale, match=f"{NAME} is not imported"):
        Finder(table)
    assert NAME not in sys.modules


def test_processes_that_multiprocessing_starts_share_the_entries_of_the_main_module() -> None:
    source = "class Rule: pass\ndef main(x): return x\n"
    first = run(source.replace("x", "y"))
    names = ("__main__", "__mp_main__")
    before: dict[str, Any] = {name: sys.modules.get(name) for name in names}
    try:
        sys.modules["__main__"] = first
        first.__dict__["__name__"] = "__main__"
        exec(compile(source, "/program.py", "exec"), first.__dict__)
        table, (rule, function) = stored(first, [first.Rule, first.main], [first.main])
        second = types.ModuleType("__mp_main__")
        exec(compile(source, "/program.py", "exec"), second.__dict__)
        sys.modules["__main__"] = sys.modules["__mp_main__"] = second
        finder = Finder(table)
        assert finder.find(rule) is second.Rule
        assert finder.find(function) is second.main
        stored(second, [second.Rule, second.main, second, second.__dict__], [second.main])
    finally:
        for name in names:
            if before[name] is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = before[name]


def test_methods_of_atoms_are_made_again() -> None:
    table, (joined, doubled) = stored(None, [", ".join, "x".upper], [])
    finder = Finder(table)
    join: Any = finder.find(joined)
    assert join("ab") == "a, b"


def test_modules_that_call_themselves_otherwise_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    module = run(SOURCE)
    monkeypatch.setitem(module.__dict__, "__name__", "a.name.that.leads.elsewhere")
    origins = Origins([])
    module.plain.__module__ = "a.name.that.leads.elsewhere"
    objects = [module, module.__dict__, module.plain]
    references = [origins.reference(obj) for obj in objects]
    finder = Finder(json.loads(json.dumps(origins.table())))
    assert [finder.find(r) for r in references] == objects


def test_torchjits_own_functions_need_no_row() -> None:
    function: Any = mro
    origins = Origins([function])
    assert origins.table()["functions"] == []
