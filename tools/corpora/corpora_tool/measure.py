"""Run one case in eager, under torch.compile and under torchjit, and say how they compare."""

from __future__ import annotations

import contextlib
import copy
import gc
import random
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, final

import attrs
import torch

import torchjit
from corpora_tool.case import Case
from corpora_tool.values import Snapshot, compare, fresh, leaves, snapshot

__all__ = ["Plan", "loss_of", "measure"]

CALLS = 2  # the second one must hit what the first one compiled
TOLERANCE = 1e-4
RECOMPILE_LIMIT = "TJ-API-020"  # reached by design, as torch.compile reaches its own; counted, not a failure


@final
@attrs.frozen
class Plan:
    """How cases are run.

    Attributes:
        backend: of torchjit; torch.compile always runs its own "eager".
        theirs: also run torch.compile.
        ours: also run torchjit (else only whether eager runs is found out).
        dynamic: torchjit's argument of that name; with True all sizes are symbols from the first call on.
    """

    backend: str = "eager"
    theirs: bool = True
    ours: bool = True
    dynamic: bool | None = None

    def compile(self, module: torch.nn.Module) -> Any:
        """The module under torchjit."""
        return torchjit.compile(module, backend=self.backend, dynamic=self.dynamic)


def measure(case: Case, plan: Plan) -> dict[str, Any]:
    """The result of one case as JSON-able data. `status` is one of ok, wrong, error, fallback, skip."""
    ready = [p for p in case.module.parameters() if not torch.nn.parameter.is_lazy(p)]
    result: dict[str, Any] = {"case": case.name, "params": sum(p.numel() for p in ready)}
    pristine = copy.deepcopy(case.module)
    try:
        want, times = _run(case, case.module)
    except Exception as error:
        return result | {"status": "skip", "why": f"eager raises {_told(error)}"}
    result["eager_s"] = times
    _release(case.module)
    if plan.theirs:
        result["torch"] = _theirs(case, copy.deepcopy(pristine), want)
    if not plan.ours:
        return result | {"status": "eager"}
    module = copy.deepcopy(pristine)
    ours = _ours(case, module, want, plan)
    if ours["status"] == "wrong":
        again, _ = _run(case, copy.deepcopy(pristine))
        noise = compare(again, want, TOLERANCE)
        if noise:
            ours["status"], ours["eager_noise"] = "ok", [f"{d.label}: {d.text}" for d in noise[:3]]
        else:
            ours |= _told_of_compiling(case, copy.deepcopy(pristine), copy.deepcopy(pristine), plan)
        if ours["status"] == "wrong" and plan.backend == "inductor":
            ours |= _told_of_rounding(case, pristine, want, ours["differences"])
    ours.pop("differences", None)
    return result | ours


