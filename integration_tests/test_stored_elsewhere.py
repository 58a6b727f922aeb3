"""Stored entries where they were not made: in a moved folder, out of a bundle, out of a remote store; and one process compiles for others."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import forked
import pytest
import torch

import torchjit
from torchjit_core.events import listen
from torchjit_store.folder import EntryFolder
from torchjit_store.leases import compiling

PROGRAM = """
import json, sys, torch, torchjit
from torchjit_core.events import listen

def f(x):
    return (x.sin() * 1.8125 + 1).sum(0)

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
    def forward(self, x):
        return torch.nn.functional.gelu(self.inner(x)) + x

torch.manual_seed(0)
block, x, told = Block(), torch.linspace(0, 1, 8).reshape(2, 4), []
with listen(lambda kind, fields: told.append(kind), ["entry_loaded", "entry_stored", "entry_not_stored", "capture_start"]):
    torch.testing.assert_close(torchjit.compile(f)(x), f(x))
    out = torchjit.compile(block)(x)
    torch.testing.assert_close(out, block(x))
    out.sum().backward()
saved = torchjit.save_cache_artifacts()
if len(sys.argv) > 1:
    open(sys.argv[1], "wb").write(saved[0])
print(json.dumps([told, len(saved[1].kernels), saved[1].entries]))
"""
LOADED, STORED = ["entry_loaded"] * 2, ["entry_stored"] * 2


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a process has stored two entries, and saved them as a bundle."""
    made = tmp_path_factory.mktemp("stored")
    (made / "program.py").write_text(PROGRAM)
    told, kernels, entries = ran(made, "cache", str(made / "bundle"))
    assert (told, entries) == (STORED, 2) and kernels >= 2
    return made


@pytest.fixture
def folder(stored: Path, tmp_path: Path) -> Path:
    """The same in a folder of this test's own: neither program nor cache are where they were."""
    shutil.copytree(stored, tmp_path, dirs_exist_ok=True)
    return tmp_path


