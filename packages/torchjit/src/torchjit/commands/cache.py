"""Look at the folder in which compiled kernels are kept between processes, or empty it."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator

from filelock import FileLock, Timeout

from torchjit.cache import cache_folder
from torchjit.commands.console import Finding, print_findings
from torchjit.environment import read_environment
from torchjit_inductor.cpp.cache import CacheState, cache_state, clear_cache
from torchjit_inductor.cpp.folders import is_noexec

__all__ = ["HELP", "add_arguments", "cache_findings", "run"]

HELP = "where compiled kernels are kept, how many there are; clear them"
OFF = "TORCHJIT_FORCE_DISABLE_CACHES"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=["info", "path", "clear"],
        default="info",
        help="info (the default): what is there; path: the folder alone, for scripts; clear: remove kernels and measurements",
    )


def run(options: argparse.Namespace) -> int:
    """Exit status 1 where there is no folder that can be used."""
    if options.action == "info":
        return int(print_findings(cache_findings()))
    try:
        folder = cache_folder()
        if options.action == "path":
            print(folder)
            return 0
        before = clear_cache(folder)
    except OSError as error:
        print(f"torchjit cache: {error}", file=sys.stderr)
        return 1
    print(f"removed {_words(before)} from {folder}")
    return 0


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
    yield Finding("content", "ok", f"{_words(state)}; at most {state.limit / 1e6:.0f} MB of kernels")
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


def _words(state: CacheState) -> str:
    measured = f", {state.measurements} of measurements" if state.measurements else ""
    return f"{state.kernels} kernels{measured}, {state.nbytes / 1e6:.1f} MB"
