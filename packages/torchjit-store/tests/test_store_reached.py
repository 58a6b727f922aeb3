"""What user code that runs during a compilation reaches: the digest sees edits anywhere in it, and nothing else."""

from __future__ import annotations

import builtins
import json
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from torchjit_core.reasons import reason
from torchjit_core.storing import NotStorable, ReliedOn, collecting_reliance, never_stored, relied_on
from torchjit_store.finder import Finder, Stale
from torchjit_store.origins import Origins
from torchjit_store.reached import reach_digest

HELPERS = """
STEP = 2
TABLE = {"wide": [1, 2]}
UNUSED = 1
def scaled(n): return n * STEP
def unused(): return 3
class Rule:
    limit = 4
    def __init__(self): self.extra = 5
    def apply(self, n): return n + self.limit + self.extra
RULE = Rule()
"""
PROGRAM = """
import math
import reached_helpers as helpers
from reached_helpers import RULE, TABLE
def outer(k):
    def policy(n, again=1):
        return helpers.scaled(n) + RULE.apply(n) + TABLE["wide"][0] + math.pi + k + again
    return policy
policy = outer(6)
def recursive(n): return recursive(n - 1) if n else 0
"""


def run(name: str, source: str) -> Any:
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, f"/{name}.py", "exec"), module.__dict__)
    return module


def both(helpers: str = HELPERS, program: str = PROGRAM) -> Any:
    run("reached_helpers", helpers)
    return run("reached_program", program)


@pytest.fixture(autouse=True)
def _no_trace() -> Iterator[None]:
    yield
    for name in ("reached_helpers", "reached_imported", "reached_program"):
        sys.modules.pop(name, None)


EDITS = [
    ("STEP = 2", "STEP = 3"), ("n * STEP", "n + STEP"), ("[1, 2]", "[1, 3]"), ("limit = 4", "limit = 40"),
    ("self.extra = 5", "self.extra = 50"), ("n + self.limit", "n - self.limit"),
]  # fmt: skip


@pytest.mark.parametrize("before, after", EDITS)
def test_edits_of_what_is_reached_are_seen(before: str, after: str) -> None:
    first = reach_digest(both().policy)
    assert first == reach_digest(both().policy)
    assert first != reach_digest(both(HELPERS.replace(before, after)).policy)


@pytest.mark.parametrize("before, after", [("outer(6)", "outer(7)"), ("again=1", "again=2"), ("math.pi", "math.e")])
def test_edits_of_the_code_its_cells_and_defaults_are_seen(before: str, after: str) -> None:
    assert reach_digest(both().policy) != reach_digest(both(program=PROGRAM.replace(before, after)).policy)


@pytest.mark.parametrize(
    "before, after", [("UNUSED = 1", "UNUSED = 2"), ("return 3", "return 4"), ("STEP", "\n\nSTEP")]
)
def test_edits_elsewhere_are_none(before: str, after: str) -> None:
    assert reach_digest(both().policy) == reach_digest(both(HELPERS.replace(before, after, 1)).policy)


SIBLINGS = """
import collections, contextlib, functools, torch, types, reached_helpers
def through(function):
    return functools.wraps(function)(lambda *args: function(*args))
@torch.no_grad()
def decorated(n): return n * 11
@functools.lru_cache
def cached(n): return n * 12
@functools.singledispatch
def single(n): return n * 13
@single.register
def of_text(n: str): return n * 14
@contextlib.contextmanager
def scope(): yield 15
class Slotted:
    __slots__ = ("level",)
    def __init__(self): self.level = 16
SLOTTED = Slotted()
class Meta(type):
    def kind(cls): return 17
class Made(metaclass=Meta): pass
class Table(dict):
    def __missing__(self, key): return 18
TABLE = Table()
SPACE = types.SimpleNamespace(gain=19, module=reached_helpers)
QUEUE = collections.deque([20])
CHOSEN = {torch.ops.aten.sin.default, torch.ops.aten.tanh.default}
LISTED = [torch.ops.aten.exp.default]
class Late:
    pass
PARTIAL = functools.partial(through(cached), 21)
def handed(module): return module.UNUSED
def policy(n):
    import reached_imported
    from reached_imported import part
    return (decorated(n), cached(n), single(n), scope(), SLOTTED, Made.kind(), TABLE[n], SPACE.gain, QUEUE[0], n in CHOSEN, LISTED, Late, PARTIAL(),
            handed(SPACE.module), getattr(reached_helpers, "STEP"), len([n]), torch.relu(n), reached_imported.outer, part)
"""
SIBLING_EDITS = [
    *[(f"n * {n}", f"n * {n}0") for n in (11, 12, 13, 14)], ("yield 15", "yield 150"), ("level = 16", "level = 160"), ("return 17", "return 170"),
    ("return 18", "return 180"), ("gain=19", "gain=190"), ("deque([20])", "deque([200])"), ("aten.tanh.default", "aten.cos.default"),
    ("aten.exp.default", "aten.log.default"), ("cached), 21", "cached), 22"), ("class Late:\n    pass", "class Late:\n    late = 1"),
    ("def policy(n):", "import builtins\ndef mine(v): return 5\nbuiltins.len = mine\ndef policy(n):"),
    ("def policy(n):", "def relu(v): return 5\ntorch.relu = relu\ndef policy(n):"),
]  # fmt: skip


