"""Modules whose bytecode was read ahead are the modules of their sources."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchjit_session import reading_ahead
from torchjit_session.late_imports import import_capture
from torchjit_session.reading_ahead import read_ahead

_NAME = "package_to_be_read_ahead"


class _AtOnce:
    """Readers that have read by the time that they are asked."""

    def __init__(self, *_: Any) -> None: ...

    def submit(self, work: Callable[..., None], *given: Any) -> None:
        work(*given)

    def shutdown(self, **_: Any) -> None: ...


class _NoThreads(_AtOnce):
    def submit(self, work: Callable[..., None], *given: Any) -> None:
        raise RuntimeError("can't start new thread")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Its folder: two modules and a package inside, all compiled."""
    folder = tmp_path / _NAME
    (folder / "inner").mkdir(parents=True)
    for name in ("__init__", "one", "inner/__init__", "inner/two"):
        (folder / f"{name}.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(reading_ahead, "_SLOW", 0.0)
    monkeypatch.setattr(reading_ahead, "ThreadPoolExecutor", _AtOnce)
    _imported()
    _forget()
    yield folder
    _forget()


def _imported() -> list[Any]:
    importlib.invalidate_caches()
    return [importlib.import_module(f"{_NAME}{name}") for name in ("", ".one", ".inner", ".inner.two")]


def _forget() -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == _NAME]:
        del sys.modules[name]


def _paths(folder: Path) -> set[str]:
    return {importlib.util.cache_from_source(str(path)) for path in folder.rglob("*.py")}


def test_modules_take_what_was_read(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finders = dict(sys.path_importer_cache)
    with read_ahead((_NAME, "there_is_no_such_package")):
        assert set(reading_ahead._read) == _paths(package)
        importlib.import_module(_NAME)  # its own file is found by the folder around it
        with monkeypatch.context() as inside:
            inside.setattr(importlib.machinery.SourceFileLoader, "get_data", _refuse)
            modules = _imported()
        assert len(reading_ahead._read) == 1
    assert [m.VALUE for m in modules] == [1] * 4
    assert [m.__spec__.loader.is_package(m.__name__) for m in modules] == [True, False, True, False]
    assert {type(f) for p, f in sys.path_importer_cache.items() if p.startswith(str(package))} == {
        importlib.machinery.FileFinder
    }
    assert {p: f for p, f in sys.path_importer_cache.items() if p in finders} == finders


def _refuse(loader: Any, path: str) -> bytes:
    raise AssertionError(f"{path} is read again")


def test_what_is_older_than_its_source_is_not_taken(package: Path) -> None:
    with read_ahead((_NAME,)):
        for path in package.rglob("*.py"):
            path.write_text("VALUE = 22\n")
        assert [m.VALUE for m in _imported()] == [22] * 4


def test_sources_without_bytecode_are_imported(package: Path) -> None:
    for path in _paths(package):
        os.unlink(path)
    with read_ahead((_NAME,)):
        assert not reading_ahead._read
        assert [m.VALUE for m in _imported()] == [1] * 4


def test_a_loaded_module_is_not_read(package: Path) -> None:
    importlib.import_module(f"{_NAME}.one")
    with read_ahead((_NAME,)):
        assert importlib.util.cache_from_source(str(package / "one.py")) not in reading_ahead._read


def test_files_that_were_read_before_do_not_tell_how_long_others_take(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    importlib.import_module(f"{_NAME}.inner")
    asked: list[str] = []
    monkeypatch.setattr(reading_ahead, "_read_files", asked.extend)
    reading_ahead._are_slow([(_NAME, str(package)), (f"{_NAME}.inner", str(package / "inner"))])
    assert asked == [str(package / "one.py"), str(package / "inner" / "two.py")]


def test_it_is_read_ahead_where_files_take_long(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_ahead, "_SLOW", 0.001)
    for seconds, ahead in ((0.002, True), (0.0, False)):
        clock = SimpleNamespace(perf_counter=iter(seconds * n for n in range(100)).__next__)
        monkeypatch.setattr(reading_ahead, "time", clock)
        with read_ahead((_NAME,)):
            assert (set(reading_ahead._read) == _paths(package)) is ahead
            assert [m.VALUE for m in _imported()] == [1] * 4
        _forget()


@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_imports_need_no_threads(package: Path, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(reading_ahead, "_SLOW", seconds)
    monkeypatch.setattr(reading_ahead, "ThreadPoolExecutor", _NoThreads)
    with read_ahead((_NAME,)):
        assert [m.VALUE for m in _imported()] == [1] * 4


def test_an_error_of_an_import_is_raised_and_nothing_stays_behind(package: Path) -> None:
    (package / "one.py").write_text("raise LookupError('of the module')\n")
    with pytest.raises(LookupError, match="of the module"), read_ahead((_NAME,)):
        _imported()
    assert not reading_ahead._read and not reading_ahead._by_one.locked()


def test_one_reads_at_a_time(package: Path) -> None:
    with read_ahead((_NAME,)):
        with read_ahead((_NAME,)):
            assert [m.VALUE for m in _imported()] == [1] * 4
        assert reading_ahead._by_one.locked()


def test_threads_read_too(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setattr(reading_ahead, "_SLOW", 0.0)
    for _ in range(5):
        with read_ahead((_NAME,)):
            assert [m.VALUE for m in _imported()] == [1] * 4
        assert not reading_ahead._read
        _forget()


def test_imports_set_off_no_collections() -> None:
    """Each would look at all of torch's objects: 0.1 s."""
    collected: list[bool] = []

    class Later:
        is_loaded = False

        def load(self) -> None:
            collected.append(gc.isenabled())

    was_on = gc.isenabled()
    gc.enable()
    try:
        import_capture(Later())
        assert collected == [False] and gc.isenabled()
    finally:
        if not was_on:
            gc.disable()
