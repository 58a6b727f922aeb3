"""Calls that eager refuses, or answers in a way of its own, through the default backend: does compiling keep checks, dtypes and strides?

    python tools/sweep_checks.py [--samples 1] [--only REGEX] [--changes dtypes,numbers] [--seconds 600] [--compiled]

Each operator of torch's database is called as in its samples, in the samples that it must refuse, and with one thing changed at a
time: a number negated or 0, an index that is negative or too large, values outside of [0, 1], NaN, one operand (or all)
of another dtype, operands transposed. Compared with eager are the exception's type, or dtypes, shapes, strides and values of the
results, which must be as near to those in float64, but for some roundings. Prints each call that differs; the exit
status says whether there are any. Kernels are evaluated point by point, unless `--compiled`: then the C++ compiler is used.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from sweep_strides import database, reversed_dims
from torch.utils import _pytree as pytree

import torchjit
from torchjit_inductor.cpp.backend import CBackend

NOT_ASKED = re.compile(
    r"^(jiterator|sparse|torch\.ops|empty|new_empty|resize|rand|normal|uniform|bernoulli|multinomial|cauchy|exponential|geometric"
    r"|log_normal|to_sparse|item$|nn\.functional\.(feature_)?(alpha_)?dropout|nn\.functional\.(rrelu|fractional|multi_head)"
    r"|svd_lowrank|pca_lowrank|nn\.functional\.linear_cross_entropy|torch\._scaled)"
)
"""Random, undefined, or given functions that the database makes."""
NOT_WITH = {
    "values": re.compile(r"^(linalg|lu|svd|pinverse|geqrf|ormqr|qr|cholesky|triangular|logdet|matrix|sort|argsort|msort|topk|histogram)"),
    "positions": re.compile(r"^nn\.functional\.ctc_loss"),
    "numbers": re.compile(r"^(native_|grid_sampler|_native)"),
}  # fmt: skip
"""What eager gives for such arguments is not defined: LAPACK and NaN, the order of equal elements, labels and modes beyond a table."""
SAME_TYPE = {"RuntimeError": {"NotImplementedError"}, "NotImplementedError": {"RuntimeError"}}
"""The kernel's error is one of these, whichever stage says it."""

Call = tuple[str, tuple[Any, ...], dict[str, Any]]


# ---------------------------------------------------------------------- changes
def changed_one(args: Any, kwargs: Any, what: Callable[[Any], list[tuple[str, Any]]]) -> Iterator[Call]:
    """The call with one leaf changed, for each leaf and each change of it."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    for k, leaf in enumerate(leaves):
        for label, other in what(leaf):
            given = pytree.tree_unflatten([*leaves[:k], other, *leaves[k + 1 :]], spec)
            yield f"{label} at {k}", *given


def numbers(leaf: Any) -> list[tuple[str, Any]]:
    if isinstance(leaf, bool) or not isinstance(leaf, int | float):
        return []
    return [("negated", -leaf if leaf > 0 else leaf - 1), ("0", type(leaf)(0))]


def positions(leaf: Any) -> list[tuple[str, Any]]:
    if not isinstance(leaf, torch.Tensor) or leaf.dtype is not torch.int64 or not leaf.numel():
        return []
    return [
        ("-1", torch.full_like(leaf, -1)),
        ("1000", torch.full_like(leaf, 1000)),
        ("-1000", torch.full_like(leaf, -1000)),
    ]


def values(leaf: Any) -> list[tuple[str, Any]]:
    if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
        return []
    return [("3x - 1", leaf.detach() * 3 - 1), ("nan", torch.full_like(leaf.detach(), torch.nan))]


def dtypes(leaf: Any) -> list[tuple[str, Any]]:
    if not isinstance(leaf, torch.Tensor):
        return []
    others = (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int64, torch.bool)
    return [(str(d).removeprefix("torch."), leaf.detach().to(d)) for d in others if d is not leaf.dtype]


def all_dtypes(args: Any, kwargs: Any) -> Iterator[Call]:
    for d in (torch.bfloat16, torch.int64, torch.bool):
        yield f"all {d}", *_floats_to((args, kwargs), d)


def _floats_to(given: Any, dtype: torch.dtype) -> Any:
    return pytree.tree_map(
        lambda t: t.detach().to(dtype) if isinstance(t, torch.Tensor) and t.is_floating_point() else t, given
    )


def transposed(args: Any, kwargs: Any) -> Iterator[Call]:
    yield (
        "all transposed",
        *pytree.tree_map(
            lambda t: reversed_dims(t.detach()) if isinstance(t, torch.Tensor) and t.dim() > 1 else t, (args, kwargs)
        ),
    )


CHANGES: dict[str, Callable[[Any, Any], Iterator[Call]]] = {
    "none": lambda args, kwargs: iter([("as it is", args, kwargs)]),
    "numbers": lambda args, kwargs: changed_one(args, kwargs, numbers),
    "positions": lambda args, kwargs: changed_one(args, kwargs, positions),
    "values": lambda args, kwargs: changed_one(args, kwargs, values),
    "dtypes": lambda args, kwargs: changed_one(args, kwargs, dtypes),
    "all dtypes": all_dtypes,
    "transposed": transposed,
}


def calls(op: Any, dtype: torch.dtype, samples: int, wanted: list[str]) -> Iterator[Call]:
    """Those of one operator."""
    if "errors" in wanted and op.error_inputs_func is not None:
        for found in op.error_inputs("cpu"):
            sample = found.sample_input
            yield f"error input ({found.error_type.__name__})", (sample.input, *sample.args), dict(sample.kwargs)
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), samples):
        for name in wanted:
            if name != "errors" and not (name in NOT_WITH and NOT_WITH[name].match(op.name)):
                yield from CHANGES[name]((sample.input, *sample.args), dict(sample.kwargs))


# ---------------------------------------------------------------------- one call
def outcome(f: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The results; or the exception's type as a text."""
    copies: Any = pytree.tree_map(
        lambda t: t.detach().clone(memory_format=torch.preserve_format) if isinstance(t, torch.Tensor) and t.layout is torch.strided else t,
        (args, kwargs),
    )  # fmt: skip
    try:
        return pytree.tree_leaves(f(*copies[0], **copies[1]))
    except Exception as error:
        return type(error).__name__


