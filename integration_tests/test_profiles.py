"""What torch.profiler shows of compiled code: regions, lookups, graphs, kernels, the program's own ranges; nothing is left afterwards."""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

import torchjit
import torchjit_cudagraphs
from torchjit_cudagraphs import CudaGraphSettings, GraphPool, graph_compiler
from torchjit_cudagraphs.simulated import SimulatedDriver
from torchjit_inductor.launches import Ranged

LOOKUP = "TorchDynamo Cache Lookup"


def names_in(run: Callable[[], object]) -> list[tuple[str, str | None]]:
    """Each range with the one that it lies in."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        run()
    found: Any = profiled.events()
    return [(event.name, event.cpu_parent.name if event.cpu_parent else None) for event in found]


def ids(compiled: Any) -> list[str]:
    return [region.compile_id for region in compiled.compiled.stats.regions]


def wave(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * x + 1


def test_an_inference_shows_region_graph_and_kernel() -> None:
    compiled = torchjit.compile(wave)
    x = torch.randn(8)
    compiled(x)
    (number,) = ids(compiled)
    region, graph = f"Torch-Compiled Region: {number}", f"## Call CompiledFxGraph graph_inference {number} ##"
    shown = names_in(lambda: compiled(x))
    assert shown[0] == (LOOKUP, None) and (region, None) in shown and (graph, region) in shown
    assert any(name.startswith("fused_") and parent == graph for name, parent in shown)
    assert names_in(lambda: compiled(x)) == shown


def test_a_training_step_shows_its_backward() -> None:
    compiled = torchjit.compile(wave)
    x = torch.randn(8, requires_grad=True)
    compiled(x).sum().backward()
    (number,) = ids(compiled)
    shown = dict(names_in(lambda: compiled(x).sum().backward()))
    for part in ("forward", "backward"):
        graph = f"## Call CompiledFxGraph graph_{part} {number} ##"
        assert graph in shown and any(n.startswith("fused_") and parent == graph for n, parent in shown.items())


def test_what_is_compiled_meanwhile_is_shown_too() -> None:
    compiled = torchjit.compile(wave)
    shown = dict(names_in(lambda: (compiled(torch.ones(3)), compiled(torch.ones(3)))))
    assert f"Torch-Compiled Region: {ids(compiled)[0]}" in shown and any(name.startswith("fused_") for name in shown)


def test_what_is_loaded_from_disk_meanwhile_is_shown_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def halves(x: torch.Tensor) -> torch.Tensor:
        y = x.cos()
        torchjit.graph_break()
        return wave(y)

    def trained(x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()
        compiled(x).sum().backward()
        assert x.grad is not None
        return x.grad

    monkeypatch.setenv("TORCHJIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHJIT_STORE", "on")
    x = torch.linspace(-1, 1, 3)
    for f, run in ((wave, lambda x: compiled(x)), (halves, lambda x: compiled(x)), (wave, trained)):
        compiled = torchjit.compile(f)
        want = run(x)
        torchjit.reset()
        compiled = torchjit.compile(f)
        results: list[torch.Tensor] = []
        for _ in range(2):
            shown = dict(names_in(lambda run=run, results=results: results.append(run(x))))  # type: ignore[misc]
        assert {made.storage for made in compiled.compiled.specializations} == {"loaded"}
        assert all(f"Torch-Compiled Region: {number}" in shown for number in ids(compiled))
        kernels = [
            name for name, parent in shown.items() if name.startswith("fused_") and "CompiledFxGraph" in str(parent)
        ]
        assert len(kernels) == (1 if f is wave and run is not trained else 2)
        torch.testing.assert_close([*results, run(x)], [want] * 3)


def test_alternating_specialisations_and_continuations() -> None:
    def halves(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torchjit.graph_break()
        return y.sin()

    compiled = torchjit.compile(halves, backend="eager", dynamic=False)
    for size in (3, 4):
        compiled(torch.ones(size))
    shown = [name for name, _ in names_in(lambda: [compiled(torch.ones(size)) for size in (4, 3)])]
    regions = [f"Torch-Compiled Region: {number}" for number in ids(compiled)]
    assert [name for name in shown if name in regions] == [regions[1], regions[3], regions[0], regions[2]]
    assert shown.count(LOOKUP) == 4


@record_function("decorated")
def inner(x: torch.Tensor) -> torch.Tensor:
    return x.cos()


def test_a_range_made_in_a_region_is_like_one_of_eagers() -> None:
    def made(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return x + 1, torch.autograd.profiler.record_function("here", args="two")

    compiled: Any = torchjit.compile(made)
    assert vars(compiled(torch.ones(2))[1]) == vars(made(torch.ones(2))[1])


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_ranges_of_the_program_are_shown_for_their_region(backend: str) -> None:
    def ranged(x: torch.Tensor) -> torch.Tensor:
        with record_function("outer"):
            y = x.sin()
            with record_function("nested"):
                y = inner(y)
            for _ in range(2):
                with torch.autograd.profiler.record_function("repeated"):
                    y = y * 2
        return y

    def broken(x: torch.Tensor) -> torch.Tensor:
        with record_function("first"):
            y = x + 1
        torchjit.graph_break()
        with record_function("second"):
            return y * 2

    x = torch.randn(4)
    for function, wanted in ((ranged, ("outer", "nested", "decorated", "repeated")), (broken, ("first", "second"))):
        compiled: Any = torchjit.compile(function, backend=backend)
        torch.testing.assert_close(compiled(x), function(x))
        assert len(compiled.compiled.stats.breaks) == (function is broken)
        shown = [name for name, _ in names_in(lambda f=compiled: f(x))]  # type: ignore[misc]
        assert [name for name in shown if name in wanted] == list(wanted)


def test_errors_pass_and_nothing_is_left() -> None:
    compiled = torchjit.compile(lambda x, n: x.reshape(n, -1) + 1, backend="eager")
    compiled(torch.ones(6), 2)
    kernels = torchjit.compile(wave)
    kernels(torch.ones(5))
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        with pytest.raises(RuntimeError, match="invalid for input"):
            compiled(torch.ones(6), 4)
        kernels(torch.ones(5))
        assert any(isinstance(v, Ranged) for v in _names_of(kernels).values())
    assert any(event.name.startswith("Torch-Compiled Region") for event in profiled.events())  # type: ignore[union-attr]
    assert not any(isinstance(v, Ranged) for v in _names_of(kernels).values())
    torch.testing.assert_close(kernels(torch.ones(5)), wave(torch.ones(5)))


def _names_of(compiled: Any) -> dict[str, Any]:
    (entry,) = compiled.entries()
    target = entry.target
    call = getattr(target, "_call", None)
    return dict((call.launch if isinstance(call, Ranged) else call).__globals__)


def test_a_schedule_of_steps() -> None:
    compiled = torchjit.compile(wave, backend="eager")
    compiled(torch.ones(3))
    seen: list[int] = []

    def ready(profiled: Any) -> None:
        seen.append(sum(event.name == LOOKUP for event in profiled.events()))

    plan = torch.profiler.schedule(wait=1, warmup=1, active=2)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=ready) as profiled:
        for _ in range(4):
            compiled(torch.ones(3))
            profiled.step()
    assert seen == [2]


@pytest.mark.parametrize("training", [False, True])
def test_a_replayed_cuda_graph_is_a_range(monkeypatch: pytest.MonkeyPatch, training: bool) -> None:
    driver, record = SimulatedDriver(), torchjit_cudagraphs.record
    pool, settings = GraphPool(driver), CudaGraphSettings(warmup_calls=1, measure=False)

    def recorded(compiled: Any, inputs: Any, _settings: Any, **keywords: Any) -> Any:
        compiled.reason_not_recordable = None  # but that the device is simulated
        return record(compiled, inputs, settings, **keywords, pool=pool)

    monkeypatch.setattr(graph_compiler, "record", recorded)
    compiled = torchjit.compile(wave, options={"triton.cudagraphs": True})
    x = torch.randn(8, requires_grad=training)
    for _ in range(3):
        compiled(x)
    (number,) = ids(compiled)
    replays = driver.replays
    shown = names_in(lambda: compiled(x))
    part = "forward" if training else "inference"
    graph = f"## Call CompiledFxGraph graph_{part} {number} ##"
    assert driver.replays > replays and graph in [name for name, _ in shown]
    if not training:
        assert (graph, f"Torch-Compiled Region: {number}") in shown
