"""Look at the folder in which compiled kernels and entries are kept between processes, empty it, move it elsewhere."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from torchjit.cache import cache_folder
from torchjit.commands.console import Finding, print_findings
from torchjit.config import store_settings
from torchjit.environment import read_environment
from torchjit_core.reasons import UserError
from torchjit_inductor.cpp.cache import CacheState, cache_state, clear_cache
from torchjit_inductor.cpp.folders import is_noexec
from torchjit_inductor.cpp.library_files import is_trusted
from torchjit_store import bundles
from torchjit_store.bundles import CacheInfo
from torchjit_store.choices import ChoiceFolder
from torchjit_store.eviction import CacheUse, cache_use
from torchjit_store.folder import EntryFolder

__all__ = ["HELP", "add_arguments", "cache_findings", "run"]

HELP = "where compiled kernels and entries are kept, how many there are; clear, check, export and import them"
OFF = "TORCHJIT_FORCE_DISABLE_CACHES"
_MODES = {
    "on": "what is compiled is kept in the folder, and loaded by the next process that runs the same program",
    "read": "what the folder has is loaded; nothing is added",
    "verify": "what is loaded is compiled, too, and compared: slow",
    "off": "each process compiles anew; kernels alone are kept",
}
"""What the store does, by the value of its setting."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    actions = parser.add_subparsers(dest="action", metavar="action")
    actions.add_parser("info", help="what is there (the default)")
    actions.add_parser("path", help="the folder of kernels alone, for scripts")
    actions.add_parser("clear", help="remove kernels, entries and measurements")
    actions.add_parser("verify", help="check every file; remove entries that are damaged")
    export = actions.add_parser(
        "export", help="write kernels and entries into a file, signed if TORCHJIT_BUNDLE_KEY is set"
    )
    export.add_argument("file", type=Path)
    taken = actions.add_parser(
        "import", help="put what is in such a file, or in one that aot_compile saved, into the cache"
    )
    taken.add_argument("file", type=Path)
    taken.add_argument("--trust", action="store_true", help="take it without a signature: it is code that will run")


def run(options: argparse.Namespace) -> int:
    """Exit status 1 where there is no folder that can be used, a file is damaged, or a bundle is refused."""
    if options.action in (None, "info"):
        return int(print_findings(cache_findings()))
    try:
        return _ACTIONS[options.action](cache_folder(), options)
    except (OSError, UserError) as error:
        print(f"torchjit cache: {error}", file=sys.stderr)
        return 1


def _path(folder: Path, options: argparse.Namespace) -> int:
    print(folder)
    return 0


def _clear(folder: Path, options: argparse.Namespace) -> int:
    before, entries = clear_cache(folder), _entries(folder).clear()
    ChoiceFolder(str(folder.parent)).clear()
    print(f"removed {_words(before, entries)} from {folder.parent}")
    return 0


def _verify(folder: Path, options: argparse.Namespace) -> int:
    kernels = list(folder.glob("*.so"))
    wrong = [library for library in kernels if not is_trusted(library)]
    right, damaged = _entries(folder).verify()
    print(f"{len(kernels) - len(wrong)} kernels and {right} entries are right")
    for library in wrong:
        print(f"{library} is not what was built; it will be built again", file=sys.stderr)
    if damaged:
        print(f"{damaged} entries were damaged, or others may write to them; they are not used", file=sys.stderr)
    return int(bool(wrong or damaged))


def _export(folder: Path, options: argparse.Namespace) -> int:
    secret = store_settings().secret
    libraries = [library for library in folder.glob("*.so") if is_trusted(library)]
    data, info = bundles.pack(_entries(folder).paths(), libraries, secret)
    options.file.write_bytes(data)
    signed = "signed" if secret is not None else "not signed: import needs --trust"
    print(f"wrote {_told(info)} into {options.file}, {signed}")
    return 0


def _import(folder: Path, options: argparse.Namespace) -> int:
    info = bundles.load(options.file.read_bytes(), str(folder.parent), store_settings().secret, trust=options.trust)
    if info is not None:
        print(f"put {_told(info)} into {folder.parent}")
    return int(info is None)


_ACTIONS: dict[str, Callable[[Path, argparse.Namespace], int]] = {
    "path": _path, "clear": _clear, "verify": _verify, "export": _export, "import": _import,
}  # fmt: skip


def cache_findings() -> Iterator[Finding]:
    """The folder, what is in it, and whether it is used."""
    if read_environment().caches_off:
        yield Finding(
            "cache", "note", f"{OFF} is set: each process builds its kernels in a temporary folder", "Unset it to keep them."
        )  # fmt: skip
    named = os.environ.get("TORCHJIT_CACHE_DIR")
    where = "TORCHJIT_CACHE_DIR" if named else "the user's cache folder"
    try:
        folder = cache_folder()
        with tempfile.NamedTemporaryFile(dir=folder):
            state = cache_state(folder)
    except OSError as error:
        yield Finding(
            "cache",
            "note",
            f"{error} ({where})",
            "Kernels are kept in a temporary folder; set TORCHJIT_CACHE_DIR to one of yours that can be written.",
        )
        return
    yield Finding("cache", "ok", f"{folder} ({where})")
    content = _words(state, cache_use(folder.parent))
    yield Finding("content", "ok", f"{content}; at most {state.limit / 1e6:.0f} MB of kernels and entries")
    mode = store_settings().mode
    yield Finding("entries", "ok", f"{_MODES[mode]} (TORCHJIT_STORE, or the setting store, is {mode})")
    yield Finding("access", "ok", f"owner {state.owner}, mode {state.mode}")
    try:
        with FileLock(folder / "trial.lock", timeout=5):
            yield Finding("locks", "ok", "files of the folder can be locked")
    except (OSError, NotImplementedError, Timeout) as error:
        yield Finding(
            "locks",
            "note",
            f"files of {folder} cannot be locked: {error}",
            "Kernels are kept all the same; processes that need the same one at once each build it. TORCHJIT_CACHE_DIR on a local disk spares that.",
        )
    if is_noexec(folder):
        yield Finding(
            "access",
            "note",
            f"{folder} is mounted noexec: no kernel can be loaded from there",
            "Kernels are built in a temporary folder; set TORCHJIT_CACHE_DIR to one on another disk.",
        )


def _entries(folder: Path) -> EntryFolder:
    return EntryFolder(str(folder.parent))


def _words(state: CacheState, entries: CacheUse) -> str:
    measured = f", {state.measurements} of measurements" if state.measurements else ""
    stored = f", {entries.entries} entries" if entries.entries else ""
    return f"{state.kernels} kernels{stored}{measured}, {(state.nbytes + entries.nbytes) / 1e6:.1f} MB"


def _told(info: CacheInfo) -> str:
    return f"{len(info.kernels)} kernels and {info.entries} entries, {info.nbytes / 1e6:.1f} MB,"
