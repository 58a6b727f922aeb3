"""Process replay: what a fixed set of programs becomes, at every stage, recorded as text, and compared after a change.

    uv run python tools/replay.py record FOLDER  [--only GROUP ...] [--filter TEXT] [--jobs N]
    uv run python tools/replay.py compare FOLDER [--only GROUP ...] [--filter TEXT] [--jobs N] [--full] [--rename OLD=NEW ...]

Groups: goldens, torch_programs, training_programs, python_programs, numpy_programs (together `corpora`), and torchvision, timm, transformers (`models`).
A program runs in a process of its own through the whole default backend, but kernels are written, not built: graphs run by their operators.
The record, a file for each program, holds captured, joint, partitioned and final graphs, guards, schedules, C and Triton kernels, host programs, emitted
code, and breaks. It is the same in every process (addresses, times, paths, line numbers of this repository and counters are taken out). `compare` records
again and prints, for each program, the stages that differ and the first lines of the difference; its status is 1 if there is one.
`--rename` replaces a regular expression in the old texts first: for what was only renamed.
"""

from __future__ import annotations

import argparse
import collections
import difflib
import gc
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCHJIT_STORE", "off")  # what this is about is compiled, not found on disk

ROOT = Path(__file__).resolve().parent.parent
PLACES = ("integration_tests", "packages/torchjit-vm/tests", "packages/torchjit-inductor/tests", "tools/corpora")
sys.path[:0] = [str(ROOT / place) for place in PLACES]
CORPORA = ("goldens", "torch_programs", "training_programs", "python_programs", "numpy_programs")
MODELS = ("torchvision", "timm", "transformers")
SHOWN = 30
"""Lines of a difference."""
LIMIT = 300.0
"""Seconds that a program may take."""


# ---------------------------------------------------------------------------------------------------- recording
def _file_of(folder: Path, group: str, name: str) -> Path:
    return folder / group / (re.sub(r"[^\w.+-]", "_", name) + ".txt")


def _record_one(run: Callable[[Any], object], path: Path) -> None:
    """In the child: run the program and write what was heard."""
    import random  # noqa: PLC0415

    import torch  # noqa: PLC0415  the parent of all needs none of these
    from replaying.listener import Record, listening  # noqa: PLC0415
    from replaying.texts import write_record  # noqa: PLC0415

    record = Record()
    torch.set_num_threads(
        1
    )  # makes the pool of threads anew that the fork has lost: autograd's threads would race for it
    # Autograd starts its threads now: later it would start one for the GPU that tensors of the Triton kernels pretend to.
    torch.ones((), requires_grad=True).backward()
    torch.manual_seed(0)
    random.seed(0)
    warnings.simplefilter("ignore")
    try:
        with listening(record):
            outcome = run(record)
    except Exception as error:
        outcome = f"raised {type(error).__name__}: {error}"
    if outcome is not None:
        record.add("outcome", str(outcome))
    write_record(path, record.stages)


def _warm_up() -> None:
    """What a process does once, before it forks."""
    import torch  # noqa: PLC0415
    from replaying.listener import Record, listening  # noqa: PLC0415

    import torchjit  # noqa: PLC0415

    torch.set_num_threads(1)
    with listening(Record(), triton=False):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.1), torch.nn.LayerNorm(4))
        compiled = torchjit.compile(model)
        for n in (2, 3):
            with torch.no_grad():  # a process in which autograd has started its threads cannot fork
                compiled(torch.randn(n, 4))
    torchjit.reset()
    gc.collect()
    gc.freeze()  # children do not walk what they share


def _record_group(group: str, folder: Path, wanted: str, jobs: int) -> int:
    """Record one group: a process for each program, forked from this one."""
    from replaying.programs import GROUPS  # noqa: PLC0415

    try:
        programs = GROUPS[group]()
    except ModuleNotFoundError as missing:
        print(f"{group}: not recorded: {missing}", flush=True)
        return 3
    programs = {name: run for name, run in programs.items() if wanted in name}
    if programs:
        _warm_up()
    running: dict[int, tuple[str, float]] = {}
    waiting = list(reversed(programs.items()))
    failed = 0
    while waiting or running:
        while waiting and len(running) < jobs:
            name, run = waiting.pop()
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                _child(run, _file_of(folder, group, name))
            running[pid] = name, time.monotonic()
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            for late in [p for p, (_, start) in running.items() if time.monotonic() - start > LIMIT]:
                os.kill(late, 9)
            time.sleep(0.005)
            continue
        name, _ = running.pop(pid)
        if status:
            failed += 1
            path = _file_of(folder, group, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"%%%% outcome\nthe process ended with {status}\n")
    print(
        f"{group}: {len(programs)} programs" + (f", {failed} of which ended their process" if failed else ""),
        flush=True,
    )
    return 0


