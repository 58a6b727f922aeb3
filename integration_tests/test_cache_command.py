"""The folder of compiled kernels: the command that shows and empties it, the switch that forces it off, kernels as bytes."""

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
from torchjit_inductor.cpp import folders
from torchjit_inductor.cpp.library_files import is_trusted


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of this test's own."""
    monkeypatch.setenv("TORCHJIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TORCHJIT_FORCE_DISABLE_CACHES", raising=False)
    monkeypatch.setattr(builds, "_used", set())
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
        "at most 1074 MB",
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
    assert torchjit.load_cache_artifacts(data) == info
    other = tmp_path / "other" / "c"
    assert [path.stem for path in other.glob("*.so")] == list(info.kernels)
    assert all(is_trusted(path) for path in other.glob("*.so"))

    def no_compiler(*arguments: object) -> None:
        raise AssertionError("the kernel is there")

    monkeypatch.setattr(builds, "_compile_once", no_compiler)
    compiles_wave()
    assert torchjit.load_cache_artifacts(data) == info  # again: it is there


def test_damaged_bytes_are_refused_as_a_whole(folder: Path) -> None:
    compiles_wave()
    saved = torchjit.save_cache_artifacts()
    assert saved is not None
    data = saved[0]
    assert main(["cache", "clear"]) == 0
    middle = len(data) // 2
    pickled = b"\x80\x04cposix\nsystem\n(S'false'\ntR."
    for wrong in (
        b"",
        b"torchjit",
        data[:-1],
        data[:40],
        data + b"x",
        data[:middle] + b"\0\1\2" + data[middle + 3 :],
        pickled,
    ):
        with pytest.warns(RuntimeWarning, match="TJ-API-071"):
            assert torchjit.load_cache_artifacts(wrong) is None
    assert not list(folder.glob("*.so"))
    for nothing in (None, "text", 3):
        with pytest.raises(UserError, match="want bytes"):
            torchjit.load_cache_artifacts(nothing)  # type: ignore[arg-type]
    assert torchjit.load_cache_artifacts(data) is not None


def test_bytes_name_no_file_outside_of_the_folder(folder: Path, tmp_path: Path) -> None:
    import hashlib  # noqa: PLC0415  only here
    import json  # noqa: PLC0415

    from torchjit_inductor.cpp import bundle  # noqa: PLC0415

    for name, suffix in (("../../evil", ".so"), ("a" * 40, ".py"), ("a" * 40 + "/b", ".so"), (3, ".so")):
        head = json.dumps([{"name": name, "suffix": suffix, "size": 1}]).encode()
        rest = len(head).to_bytes(8, "big") + head + b"x"
        with pytest.raises(bundle.BadBundle):
            bundle.unpack(bundle._MAGIC + hashlib.sha256(rest).digest() + rest, tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_an_incomplete_library_is_refused(folder: Path) -> None:
    compiles_wave()
    (library,) = folder.glob("*.so")
    short = library.read_bytes()[:200]
    library.write_bytes(short)
    assert torchjit.save_cache_artifacts() is None  # it is not what was built
    assert os.path.exists(library)
