"""Bundles: entries and kernels as bytes that are taken only if somebody vouches for them, as a whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchjit_core.reasons import UserError
from torchjit_store import bundles
from torchjit_store import folder as folders
from torchjit_store.bundles import BadBundle, Untrusted, pack, unpack
from torchjit_store.folder import EntryFolder, stored_here

KEY = hashlib.sha256(b"a").hexdigest()
KERNEL = "0" * 40
SECRET = b"hush"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EntryFolder:
    """A folder with a kernel and an entry that needs it."""
    monkeypatch.setattr(folders, "_here", {})
    made = EntryFolder(str(tmp_path / "cache"))
    kernels = tmp_path / "cache" / "c"
    kernels.mkdir(parents=True)
    for suffix in (".so", ".cpp", ".sha256", ".lock"):
        (kernels / f"{KERNEL}{suffix}").write_text(suffix)
    assert made.write(KEY, {"libraries": [KERNEL]}, b"an entry") is not None
    return made


def found(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_an_entry_travels_with_its_kernels(folder: EntryFolder, tmp_path: Path) -> None:
    data, info = pack(stored_here(), (), SECRET)
    assert (info.kernels, info.entries) == ((KERNEL,), 1)
    other = EntryFolder(str(tmp_path / "other"))
    assert unpack(data, other.root, SECRET) == info == unpack(data, other.root, SECRET)
    (stored,) = other.read(KEY)
    assert bytes(stored.data) == b"an entry"
    assert (other.root / "c" / f"{KERNEL}.so").stat().st_mode & 0o777 == 0o700
    assert found(other.root / "c") == [f"{KERNEL}{suffix}" for suffix in (".cpp", ".sha256", ".so")]
    assert pack([stored.path], (), SECRET)[0] == data


def test_only_what_is_right_is_packed(folder: EntryFolder, tmp_path: Path) -> None:
    (path,) = stored_here()
    path.chmod(0o666)
    assert pack(stored_here(), (), None)[1].entries == 0
    path.chmod(0o600)
    path.write_bytes(path.read_bytes() + b"x")
    gone, somebodys = tmp_path / "c" / f"{'1' * 40}.so", tmp_path / "evil.so"
    somebodys.write_text("")
    assert pack([*stored_here(), tmp_path / "no" / "such" / "entry" / "x.tj"], [gone, somebodys], None)[1].nbytes == 0


@pytest.mark.parametrize(
    ("signed", "secret", "said"),
    [(None, None, "no key"), (None, SECRET, "not signed"), (b"other", SECRET, "another key"), (SECRET, None, "no key")],
)
def test_nobody_vouches_for_it(
    signed: bytes | None, secret: bytes | None, said: str, folder: EntryFolder, tmp_path: Path
) -> None:
    data, info = pack(stored_here(), (), signed)
    with pytest.raises(Untrusted, match=said):
        unpack(data, tmp_path / "other", secret)
    with pytest.raises(UserError, match=f"TJ-STORE-061(.|\n)*{said}(.|\n)*trust=True"):
        bundles.load(data, str(tmp_path / "other"), secret)
    assert not (tmp_path / "other").exists()
    assert bundles.load(data, str(tmp_path / "other"), secret, trust=True) == info


def damaged(data: bytes) -> Iterator[bytes]:
    middle = len(data) // 2
    yield from (b"", b"torchjit", data[:-1], data[:40], data + b"x", data[: len(bundles._MAGIC) + 64])
    yield data[:middle] + b"\0\1\2" + data[middle + 3 :]
    yield b"\x80\x04cposix\nsystem\n(S'false'\ntR."


def test_damaged_bytes_are_refused_as_a_whole(folder: EntryFolder, tmp_path: Path) -> None:
    for wrong in damaged(pack(stored_here(), (), None)[0]):
        with pytest.raises(BadBundle):
            unpack(wrong, tmp_path / "other", None, trust=True)
        with pytest.warns(RuntimeWarning, match="TJ-API-071"):
            assert bundles.load(wrong, str(tmp_path / "other"), None, trust=True) is None
    assert not (tmp_path / "other").exists()
    for nothing in (None, "text", 3):
        with pytest.raises(UserError, match="want bytes"):
            bundles.load(nothing, None, None)


def _bundle(index: Any, content: bytes = b"x") -> bytes:
    head = json.dumps({"files": index, "about": None}).encode() if not isinstance(index, bytes) else index
    rest = len(head).to_bytes(8, "big") + head + content
    return bundles._MAGIC + hashlib.sha256(rest).digest() + bytes(32) + rest


X = hashlib.sha256(b"x").hexdigest()


@pytest.mark.parametrize(
    "name",
    ["../../evil", f"c/{KERNEL}.py", f"c/{KERNEL}/b.so", f"/c/{KERNEL}.so", f"c/../{KERNEL}.so", f"entries/{KEY[:2]}/{KEY}/{KEY}.tj",
     f"entries/00/{KEY}/{X}.tj", f"entries/{KEY[:2]}/{KEY}/../{X}.tj", f"c/{KERNEL}.so\n", 3, None, ["c"]],
)  # fmt: skip
def test_bytes_name_no_other_file(name: Any, tmp_path: Path) -> None:
    good = {"name": f"c/{KERNEL}.so", "size": 0}
    with pytest.raises(BadBundle):
        unpack(_bundle([good, {"name": name, "size": 1}]), tmp_path / "cache", None, trust=True)
    assert found(tmp_path) == []


@pytest.mark.parametrize(
    "index", [{}, [1], [{"name": f"c/{KERNEL}.so"}], [{"name": f"c/{KERNEL}.so", "size": -1}], [{"name": "", "size": "1"}],
              [{"name": f"c/{KERNEL}.so", "size": 2}], b"\xff", b"[" * 100_000],
)  # fmt: skip
def test_wrong_lists_are_refused(index: Any, tmp_path: Path) -> None:
    with pytest.raises(BadBundle):
        unpack(_bundle(index), tmp_path / "cache", None, trust=True)
    assert found(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_told(folder: EntryFolder, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="TJ-API-071"):
        assert bundles.load(pack(stored_here(), (), None)[0], str(tmp_path / "file"), None, trust=True) is None


def test_all_entries_are_checked_and_removed(folder: EntryFolder) -> None:
    bad = folder.write(KEY, {}, b"bad")
    assert bad is not None and folder.verify() == (2, 0) and len(folder.paths()) == 2
    bad.write_bytes(b"")
    assert folder.verify() == (1, 1) and folder.verify() == (1, 0)
    assert folder.clear().entries == 1 and folder.paths() == [] and folder.clear().nbytes == 0
    assert found(folder.root) == [f"c/{KERNEL}{suffix}" for suffix in (".cpp", ".lock", ".sha256", ".so")]
