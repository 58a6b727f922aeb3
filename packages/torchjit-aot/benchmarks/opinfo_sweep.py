"""Every operator of torch's OpInfo database, and every module of its ModuleInfo database, against eager PyTorch.

    python packages/torchjit-aot/benchmarks/opinfo_sweep.py [--dtypes float32 complex64] [--samples 4] [--torch]
    python packages/torchjit-aot/benchmarks/opinfo_sweep.py --modules

An operator is run on its sample inputs eagerly and compiled (its aten operators called one by one); outputs, inputs
after the call and gradients are compared. Outcomes of a sample:

* equal;
* refused: the graph is left to eager PyTorch, with a reason;
* wrong: something differs;
* error: our code raised;
* skipped: eager PyTorch itself raises or is not deterministic.

`--front torchjit` goes through `torchjit.compile(backend="aot_eager")`; what of the equal ones broke the graph or was left to
eager PyTorch is counted, by reason, as "equal with". `--torch` runs `torch.compile(backend="aot_eager")`
beside it. `--out FILE` writes one JSON object per operator and dtype. `--jobs N` shares the operators among N
processes, `--seconds S` stops after that time and says how many operators were not reached.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import multiprocessing
import multiprocessing.connection
import sys
import time
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

import torchjit_aot
from torchjit_aot import AotSettings
from torchjit_core.events import listen
from torchjit_core.reasons import GraphBreak

# torch's own test tables import this small package for snapshot tests, which are not used here
sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))  # type: ignore[arg-type]

STRICT = AotSettings(fallback=False)
Program = Callable[..., Any]


class Mismatch(Exception):
    """Something differs from eager."""


# ------------------------------------------------------------------------------------------------- one program
def copies(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    made = []
    for tensor in tensors:
        if tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_conj() and not tensor.is_neg():
            copy = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype).copy_(tensor.detach())
        else:
            copy = tensor.detach().clone()
        made.append(copy.requires_grad_(tensor.requires_grad))
    return made


def observe(run: Program, tensors: list[torch.Tensor]) -> tuple[list[Any], list[Any], list[Any]]:
    """Outputs, gradients, inputs afterwards."""
    mine = copies(tensors)
    torch.manual_seed(0)
    outputs = [o for o in tree_flatten(run(*mine))[0] if isinstance(o, torch.Tensor)]
    differentiable = [o for o in outputs if o.requires_grad and o.grad_fn is not None and o.layout == torch.strided]
    grads: list[Any] = []
    if differentiable:
        tangents = [torch.ones_like(o) * 0.5 for o in differentiable]
        leaves = [t for t in mine if t.requires_grad]
        grads = list(torch.autograd.grad(differentiable, leaves, tangents, allow_unused=True))
    return outputs, grads, mine


def compare(want: list[Any], have: list[Any], what: str) -> None:
    if len(want) != len(have):
        raise Mismatch(f"{what}: {len(want)} against {len(have)}")
    for k, (a, b) in enumerate(zip(want, have, strict=True)):
        if (a is None) != (b is None):
            raise Mismatch(f"{what} {k}: None against a tensor")
        if a is None:
            continue
        if a.requires_grad != b.requires_grad:
            raise Mismatch(f"{what} {k}: requires_grad {a.requires_grad} against {b.requires_grad}")
        try:
            torch.testing.assert_close(b.detach(), a.detach(), equal_nan=True, check_stride=what == "output")
        except (AssertionError, NotImplementedError, RuntimeError) as error:
            raise Mismatch(f"{what} {k}: {str(error).splitlines()[0]}") from error


def check(
    program: Program, tensors: list[torch.Tensor], compile_it: Callable[[Program, list[torch.Tensor]], Program]
) -> str:
    """The outcome for one program and its inputs."""
    try:
        want = observe(program, tensors)
        again = observe(program, tensors)
    except Exception as error:
        return f"skipped: eager raises {type(error).__name__}"
    try:
        for a, b, what in zip(want, again, ("output", "gradient", "input"), strict=True):
            compare(a, b, what)
    except Mismatch:
        return "skipped: not deterministic"
    try:
        have = observe(compile_it(program, tensors), tensors)
    except GraphBreak as refusal:
        return f"refused: {refusal.reason.id} {refusal.detail}"
    except Exception as error:
        return f"error: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    try:
        for a, b, what in zip(want, have, ("output", "gradient", "input"), strict=True):
            compare(a, b, what)
    except Mismatch as difference:
        return f"wrong: {difference}"
    return f"equal with {min(BREAKS)}" if BREAKS else "equal"


# ------------------------------------------------------------------------------------------------- the compilers
def with_aot(program: Program, tensors: list[torch.Tensor]) -> Program:
    from torchjit_aot.api import _call_graph

    example = copies(tensors)
    return torchjit_aot.compile(
        _call_graph(program, len(example)), example, compiler=torchjit_aot.run_eagerly, settings=STRICT
    )


def with_front(program: Program, tensors: list[torch.Tensor]) -> Program:
    import torchjit

    torchjit.reset()
    BREAKS.clear()
    return torchjit.compile(program, backend="aot_eager")  # type: ignore[no-any-return]


BREAKS: list[str] = []
"""Reasons of graph breaks and fallbacks in the program that runs now."""


def note_break(kind: str, fields: dict[str, Any]) -> None:
    if kind in ("graph_break", "fallback"):
        BREAKS.append(fields["reason"])


def with_torch(program: Program, tensors: list[torch.Tensor]) -> Program:
    torch.compiler.reset()
    return torch.compile(program, backend="aot_eager")  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------------------- the databases
def op_programs(op: Any, dtype: torch.dtype, limit: int) -> Iterator[tuple[Program, list[torch.Tensor]]]:
    differentiable = dtype in op.supported_backward_dtypes("cpu") and op.supports_autograd
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=differentiable))
    step = max(1, len(samples) // limit)
    function = op.op  # not `op` itself: compilers leave Python code of torch.testing alone
    for sample in samples[::step][:limit]:
        flat, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
        where = [i for i, value in enumerate(flat) if isinstance(value, torch.Tensor)]

        def program(*tensors: torch.Tensor, flat: Any = flat, spec: Any = spec, where: Any = where) -> Any:
            values = list(flat)
            for i, tensor in zip(where, tensors, strict=True):
                values[i] = tensor
            first, args, kwargs = tree_unflatten(values, spec)
            return function(first, *args, **kwargs)

        yield program, [flat[i] for i in where]


def module_programs(info: Any, dtype: torch.dtype, limit: int) -> Iterator[tuple[Program, list[torch.Tensor]]]:
    training = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=True)
    for sample in training[:limit]:
        torch.manual_seed(1)
        made = sample.constructor_input
        module = info.module_cls(*made.args, **made.kwargs).to(dtype)
        module.train()
        given = sample.forward_input
        flat, spec = tree_flatten((given.args, given.kwargs))
        where = [i for i, value in enumerate(flat) if isinstance(value, torch.Tensor)]
        state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        names = list(state)

        def program(*tensors: torch.Tensor, module: Any = module, flat: Any = flat, spec: Any = spec,
                    where: Any = where, names: Any = names) -> Any:  # fmt: skip
            values = list(flat)
            for i, tensor in zip(where, tensors, strict=False):
                values[i] = tensor
            args, kwargs = tree_unflatten(values, spec)
            return torch.func.functional_call(
                module, dict(zip(names, tensors[len(where) :], strict=True)), args, kwargs
            )

        yield program, [flat[i] for i in where] + list(state.values())


def infos(modules: bool, only: list[str]) -> list[Any]:
    if modules:
        from torch.testing._internal.common_modules import module_db as found
    else:
        from torch.testing._internal.common_methods_invocations import op_db as found

        _leave_seeds_alone()
    return [info for info in found if not only or name_of(info) in only]


def _leave_seeds_alone() -> None:
    """The tables wrap random operators in a call that sets the seed, which no graph can hold; `observe` sets it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.testing._internal") and hasattr(module, "wrapper_set_seed"):
            module.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)  # type: ignore[attr-defined]