def _child(run: Callable[[Any], object], path: Path) -> None:
    status = 1
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        if "REPLAY_STDERR" not in os.environ:
            os.dup2(sink, 2)
        _record_one(run, path)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def record(folder: Path, groups: Iterable[str], wanted: str, jobs: int) -> list[str]:
    """Record groups, each from a process of its own; returns those that could not be."""
    missing = []
    for group in groups:
        with tempfile.TemporaryDirectory() as cache:
            fixed = {
                "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TORCHJIT_CACHE_DIR": cache, "COLUMNS": "120",
                "PYTHONPATH": os.pathsep.join([*map(str, sorted(ROOT.glob("packages/*/src"))), os.environ.get("PYTHONPATH", "")]),
            }  # fmt: skip
            command = [
                sys.executable,
                __file__,
                "record",
                str(folder.resolve()),
                "--one",
                group,
                "--filter",
                wanted,
                "--jobs",
                str(jobs),
            ]
            done = subprocess.run(command, env={**os.environ, **fixed}, cwd=ROOT)
        if done.returncode == 3:
            missing.append(group)
        elif done.returncode:
            sys.exit(f"{group}: recording failed")
    return missing


# ---------------------------------------------------------------------------------------------------- comparing
def compare(old: Path, new: Path, groups: Iterable[str], wanted: str, renames: list[str], lines: int | None) -> int:
    """Print how the records differ; the exit status."""
    from replaying.texts import STAGES, read_record  # noqa: PLC0415

    rules = [(re.compile(before), after) for before, _, after in (rename.partition("=") for rename in renames)]
    programs, stages, unknown = 0, 0, []
    differing: collections.Counter[str] = collections.Counter()
    for group in groups:
        key = re.sub(r"[^\w.+-]", "_", wanted)
        names = sorted({p.name for folder in (old, new) for p in (folder / group).glob("*.txt") if key in p.stem})
        for name in names:
            before, after = old / group / name, new / group / name
            if not before.exists():
                unknown.append(f"{group}/{before.stem}")
                continue
            programs += 1
            if not after.exists():
                differing["is not there any more"] += 1
                print(f"== {group}/{before.stem}: is not there any more")
                continue
            was, now = read_record(before), read_record(after)
            for rule, text in rules:
                was = {stage: rule.sub(text, told) for stage, told in was.items()}
            for stage in STAGES:
                stages += stage in was or stage in now
                if was.get(stage) != now.get(stage):
                    differing[stage] += 1
                    print(f"== {group}/{before.stem}: {stage}")
                    print("\n".join(_difference(was.get(stage, ""), now.get(stage, ""), lines)), flush=True)
    if unknown:
        print(f"not compared, for the record does not have them: {', '.join(unknown)}")
    print(f"{programs} programs, {stages} stages compared, {sum(differing.values())} differences"
          + "".join(f"\n  {count} x {stage}" for stage, count in differing.most_common()))  # fmt: skip
    return int(bool(differing))


def _difference(was: str, now: str, most: int | None) -> list[str]:
    found = list(difflib.unified_diff(was.splitlines(), now.splitlines(), "recorded", "now", lineterm="", n=2))
    if most is None or len(found) <= most:
        return found
    return [*found[:most], f"... {len(found) - most} more lines (--full)"]


def main() -> int:
    """Record or compare; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["record", "compare"])
    parser.add_argument("folder", type=Path, help="where the record is, or goes")
    parser.add_argument(
        "--only", nargs="+", choices=[*CORPORA, *MODELS, "corpora", "models"], help="these groups (all by default)"
    )
    parser.add_argument("--filter", default="", help="programs that have this text in their name")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time")
    parser.add_argument("--full", action="store_true", help="whole differences")
    parser.add_argument(
        "--rename",
        nargs="+",
        default=[],
        metavar="OLD=NEW",
        help="a regular expression in the old texts, and what takes its place",
    )
    parser.add_argument("--into", type=Path, help="keep what `compare` records here")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        status = _record_group(given.one, given.folder, given.filter, given.jobs)
        sys.stdout.flush()
        os._exit(status)  # Triton's bindings complain of what a forking process leaves
    several = {"corpora": CORPORA, "models": MODELS}
    groups = [g for named in given.only or several for g in several.get(named, (named,))]
    if given.command == "record":
        return int(bool(record(given.folder, groups, given.filter, given.jobs)))
    if not given.folder.is_dir():
        parser.error(f"there is no record in {given.folder}")
    with tempfile.TemporaryDirectory() as folder:
        into = given.into or Path(folder)
        missing = record(into, groups, given.filter, given.jobs)
        status = compare(
            given.folder,
            into,
            [g for g in groups if g not in missing],
            given.filter,
            given.rename,
            None if given.full else SHOWN,
        )
    for group in missing:
        print(f"not compared: {group}")
    return status


if __name__ == "__main__":
    sys.exit(main())