# ---------------------------------------------------------------------- one side
def _run(case: Case, called: Callable[..., Any], module: torch.nn.Module | None = None) -> tuple[Snapshot, list[float]]:
    """`CALLS` calls of a case on equal inputs and equal random state. Returns what they did, and the seconds of each."""
    module = module if module is not None else called  # type: ignore[assignment]
    assert isinstance(module, torch.nn.Module)
    parts: dict[str, Any] = {}
    times = []
    for number in range(CALLS):
        args, kwargs = fresh(case.args), fresh(case.kwargs)
        module.zero_grad(set_to_none=True)
        _seed(number)
        with contextlib.nullcontext() if case.backward else torch.no_grad():
            start = time.perf_counter()
            out = case.after(called(*args, **kwargs))
            times.append(time.perf_counter() - start)
        if case.backward:
            loss = loss_of(out)
            if loss is not None:
                loss.backward()
        parts[f"call{number}.out "] = snapshot({"": out}).values
        parts[f"call{number}.inputs "] = snapshot({"": (args, kwargs)}).values
        if case.backward:
            grads = {k: p.grad for k, p in module.named_parameters() if p.grad is not None}
            given = [t.grad for _, t in leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
            parts[f"call{number}.grad "] = snapshot({"": (grads, given)}).values
        parts[f"call{number}.rng "] = torch.get_rng_state()
        del out
    parts["end.state "] = snapshot({"": dict(module.named_buffers())}).values
    parts["end.params "] = snapshot({"": dict(module.named_parameters())}).values
    return snapshot(parts), times


def loss_of(out: Any) -> torch.Tensor | None:
    """A scalar of all outputs that require grad; None where there is none."""
    terms = []
    for _, leaf in leaves(out):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.numel():
            values = leaf.abs() if leaf.is_complex() else leaf
            terms.append(values.to(torch.get_default_dtype()).pow(2).mean())
    return torch.stack(terms).sum() if terms else None


def _theirs(case: Case, module: torch.nn.Module, want: Snapshot) -> dict[str, Any]:
    # Imported here: torchjit alone must not pay for it.
    import torch._dynamo
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    graphs = [0]

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        graphs[0] += any(n.op.startswith("call_") for n in gm.graph.nodes)
        return gm.forward

    told: dict[str, Any] = {}
    try:
        with _quiet():
            got, times = _run(case, torch.compile(module, backend=backend), module)
        told["status"] = "wrong" if compare(got, want, TOLERANCE) else "ok"
        told["seconds"] = times
    except Exception as error:
        told |= {"status": "error", "why": _told(error)}
    told |= {"graphs": graphs[0], "breaks": sum(counters["graph_break"].values())}
    told["reasons"] = {_first_line(k): v for k, v in counters["graph_break"].items()}
    torch._dynamo.reset()
    _release(module)
    return told


def _ours(case: Case, module: torch.nn.Module, want: Snapshot, plan: Plan) -> dict[str, Any]:
    torchjit.reset()
    told: dict[str, Any] = {"status": "ok"}
    compiled: Any = None
    try:
        with _quiet():
            compiled = plan.compile(module)
            got, times = _run(case, compiled, module)
        told["seconds"] = times
        differences = compare(got, want, TOLERANCE)
        if differences:
            told |= {"status": "wrong", "why": [f"{d.label}: {d.text}" for d in differences[:5]]}
            told["differences"] = {d.label: d.relative for d in differences}
    except Exception as error:
        told |= {"status": "error", "why": _told(error), "trace": traceback.format_exc()[-3000:]}
    if compiled is not None:
        told |= _describe(compiled.compiled)
        bugs = [text for text in told["fallbacks"] if not text.startswith(RECOMPILE_LIMIT)]
        if told["status"] == "ok" and bugs:
            told |= {"status": "fallback", "why": bugs[0][:300]}
    torchjit.reset()
    return told


def _told_of_compiling(case: Case, eager: torch.nn.Module, module: torch.nn.Module, plan: Plan) -> dict[str, Any]:
    """Some models compute otherwise where `torch.compiler.is_compiling()` is true; then that is what eager must do too."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True  # what torch.export sets
    try:
        want, _ = _run(case, eager)
    except Exception:
        return {}
    finally:
        torch.compiler._is_compiling_flag = before
    torchjit.reset()
    with _quiet():
        got, _ = _run(case, plan.compile(module), module)
    torchjit.reset()
    return {} if compare(got, want, TOLERANCE) else {"status": "ok", "why": "equal to eager with is_compiling() true"}


def _told_of_rounding(
    case: Case, module: torch.nn.Module, want: Snapshot, differences: dict[str, float]
) -> dict[str, Any]:
    """Kernels round otherwise than eager. Is a difference more than eager's own, where each parameter is off by a rounding?

    The module's parameters are changed. Where every value that differs moves by a tenth of the difference in eager too, the difference says
    nothing: a sum that cancels, a ReLU whose argument is zero but for rounding.
    """
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                parameter.mul_(1 + torch.finfo(torch.float32).eps * torch.randint_like(parameter, -1, 2))
    moved = {d.label: d.relative for d in compare(_run(case, module)[0], want, 0.0)}
    if all(relative <= 10 * moved.get(label, 0.0) for label, relative in differences.items()):
        return {"status": "ok", "why": f"within rounding: {len(differences)} values move as far in eager"}
    return {}


def _describe(compilation: Any) -> dict[str, Any]:
    breaks: list[dict[str, Any]] = []
    graphs = specializations = 0
    seconds = 0.0
    for site in compilation.sites:
        for made in site.specializations:
            specializations += 1
            graphs += sum(any(n.op.startswith("call_") for n in g.graph.nodes) for g in made.graphs)
            seconds += made.seconds
            for b in made.breaks:
                where = f"{b.location.filename}:{b.location.lineno}" if b.location else ""
                line = (b.location.line() or "").strip() if b.location else ""
                breaks.append(
                    {
                        "id": b.reason.id,
                        "what": b.reason.headline,
                        "detail": b.detail[:200],
                        "where": where,
                        "line": line,
                    }
                )
    fallbacks = [str(site.given_up) for site in compilation.sites if site.given_up is not None]
    return {
        "graphs": graphs,
        "breaks": len(breaks),
        "reasons": breaks[:40],
        "specializations": specializations,
        "capture_s": seconds,
        "fallbacks": [f if len(f) < 2500 else f[:500] + f[-2000:] for f in fallbacks],
    }


# ---------------------------------------------------------------------- helpers
def _seed(number: int) -> None:
    torch.manual_seed(1234 + number)
    random.seed(1234 + number)
    with contextlib.suppress(ImportError):
        import numpy as np  # some models draw from it; torch does not need it

        np.random.seed(1234 + number)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _release(module: torch.nn.Module) -> None:
    module.zero_grad(set_to_none=True)
    gc.collect()


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:600]


def _first_line(text: str) -> str:
    return " | ".join(part.strip() for part in text.strip().splitlines()[:3])[:200]