def name_of(info: Any) -> str:
    if hasattr(info, "module_cls"):
        return str(info.name)
    return info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")


# ------------------------------------------------------------------------------------------------- the sweep
def kind_of(outcome: str) -> str:
    return "equal" if outcome.startswith("equal") else outcome.split(":")[0]


def sweep_one(info: Any, dtype_name: str, options: Any) -> dict[str, Any] | None:
    """The record of one operator or module; None if it has no such dtype."""
    dtype = getattr(torch, dtype_name)
    supported = info.dtypes if options.modules else info.supported_dtypes("cpu")
    if dtype not in supported or name_of(info).startswith(("empty", "new_empty")):  # whatever the memory held
        return None
    compile_it = with_aot if options.front == "aot" else with_front
    programs = (module_programs if options.modules else op_programs)(info, dtype, options.samples)
    outcomes, reference = [], []
    try:
        for program, tensors in programs:
            outcomes.append(check(program, tensors, compile_it))
            if options.torch:
                BREAKS.clear()
                reference.append(check(program, tensors, with_torch))
    except Exception as error:
        outcomes.append(f"skipped: no samples: {type(error).__name__}: {error}")
    record = {"op": name_of(info), "dtype": dtype_name, "verdict": verdict_of(outcomes), "outcomes": outcomes}
    return {**record, "torch": verdict_of(reference) if options.torch else None, "torch_outcomes": reference}


