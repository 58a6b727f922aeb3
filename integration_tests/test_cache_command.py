"""The folder of compiled kernels and entries: the command that shows and empties it, the switch that forces it off, both as bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import torchjit
from torchjit.cli import main
from torchjit.exc import UserError
from torchjit_inductor.cpp import build as builds
from torchjit_inductor.cpp import folders, library_files
from torchjit_inductor.cpp.library_files import is_trusted
from torchjit_store import folder as stored
from torchjit_store.folder import EntryFolder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of this test's own."""
    monkeypatch.setenv("TORCHJIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TORCHJIT_FORCE_DISABLE_CACHES", raising=False)
    monkeypatch.setattr(library_files, "_used", set())
    monkeypatch.setattr(stored, "_here", {})
    before = set(folders._unusable)
    yield tmp_path / "cache" / "c"
    folders._unusable.clear()
    folders._unusable.update(before)


def compiles_wave() -> None:
    x = torch.linspace(0, 1, 5)
    torch.testing.assert_close(torchjit.compile(lambda x: x.sin() * 2 + 1)(x), x.sin() * 2 + 1)


def test_what_is_there_and_nothing_after_clearing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "path"]) == 0
    assert capsys.readouterr().out == f"{folder}\n"
    assert main(["cache"]) == 0
    assert "0 kernels, 0.0 MB" in capsys.readouterr().out
    compiles_wave()
    (folder / "measured.json").write_text("{}")
    (folder / "somebody's.txt").write_text("mine")
    assert main(["cache", "info"]) == 0
    out = capsys.readouterr().out
    for text in (
        str(folder),
        "TORCHJIT_CACHE_DIR",
        "1 kernels, 1 of measurements",
        "at most 1074 MB of kernels and entries",
        "mode 0700",
        "can be locked",
    ):
        assert text in out
    assert main(["cache", "clear"]) == 0
    assert "removed 1 kernels, 1 of measurements" in capsys.readouterr().out
    assert not list(folder.glob("*.so")) and not list(folder.glob("*.json")) and (folder / "somebody's.txt").exists()
    compiles_wave()
    assert len(list(folder.glob("*.so"))) == 1


def test_a_folder_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCHJIT_CACHE_DIR", str(tmp_path / "file"))
    assert main(["cache"]) == 0
    out = capsys.readouterr().out
    assert "note  cache" in out and "-> Kernels are kept in a temporary folder; set TORCHJIT_CACHE_DIR" in out
    for action in ("path", "clear"):
        assert main(["cache", action]) == 1
        assert "torchjit cache: " in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["cache", "clera"])


@pytest.mark.parametrize("how", ["variable", "setting"])
def test_the_cache_is_forced_off(
    how: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if how == "variable":
        monkeypatch.setenv("TORCHJIT_FORCE_DISABLE_CACHES", "1")
        compiles_wave()
    else:
        with torchjit.config.patch(caches=False):
            compiles_wave()
    assert not folder.exists()
    if how == "variable":
        assert main(["cache"]) == 0
        assert "TORCHJIT_FORCE_DISABLE_CACHES is set" in capsys.readouterr().out


def test_kernels_as_bytes_are_used_where_they_are_loaded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert torchjit.save_cache_artifacts() is None
    compiles_wave()
    saved = torchjit.save_cache_artifacts()
    assert saved is not None
    data, info = saved
    assert len(info.kernels) == 1 and info.nbytes <= len(data)
    monkeypatch.setenv("TORCHJIT_CACHE_DIR", str(tmp_path / "other"))
    assert torchjit.load_cache_artifacts(data, trust=True) == info
    other = tmp_path / "other" / "c"
    assert [path.stem for path in other.glob("*.so")] == list(info.kernels)
    assert all(is_trusted(path) for path in other.glob("*.so"))

    def no_compiler(*arguments: object) -> None:
        raise AssertionError("the kernel is there")

    monkeypatch.setattr(builds, "_compile_once", no_compiler)
    compiles_wave()
    assert torchjit.load_cache_artifacts(data, trust=True) == info  # again: it is there


def test_bytes_are_taken_with_a_key_or_trusted_and_else_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiles_wave()
    monkeypatch.delenv("TORCHJIT_BUNDLE_KEY", raising=False)
    plain, signed = torchjit.save_cache_artifacts(), torchjit.save_cache_artifacts(key="hush")
    assert plain is not None and signed is not None
    assert main(["cache", "clear"]) == 0
    for data, arguments in ((plain[0], {}), (plain[0], {"key": "hush"}), (signed[0], {}), (signed[0], {"key": b"h"})):
        with pytest.raises(UserError, match="TJ-STORE-061"):
            torchjit.load_cache_artifacts(data, **arguments)  # type: ignore[arg-type]
    with pytest.warns(RuntimeWarning, match="TJ-API-071"):
        assert torchjit.load_cache_artifacts(signed[0][:-1], key="hush") is None
    assert not list(folder.glob("*.so"))
    monkeypatch.setenv("TORCHJIT_BUNDLE_KEY", "hush")
    assert torchjit.load_cache_artifacts(signed[0]) == signed[1] == torchjit.load_cache_artifacts(plain[0], trust=True)
    assert all(is_trusted(path) for path in folder.glob("*.so")) and len(list(folder.glob("*.so"))) == 1


def test_kernels_and_entries_move_by_commands(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TORCHJIT_BUNDLE_KEY", raising=False)
    compiles_wave()
    (library,) = folder.glob("*.so")
    entries = EntryFolder(str(folder.parent))
    entry = entries.write("0" * 64, {"libraries": [library.stem]}, b"an entry")
    assert entry is not None
    assert main(["cache"]) == 0 and "1 kernels, 1 entries" in capsys.readouterr().out
    assert main(["cache", "verify"]) == 0 and "1 kernels and 1 entries are right" in capsys.readouterr().out
    file = str(tmp_path / "bundle")
    assert main(["cache", "export", file]) == 0 and "import needs --trust" in capsys.readouterr().out
    monkeypatch.setenv("TORCHJIT_CACHE_DIR", str(tmp_path / "other"))
    assert main(["cache", "import", file]) == 1 and "TJ-STORE-061" in capsys.readouterr().err
    assert main(["cache", "import", file, "--trust"]) == 0 and "1 kernels and 1 entries" in capsys.readouterr().out
    assert len(list(EntryFolder(str(tmp_path / "other")).read("0" * 64))) == 1
    monkeypatch.setenv("TORCHJIT_BUNDLE_KEY", "hush")
    assert main(["cache", "export", file]) == main(["cache", "import", file]) == 0
    capsys.readouterr()
    (copy,) = (tmp_path / "other" / "c").glob("*.so")
    copy.write_bytes(b"")
    next((tmp_path / "other" / "entries").glob("*/*/*.tj")).write_bytes(b"")
    assert main(["cache", "verify"]) == 1
    said = capsys.readouterr()
    assert "0 kernels and 0 entries are right" in said.out and "1 entries were damaged" in said.err
    assert main(["cache", "import", str(tmp_path / "no such file")]) == 1
    assert main(["cache", "clear"]) == 0 and not (tmp_path / "other" / "entries").exists() and entry.exists()


def test_an_incomplete_library_is_refused(folder: Path) -> None:
    compiles_wave()
    (library,) = folder.glob("*.so")
    short = library.read_bytes()[:200]
    library.write_bytes(short)
    assert torchjit.save_cache_artifacts() is None  # it is not what was built
    assert os.path.exists(library)
