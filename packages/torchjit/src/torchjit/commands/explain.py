"""Run a script and say what was compiled, where the graph broke, what was compiled again, and what to change."""

from __future__ import annotations

import argparse

from torchjit.commands.script import add_script, run_script, script_of
from torchjit.inspection import describe

__all__ = ["HELP", "add_arguments", "run"]

HELP = "run a script and say what was compiled, where it broke, and what to change"
NOTHING = (
    "nothing was compiled: the script calls neither torchjit.compile nor torch.compile (a name imported by\n"
    "`from torch import compile` before torchjit is loaded is not seen)."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_script(parser, "a Python file; torch.compile in it is torchjit's")


def run(options: argparse.Namespace) -> int:
    """The script's exit status; 2 where there is no script."""
    script = script_of(options, "explain")
    if script is None:
        return 2
    status, kept = run_script(script, options.arguments)
    print(f"\n== torchjit explain {script}")
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
