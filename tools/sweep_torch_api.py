"""Every function of torch's operator database through `torchjit.compile(backend="eager")`, against eager.

    python tools/sweep_torch_api.py [--samples 1] [--only NAME] [--dtype float32]

Each function is called in all its forms (function, method, in place, operator) on the database's own samples; compared
are results, gradients, written inputs and exceptions. Prints what is wrong, then what breaks the graph and why; the
exit status says whether anything was wrong.
"""

from __future__ import annotations

import argparse
import collections
import copy
import itertools
import sys
import time
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

import torchjit
from torchjit.compiler import compilation_of

# Their results are whatever the memory holds.
_UNDEFINED = frozenset(
    {
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    }
)


def database() -> list[Any]:
    """torch's own list of operators, from its test utilities."""
    stand_in: Any = types.ModuleType("expecttest")  # imported for the database's own tests only
    stand_in.TestCase = unittest.TestCase
    sys.modules.setdefault("expecttest", stand_in)
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415  # takes seconds

    return list(op_db)


def forms(op: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The ways to call an operator."""
    call, method, inplace, operator = op.op, op.method_variant, op.inplace_variant, op.operator_variant
    yield "function", lambda x, args, kwargs: call(x, *args, **kwargs)
    if method is not None:
        yield "method", lambda x, args, kwargs: method(x, *args, **kwargs)
    if inplace is not None:
        # A fresh tensor, so that writing is legal where the argument requires grad.
        yield "in place", lambda x, args, kwargs: inplace(x.clone(), *args, **kwargs)
        yield "in place, argument", lambda x, args, kwargs: inplace(x.detach(), *args, **kwargs)
    if operator is not None:
        yield "operator", lambda x, args, kwargs: operator(x, *args, **kwargs)
    if op.supports_out:
        yield "out=", lambda x, args, kwargs: _with_out(call, x, args, kwargs)


def _with_out(call: Any, x: Any, args: Any, kwargs: Any) -> Any:
    with torch.no_grad():
        found = call(x, *args, **kwargs)
        if not isinstance(found, torch.Tensor):
            return found
        out = torch.zeros_like(found)
        return call(x, *args, **kwargs, out=out), out


def _copies(tree: Any) -> Any:
    memo: dict[int, Any] = {}

    def twin(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return copy.copy(x)
        if id(x) not in memo:
            copied = (
                x.detach().clone()
                if x.layout is not torch.strided
                else x.detach().clone(memory_format=torch.preserve_format)
            )
            memo[id(x)] = copied.requires_grad_(x.requires_grad)
        return memo[id(x)]

    return pytree.tree_map(twin, tree)


def _run(f: Callable[..., Any], given: Any) -> tuple[Any, ...]:
    """Results, gradients and arguments afterwards; or the exception's type."""
    given = _copies(given)
    torch.manual_seed(3)
    try:
        result = f(*given)
    except Exception as error:  # an exception is a result like any other here
        return ("raised", type(error).__name__, str(error)[:80])
    state = torch.get_rng_state()
    roots = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    roots = [t for t in roots if t.dtype.is_floating_point or t.dtype.is_complex]
    try:
        if roots:
            sum((t.abs() if t.is_complex() else t).double().sum() for t in roots).backward()  # type: ignore[union-attr]
    except Exception as error:
        return ("raised in the backward", type(error).__name__)
    tensors = [t for t in pytree.tree_leaves(given) if isinstance(t, torch.Tensor)]
    return (result, [t.grad for t in tensors], [t.detach() for t in tensors], state)


def difference(got: Any, want: Any) -> str | None:
    """How two results differ, or None."""
    mine, theirs = pytree.tree_leaves(got), pytree.tree_leaves(want)
    if len(mine) != len(theirs):
        return f"{len(mine)} values, not {len(theirs)}"
    for a, b in zip(mine, theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            if type(a) is not type(b) or (a != b and not (a != a and b != b)):
                return f"{a!r}, not {b!r}"
            continue
        if not isinstance(a, torch.Tensor):
            return f"a {type(a).__name__}, not a tensor"
        facts = [(t.dtype, t.device, t.layout, t.requires_grad, tuple(t.shape)) for t in (a, b)]
        if facts[0] != facts[1]:
            return f"{facts[0]}, not {facts[1]}"
        try:
            torch.testing.assert_close(a.detach(), b.detach(), rtol=0, atol=0, equal_nan=True)
        except AssertionError as error:
            return "values: " + str(error).splitlines()[0]
    return None


def check(f: Callable[..., Any], given: Any, breaks: collections.Counter[str]) -> str | None:
    """Compare compiled and eager; count the breaks."""
    torchjit.reset()
    compiled = torchjit.compile(f, backend="eager", on_error="raise", dynamic=False)
    want = _run(f, given)
    got = _run(compiled, given)
    compilation = compilation_of(compiled)
    for specialization in compilation.specializations if compilation else ():
        for record in specialization.breaks:
            breaks[f"{record.reason.id} {record.detail[:90]}"] += 1
    if want[0] == "raised" or got[0] == "raised":
        return None if got[:2] == want[:2] else f"{got[:3]}, not {want[:3]}"
    return difference(got, want)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    dtype = getattr(torch, given.dtype)
    calls, wrong, broken = 0, [], collections.Counter[str]()
    whole = 0
    start = time.perf_counter()
    for op in database():
        if given.only not in op.name or op.name in _UNDEFINED or dtype not in op.dtypes:
            continue
        try:
            samples = list(
                itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=op.supports_autograd), given.samples)
            )
        except Exception as error:  # the database itself cannot
            print(f"no samples: {op.name}: {type(error).__name__}")
            continue
        for sample in samples:
            for form, f in forms(op):
                if form.startswith("in place") and not isinstance(sample.input, torch.Tensor):
                    continue
                breaks = collections.Counter[str]()
                try:
                    found = check(f, (sample.input, tuple(sample.args), dict(sample.kwargs)), breaks)
                except Exception as error:
                    found = f"{type(error).__name__}: {str(error)[:300]}"
                calls += 1
                whole += not breaks
                if found is not None:
                    wrong.append(f"{op.formatted_name} [{form}]: {found}")
                    print("WRONG", wrong[-1], flush=True)
                for text in breaks:
                    broken[f"{op.formatted_name}: {text}"] += 1
    print(f"\n{calls} calls, {whole} without a break, {len(wrong)} wrong, {time.perf_counter() - start:.0f} s")
    for text, count in broken.most_common():
        print(f"{count:4d} {text}")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
