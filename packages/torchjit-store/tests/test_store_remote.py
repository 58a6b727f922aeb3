"""A remote store: what is not here is looked for there, by the rules of bundles, for two seconds at most and until the first error."""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchjit_core.events import listen
from torchjit_store import remote as remotes
from torchjit_store.folder import EntryFolder
from torchjit_store.remote import RemoteEntries, entry_folder
from torchjit_store.settings import StoreSettings

fsspec = pytest.importorskip("fsspec")
KEY = hashlib.sha256(b"a").hexdigest()


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket of a server that speaks S3's protocol, where packages for that are installed: see the README."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0, verbose=False)
    pytest.importorskip("s3fs")
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        options = {"endpoint_url": f"http://{host}:{port}", "key": "testing", "secret": "testing"}
        patch.setitem(fsspec.config.conf, "s3", options)
        fsspec.filesystem("s3").mkdir("s3://bucket")
        yield "s3://bucket"
    server.stop()


@pytest.fixture(params=["memory", "file", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "file":
        yield f"file://{tmp_path}/remote/entries"
        return
    if request.param == "s3":
        yield f"{request.getfixturevalue('bucket')}/{tmp_path.name}/entries"
        return
    yield f"memory://{tmp_path.name}"
    fsspec.filesystem("memory").store.clear()


def settings(tmp_path: Path, name: str, url: str, **changes: Any) -> StoreSettings:
    return StoreSettings(
        **{"mode": "on", "cache_dir": str(tmp_path / name), "remote": url, "secret": b"hush", **changes}
    )


def written(settings: StoreSettings, data: bytes, **header: Any) -> None:
    folder = entry_folder(settings)
    assert folder.write(KEY, header, data) is not None
    assert isinstance(folder._remote, RemoteEntries)
    folder._remote.finish()


def contents(settings: StoreSettings) -> list[bytes]:
    return [bytes(stored.data) for stored in entry_folder(settings).read(KEY)]


def test_what_one_machine_stores_another_one_reads(url: str, tmp_path: Path) -> None:
    kernel = tmp_path / "one" / "c" / f"{'0' * 40}.so"
    kernel.parent.mkdir(parents=True)
    kernel.write_bytes(b"a library")
    written(settings(tmp_path, "one", url), b"an entry", libraries=["0" * 40])
    other = settings(tmp_path, "other", url)
    assert contents(other) == [b"an entry"]
    assert (tmp_path / "other" / "c" / kernel.name).read_bytes() == b"a library"
    assert list(EntryFolder(str(tmp_path / "other")).read(KEY))  # it is on that machine now
    assert entry_folder(other) is entry_folder(settings(tmp_path, "other", url, mode="read"))


def test_the_remote_store_is_asked_last_and_once(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(settings(tmp_path, "one", url), b"of one")
    other = settings(tmp_path, "other", url)
    written(other, b"of the other")
    entries = entry_folder(other).read(KEY)
    assert bytes(next(entries).data) == b"of the other" and len(list((tmp_path / "other").rglob("*.tj"))) == 1
    assert [bytes(stored.data) for stored in entries] == [b"of one"]
    monkeypatch.setattr(RemoteEntries, "_bundles", None)
    assert sorted(contents(other)) == [b"of one", b"of the other"]


@pytest.mark.parametrize("changes", [{"secret": b"other"}, {"secret": None}])
def test_nobody_vouches_for_what_is_there(changes: Any, url: str, tmp_path: Path) -> None:
    written(settings(tmp_path, "one", url), b"an entry")
    with pytest.warns(RuntimeWarning, match="TJ-STORE-062"):
        assert contents(settings(tmp_path, "other", url, **changes)) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert contents(settings(tmp_path, "other", url, **changes)) == []
    assert contents(settings(tmp_path, "a third", url, trusts_remote=True, **changes)) == [b"an entry"]


def test_damaged_bundles_are_missed(url: str, tmp_path: Path) -> None:
    written(settings(tmp_path, "one", url), b"good")
    files, path = fsspec.core.url_to_fs(url)
    for name, data in (("0.bundle", b""), ("1.bundle", b"torchjit"), ("readme", b"x")):
        files.pipe_file(f"{path}/{KEY[:2]}/{KEY}/{name}", data)
    events = []
    with listen(lambda kind, fields: events.append(kind)):
        assert contents(settings(tmp_path, "other", url)) == [b"good"]
    assert events == ["entry_missed"] * 2


class Broken:
    def __init__(self, error: Exception | None, seconds: float = 0.0) -> None:
        self.error, self.seconds, self.asked = error, seconds, 0

    def _do(self, *_: Any, **__: Any) -> list[str]:
        self.asked += 1
        time.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return []

    ls = makedirs = pipe_file = _do


@pytest.mark.parametrize(
    "broken", [Broken(PermissionError("no access")), Broken(RuntimeError("credentials")), Broken(None, 3.0)]
)
def test_errors_are_told_once_and_are_the_last(broken: Broken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remotes, "SECONDS", 0.1)
    monkeypatch.setattr(RemoteEntries, "_opened", lambda self, key: (broken, "path"))
    used = settings(tmp_path, "one", f"memory://{broken.error}{broken.seconds}")
    start = time.monotonic()
    with pytest.warns(RuntimeWarning, match="TJ-STORE-062") as told:
        assert contents(used) == []
        assert entry_folder(used).write(KEY, {}, b"mine") is not None
        assert contents(used) == [b"mine"]
    assert len(told) == 1 and broken.asked == 1 and time.monotonic() - start < 2.5


def test_a_program_s_end_waits_a_little_for_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Broken(None, 5.0)
    monkeypatch.setattr(RemoteEntries, "_opened", lambda self, key: (slow, "path"))
    folder = entry_folder(settings(tmp_path, "one", "memory://slow"))
    start = time.monotonic()
    assert folder.write(KEY, {}, b"x") is not None
    assert time.monotonic() - start < 2
    assert isinstance(folder._remote, RemoteEntries)
    folder._remote.finish(0.1)
    assert time.monotonic() - start < 4


def test_no_such_file_system(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="TJ-STORE-062.*no-such-protocol"):
        assert contents(settings(tmp_path, "one", "no-such-protocol://x")) == []
