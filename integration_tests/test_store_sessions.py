"""Two processes over one cache folder: the second one captures nothing that the first one has stored, and computes the same."""

from __future__ import annotations

import enum
import functools
import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

import torchjit
from torchjit_fx import control_flow
from torchjit_session import control, site_keys
from torchjit_session import storing as session_storing
from torchjit_store import decoding
from torchjit_store.document import FormatError
from torchjit_store.entry import StoredEntry

_PROGRAM = Path(__file__).parent / "stored_program.py"


def _run(folder: Path, *names: str, mode: str = "on", program: Path = _PROGRAM, **environment: str) -> Any:
    """What the program tells: by case what the store did, and the process's counters."""
    settings = {"TORCHJIT_CACHE_DIR": str(folder), "TORCHJIT_STORE": mode, "TORCHJIT_ON_ERROR": "raise"}
    done = subprocess.run(
        [sys.executable, str(program), *names], capture_output=True, text=True, check=False,
        env={**os.environ, **settings, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for what this process keeps; the suite itself runs without."""
    monkeypatch.setenv("TORCHJIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHJIT_STORE", "on")
    return tmp_path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache folder of all processes."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def twice(folder: Path) -> tuple[Any, Any]:
    """What the two processes told."""
    return _run(folder), _run(folder)


def test_the_first_process_stores_all_that_it_compiles(twice: tuple[Any, Any]) -> None:
    first, _ = twice
    assert {name: told["entry_not_stored"] for name, told in first["told"].items() if "entry_not_stored" in told} == {}
    captured = sum(len(told.get("compile_start", ())) for told in first["told"].values())
    assert captured > 25 and first["counters"]["store"]["stored"] >= captured


def test_the_second_process_captures_nothing(twice: tuple[Any, Any]) -> None:
    _, second = twice
    assert {name: told["compile_start"] for name, told in second["told"].items() if "compile_start" in told} == {}
    assert all("entry_loaded" in told for told in second["told"].values())
    assert not second["capture"]


def test_one_that_only_reads_writes_nothing(tmp_path: Path) -> None:
    told = _run(tmp_path, "varying_sizes", mode="read")
    assert "store" not in told["counters"] and "compile_start" in told["told"]["varying_sizes"]
    assert not (tmp_path / "entries").exists()


def test_entries_are_compared_with_what_is_captured_where_that_is_asked_for(
    folder: Path, twice: tuple[Any, Any]
) -> None:
    names = ("varying_sizes", "breaks_and_continuations", "training")
    told = _run(folder, *names, mode="verify")
    store = told["counters"]["store"]
    loaded = sum(len(twice[1]["told"][name]["entry_loaded"]) for name in names)
    assert store["verified"] == loaded and "different" not in store and "loaded" not in store


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_bodies_that_have_a_name_in_one_process_only_are_not_stored(store: Path, backend: str) -> None:
    """What calls the program's own function as it is has no name that the next process would give to the same body."""
    torchjit.allow_in_graph(_scaled)
    try:

        def choice(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda a: _scaled(a), lambda a: a.cos(), (x,))

        def after_a_break(x: torch.Tensor) -> torch.Tensor:
            print(end="")
            return choice(x + 1)

        for f, x in ((choice, torch.ones(3)), (after_a_break, -torch.ones(3) * 2)):
            compiled: Any = torchjit.compile(f, backend=backend)
            torch.testing.assert_close(compiled(x), f(x))
            assert any("TJ-STORE-035" in made.storage for made in compiled.compiled.specializations)
    finally:
        control.ALLOWED_IN_GRAPH.discard(_scaled)


def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def _tenfold(x: torch.Tensor) -> torch.Tensor:
    return x * 10


def test_only_marks_of_functions_that_a_capture_asked_about_count(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cos(_doubled(x)).sub(1)

    def storage(expected: torch.Tensor, **marks: Any) -> str:
        """What became of it in a process that has said this."""
        for name in ("ALLOWED_IN_GRAPH", "DISALLOWED", "FORBIDDEN", "SUBSTITUTED"):
            monkeypatch.setattr(control, name, marks.get(name, type(getattr(control, name))()))
        compiled: Any = torchjit.compile(f, backend="aot_eager", isolate_recompiles=True)
        torch.testing.assert_close(compiled(x), expected)
        return str(compiled.compiled.specializations[0].storage)

    x = torch.ones(3)
    assert storage(f(x)) == "stored"
    others: dict[str, Any] = {
        "ALLOWED_IN_GRAPH": {torchjit.nonstrict_trace(_tenfold), torch.tan},
        "DISALLOWED": {torch.sin, torch.Tensor.add},
        "FORBIDDEN": {_tenfold},
        "SUBSTITUTED": {_tenfold: _doubled},
    }
    assert storage(f(x), **others) == "loaded"
    for marked in (torch.cos, torch.Tensor.sub, _doubled):
        assert storage(f(x), DISALLOWED={marked}) == "stored" and storage(f(x), DISALLOWED={marked}) == "loaded"
    assert (
        storage(f(x), DISALLOWED={functools.partial(_scaled)}) == "stored"
    )  # it has no name: every entry is a stranger
    assert storage(torch.cos(x * 10) - 1, SUBSTITUTED={_doubled: _tenfold}) == "stored"
    assert storage(f(x), ALLOWED_IN_GRAPH={_doubled}) == "stored"
    with pytest.raises(torchjit.exc.UserError, match="forbid_in_graph"):
        storage(f(x), FORBIDDEN={torch.cos})
    assert storage(f(x)) == "loaded"


def test_entries_that_were_read_for_other_settings_are_not_used(store: Path) -> None:
    """They are of another key, which nothing but that tells."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    def storage(compiled: Any, x: torch.Tensor) -> str:
        torch.testing.assert_close(compiled(x), f(x))
        return str(compiled.compiled.specializations[-1].storage)

    first, second = (torchjit.compile(f, backend="aot_eager", isolate_recompiles=True) for _ in range(2))
    x = torch.ones(3)
    assert (
        storage(first, x) == "stored" and storage(second, x.double()) == "stored"
    )  # which reads what the first has stored
    flags = {"enabled": torch.backends.mkldnn.enabled, "deterministic": not torch.backends.mkldnn.deterministic}
    with torch.backends.mkldnn.flags(**flags):  # assigned to, they raise where torch's testing modules have frozen them
        assert storage(second, x) == "stored"


def test_bodies_are_known_by_what_they_do(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda a: a.sin() * 2, lambda a: a.cos(), (x,))

    def thrice(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda a: a.sin() * 3, lambda a: a.cos(), (x,))

    x = torch.ones(3, requires_grad=True)
    storages = []
    for functions in (((twice, 2), (thrice, 3)), ((thrice, 3), (twice, 2))):
        for choice, n in functions:
            compiled: Any = torchjit.compile(choice, isolate_recompiles=True)
            (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
            torch.testing.assert_close(gradient, torch.ones(3).cos() * n)
            storages.append(compiled.compiled.specializations[-1].storage)
        monkeypatch.setattr(control_flow, "_NAMES", {})  # as in the next process
        for name in list(control_flow.PROGRAMS):
            monkeypatch.delitem(control_flow.PROGRAMS, name)
    assert storages == ["stored", "stored", "loaded", "loaded"]


class _kept_property(property):
    """As the constraints of torch's distributions have it."""


class _Chain:
    def __init__(self, parts: list[float]) -> None:
        self.parts = parts

    @_kept_property
    def total(self) -> float:
        return sum(self.parts)


def test_disabled_functions_and_sets_whose_order_does_not_count_and_properties_of_other_classes(store: Path) -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.three = (torch.nn.Linear(3, 3) for _ in range(3))
            self.three.weight = self.one.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.three(self.two(self.one(x)))

    model, parts = Tied(), _Chain([1.0, 2.5])
    given = {name: value.detach() + 1 for name, value in model.named_parameters()}
    composed = torch.distributions.transforms.ComposeTransform([torch.distributions.transforms.ExpTransform()])

    def called(x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, given, (x,))

    def chained(x: torch.Tensor) -> torch.Tensor:
        return x * parts.total

    def transformed(x: torch.Tensor) -> torch.Tensor:
        return composed(x) + composed.domain.event_dim

    alone = torchjit.disable(lambda x: x.cos())

    def around(x: torch.Tensor) -> torch.Tensor:
        return alone(x.sin()) * 2

    models = [torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh()) for _ in range(2)]

    def ensemble(x: torch.Tensor) -> torch.Tensor:
        stacked = torch.func.stack_module_state(models)  # type: ignore[arg-type]  # a list of modules
        return torch.vmap(lambda p, b, y: torch.func.functional_call(models[0], (p, b), (y,)), (0, 0, None))(
            *stacked, x
        )

    for f in (around, called, chained, ensemble, transformed):
        storages = []
        for _ in range(2):
            compiled: Any = torchjit.compile(f, isolate_recompiles=True, backend="aot_eager", fullgraph=f is not around)
            torch.testing.assert_close(compiled(torch.ones(2, 3)), f(torch.ones(2, 3)))
            storages += [made.storage for made in compiled.compiled.specializations]
        half = len(storages) // 2
        assert storages == ["stored"] * half + ["loaded"] * half, f.__name__
    parts.parts.append(4.0)
    torch.testing.assert_close(compiled(torch.ones(2, 3)), transformed(torch.ones(2, 3)))
    compiled = torchjit.compile(chained, isolate_recompiles=True, backend="aot_eager")
    torch.testing.assert_close(compiled(torch.ones(2, 3)), chained(torch.ones(2, 3)))


def _scaled(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
    return x.sin() * by


def test_what_changed_before_its_backward_was_compiled_is_not_stored(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: Any = torchjit.compile(lambda x: _scaled(x).sum(), backend="aot_eager")
    out = compiled(torch.ones(3, requires_grad=True))
    monkeypatch.setattr(_scaled, "__defaults__", (3.0,))
    out.backward()
    (region,) = compiled.compiled.specializations
    assert region.storage.startswith("not stored: TJ-STORE-036") and region.storage.endswith("_scaled")
    assert not list(store.glob("entries/**/*.tj"))


def test_what_became_of_each_entry_is_told(store: Path) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    told = []
    for options in (None, None, {"freezing": True}):
        compiled: Any = torchjit.compile(f, isolate_recompiles=True, options=options)
        torch.testing.assert_close(compiled(torch.ones(3)), f(torch.ones(3)))
        told.append(compiled.compiled.stats)
    stored, loaded, refused = (stats.regions[0] for stats in told)
    assert (stored.storage, loaded.storage) == ("stored", "loaded")
    assert (
        told[1].graph_count == 1
        and told[1].op_count == told[0].op_count == 2
        and "sin" in loaded.texts[0]
        and "loaded from disk, built in" in str(told[1])
    )
    assert refused.storage.startswith("not stored: TJ-STORE-030") and "TJ-STORE-030" in str(told[2])
    assert f"On disk ({store}): 1 stored\n" in f"{told[0]}\n" and f"On disk ({store}): 1 loaded" in str(told[1])
    assert refused.location is not None and f"{Path(__file__).name}:{refused.location.lineno})" in str(told[2])


def test_nothing_is_written_for_a_backward_that_is_not_compiled_yet(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it cannot be written is known without a try."""
    packed: list[str] = []
    pack = session_storing.pack

    def noted(entry: StoredEntry, *others: Any) -> bytes:
        packed.append(entry.cause)
        return pack(entry, *others)

    monkeypatch.setattr(session_storing, "pack", noted)
    compiled: Any = torchjit.compile(lambda x, y: ((x.sin() * 2).sum(), y * 3), isolate_recompiles=True)
    x, y = torch.ones(3, requires_grad=True), torch.ones(3)
    out, _ = compiled(x, y)
    (region,) = compiled.compiled.specializations
    assert region.storage.startswith("not stored yet: TJ-STORE-040")
    assert not packed
    out.backward()
    assert (region.storage, len(packed)) == ("stored", 1)
    with torch.no_grad():
        compiled(x, y)
    assert [made.storage for made in compiled.compiled.specializations] == ["stored", "stored"]


@pytest.mark.parametrize("readable", [True, False])
def test_guards_are_read_when_a_call_misses(store: Path, monkeypatch: pytest.MonkeyPatch, readable: bool) -> None:
    """Not before; and that they cannot be read is nobody's exception."""
    asked: list[int] = []
    read = decoding._Building.read_rest

    def read_rest(self: Any, place: int) -> object:
        asked.append(place)
        if not readable:
            raise FormatError("a batch of 0")
        return read(self, place)

    monkeypatch.setattr(decoding._Building, "read_rest", read_rest)
    # Which functions an entry asked about is read where others were marked meanwhile, as other tests of this process do.
    monkeypatch.setattr(site_keys, "_each", lambda: iter(()))

    def f(x: torch.Tensor, n: float | str) -> torch.Tensor:
        return x.sin() + len(str(n))

    torchjit.compile(f, isolate_recompiles=True)(torch.ones(3), "a")
    compiled: Any = torchjit.compile(f, isolate_recompiles=True, on_error="eager")
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.ones(3), "a"), f(torch.ones(3), "a"))
    assert not asked
    torch.testing.assert_close(compiled(torch.ones(3), "bcd"), f(torch.ones(3), "bcd"))
    loaded, captured = compiled.compiled.stats.regions
    assert (loaded.storage, captured.storage) == ("loaded", "stored")
    assert bool(loaded.guards) == ("'a'" in captured.cause) == readable
    assert asked
    compiled(torch.ones(3), "a")
    assert len(compiled.compiled.specializations) == 2


def test_what_was_there_and_did_not_fit_is_told(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    def f(x: torch.Tensor, n: float | str) -> torch.Tensor:
        return x.sin() + len(str(n))

    told = []
    torchjit.set_logs(store=True)
    try:
        for n in ("a", "bc", "a"):
            compiled: Any = torchjit.compile(f, isolate_recompiles=True)
            torch.testing.assert_close(compiled(torch.ones(3), n), f(torch.ones(3), n))
            told.append(compiled.compiled.stats)
    finally:
        torchjit.set_logs(store=False)
    where = f"{Path(__file__)}:{f.__code__.co_firstlineno}"
    assert told[0].store.missed == () and told[0].store.stored == 1
    (miss,) = told[1].store.missed
    assert where in miss[0] and "'a'" in miss[1]
    assert f"1 stored, 1 there, but not for these calls\n    not used: {miss[0]}: {miss[1]}" in str(told[1])
    assert told[2].store.loaded == 1
    log = caplog.text
    assert f"({where}) kept on disk" in log and "but not for this call" in log and f"({where}) loaded from disk" in log


_ASKED = """
import enum, types, typing

class Pair(typing.NamedTuple):
    a: float = 1.0 + {a}

def __getattr__(name):
    {a} raise AttributeError(name)
    return 4.0

class Lazy(types.ModuleType):
    def __getattr__(self, name):
        {a} raise AttributeError(name)
        return 4.0

lazy = Lazy("lazy")

class Meta(type):
    def __bool__(cls):
        return {a}
    def __eq__(cls, other):
        return {a}
    def __hash__(cls):
        return 3
    def __repr__(cls):
        return "{a}"

class First(metaclass=Meta):
    pass

class Second(metaclass=Meta):
    pass

class Kind(enum.Enum):
    A = 1.0
    B = 2.0
    def __bool__(self):
        return {a}
    def __eq__(self, other):
        return {a}
    def __hash__(self):
        return 3
    def __float__(self):
        return 1.0 + {a}
    def __str__(self):
        return "{a}"
    def __contains__(self, item):
        return {a}
    def __getattr__(self, name):
        {a} raise AttributeError(name)
        return 4.0
"""
_ANSWERS = (
    "asked.there", "hasattr(asked, 'there')", "getattr(asked, 'there', 1.0)", "asked.lazy.there", "hasattr(asked.lazy, 'there')",
    "1.0 if asked.First else 2.0", "any([asked.First])", "{asked.First: 1.0}.get(asked.Second, 2.0)", "len(str(asked.First))",
    "1.0 if asked.Kind.A else 2.0", "{asked.Kind.A: 1.0}.get(asked.Kind.B, 2.0)", "float(asked.Kind.A)", "len('%s' % asked.Kind.A)",
    "3 in asked.Kind.A", "getattr(asked.Kind.A, 'there', 1.0)", "asked.Kind.A.there",
    "asked.Pair().a",
)  # fmt: skip


def _module(name: str, text: str) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__file__ = f"{name}.py"
    sys.modules[name] = made
    exec(compile(text, f"{name}.py", "exec"), made.__dict__)
    return made


def _outcome(f: Any) -> Any:
    try:
        return f(torch.ones(3)).tolist()
    except AttributeError as error:
        return str(error)


def test_what_code_of_the_program_said_while_it_was_captured_is_asked_again(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module's `__getattr__` that raised, methods of metaclasses and of enums' members that C code asked."""
    lines = [f"def answer_{n}(x): return x + {what}\n" for n, what in enumerate(_ANSWERS)]
    names = ("asked", "asking")
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)  # and gone in the end
    told = []
    for raises, answer in (("if 1:", True), ("if 1:", True), ("if 0:", False)):
        _module("asked", _ASKED.replace("{a} raise", f"{raises} raise").replace("{a}", str(answer)))
        asking = _module("asking", "import torch, asked\n" + "".join(lines))
        for n, what in enumerate(_ANSWERS):
            compiled: Any = torchjit.compile(
                getattr(asking, f"answer_{n}"), backend="aot_eager", isolate_recompiles=True
            )
            assert _outcome(compiled) == _outcome(getattr(asking, f"answer_{n}")), what
            told.append(compiled.compiled.stats.regions[0].storage)
    assert told == ["stored"] * len(_ANSWERS) + ["loaded"] * len(_ANSWERS) + ["stored"] * len(_ANSWERS)


def test_a_module_that_gets_a_getattr(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had none, so a name that it lacked was an error."""
    for name in ("asked", "asking"):
        monkeypatch.setitem(sys.modules, name, None)
    told = []
    for text in ("", "def __getattr__(name): return 4.0", "there = 5.0"):
        _module("asked", text)
        f = _module("asking", "import asked\ndef f(x): return x + getattr(asked, 'there', 1.0)").f
        compiled: Any = torchjit.compile(f, backend="aot_eager", isolate_recompiles=True)
        told.append((_outcome(compiled), _outcome(f)))
    assert all(a == b for a, b in told) and len({a[0] for a, _ in told}) == 3


def test_what_the_classes_of_enums_iterate_over(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asking", None)
    text = "import enum\nclass Kind(enum.Enum):\n    A, B = 1, 2\ndef f(x): return [x * kind.value for kind in Kind]\n"
    told = []
    for patched in (False, True):
        if patched:
            monkeypatch.setattr(enum.EnumType, "__iter__", lambda cls: iter((cls.B,)))
        f = _module("asking", text).f
        compiled: Any = torchjit.compile(f, backend="aot_eager", isolate_recompiles=True)
        out = compiled(torch.ones(2))
        torch.testing.assert_close(out, f(torch.ones(2)))
        told.append(len(out))
    assert told == [2, 1]


def test_a_warning_is_about_the_line_that_the_code_has_now(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asking", None)
    text = "import warnings\ndef g(): warnings.warn('hey')\ndef f(x):\n    g()\n    return x + 1\n"
    lines = []
    for above in ("", "\n\n", "# a line\n"):
        compiled: Any = torchjit.compile(
            _module("asking", above + text).f, backend="aot_eager", isolate_recompiles=True
        )
        with pytest.warns(UserWarning, match="hey") as told:
            compiled(torch.ones(3))
        assert compiled.compiled.stats.graph_break_count == 0
        lines.append([(w.filename, w.lineno, compiled.compiled.stats.regions[0].storage) for w in told])
    assert lines == [[("asking.py", 2, "stored")], [("asking.py", 4, "loaded")], [("asking.py", 3, "loaded")]]


def test_storing_runs_no_code_of_a_module(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module whose `__getattr__` answers with an error of its own, or with whatever it is asked for."""
    for name in ("asked", "asking"):
        monkeypatch.setitem(sys.modules, name, None)
    told, seen = [], []

    class Lazy(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            seen.append(name)
            return {"scale": 2.0}[name]

    for _ in range(2):
        sys.modules["asked"] = asked = Lazy("asked")
        asked.__file__ = "asked.py"  # which inspect asks all modules for
        f = _module("asking", "import asked\ndef f(x): return x * asked.scale").f
        compiled: Any = torchjit.compile(f, backend="aot_eager", isolate_recompiles=True)
        assert _outcome(compiled) == [2.0] * 3
        told.append(compiled.compiled.stats.regions[0].storage)
    assert told == ["stored", "loaded"] and set(seen) == {"scale"}
