"""Every operator of torch's OpInfo database through AOT autograd and the inductor, on the CPU or a GPU, against eager.

    python benchmarks/opinfo_sweep.py --out sweep.jsonl               # all operators, at most 8 samples each
    python benchmarks/opinfo_sweep.py --filter '^nn\\.functional' --samples 0 --jobs 4
    python benchmarks/opinfo_sweep.py --device cuda --dtypes float32,bfloat16,float16,int64 --jobs 15 --seconds 300
    python benchmarks/opinfo_sweep.py --report sweep.jsonl            # a summary of what was recorded

For each operator and dtype: every sample's outputs (values, dtypes, shapes, strides) and gradients are compared with
eager's, for the sample as it is and with non-contiguous tensors; what differs is right if it is no further from eager's results in float64
than eager's own are. `--compare` runs torch.compile on the same samples (`failing`:
only where ours fails) and ends with the floor: how many of the pairs that torch.compile passes are passed here. What AOT
autograd refuses ahead of time is run through torchjit.compile for that, which breaks the graph there as torch.compile does.
Each line of the result is a JSON object: op, dtype, samples, passed, interpreted (graphs that ran op by op), failures, torch_compile and
torchjit_compile (their failures).
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

os.environ.setdefault("TORCHJIT_STORE", "off")  # what this is about is compiled, not found on disk

DEFAULT_DTYPES = (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.float64)
TOLERANCE = {
    torch.float32: (2e-4, 2e-5),
    torch.float64: (1e-6, 1e-7),
    torch.bfloat16: (2e-2, 2e-2),
    torch.float16: (4e-3, 4e-3),
}
NOT_COMPARED = re.compile(
    r"^(empty|new_empty|empty_like|empty_strided|new_empty_strided|empty_permuted|resize|uniform|bernoulli_)"
)
"""Operators whose results are not defined."""


def database() -> list[Any]:
    """torch's operators with their sample inputs."""
    # torch's test code imports a package that only its own assertions need.
    stub = types.ModuleType("expecttest")
    stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules.setdefault("expecttest", stub)
    from torch.testing._internal.common_methods_invocations import op_db  # takes many seconds

    # The tables wrap random operators in a call that sets the seed, which no graph can hold; `results` sets it.
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.testing.") and hasattr(module, "wrapper_set_seed"):
            module.wrapper_set_seed = _unseeded  # type: ignore[attr-defined]
    for op in op_db:
        if isinstance(op.op, functools.partial) and op.op.func.__name__ == "wrapper_set_seed":
            wrapped, *args = op.op.args
            op.op = functools.partial(wrapped, *args, **op.op.keywords)
    return list(op_db)