def ran(tmp_path: Path, cache: str, *arguments: str, **variables: str) -> Any:
    environment = {
        "TORCHJIT_STORE": "on",
        "TORCHJIT_CACHE_DIR": str(tmp_path / cache),
        "TORCHJIT_BUNDLE_KEY": "hush",
        **variables,
    }
    command = [sys.executable, str(tmp_path / "program.py"), *arguments]
    done = forked.run(command, env={**os.environ, **environment}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_entries_follow_their_folder(folder: Path) -> None:
    """Nothing in an entry says where it lies."""
    (folder / "cache").rename(folder / "moved")
    told, kernels, entries = ran(folder, "moved")
    assert told == LOADED and entries == 2 and kernels >= 2 and not (folder / "cache").exists()


def test_a_bundle_serves_where_nothing_was_compiled(folder: Path) -> None:
    shutil.rmtree(folder / "cache")
    load = "import sys, torchjit; assert torchjit.load_cache_artifacts(open(sys.argv[1], 'rb').read()).entries == 2"
    environment = {"TORCHJIT_CACHE_DIR": str(folder / "image"), "TORCHJIT_BUNDLE_KEY": "hush"}
    forked.run(
        [sys.executable, "-c", load, str(folder / "bundle")], env={**os.environ, **environment}, cwd=folder, check=True
    )
    assert ran(folder, "image", TORCHJIT_STORE="read")[0] == LOADED


def test_a_kernel_that_is_gone_takes_its_entry_along(folder: Path) -> None:
    for library in (folder / "cache" / "c").glob("*.so"):
        library.unlink()
    assert ran(folder, "cache")[0] == STORED


def test_a_remote_store_serves_another_machine(folder: Path) -> None:
    pytest.importorskip("fsspec")
    shutil.rmtree(folder / "cache")
    remote = {"TORCHJIT_REMOTE_CACHE": f"file://{folder}/remote"}
    assert ran(folder, "one", **remote)[0] == STORED
    shutil.rmtree(folder / "one")
    assert ran(folder, "another", **remote)[0] == LOADED


def shared(x: torch.Tensor) -> torch.Tensor:
    return (x.cos() * 2.8125 - 1).sum(0)


@pytest.mark.parametrize("how", ["stores", "fails", "dies"])
def test_one_process_compiles_while_another_waits(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And compiles by itself if that was in vain."""
    monkeypatch.setenv("TORCHJIT_STORE", "on")
    monkeypatch.setenv("TORCHJIT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TORCHJIT_FORCE_DISABLE_CACHES", raising=False)
    folder, x, told = EntryFolder(str(tmp_path)), torch.linspace(0, 1, 6).reshape(2, 3), []
    kinds = ["entry_loaded", "entry_stored", "compile_start"]
    with torch.no_grad(), listen(lambda kind, fields: told.append(kind), kinds):
        want = shared(x)
        torch.testing.assert_close(torchjit.compile(shared)(x), want)
        assert told == ["compile_start", "entry_stored"]
        (path,) = folder.paths()
        aside = path.rename(tmp_path / "aside")
        torchjit.reset()
        ready, go = os.pipe()
        child = os.fork()
        if child == 0:
            with compiling(folder, path.parent.name):
                os.write(go, b"x")
                time.sleep(0.2)
                if how == "stores":
                    aside.rename(path)
                elif how == "dies":
                    os.kill(os.getpid(), 9)
            os._exit(0)
        os.read(ready, 1)
        told.clear()
        torch.testing.assert_close(torchjit.compile(shared)(x), want)
        os.waitpid(child, 0)
    os.close(ready)
    os.close(go)
    assert told == (["entry_loaded"] if how == "stores" else ["compile_start", "entry_stored"])
    assert len(folder.paths()) == 1 and not list(tmp_path.rglob("*.lease"))


SEVERAL = """
import json, os, sys, time, torch, torchjit
from torchjit_core.events import listen

def loss(x, w):
    return (x.cos() * w * 3.8125 - 1).square().sum()

def other(x, w):
    return (x.tan() * w * 1.0625 + 1).square().sum()

KINDS = ["entry_loaded", "entry_stored", "compile_start", "entry_not_stored"]

def child(f, begin, compiled_forward=None):
    told, (read, write) = [], os.pipe()
    if os.fork() == 0:
        os.read(begin, 1)
        with listen(lambda kind, fields: told.append(kind), KINDS):
            x, w = torch.linspace(0, 1, 6), torch.ones(6, requires_grad=True)
            out = torchjit.compile(f)(x, w)
            if compiled_forward is not None:
                os.write(compiled_forward, b"x")
                os.kill(os.getpid(), 9)
            out.backward()
        grad, = torch.autograd.grad(f(x, w), w)
        os.write(write, json.dumps([told, torch.allclose(w.grad, grad)]).encode())
        os._exit(0)
    os.close(write)
    return read

def answer(read):
    with os.fdopen(read) as out:
        text = out.read()
    return json.loads(text) if text else None

begin, go = os.pipe()
children = [child(loss, begin) for _ in range(4)]
os.write(go, b"xxxx")
first = [answer(read) for read in children]
ready, compiled = os.pipe()
killed = child(other, begin, compiled)
os.write(go, b"x")
os.read(ready, 1)
answer(killed)
begin_next = time.monotonic()
after = child(other, begin)
os.write(go, b"x")
print(json.dumps([first, answer(after), time.monotonic() - begin_next]))
"""


def test_of_several_processes_that_train_one_compiles(tmp_path: Path) -> None:
    """The others wait until its backward is stored, too; one that is killed between the two holds nobody."""
    (tmp_path / "program.py").write_text(SEVERAL)
    environment = {**os.environ, "TORCHJIT_STORE": "on", "TORCHJIT_CACHE_DIR": str(tmp_path / "cache")}
    done = forked.run([sys.executable, str(tmp_path / "program.py")], env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, after, seconds = json.loads(done.stdout.splitlines()[-1])
    assert all(right for _, right in first) and sorted(told for told, _ in first) == [
        ["compile_start", "entry_stored"],
        *[["entry_loaded"]] * 3,
    ]
    assert after == [["compile_start", "entry_stored"], True] and seconds < 30
    assert not list(tmp_path.rglob("*.lease"))
