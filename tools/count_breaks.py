"""Graph breaks over the corpora of programs, in two checkouts: did what was captured right become a break?

    git worktree add ../before COMMIT        # and build its C extensions
    uv run python tools/count_breaks.py ../before . [--corpus python torch ...]

The programs are those of the tree that this file lies in, in both runs, each called twice with the backend `eager`. One line per
program whose breaks differ, with the reasons, then a table per corpus. The exit status is 1 if some program has more breaks.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCHJIT_STORE", "off")  # what this is about is compiled, not found on disk

ROOT = Path(__file__).resolve().parent.parent
PLACES = ("integration_tests", "packages/torchjit-vm/tests", "tools/corpora")
Runs = Iterator[tuple[str, Callable[[], Any]]]


def _python() -> Runs:
    """The VM's corpus on tensors."""
    import python_programs  # noqa: PLC0415  of the tests

    import torchjit  # noqa: PLC0415  of the tree under test

    programs, outcome = python_programs.programs()
    for program in programs:

        def run(program: Any = program) -> None:
            torchjit.reset()
            with python_programs.restored(program.function):
                compiled = torchjit.compile(program.function, backend="eager")
                for _ in range(2):
                    want = outcome(program.function, copy.deepcopy(program.args))
                    if outcome(compiled, copy.deepcopy(program.args)) != want:
                        raise AssertionError("not what plain execution does")

        yield program.function.__name__, run


def _torch() -> Runs:
    """Tensor programs of users."""
    import test_torch_programs as tests  # noqa: PLC0415

    import torchjit  # noqa: PLC0415

    for name, (_, make) in tests.PROGRAMS.items():

        def run(make: Any = make) -> None:
            function, args, owners = make()
            tests._did(torchjit.compile(function, backend="eager"), args, owners)

        yield name, run


def _training() -> Runs:
    """Programs about autograd."""
    import test_training_programs as tests  # noqa: PLC0415

    import torchjit  # noqa: PLC0415

    for name, program in tests.PROGRAMS.items():

        def run(program: Any = program) -> None:
            compiled = torchjit.compile(program.f, backend="eager")
            for _ in range(2):
                tests.observe(compiled, program)

        yield name, run


def _reports() -> Runs:
    """Programs after public reports."""
    import public_reports  # noqa: PLC0415

    import torchjit  # noqa: PLC0415

    for name, program in public_reports.PROGRAMS.items():
        yield name, lambda program=program: program(lambda f: torchjit.compile(f, backend="eager"))


def _modules() -> Runs:
    """The modules of torch.nn, from PyTorch's own samples."""
    import torch  # noqa: PLC0415
    from corpora_tool import moduleinfo  # noqa: PLC0415

    import torchjit  # noqa: PLC0415

    moduleinfo.prepare()
    for name in moduleinfo.names():

        def run(name: str = name) -> None:
            for case in moduleinfo.build(name, "train", "cpu")[:2]:
                torch.manual_seed(0)
                torchjit.compile(case.module, backend="eager")(*case.args, **case.kwargs)

        yield name, run


CORPORA: dict[str, Callable[[], Runs]] = {
    "python": _python,
    "torch": _torch,
    "training": _training,
    "reports": _reports,
    "modules": _modules,
}


def count(corpus: str) -> dict[str, list[str]]:
    """For each program the reasons of its breaks, `raised ...` where it cannot be run; in a process that has a tree on its path."""
    import torch  # noqa: PLC0415

    import torchjit  # noqa: PLC0415
    from torchjit_core import events  # noqa: PLC0415

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found: dict[str, list[str]] = {}
    for name, run in CORPORA[corpus]():
        torchjit.reset()
        torch.manual_seed(0)
        seen: list[str] = []

        def listener(kind: str, fields: dict[str, Any], seen: list[str] = seen) -> None:
            if kind in ("graph_break", "fallback"):
                said = fields.get("detail") or ""
                seen.append(f"{kind} {fields['reason']} {str(said).splitlines()[0][:80] if said else ''}".strip())

        try:
            with events.listen(listener), contextlib.redirect_stdout(io.StringIO()):
                run()
        except Exception as error:
            seen.append(f"raised {type(error).__name__}: {error}"[:160])
        found[name] = seen
    return found


def _run(tree: Path, corpus: str) -> dict[str, list[str]]:
    paths = [str(p) for p in sorted((tree.resolve() / "packages").glob("*/src"))]
    path = os.pathsep.join([*paths, *(str(ROOT / place) for place in PLACES)])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
    command = [sys.executable, __file__, "--one", corpus]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-4000:])
    told: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return told


def main() -> int:
    """Count, compare and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", type=Path, help="the checkout before, the checkout after")
    parser.add_argument("--corpus", nargs="+", choices=list(CORPORA), default=list(CORPORA))
    parser.add_argument("--one", choices=list(CORPORA), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print("\n" + json.dumps(count(given.one)))
        return 0
    if len(given.trees) != 2:
        parser.error("two checkouts, please")
    rose, rows = 0, []
    for corpus in given.corpus:
        before, after = (_run(tree, corpus) for tree in given.trees)
        sums = [0, 0]
        for name, now in after.items():
            then = before[name]
            if any(r.startswith("raised") for r in (*then, *now)):
                if then != now:
                    print(f"{corpus} {name}: cannot be compared: {then[-1:]} {now[-1:]}")
                continue
            sums = [sums[0] + len(then), sums[1] + len(now)]
            rose += len(now) > len(then)
            if len(then) != len(now):
                more = collections.Counter(now) - collections.Counter(then)
                less = collections.Counter(then) - collections.Counter(now)
                changes = [*(f"+ {r}" for r in more.elements()), *(f"- {r}" for r in less.elements())]
                print(f"{corpus} {name}: {len(then)} -> {len(now)}: {'; '.join(changes)}", flush=True)
        rows.append(f"| {corpus} | {len(after)} | {sums[0]} | {sums[1]} |")
    print("\n| corpus | programs | breaks before | after |\n|---|---|---|---|")
    print("\n".join(rows))
    return 1 if rose else 0


if __name__ == "__main__":
    sys.exit(main())
