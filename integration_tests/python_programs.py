"""The VM's corpus with tensors in the place of its lazy numbers, through `torchjit.compile(backend="eager")` against plain execution.

    uv run python integration_tests/python_programs.py [MODULE ...]

prints for each program the graph breaks of torchjit and of torch.compile in the same process, and the totals.
"""

# mypy: ignore-errors

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import sys
import warnings
from pathlib import Path

import torch

import torchjit

sys.path.insert(0, str(Path(__file__).parent.parent / "packages/torchjit-vm/tests"))

MODULES = (
    "vm_corpus_values", "vm_corpus_random", "vm_corpus_coroutines", "vm_corpus_weak", "vm_corpus_walk_objects",
    "vm_corpus_walk_library", "vm_corpus_walk_breaks", "vm_corpus_protocols", "vm_corpus_language", "vm_corpus_c_protocols",
    "vm_corpus_recursion", "vm_corpus_edges", "vm_corpus_library_values",
)  # fmt: skip

_FRESH = {}


def programs(modules=MODULES):
    """Import the corpus anew, with tensors; names and programs whose arguments can be copied."""
    fresh = ("vm_corpus", "vm_compare", *modules)
    kept = {name: sys.modules.pop(name, None) for name in fresh}
    try:
        corpus = importlib.import_module("vm_corpus")
        corpus.N = lambda value: torch.full((2,), float(value))
        found = importlib.import_module("vm_compare")
        described = found.shape
        found.shape = lambda value, seen: _tensor(value) or described(value, seen)
        for name in modules:
            importlib.import_module(name)
    finally:
        for name, module in kept.items():
            _FRESH[name] = sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
    return [p for p in corpus.CORPUS if _copies(p.args)], found.outcome


def _tensor(value):
    return ("tensor", value.tolist(), str(value.dtype)) if isinstance(value, torch.Tensor) else None


def _copies(args):
    try:
        copy.deepcopy(args)
    except TypeError:
        return False
    return True


@contextlib.contextmanager
def restored(function):
    """The globals of a program, put back; under its module's name there is the module with tensors meanwhile."""
    name = function.__module__
    before, usual = dict(function.__globals__), sys.modules.get(name)
    sys.modules[name] = _FRESH.get(name, usual)
    try:
        yield
    finally:
        function.__globals__.clear()
        function.__globals__.update(before)
        if usual is None:
            del sys.modules[name]
        else:
            sys.modules[name] = usual


def breaks_of_torchjit(program):
    torchjit.reset()
    with restored(program.function), contextlib.redirect_stdout(io.StringIO()):
        return torchjit.explain(program.function)(*copy.deepcopy(program.args)).graph_break_count


def breaks_of_torch_compile(program):
    from torch._dynamo import reset  # noqa: PLC0415  only the comparison needs it
    from torch._dynamo.utils import counters  # noqa: PLC0415

    reset()
    counters.clear()
    with restored(program.function), contextlib.redirect_stdout(io.StringIO()):
        torch.compile(program.function, backend="eager")(*copy.deepcopy(program.args))
    return sum(counters["graph_break"].values())


def main(modules):
    warnings.simplefilter("ignore")
    totals = [0, 0]
    failed = 0
    for program in programs(modules or MODULES)[0]:
        found = []
        for count in (breaks_of_torchjit, breaks_of_torch_compile):
            try:
                found.append(count(program))
            except Exception as error:  # the program's own, or that of torch.compile
                found.append(type(error).__name__)
        print(f"{program.function.__name__:40} {found[0]!s:>12} {found[1]!s:>24}")
        if all(isinstance(n, int) for n in found):
            totals = [a + b for a, b in zip(totals, found, strict=True)]
        else:
            failed += 1
    print(
        f"breaks: {totals[0]} torchjit, {totals[1]} torch.compile; {failed} programs raised in one of them and are left out"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