def difference(got: Any, want: Any) -> tuple[str, str] | None:
    """The kind of it, and the details."""
    if isinstance(want, str) or isinstance(got, str):
        if got == want or (isinstance(want, str) and isinstance(got, str) and got in SAME_TYPE.get(want, ())):
            return None
        told = got if isinstance(got, str) else "a result"
        kind = (
            "accepted"
            if isinstance(want, str) and not isinstance(got, str)
            else "refused"
            if not isinstance(want, str)
            else "type"
        )
        return kind, f"{told}, not {want if isinstance(want, str) else 'a result'}"
    if len(got) != len(want):
        return "results", f"{len(got)}, not {len(want)}"
    for mine, theirs in zip(got, want, strict=True):
        if not isinstance(theirs, torch.Tensor) or not isinstance(mine, torch.Tensor):
            if type(mine) is not type(theirs):
                return "results", f"{type(mine).__name__}, not {type(theirs).__name__}"
            continue
        if mine.dtype is not theirs.dtype or mine.shape != theirs.shape:
            return "dtype", f"{mine.dtype}{list(mine.shape)}, not {theirs.dtype}{list(theirs.shape)}"
        if theirs.layout is torch.strided and theirs.numel() and mine.stride() != theirs.stride():
            return "strides", f"{mine.stride()}, not {theirs.stride()}"
        try:
            torch.testing.assert_close(mine, theirs, equal_nan=True)
        except Exception:  # also: it does not take such tensors
            return "values", f"{_few(mine)}, not {_few(theirs)}"
    return None


def _few(t: torch.Tensor) -> str:
    return " ".join(str(t.flatten()[:4].tolist()).split())[:70]


def as_near(got: Any, want: Any, f: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """Is it as near to the result in float64 as eager is, but for some roundings in the shortest of the call's types?"""
    exact = outcome(f, *_floats_to((args, kwargs), torch.float64))
    if isinstance(exact, str) or len(exact) != len(want):
        return False
    types = {
        t.dtype
        for t in pytree.tree_leaves((args, kwargs, want))
        if isinstance(t, torch.Tensor) and t.is_floating_point()
    }
    step = max((torch.finfo(d).eps for d in types), default=0.0)
    for mine, theirs, right in zip(got, want, exact, strict=True):
        if isinstance(right, torch.Tensor) and right.is_floating_point() and theirs.is_floating_point():
            a, b = ((t.double() - right.double()).abs().nan_to_num(0) for t in (mine, theirs))
            if not torch.equal(mine.isnan(), theirs.isnan()) or not bool(
                (a <= 2 * b + 8 * step * (right.double().abs().nan_to_num(0) + 1)).all()
            ):
                return False
        elif isinstance(right, torch.Tensor) and not torch.equal(mine, theirs):
            return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--changes", default=",".join(["errors", *CHANGES]))
    parser.add_argument("--dtypes", default="float32,int64")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--backend", default="inductor")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if not options.compiled:
        CBackend.unsupported = lambda self, kernel, buffers: "evaluated"  # type: ignore[method-assign]
    start, made, skipped = time.monotonic(), 0, []
    found: Counter[str] = Counter()
    seen: set[str] = set()
    for op in database():
        if not re.search(options.only, op.name) or NOT_ASKED.match(op.name):
            continue
        if time.monotonic() - start > options.seconds:
            skipped.append(op.name)
            continue
        for dtype in (getattr(torch, name) for name in options.dtypes.split(",")):
            if dtype not in op.dtypes:
                continue
            try:
                given = list(calls(op, dtype, options.samples, options.changes.split(",")))
            except Exception as error:  # of torch's own makers of samples
                print(f"no samples: {op.name}: {type(error).__name__}: {str(error)[:80]}")
                continue
            for label, args, kwargs in given:
                if label.startswith("error input"):
                    key = f"{op.formatted_name} {label} {id(args)}"
                else:
                    key = f"{op.formatted_name} {label} " + pytree.tree_map(_kind, (args, kwargs)).__repr__()
                if key in seen:
                    continue
                seen.add(key)
                made += 1
                want = outcome(op.op, args, kwargs)
                torchjit.reset()
                got = outcome(torchjit.compile(lambda *a, op=op, **k: op.op(*a, **k), backend=options.backend, dynamic=False), args, kwargs)  # fmt: skip
                differs = difference(got, want)
                if differs is not None and not (differs[0] == "values" and as_near(got, want, op.op, args, kwargs)):
                    found[differs[0]] += 1
                    shown = str(pytree.tree_map(_kind, (args, kwargs)))
                    print(f"{differs[0]:9} {op.formatted_name} [{label}]: {differs[1]}; {shown[:200]}", flush=True)
    print(f"{made} calls, {sum(found.values())} differ ({dict(found)}), {time.monotonic() - start:.0f} s")
    if skipped:
        print(f"no time for {len(skipped)} operators, from {skipped[0]} on")
    return bool(found)


def _kind(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return value


if __name__ == "__main__":
    sys.exit(main())