def _unseeded(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


def name_of(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


# ---------------------------------------------------------------------- one sample
class Interpreted(Exception):
    """The graph ran op by op: right, but nothing was compiled."""


def our_compiler() -> tuple[Callable[..., Any], list[str]]:
    """A function that compiles `fn(*tensors)` and the reasons for interpretation so far."""
    import torchjit_aot  # the parent process needs neither
    from torchjit_core.events import listen
    from torchjit_inductor import Inductor, InductorSettings
    from torchjit_inductor.lowering.registry import LOWERINGS

    folder = tempfile.mkdtemp(prefix="opinfo-")
    inductor = Inductor(InductorSettings(cache_dir=folder, race_matmuls=False, race_layouts=False, compile_jobs=1))
    settings = torchjit_aot.AotSettings(
        decompositions=torchjit_aot.default_decompositions(), keep_ops=frozenset(LOWERINGS), fallback=False
    )
    reasons: list[str] = []

    def compiler(gm: Any, inputs: Any, **options: Any) -> Any:
        with listen(
            lambda kind, fields: reasons.append(fields["detail"]) if fields.get("reason") == "TJ-IND-006" else None
        ):
            made = inductor(gm, inputs, **options)
        if not made.source:
            reasons.append(str(made.reason_not_recordable))
        return made

    def compile_fn(fn: Callable[..., Any], tensors: list[Any]) -> Callable[..., Any]:
        graph = torch.fx.Graph()
        held = [graph.placeholder(f"arg{k}") for k in range(len(tensors))]
        graph.output(graph.call_function(fn, tuple(held)))
        return torchjit_aot.compile(torch.fx.GraphModule({}, graph), tensors, compiler=compiler, settings=settings)

    return compile_fn, reasons


def results(fn: Callable[..., Any], tensors: list[Any], grad: bool) -> tuple[list[Any], list[Any]]:
    """Outputs and gradients of the inputs that require grad."""
    torch.manual_seed(0)
    if not grad:
        with torch.no_grad():
            return [t.clone() if isinstance(t, torch.Tensor) else t for t in tree_flatten(fn(*tensors))[0]], []
    made = [t for t in tree_flatten(fn(*tensors))[0]]
    wanted = [t for t in tensors if t.requires_grad]
    outs = [t for t in made if isinstance(t, torch.Tensor) and t.requires_grad]
    if not outs or not wanted:
        return [t.detach() if isinstance(t, torch.Tensor) else t for t in made], []
    torch.manual_seed(1)
    tangents = [torch.randn_like(t) for t in outs]
    grads = torch.autograd.grad(outs, wanted, tangents, allow_unused=True)
    return [t.detach() if isinstance(t, torch.Tensor) else t for t in made], list(grads)


def difference(got: list[Any], want: list[Any], what: str, exact: list[Any] | None = None) -> str | None:
    """How results differ from eager's, or None.

    Args:
        exact: what eager gives in float64: where eager is further from that than the results are, they are right.
    """
    if len(got) != len(want):
        return f"{what}: {len(got)} instead of {len(want)}"
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        if isinstance(w, torch.Tensor) != isinstance(g, torch.Tensor):
            return f"{what} {k}: {type(g).__name__} instead of {type(w).__name__}"
        if not isinstance(w, torch.Tensor):
            if g != w and not (g != g and w != w):
                return f"{what} {k}: {g!r} instead of {w!r}"
            continue
        if g.dtype != w.dtype or g.shape != w.shape:
            return f"{what} {k}: {g.dtype} {tuple(g.shape)} instead of {w.dtype} {tuple(w.shape)}"
        if w.layout != torch.strided:
            continue
        rtol, atol = TOLERANCE.get(w.dtype, (1e-4, 1e-5))
        if exact is not None and w.dtype.is_floating_point and _no_further(g, w, exact[k]):
            continue
        try:
            torch.testing.assert_close(g, w, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as error:
            return f"{what} {k} WRONG: {' '.join(str(error).split())[:300]}"
        except NotImplementedError:
            continue
        strides = [(a, b) for a, b, n in zip(g.stride(), w.stride(), w.shape, strict=True) if n > 1]
        if w.numel() and any(a != b for a, b in strides) and what == "output":
            return f"{what} {k} strides {g.stride()} instead of {w.stride()} for {tuple(w.shape)}"
    return None


def _no_further(got: torch.Tensor, want: torch.Tensor, exact: Any) -> bool:
    """Is each element about as near to the exact one as eager's are?"""
    if (
        not isinstance(exact, torch.Tensor)
        or exact.shape != want.shape
        or not exact.is_floating_point()
        or not want.numel()
    ):
        return False
    error, allowed = (got.double() - exact.double()).abs(), (want.double() - exact.double()).abs().max()
    return bool(allowed.isfinite()) and bool((error <= 2 * allowed).all())


def leaves(sample: Any) -> tuple[list[Any], Callable[[list[Any]], tuple[Any, tuple[Any, ...], dict[str, Any]]]]:
    """The tensors of a sample, and how to put others in their places."""
    flat, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [k for k, leaf in enumerate(flat) if isinstance(leaf, torch.Tensor)]

    def rebuild(tensors: list[Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        full = list(flat)
        for k, t in zip(places, tensors, strict=True):
            full[k] = t
        return tree_unflatten(full, spec)  # type: ignore[no-any-return]

    return [flat[k] for k in places], rebuild


POSITIONS = {"sort": 1, "argsort": 0}
"""Operators that may give equal elements any order, and which of their results are positions."""


def _by_elements(op: Any, sample: Any, made: list[Any]) -> list[Any]:
    """Positions of a sort that is not stable as the elements there, and as a set."""
    place, x = POSITIONS.get(op.name), sample.input
    if place is None or sample.kwargs.get("stable") or len(made) <= place or not x.dim():
        return made
    dim = sample.kwargs.get("dim", sample.args[0] if sample.args else -1)
    at = made[place]
    return [*made[:place], x.detach().take_along_dim(at, dim), at.sort(dim)[0], *made[place + 1 :]]


def check_sample(op: Any, sample: Any, grad: bool, compile_fn: Callable[..., Any]) -> str | None:
    """What is wrong, or None. Where eager itself raises there is nothing to compare."""
    tensors, rebuild = leaves(sample)

    def fn(*given: Any) -> Any:
        first, args, kwargs = rebuild(list(given))
        out = op.op(first, *args, **kwargs)
        out = sample.output_process_fn_grad(out) if grad else out
        return tuple(out) if isinstance(out, (tuple, list)) else out

    def fresh() -> list[Any]:
        return [
            t.detach().clone(memory_format=torch.preserve_format).requires_grad_(t.requires_grad)
            if _plain(t)
            else t.detach().requires_grad_(t.requires_grad)
            for t in tensors
        ]

    try:
        want = results(fn, fresh(), grad)
    except Exception:  # whatever eager refuses
        return None
    try:
        given = fresh()
        with torch.set_grad_enabled(grad):
            compiled = compile_fn(fn, given)
        got = results(compiled, given, grad)
    except Exception as error:  # recorded
        return f"RAISED {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    got, want = ((_by_elements(op, sample, made[0]), made[1]) for made in (got, want))
    found = difference(got[0], want[0], "output") or difference(got[1], want[1], "gradient")
    if found is None or "WRONG" not in found:
        return found
    try:
        double = [t.detach().double().requires_grad_(t.requires_grad) if t.is_floating_point() else t for t in fresh()]
        exact = results(fn, double, grad)
    except Exception:  # no float64 for this operator
        return found
    if len(exact[0]) != len(want[0]) or len(exact[1]) != len(want[1]):
        return found
    return difference(got[0], want[0], "output", exact[0]) or difference(got[1], want[1], "gradient", exact[1])


def _plain(t: Any) -> bool:
    return (
        t.layout == torch.strided
        and all(s != 0 or n <= 1 for s, n in zip(t.stride(), t.shape, strict=True))
        and t.is_contiguous()
    )


# ---------------------------------------------------------------------- one operator
def samples_of(op: Any, dtype: torch.dtype, grad: bool, limit: int, device: str) -> Iterator[tuple[str, Any]]:
    made = list(op.sample_inputs(device, dtype, requires_grad=grad))
    if limit and len(made) > limit:
        made = [made[k * len(made) // limit] for k in range(limit)]
    for k, sample in enumerate(made):
        yield f"{k}", sample
        if k % 3 == 0:
            try:
                yield f"{k} non-contiguous", sample.noncontiguous()
            except Exception:  # not every sample has such a form
                continue


def check_op(
    op: Any, dtype: torch.dtype, limit: int, compile_fn: Callable[..., Any], reasons: list[str], device: str
) -> dict[str, Any]:
    """The record of an operator."""
    torch.manual_seed(0)
    grad = (
        dtype in (torch.float32, torch.float64)
        and op.supports_autograd
        and dtype in op.supported_backward_dtypes(device)
    )
    record: dict[str, Any] = {
        "op": name_of(op),
        "dtype": str(dtype),
        "grad": grad,
        "samples": 0,
        "passed": 0,
        "failures": [],
    }
    reasons.clear()
    try:
        for label, sample in samples_of(op, dtype, grad, limit, device):
            record["samples"] += 1
            wrong = check_sample(op, sample, grad, compile_fn)
            if wrong is None:
                record["passed"] += 1
            elif len(record["failures"]) < 4:
                record["failures"].append(f"sample {label}: {wrong} | {_describe(sample)}")
    except Exception as error:  # the database's own
        record["failures"].append(f"sampling: {type(error).__name__}: {str(error)[:200]}")
    record["interpreted"] = dict(Counter(reasons))
    return record


def _describe(sample: Any) -> str:
    def short(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return f"T{tuple(x.shape)}:{str(x.dtype)[6:]}{'' if x.layout != torch.strided or x.is_contiguous() else x.stride()}"
        if isinstance(x, (list, tuple)):
            return type(x)(short(i) for i in x) if type(x) in (list, tuple) else str(x)
        return {k: short(v) for k, v in x.items()} if isinstance(x, dict) else x

    return str((short(sample.input), short(sample.args), short(sample.kwargs)))[:300]


def work(names: list[str], dtypes: list[torch.dtype], limit: int, compare: str, device: str) -> None:
    """A worker: prints `>op dtype` before and a JSON line after each."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    compile_fn, reasons = our_compiler()
    ops = {name_of(op): op for op in database()}

    def theirs(fn: Callable[..., Any], tensors: list[Any]) -> Callable[..., Any]:
        torch._dynamo.reset()
        return torch.compile(fn, options={"fallback_random": True})  # eager's random numbers, as ours by default

    def ours(fn: Callable[..., Any], tensors: list[Any]) -> Callable[..., Any]:
        import torchjit  # only needed here

        torchjit.reset()
        compiled: Callable[..., Any] = torchjit.compile(fn)
        return compiled

    for name in names:
        op = ops[name]
        for dtype in [d for d in dtypes if d in op.supported_dtypes(device)]:
            print(f">{name} {dtype}", flush=True)
            record = check_op(op, dtype, limit, compile_fn, reasons, device)
            if compare == "all" or (compare == "failing" and record["failures"]):
                record["torch_compile"] = check_op(op, dtype, limit, theirs, [], device)["failures"]
                if record["failures"] and not record["torch_compile"]:
                    record["torchjit_compile"] = check_op(op, dtype, limit, ours, [], device)["failures"]
            print(json.dumps(record), flush=True)


# ---------------------------------------------------------------------- all operators
def run_slice(names: list[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Operators in a worker process; one that dies is recorded and the rest goes on in a new one."""
    records: list[dict[str, Any]] = []
    skip: set[str] = set()
    while names and time.perf_counter() < options.deadline:
        command = [
            sys.executable,
            __file__,
            "--worker",
            ",".join(names),
            "--samples",
            str(options.samples),
            "--dtypes",
            options.dtypes,
            "--device",
            options.device,
        ]
        command += ["--compare", options.compare] if options.compare else []
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        rest = options.deadline - time.perf_counter()
        stop = threading.Timer(min(rest, threading.TIMEOUT_MAX), process.kill)
        stop.start()
        current, assert_stdout = "", process.stdout
        if assert_stdout is None:
            raise RuntimeError("no output of the worker")
        for line in assert_stdout:
            if line.startswith(">"):
                current = line[1:].strip()
            elif line.startswith("{"):
                record = json.loads(line)
                if f"{record['op']} {record['dtype']}" not in skip:
                    records.append(record)
                    skip.add(f"{record['op']} {record['dtype']}")
                    save(options.out, record)
                current = ""
        code = process.wait()
        stop.cancel()
        if code == 0 or not current or time.perf_counter() >= options.deadline:
            break
        name, dtype = current.rsplit(" ", 1)
        records.append(
            {
                "op": name,
                "dtype": dtype,
                "grad": False,
                "samples": 0,
                "passed": 0,
                "interpreted": {},
                "failures": [f"CRASHED with {code}"],
            }
        )
        save(options.out, records[-1])
        names = names[names.index(name) + 1 :]
    return records


def save(path: str | None, record: dict[str, Any]) -> None:
    if path:
        with open(path, "a", encoding="utf-8") as out:
            out.write(json.dumps(record) + "\n")


def report(records: list[dict[str, Any]]) -> None:
    """A summary and every failure."""
    latest = {(r["op"], r["dtype"]): r for r in records}
    records = list(latest.values())
    failing = [r for r in records if r["failures"]]
    for r in failing:
        for failure in r["failures"]:
            print(f"{r['op']} {r['dtype']}: {failure}")
    kinds: Counter[str] = Counter()
    for r in records:
        text = " ".join(r["failures"])
        kind = (
            "passed"
            if not text
            else "wrong"
            if "WRONG" in text or "CRASHED" in text
            else "strides"
            if " strides " in text
            else "raised"
        )
        kinds[kind] += 1
    samples, passed = sum(r["samples"] for r in records), sum(r["passed"] for r in records)
    print(f"{len(records)} operators and dtypes: {dict(kinds)}; samples {passed} of {samples} passed")
    compared = [r for r in records if "torch_compile" in r]
    theirs = [r for r in compared if not r["torch_compile"]]
    if compared:
        lost = sorted(f"{r['op']} {r['dtype']}" for r in theirs if r.get("torchjit_compile", r["failures"]))
        # Where only what fails here was compared, the others count as passed by both.
        taken = len(theirs) + len(records) - len(compared)
        print(
            f"torch.compile passes {len(theirs)} of {len(compared)} that it was run on; here "
            f"{taken - len(lost)} of {taken}: {100 * (taken - len(lost)) / max(taken, 1):.1f} %"
            f"{'' if len(compared) == len(records) else ' (those that pass here counted as passed by both)'}"
        )
        print("torch.compile passes and torchjit.compile does not:", *(lost or ["none"]), sep="\n    ")
    print("interpreted:", Counter(k.split(" ")[0] for r in records for k in r["interpreted"]).most_common(8))


def main() -> None:
    """Parse the command line and sweep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="", help="regular expression on the operator's name")
    parser.add_argument("--samples", type=int, default=8, help="samples of each operator and dtype; 0 is all")
    parser.add_argument("--dtypes", default="float32,int64,bool")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--seconds", type=float, default=math.inf, help="workers that still run then are stopped")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--compare", default="", choices=["", "failing", "all"], help="where does torch.compile pass?")
    parser.add_argument("--out", default=None, help="append a JSON line for each operator and dtype")
    parser.add_argument("--report", default=None, help="only summarise such a file")
    parser.add_argument("--worker", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.report:
        with open(options.report, encoding="utf-8") as lines:
            report([json.loads(line) for line in lines])
        return
    if options.worker:
        work(
            options.worker.split(","),
            [getattr(torch, d) for d in options.dtypes.split(",")],
            options.samples,
            options.compare,
            options.device,
        )
        return
    names = [
        name_of(op) for op in database() if re.search(options.filter, name_of(op)) and not NOT_COMPARED.search(op.name)
    ]
    start = time.perf_counter()
    options.deadline = start + options.seconds
    slices = [names[k :: options.jobs] for k in range(options.jobs)]
    with ThreadPoolExecutor(options.jobs) as pool:
        records = [r for part in pool.map(lambda part: run_slice(part, options), slices) for r in part]
    report(records)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
