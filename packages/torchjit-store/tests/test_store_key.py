"""Site keys: the same in every process of one kind, another one wherever something differs that no guard tells."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchjit_store import key as keys
from torchjit_store.key import code_digest, process_parts, site_key

ROOT = Path(__file__).parents[3]


def test_keys_are_equal_where_everything_is_and_in_another_process() -> None:
    parts: dict[str, object] = {"function": "f", "options": {"a": 1, "b": [1, 2]}}
    mine = site_key(parts)
    assert len(mine) == 64 and mine == site_key({"options": {"b": [1, 2], "a": 1}, "function": "f"})
    assert mine != site_key({**parts, "function": "g"}) != site_key({})
    program = f"from torchjit_store.key import site_key; print(site_key({parts!r}))"
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
    with pytest.raises(TypeError):
        site_key({"function": object()})


def test_importing_the_store_imports_no_torch() -> None:
    program = "import sys, torchjit_store.folder; print('torch' in sys.modules, 'fsspec' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["False", "False"]


def _torch(**changes: Any) -> types.SimpleNamespace:
    facts: dict[str, Any] = (
        dict(version="2.15.0", git="abc", threads=4, capability="AVX2", cuda=None, gpus=()) | changes
    )
    gpus = [types.SimpleNamespace(name=g, major=9, minor=0, multi_processor_count=132) for g in facts["gpus"]]
    return types.SimpleNamespace(
        __version__=facts["version"],
        version=types.SimpleNamespace(cuda=facts["cuda"], git_version=facts["git"], hip=None, debug=False),
        get_num_threads=lambda: facts["threads"],
        backends=types.SimpleNamespace(cpu=types.SimpleNamespace(get_cpu_capability=lambda: facts["capability"])),
        cuda=types.SimpleNamespace(
            is_initialized=lambda: bool(gpus), device_count=lambda: len(gpus), get_device_properties=gpus.__getitem__
        ),
    )


@pytest.fixture
def key_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    def make(**changes: Any) -> str:
        for found_once in (keys._torch, keys._gpus):
            found_once.cache_clear()
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, "torch", _torch(**changes))
            made = site_key({})
        for found_once in (keys._torch, keys._gpus):
            found_once.cache_clear()
        return made

    return make


def test_what_torch_is_and_runs_on_is_in_the_key(key_of: Callable[..., str]) -> None:
    cuda: dict[str, Any] = {"cuda": "12.8"}
    different: list[dict[str, Any]] = [
        {}, {"version": "2.14.0"}, {"git": "abd"}, {"threads": 2}, {"capability": "AVX512"}, cuda, {**cuda, "gpus": ["H100"]},
        {**cuda, "gpus": ["H200"]}, {**cuda, "gpus": ["H100", "H200"]},
    ]  # fmt: skip
    assert len({key_of(**changes) for changes in different}) == len(different)
    assert key_of() == key_of() and key_of(**cuda, gpus=["H100"]) == key_of(**cuda, gpus=["H100"] * 8)


def test_threads_are_asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = _torch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(keys, "_torch", lambda: {})
    before = process_parts()
    torch.get_num_threads = lambda: 1
    assert process_parts()["threads"] == 1 != before["threads"]


CPU = "processor\t: 0\nmodel name\t: A Processor\nflags\t\t: avx2 fma\nmicrocode\t: 0x1\n\nprocessor\t: 1\nmodel name\t: A Processor\n"


def test_the_processor_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def machine(text: str) -> list[str]:
        monkeypatch.setattr(keys, "_text", lambda path: text)
        return keys._machine.__wrapped__()

    assert machine(CPU) == machine(CPU.replace("0x1", "0x2").replace("avx2 fma", "fma avx2"))
    assert machine(CPU) != machine(CPU.replace(" fma", ""))
    assert machine(CPU) != machine(CPU.replace("A Processor", "Another"))
    assert "0x1" not in machine(CPU) and machine("")


def test_the_driver_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed Feb 26\nGCC version:  gcc version 12.2.0\n"
    monkeypatch.setattr(keys, "_text", lambda path: said)
    assert keys._driver() == "570.124.06"
    monkeypatch.setattr(keys, "_text", lambda path: "")
    assert keys._driver() is None


# ---------------------------------------------------------------------- torchjit itself
def test_every_package_of_the_workspace_is_in_the_key() -> None:
    packages = sorted(path.name for path in ROOT.glob("packages/*/src/torchjit*") if (path / "__init__.py").exists())
    assert sorted(keys.PACKAGES) == packages


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """The digest of an installation in `tmp_path`."""
    monkeypatch.setattr(keys, "PACKAGES", ("tj_one", "tj_two"))
    monkeypatch.syspath_prepend(str(tmp_path))
    for package in ("tj_one", "tj_two"):
        (tmp_path / package / "inner").mkdir(parents=True)
        (tmp_path / package / "__init__.py").write_text("")
        (tmp_path / package / "inner" / "code.py").write_text("x = 1\n")

    def digest() -> str:
        return code_digest.__wrapped__()

    return digest


def test_an_edit_of_a_checkout_is_another_key(installed: Callable[[], str], tmp_path: Path) -> None:
    first = installed()
    code = tmp_path / "tj_two" / "inner" / "code.py"
    (code.parent / "__pycache__").mkdir()
    (code.parent / "__pycache__" / "code.cpython-311.pyc").write_text("")
    assert installed() == first
    before = code.stat()
    code.write_text("x = 2\n")
    os.utime(code, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    second = installed()
    (code.parent / "more.h").write_text("")
    assert len({first, second, installed()}) == 3


def test_a_wheel_is_what_its_record_says(installed: Callable[[], str], tmp_path: Path) -> None:
    record = tmp_path / "tj_one-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    text = "tj_one/__init__.py,sha256=abc,0\ntj_one/inner/code.py,sha256=def,6\ntj_one-1.0.dist-info/RECORD,,\n"
    record.write_text(text)
    first = installed()
    os.utime(tmp_path / "tj_one" / "__init__.py", (1, 1))  # times are the installer's
    record.write_text(text + "tj_one/__pycache__/__init__.cpython-311.pyc,,\n")
    assert installed() == first
    record.write_text(text.replace("abc", "abd"))
    second = installed()
    (tmp_path / "tj_one" / "inner" / "code.py").write_text("edited by hand")
    assert len({first, second, installed()}) == 3
