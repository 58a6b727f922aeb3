"""What torch.profiler shows of compiled code on a GPU: ranges of lookups, regions and graphs, and kernels by name.

    uv run python tools/gpu_profiles.py
    uv run python tools/gpu_profiles.py --device cpu        # what of it holds without a GPU

Four programs: inference, a training step, two regions around a break, and (on a GPU) a replayed CUDA graph. For each, every range that people search for must be
there, in the range that it belongs to, and on a GPU the kernels must stand in the device's rows under the names that the report shows, without their numbers: equal
kernels are one function. Exits 1 where one is missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import torchjit

LOOKUP = "TorchDynamo Cache Lookup"


def wave(x: torch.Tensor) -> torch.Tensor:
    """One fused kernel, forward and backward."""
    return torch.sin(x) * x + 1


def halves(x: torch.Tensor) -> torch.Tensor:
    """Two regions with a kernel each."""
    y = torch.cos(x) * x
    torchjit.graph_break()
    return torch.tanh(y) + 2


def profiled(run: Callable[[], object], device: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Ranges of the host, each with all ranges around it as text, and names of the device's kernels."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    with profile(activities=activities) as seen:
        run()
        if device == "cuda":
            torch.cuda.synchronize()
    ranges, kernels = [], []
    found: Any = seen.events()
    for event in found:
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels.append(event.name)
            continue
        around, parent = [], event.cpu_parent
        while parent is not None:
            around.append(parent.name)
            parent = parent.cpu_parent
        ranges.append((event.name, " < ".join(around)))
    return ranges, kernels


def missing(fast: Any, run: Callable[[], object], device: str, parts: tuple[str, ...], *, replayed: bool) -> list[str]:
    """What should be shown and is not. `parts`: of the graphs' names, such as `graph_forward`."""
    ranges, on_device = profiled(run, device)
    regions = fast.compiled.stats.regions
    lost = [] if any(name == LOOKUP for name, _ in ranges) else [LOOKUP]
    for region in regions:
        name = f"Torch-Compiled Region: {region.compile_id}"
        if not any(shown == name for shown, _ in ranges):
            lost.append(name)
        for kernel in region.kernels:
            if kernel.graph not in parts:
                continue
            graph = f"## Call CompiledFxGraph {kernel.graph} {region.compile_id} ##"
            inside = [around for shown, around in ranges if shown == graph]
            if not inside:
                lost.append(graph)
            elif "backward" not in graph and not any(name in around for around in inside):
                lost.append(f"{graph} inside of {name}")
            if device == "cuda":
                if not any(kernel.name.rpartition("_")[0] in shown for shown in on_device):
                    lost.append(f"kernel {kernel.name} in the rows of the device (these: {sorted(set(on_device))})")
            elif not replayed and not any(shown == kernel.name and graph in around for shown, around in ranges):
                lost.append(f"kernel {kernel.name} inside of {graph}")
    if not any(region.kernels for region in regions):
        lost.append("any kernel: nothing was generated")
    return list(dict.fromkeys(lost))


def programs(device: str) -> dict[str, tuple[Any, Callable[[], object], tuple[str, ...], bool]]:
    """By name: what is compiled, a call of it, the graphs that are called, and whether they are replayed."""
    x = torch.randn(4096, device=device)
    leaf = torch.randn(4096, device=device, requires_grad=True)
    inference, training, broken = torchjit.compile(wave), torchjit.compile(wave), torchjit.compile(halves)
    found: dict[str, tuple[Any, Callable[[], object], tuple[str, ...], bool]] = {
        "inference": (inference, lambda: inference(x), ("graph_inference",), False),
        "training": (training, lambda: training(leaf).sum().backward(), ("graph_forward", "graph_backward"), False),
        "around a break": (broken, lambda: broken(x), ("graph_inference",), False),
    }
    if device == "cuda":
        replayed = torchjit.compile(wave, options={"triton.cudagraphs": True})
        found["CUDA graph"] = (replayed, lambda: replayed(x), ("graph_inference",), True)
    return found


def main() -> int:
    """1 where something is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name() if device == 'cuda' else 'CPU'}")
    wrong = False
    for name, (fast, run, parts, replayed) in programs(device).items():
        for _ in range(4):
            run()  # compiled, and recorded where it is replayed
        lost = missing(fast, run, device, parts, replayed=replayed)
        wrong |= bool(lost)
        print("\n      missing: ".join([f"{'WRONG' if lost else 'ok   '} {name}", *lost]), flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