@pytest.fixture
def sibling(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    torch = pytest.importorskip("torch")

    def digest(program: str = SIBLINGS, helpers: str = HELPERS, imported: str = "outer = 1\npart = 2\n") -> str:
        monkeypatch.setattr(torch, "relu", torch.relu)
        monkeypatch.setattr(builtins, "len", len)
        run("reached_imported", imported)
        run("reached_helpers", helpers)
        found = reach_digest(run("reached_program", program).policy)
        monkeypatch.undo()
        return found

    return digest


def test_whatever_holds_it_an_edit_is_seen(sibling: Callable[..., str]) -> None:
    first = sibling()
    assert first == sibling() == sibling(helpers=HELPERS.replace("return 3", "return 4"))
    unseen = [(a, b) for a, b in SIBLING_EDITS if a not in SIBLINGS or sibling(SIBLINGS.replace(a, b)) == first]
    assert unseen == []
    assert first not in [
        sibling(helpers=HELPERS.replace(a, b)) for a, b in (("UNUSED = 1", "UNUSED = 2"), ("STEP = 2", "STEP = 3"))
    ]
    assert first not in [sibling(imported=text) for text in ("outer = 9\npart = 2\n", "outer = 1\npart = 9\n")]


def test_names_that_code_makes_up_are_refused() -> None:
    module = run("reached_program", "def a(): return globals()['b']\n")
    with pytest.raises(NotStorable, match="makes up"):
        reach_digest(module.a)


def test_cycles_end() -> None:
    assert reach_digest(both().recursive) == reach_digest(both().recursive)


def test_objects_without_a_comparable_content_are_refused() -> None:
    module = run(
        "reached_program", "import random\nDICE = random.Random(1)\nclass Own: pass\nSET = {Own}\ndef a(): return SET\n"
    )
    with pytest.raises(NotStorable) as raised:
        reach_digest(module.a)
    assert raised.value.reason.id == "TJ-STORE-022"


def test_what_is_relied_on_is_verified_with_the_table() -> None:
    with collecting_reliance() as found:
        relied_on(both().policy)
    (noted,) = found.values()
    assert isinstance(noted, ReliedOn)
    table = json.loads(json.dumps(Origins(found.values()).table()))
    both()
    Finder(table)
    both(HELPERS.replace("STEP = 2", "STEP = 3"))
    with pytest.raises(Stale, match="what reached_program.policy reaches changed"):
        Finder(table)


def test_refusals_come_out_where_the_entry_is_stored() -> None:
    never = reason("TJ-TST-071", "a test", "No more than a test.")
    relied_on(len)  # nobody collects
    with collecting_reliance() as found:
        never_stored(never, "this")
    with pytest.raises(NotStorable, match="this"):
        Origins(found.values())


def test_operators_count_with_what_is_registered_for_them() -> None:
    torch = pytest.importorskip("torch")
    source = "import torch\ndef sizes(x): return list(x.shape)\ndef fake(x): return x.new_empty(sizes(x))\ndef other(x): return x.new_empty(3)\n"
    module = run("reached_program", source)
    grown = torch.library.custom_op(
        "reached::grown", lambda x: x.clone(), mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    grown.register_fake(module.fake)
    noted = ReliedOn(grown)
    table = json.loads(json.dumps(Origins([noted]).table()))
    Finder(table)
    module.sizes = module.other
    with pytest.raises(Stale, match="what reached::grown reaches changed"):
        Finder(table)
    module = run("reached_program", source)
    grown._abstract_fn = module.other  # another function of the same program
    with pytest.raises(Stale, match="reached::grown"):
        Finder(table)
    grown._abstract_fn = module.fake
    Finder(table)
