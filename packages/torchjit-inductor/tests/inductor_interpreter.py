"""Triton's interpreter, for the suites that run generated kernels without a GPU.

The interpreter is chosen by an environment variable when triton is imported, so numeric tests run in a process of their
own: in an ordinary run they have no parameters, and `run_interpreted` starts one that collects them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

INTERPRETING = os.environ.get("TRITON_INTERPRET") == "1"

INTERPRETED = {"triton": ("triton",), "triton_products": ("triton_products", "autotune", "row_totals", "transposed")}
"""Which files' tests run in the process that a file starts, all behind `test_inductor_`.

One process for several files, since what it imports takes ten seconds; not for all, since CI gives each file to one worker.
"""


def run_interpreted(started_by: str) -> None:
    """Run the tests that compute, under the interpreter; all of them have to pass. `started_by`: see `INTERPRETED`."""
    files = [str(Path(__file__).with_name(f"test_inductor_{name}.py")) for name in INTERPRETED[started_by]]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "compute", *files],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert "passed" in run.stdout and "skipped" not in run.stdout


def _reduce_in_pairs(self: Any, input: Any) -> list[Any]:
    """`tl.reduce` with a function: neighbours are combined until one is left, as a tree and in order.

    The interpreter's own goes element by element through Python (a row of 16,384: seconds), from the left. This one
    calls the same function on whole blocks, a dozen times, and asks of it what a GPU does: that it is associative.
    """
    axis, tensors = self.axis, list(input)
    if axis is None:
        axis, tensors = 0, [self.to_tensor(t.handle.data.flatten(), t.dtype) for t in tensors]
    while (length := tensors[0].handle.data.shape[axis]) > 1:
        assert length % 2 == 0, "the blocks of Triton have lengths that are powers of two"
        halves = [
            tuple(self.to_tensor(t.handle.data.take(range(at, length, 2), axis), t.dtype) for t in tensors)
            for at in (0, 1)
        ]
        made = self.combine_fn.fn(*halves[0], *halves[1])
        tensors = list(made) if isinstance(made, tuple) else [made]
    results = []
    for tensor, given in zip(tensors, input, strict=True):
        data = tensor.handle.data if self.keep_dims else tensor.handle.data.squeeze(axis)
        if self.keep_dims and self.axis is None:
            data = data.reshape((1,) * len(given.handle.data.shape))
        results.append(self.to_tensor(data if data.shape else data.item(), given.dtype))
    return results


def _sort_whole_rows(x: Any, dim: int) -> Any:
    """`tl.sort` at once. Its steps are a hundred operations on blocks of two elements each side: minutes in the interpreter."""
    made = interpreter.TensorHandle(numpy.sort(x.handle.data, axis=dim), x.handle.dtype)
    return triton.language.core.tensor(made, x.type)


def _patch_index(tensor: Any, scope: Any) -> None:
    """Bounds of loops that a kernel has loaded. Triton 3.6 asks NumPy for the `int` of an array of one element, which 2.5 refuses."""
    _patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())


if INTERPRETING:
    import numpy
    import triton
    from triton.runtime import interpreter

    _patch_tensor = interpreter._patch_lang_tensor
    interpreter._patch_lang_tensor = _patch_index
    interpreter.ReduceOps.generic_reduce = _reduce_in_pairs
    triton.language.sort = _sort_whole_rows