def verdict_of(outcomes: list[str]) -> str:
    """The worst outcome; skipped samples say nothing while there are others."""
    ranked = ["wrong", "error", "refused", "equal", "skipped"]
    return min((kind_of(o) for o in outcomes), key=ranked.index, default="skipped")


def tell(record: dict[str, Any], totals: collections.Counter[str]) -> None:
    """Count a record, and print it if it is not equal."""
    verdict, theirs, outcomes = record["verdict"], record["torch"], record["outcomes"]
    totals[verdict] += 1
    if verdict == "equal" and (broken := [o for o in outcomes if o != "equal" and kind_of(o) == "equal"]):
        totals[min(broken)] += 1
    if theirs is not None:
        totals[f"torch {theirs}"] += 1
        if theirs == "equal":
            totals["both equal" if verdict == "equal" else "torch alone equal"] += 1
    if verdict not in ("equal", "skipped"):
        worst = next(o for o in outcomes if o.startswith(verdict))
        print(f"{record['op']:45} {record['dtype']:10} torch {theirs}  {worst[:200]}", flush=True)


def set_up() -> None:
    """One process's share of the set-up."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)


def records_here(options: Any) -> Iterator[dict[str, Any]]:
    """All records, in this process."""
    set_up()
    deadline = time.perf_counter() + options.seconds
    with listen(note_break) if options.front == "torchjit" else contextlib.nullcontext():
        for info in infos(options.modules, options.ops):
            for dtype in options.dtypes:
                if time.perf_counter() > deadline:
                    print(f"time is up before {name_of(info)}", flush=True)
                    return
                if (record := sweep_one(info, dtype, options)) is not None:
                    yield record


def work(connection: Any, options: Any) -> None:
    """A process that sweeps the operators whose numbers it is sent."""
    set_up()
    found = infos(options.modules, options.ops)
    with listen(note_break) if options.front == "torchjit" else contextlib.nullcontext():
        while True:
            number, dtype = connection.recv()
            connection.send(sweep_one(found[number], dtype, options))


def records_of_jobs(options: Any) -> Iterator[dict[str, Any]]:
    """All records, from `options.jobs` processes; the death of a process is an error of the operator that it had."""
    context = multiprocessing.get_context("spawn")
    found = infos(options.modules, options.ops)
    waiting = [(number, dtype) for number in range(len(found)) for dtype in options.dtypes][::-1]
    busy: dict[Any, tuple[Any, tuple[int, str]]] = {}
    deadline = time.perf_counter() + options.seconds

    def start() -> tuple[Any, Any]:
        mine, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs, options), daemon=True)
        process.start()
        theirs.close()
        return mine, process

    def give(connection: Any, process: Any) -> None:
        if waiting:
            busy[connection] = (process, waiting.pop())
            connection.send(busy[connection][1])
        else:
            process.terminate()

    for _ in range(min(options.jobs, len(waiting))):
        give(*start())
    while busy and time.perf_counter() < deadline:
        for connection in multiprocessing.connection.wait(list(busy), timeout=1.0):
            process, (number, dtype) = busy.pop(connection)
            try:
                record = connection.recv()
            except EOFError:
                process.join()
                died = {"op": name_of(found[number]), "dtype": dtype, "torch": None, "torch_outcomes": []}
                yield {**died, "verdict": "error", "outcomes": [f"error: the process ended with {process.exitcode}"]}
                give(*start())
                continue
            give(connection, process)
            if record is not None:
                yield record
    if busy:
        names = [name_of(found[number]) for _, (number, _) in busy.values()]
        print(f"time is up: {len(waiting)} not reached, not finished: {', '.join(names)}", flush=True)
        for process, _ in busy.values():
            process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "complex64"])
    parser.add_argument("--samples", type=int, default=4, help="per operator and dtype, spread over all samples")
    parser.add_argument("--modules", action="store_true")
    parser.add_argument("--front", choices=["aot", "torchjit"], default="aot")
    parser.add_argument("--torch", action="store_true", help="run torch.compile(backend='aot_eager') too")
    parser.add_argument("--ops", nargs="*", default=[])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--out")
    options = parser.parse_args()
    totals: dict[str, collections.Counter[str]] = {dtype: collections.Counter() for dtype in options.dtypes}
    start = time.perf_counter()
    records = records_here(options) if options.jobs == 1 else records_of_jobs(options)
    with open(options.out, "w") if options.out else contextlib.nullcontext() as out:
        for record in records:
            tell(record, totals[record["dtype"]])
            if out is not None:
                out.write(json.dumps(record) + "\n")
                out.flush()
    for name, counts in totals.items():
        print(name, dict(counts))
        if options.torch:
            passed = counts["both equal"] + counts["torch alone equal"]
            print(
                f"{name}: equal in {counts['both equal']} of the {passed} that torch.compile passes, wrong {counts['wrong']}"
            )
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
