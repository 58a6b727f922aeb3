"""Run a user's script as `python script.py` or `python -m module` would, with its compilations kept."""

from __future__ import annotations

import argparse
import importlib.util
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import attrs

from torchjit.compiler import replace_torch_compile
from torchjit_session.compilation import Compilation
from torchjit_session.sharing import keeping_compilations

__all__ = ["Script", "add_script", "run_script", "script_of"]


@attrs.frozen
class Script:
    """What `python [-m] NAME` names.

    Attributes:
        name: the path of a file, or the name of a module or of a package with a `__main__`.
        is_module: which of them.
    """

    name: str
    is_module: bool = False

    def __str__(self) -> str:
        return f"-m {self.name}" if self.is_module else self.name

    @property
    def command(self) -> tuple[str, ...]:
        """As words of a command line."""
        return ("-m", self.name) if self.is_module else (self.name,)

    def file(self) -> Path | None:
        """The file that runs; None if there is none."""
        if not self.is_module:
            return Path(self.name) if Path(self.name).is_file() else None
        before = sys.path[:]
        sys.path.insert(0, os.getcwd())
        try:
            found = importlib.util.find_spec(self.name)
            if found is not None and found.submodule_search_locations is not None:
                found = importlib.util.find_spec(f"{self.name}.__main__")
        except ImportError:
            return None
        finally:
            sys.path[:] = before
        return None if found is None or found.origin is None else Path(found.origin)

    def run(self, arguments: Sequence[str]) -> None:
        """Run it as the main program.

        Args:
            arguments: its own.
        """
        before = sys.argv[:], sys.path[:]
        sys.argv = [str(self.file()) if self.is_module else self.name, *arguments]
        try:
            if self.is_module:
                sys.path.insert(0, os.getcwd())
                runpy.run_module(self.name, run_name="__main__", alter_sys=True)
            else:
                sys.path.insert(0, str(Path(self.name).resolve().parent))
                runpy.run_path(self.name, run_name="__main__")
        finally:
            sys.argv, sys.path[:] = before


def add_script(parser: argparse.ArgumentParser, help: str) -> None:
    """The arguments `[-m] script arguments ...`; `script_of` reads them."""
    parser.add_argument("-m", dest="is_module", action="store_true", help="SCRIPT is a module's name, as of python -m")
    parser.add_argument("script", help=help)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")


def script_of(options: argparse.Namespace, command: str) -> Script | None:
    """What is to be run; None, and a line on standard error, if it is not there."""
    script = Script(options.script, options.is_module)
    if script.file() is not None:
        return script
    print(f"torchjit {command}: there is no {'module ' if script.is_module else ''}{script.name}", file=sys.stderr)
    return None


def run_script(script: Script, arguments: Sequence[str]) -> tuple[int, list[Compilation]]:
    """Run a script in which `torch.compile` is torchjit's.

    Args:
        script: what to run.
        arguments: its own.

    Returns:
        Its exit status, 1 where it raised (the traceback is printed), and what was compiled, in order.
    """
    with keeping_compilations() as kept, replace_torch_compile():
        status = _status(script, arguments)
    return status, kept


def _status(script: Script, arguments: Sequence[str]) -> int:
    try:
        script.run(arguments)
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
            return 1
        return stop.code or 0
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = next(
            (n for n, f in enumerate(frames) if f.filename == str(script.file())), 0
        )  # ours and runpy's come before
        print(
            "".join(["Traceback (most recent call last):\n", *traceback.format_list(frames[own:])]),
            end="",
            file=sys.stderr,
        )
        print("".join(traceback.format_exception_only(error)), end="", file=sys.stderr)
        return 1
    return 0
