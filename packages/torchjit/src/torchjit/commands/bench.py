"""Run a script three times, its torch.compile being nothing, torchjit's and PyTorch's, and compare the times of what it compiles."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.table import Table

from torchjit.commands.console import console, print_table
from torchjit.commands.script import Script, add_script, script_of

__all__ = ["HELP", "add_arguments", "run"]

HELP = "run a script in eager mode, with torchjit and with torch.compile, and compare"
COMPILERS = ("eager", "torchjit", "torch.compile")
ENOUGH_CALLS = 5  # with fewer, a median says nothing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "--compilers", nargs="+", choices=COMPILERS, default=COMPILERS, help="which to run (default: all)"
    )
    add_script(parser, "a Python file that calls torch.compile or torchjit.compile and runs what it gets")


def run(options: argparse.Namespace) -> int:
    """Exit status 2 where there is no script, 1 where it fails or compiles nothing."""
    script = script_of(options, "bench")
    if script is None:
        return 2
    timed = {compiler: _time(compiler, script, options.arguments) for compiler in options.compilers}
    if all(result is None for result in timed.values()):
        return 1
    if not any(result and result["steps"] for result in timed.values()):
        print("The script calls nothing that it compiled: there is nothing to compare.", file=sys.stderr)
        return 1
    _print(timed)
    return 0


def _time(compiler: str, script: Script, arguments: list[str]) -> dict[str, Any] | None:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "times.json"
        command = [
            sys.executable,
            "-m",
            "torchjit.commands.timed_script",
            compiler,
            str(result),
            *script.command,
            *arguments,
        ]
        done = subprocess.run(command, check=False)
        if done.returncode != 0 or not result.exists():
            print(f"torchjit bench: with {compiler} the script ended with status {done.returncode}", file=sys.stderr)
            return None
        loaded: dict[str, Any] = json.loads(result.read_text())
        return loaded


def _print(timed: dict[str, dict[str, Any] | None]) -> None:
    table = Table("compiler", "first call, s", "later steps, ms", "over eager", "calls", "whole script, s")
    base = (timed.get("eager") or {}).get("step_seconds")
    for compiler, result in timed.items():
        if result is None:
            table.add_row(compiler, "failed", "", "", "", "")
            continue
        step = result["step_seconds"]
        ratio = f"{base / step:.2f}x" if base and step else ""
        later = f"{step * 1e3:.3f}" if step else ""
        table.add_row(
            compiler, f"{result['first_seconds']:.2f}", later, ratio, str(result["steps"]), f"{result['seconds']:.1f}"
        )
    print_table(table)
    console().print(
        "A step is the median time from one call of the first compiled function to its next: a training step has its backward and "
        "optimizer in it.",
        markup=False,
    )
    if any(result and result["steps"] < ENOUGH_CALLS for result in timed.values()):
        console().print(
            f"Fewer than {ENOUGH_CALLS} calls: let the script run its loop longer for a figure that can be trusted."
        )
