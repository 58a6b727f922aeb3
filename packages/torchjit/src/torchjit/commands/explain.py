"""Run a script and say what was compiled, where the graph broke, what was compiled again, and what to change."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from torchjit.commands.script import run_script
from torchjit.inspection import describe

__all__ = ["HELP", "add_arguments", "run"]

HELP = "run a script and say what was compiled, where it broke, and what to change"
NOTHING = (
    "nothing was compiled: the script calls neither torchjit.compile nor torch.compile (a name imported by\n"
    "`from torch import compile` before torchjit is loaded is not seen)."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("script", type=Path, help="a Python file; torch.compile in it is torchjit's")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")


def run(options: argparse.Namespace) -> int:
    """The script's exit status; 2 where there is no script."""
    if not options.script.is_file():
        print(f"torchjit explain: there is no {options.script}", file=sys.stderr)
        return 2
    status, kept = run_script(options.script, options.arguments)
    print(f"\n== torchjit explain {options.script}")
    used = [compilation for compilation in kept if any(site.specializations for site in compilation.sites)]
    for compilation in used:
        print(f"\n{compilation.root.name}")
        print("    " + str(describe(compilation)).replace("\n", "\n    "))
    unused = len(kept) - len(used)
    if unused:
        print(f"\n{unused} compiled function(s) never called.")
    if not kept:
        print(NOTHING)
    return status
