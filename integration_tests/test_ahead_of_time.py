"""`aot_compile`, `save` and `load_compiled`: a process that serves captures nothing, compiles nothing, writes nothing, and says why a call does not fit."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forked
import pytest
import torch

import torchjit
from torchjit_core.reasons import UserError
from torchjit_store import bundles, carried

SAVE = """
import torch, torchjit, served
mlp, block = served.models()
with torch.no_grad():
    torchjit.aot_compile(torchjit.compile(mlp, dynamic=True), torch.randn(3, 8)).save("mlp.tj")
    torchjit.aot_compile(block, torch.randn(2, 5, 16)).save("block.tj")
    x = torch.randn(6, 3)
    torchjit.mark_dynamic(x, 0)
    parts = torchjit.aot_compile(served.in_parts, x, [])
    parts(torch.randn(4, 3), [])
    parts.save("parts.tj")
info = torchjit.aot_compile(torchjit.compile(served.step, dynamic=True), mlp, torch.randn(3, 8), torch.randn(3, 4)).save("step.tj")
assert info.entries == 1 and len(info.kernels) >= 2 and all(p.grad is None for p in mlp.parameters())
"""
SERVE = """
import os, sys
import torch, torchjit, served
from torchjit_core.events import listen

def forbid(event, args):
    written = event == "open" and not isinstance(args[0], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if written or event in ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.mkdir", "os.rename", "tempfile.mkdtemp"):
        raise AssertionError(f"{event} {args}")
sys.addaudithook(forbid)

told = []
same = lambda ours, eager: torch.allclose(ours, eager, atol=1e-6)
with listen(lambda kind, fields: told.append(kind), ["entry_loaded", "capture_start", "compile_start"]):
    mlp, block = served.models()
    fast_mlp, fast_block = torchjit.load_compiled("mlp.tj", mlp), torchjit.load_compiled("block.tj", block)
    parts, step = torchjit.load_compiled("parts.tj", served.in_parts), torchjit.load_compiled("step.tj", served.step)
    with torch.no_grad():
        for n in (3, 5, 7):
            assert same(fast_mlp(torch.full((n, 8), 0.5)), mlp(torch.full((n, 8), 0.5)))
        x = torch.randn(2, 5, 16)
        assert same(fast_block(x), block(x)) and fast_block.norm is block.norm
        for x in (torch.randn(6, 3), torch.randn(4, 3), torch.randn(9, 3)):
            seen = []
            assert same(parts(x, seen), served.in_parts(x, [])) and seen == [0]
    for n in (3, 6):
        x, y = torch.randn(n, 8), torch.randn(n, 4)
        loss, expected = step(mlp, x, y), served.step(mlp, x, y)
        ours, eager = (torch.autograd.grad(of, list(mlp.parameters())) for of in (loss, expected))
        assert same(loss, expected) and all(map(same, ours, eager))
    x = torch.randn(5, 3, 3)
    try:
        parts(x, [])
    except torchjit.exc.NotCompiledAhead as error:
        assert "TJ-STORE-065" in str(error) and "dimensions" in str(error) and "in_parts" in str(error), error
    else:
        raise AssertionError("nothing fits this call")
assert set(told) == {"entry_loaded"} and len(told) in (5, 6), told  # which of two continuations was found first
captures = {"torchjit_session.capture", "torchjit_vm.interpreter", "torchjit_vm.capture.domain", "torchjit_fx.domain", "torchjit_fx.tracing",
    "torchjit_aot.entry", "torchjit_aot.functionalize", "torchjit_backends.pipeline", "torchjit_inductor.compiled", "sympy"}
found = [name for name in sys.modules if name in captures]
assert found == [], found
"""
KEY = "hush"
SIGNED = {"TORCHJIT_BUNDLE_KEY": KEY, "TORCHJIT_ON_ERROR": "raise"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with four files that one process has saved, and what it has compiled them of."""
    folder = tmp_path_factory.mktemp("saved")
    shutil.copy(Path(__file__).parent / "served_models.py", folder / "served.py")
    (folder / "save.py").write_text(SAVE)
    environment = {**os.environ, **SIGNED, "TORCHJIT_CACHE_DIR": str(folder / "cache")}
    done = forked.run([sys.executable, str(folder / "save.py")], env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_server_compiles_and_writes_nothing(saved: Path) -> None:
    """There is no compiler, no folder for kernels or temporary files, and no writable source."""
    shutil.rmtree(saved / "cache")
    shutil.rmtree(saved / "__pycache__", ignore_errors=True)
    nowhere = {"PATH": "", "TORCHJIT_CACHE_DIR": "/dev/null/cache", "TMPDIR": "/dev/null/none", "HOME": "/dev/null"}
    environment = {**os.environ, **SIGNED, **nowhere, "PYTHONDONTWRITEBYTECODE": "1"}
    # A process of its own: the template of `forked` has imported what captures.
    done = subprocess.run(
        [sys.executable, "-c", SERVE], env=environment, cwd=saved, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def module_of(saved: Path, edit: Callable[[str], str] = str) -> Any:
    """The module that was compiled, under its name, after an edit."""
    served: Any = types.ModuleType("served")
    exec(
        compile(edit((saved / "served.py").read_text()), str(saved / "served.py"), "exec", dont_inherit=True),
        served.__dict__,
    )
    return served


@pytest.fixture
def served(saved: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Makes the module `served`, perhaps with an edit, in a process that has used no GPU, as the one that has saved."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)

    def make(edit: Callable[[str], str] = str) -> Any:
        made = module_of(saved, edit)
        monkeypatch.setitem(sys.modules, "served", made)
        return made

    yield make


def test_what_was_edited_is_told(saved: Path, served: Callable[..., Any]) -> None:
    program = served(lambda text: text.replace("x.sin() * 2", "x.sin() * 3"))
    with pytest.raises(UserError, match=r"TJ-STORE-064.*in_parts was edited"):
        torchjit.load_compiled(saved / "parts.tj", program.in_parts, key=KEY)
    program = served(lambda text: text.replace("F.gelu(self.wide(x))", "F.relu(self.wide(x))"))
    with pytest.raises(UserError, match=r"TJ-STORE-064.*served.Mlp was edited"):
        torchjit.load_compiled(saved / "mlp.tj", program.Mlp(), key=KEY)


def test_what_is_called_was_edited(saved: Path, served: Callable[..., Any]) -> None:
    """It is found out by the call; what is a guard's business (a global) or above the function is none of an edit's."""
    program = served(lambda text: text.replace("1.625", "1.75"))
    loaded = torchjit.load_compiled(saved / "parts.tj", program.in_parts, key=KEY)
    with torch.no_grad(), pytest.raises(torchjit.exc.NotCompiledAhead, match="helper"):
        loaded(torch.ones(6, 3), [])
    program = served(
        lambda text: text.replace("SCALE = 1.375", "SCALE = 1.5").replace("import torch\n", "\n\nimport torch\n", 1)
    )
    step = torchjit.load_compiled(saved / "step.tj", program.step, key=KEY)
    model, x, y = program.Mlp(), torch.randn(3, 8), torch.randn(3, 4)
    with pytest.raises(torchjit.exc.NotCompiledAhead, match="SCALE"):
        step(model, x, y)
    program.SCALE = 1.375
    assert torch.allclose(step(model, x, y), program.step(model, x, y))


def test_another_function_is_refused(saved: Path, served: Callable[..., Any]) -> None:
    program = served()
    for file, f in (
        ("parts.tj", program.other),
        ("mlp.tj", program.Block()),
        ("mlp.tj", program.other),
        ("parts.tj", program.Mlp()),
    ):
        with pytest.raises(UserError, match="TJ-STORE-064.* holds served.* and not served"):
            torchjit.load_compiled(saved / file, f, key=KEY)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda parts: parts["torch"].update(version="1.0"), "torch.version was .*, is '1.0'"),
        (lambda parts: parts["machine"].append("quantum"), "another processor .with quantum, without nothing"),
        (lambda parts: parts["python"].update(version="2.7"), "python.version was .* is '2.7'"),
        (lambda parts: parts.update(torchjit="other"), "another version of torchjit"),
    ],
)  # fmt: skip
def test_other_versions_and_machines_are_told(
    changed: Callable[[Any], None], said: str, saved: Path, served: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = json.loads(json.dumps(carried.process_parts()))
    changed(parts)
    monkeypatch.setattr(carried, "process_parts", lambda: parts)
    with pytest.raises(UserError, match=f"TJ-STORE-064.*{said}"):
        torchjit.load_compiled(saved / "parts.tj", served().in_parts, key=KEY)


def test_settings_that_differ_are_told_by_the_call(saved: Path, served: Callable[..., Any]) -> None:
    program = served()
    loaded = torchjit.load_compiled(saved / "parts.tj", program.in_parts, key=KEY)
    with torch.no_grad(), torchjit.config.patch(unroll_limit=7):
        with pytest.raises(torchjit.exc.NotCompiledAhead, match="settings.unroll_limit was 1000000, is 7"):
            loaded(torch.ones(6, 3), [])
    with torchjit.config.patch(disable=True):  # nothing else of it is compiled, either
        assert torch.equal(loaded(torch.ones(6, 3), []), program.in_parts(torch.ones(6, 3), []))


def test_files_that_nobody_vouches_for_are_refused(saved: Path, served: Callable[..., Any], tmp_path: Path) -> None:
    f, data, wrong = served().in_parts, (saved / "parts.tj").read_bytes(), tmp_path / "wrong.tj"
    start = len(bundles._MAGIC) + 64
    inside = data[:-9] + b"\0" + data[-8:]
    forged = inside[: len(bundles._MAGIC)] + hashlib.sha256(inside[start:]).digest() + inside[start - 32 :]
    for content, said in (
        (inside, "064.*checksum"),
        (data[:-1], "064.*checksum"),
        (b"", "064.*nothing that"),
        (forged, "061.*another key"),
    ):
        wrong.write_bytes(content)
        with pytest.raises(UserError, match=f"TJ-STORE-{said}"):
            torchjit.load_compiled(wrong, f, key=KEY)
    for key in (None, "other"):
        with pytest.raises(UserError, match="TJ-STORE-061"):
            torchjit.load_compiled(saved / "parts.tj", f, key=key)
    wrong.write_bytes(bundles.pack((), (), KEY.encode())[0])
    with pytest.raises(UserError, match="torchjit cache import"):
        torchjit.load_compiled(wrong, f, key=KEY)
    with pytest.raises(FileNotFoundError):
        torchjit.load_compiled(tmp_path / "none.tj", f, key=KEY)
    assert torchjit.load_compiled(saved / "parts.tj", f, trust=True)


def test_what_cannot_be_saved_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHJIT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TORCHJIT_FORCE_DISABLE_CACHES", raising=False)
    x = torch.ones(3)
    for keywords in ({"options": {"freezing": True}}, {"backend": lambda gm, inputs: gm.forward}):
        made = torchjit.aot_compile(torchjit.compile(lambda x: x + 1.5, **keywords), x)  # type: ignore[arg-type]
        with pytest.raises(UserError, match="TJ-STORE-063.*TJ-STORE-030"):
            made.save(tmp_path / "a.tj")
        assert not list(tmp_path.glob("*.tj"))
    with torchjit.config.patch(disable=True):
        with pytest.raises(UserError, match="TJ-STORE-063.*nothing was compiled"):
            torchjit.aot_compile(lambda x: x + 1, x).save(tmp_path / "a.tj")
    with pytest.raises(UserError, match="TJ-STORE-063.*disabled"):
        torchjit.aot_compile(torchjit.disable(lambda x: x + 1), x)
