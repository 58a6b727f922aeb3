"""Run a user's script as `python script.py` would, with its compilations kept."""

from __future__ import annotations

import contextlib
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from torchjit.compiler import replace_torch_compile
from torchjit_session.compilation import Compilation
from torchjit_session.sharing import keeping_compilations

__all__ = ["as_main", "run_script"]


def run_script(path: Path, arguments: Sequence[str]) -> tuple[int, list[Compilation]]:
    """Run a script in which `torch.compile` is torchjit's.

    Args:
        path: of the script.
        arguments: its own.

    Returns:
        Its exit status, 1 where it raised (the traceback is printed), and what was compiled, in order.
    """
    with keeping_compilations() as kept, replace_torch_compile(), as_main(path, arguments):
        status = _status(path)
    return status, kept


@contextlib.contextmanager
def as_main(path: Path, arguments: Sequence[str]) -> Iterator[None]:
    """`sys.argv` and `sys.path` as the script expects them."""
    before = sys.argv[:], sys.path[:]
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before


def _status(path: Path) -> int:
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
            return 1
        return stop.code or 0
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = next((n for n, f in enumerate(frames) if f.filename == str(path)), 0)  # ours and runpy's come before
        print(
            "".join(["Traceback (most recent call last):\n", *traceback.format_list(frames[own:])]),
            end="",
            file=sys.stderr,
        )
        print("".join(traceback.format_exception_only(error)), end="", file=sys.stderr)
        return 1
    return 0
