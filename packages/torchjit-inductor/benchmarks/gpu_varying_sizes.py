"""ResNets with symbolic sizes on a GPU, beside the static program and eager code: time of a call, of the host's part of it and of
the GPU's, what the first call and the first ones with other sizes take.

One process a row, with empty cache folders; inference, TF32; medians of 40 calls, wall time with the GPU idle before and waited for.

    uv run --group models python packages/torchjit-inductor/benchmarks/gpu_varying_sizes.py [--models resnet18] [--ways dynamic static eager]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

MODELS = {"resnet18": (16, 128, "float32"), "resnet50": (64, 224, "bfloat16")}
"""Images, their side, and the dtype."""
OTHERS = ((12, 112), (9, 131), (16, 160))
"""Sizes of later calls."""


def measure(name: str, way: str) -> dict[str, Any]:
    """A row, in this process."""
    import torch
    import torchvision

    import torchjit

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)
    batch, side, dtype = MODELS[name]
    model = getattr(torchvision.models, name)().cuda().to(getattr(torch, dtype)).eval()

    def images(batch: int, side: int) -> Any:
        return torch.randn(batch, 3, side, side, device="cuda", dtype=getattr(torch, dtype))

    def seconds(x: Any) -> tuple[float, float]:
        """Until the call has returned, and until the GPU is done."""
        torch.cuda.synchronize()
        start = time.perf_counter()
        compiled(x)
        returned = time.perf_counter() - start
        torch.cuda.synchronize()
        return returned, time.perf_counter() - start

    compiled = model if way == "eager" else torchjit.compile(model, dynamic=way == "dynamic")
    x = images(batch, side)
    with torch.no_grad():
        model(x)  # cuDNN's own first call
        row: dict[str, Any] = {"model": name, "way": way, "first_s": seconds(x)[1]}
        for _ in range(10):
            compiled(x)
        host, whole = zip(*(seconds(x) for _ in range(40)), strict=True)
        row |= {"ms": statistics.median(whole) * 1e3, "host_ms": statistics.median(host) * 1e3}
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(5):
                compiled(x)
            torch.cuda.synchronize()
        row["gpu_ms"] = sum(e.self_device_time_total for e in profile.key_averages()) / 5e3
        row["others_s"] = [round(seconds(images(*size))[1], 3) for size in OTHERS]
    return row


def main() -> None:
    """Print a row for each model and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--ways", nargs="+", default=["dynamic", "static", "eager"])
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.one:
        print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in measure(*o.one).items()}))
        return
    for name in o.models:
        for way in o.ways:
            with tempfile.TemporaryDirectory() as folder:
                environment = {
                    **os.environ,
                    "TORCHJIT_STORE": "off",
                    "TORCHJIT_CACHE_DIR": folder,
                    "TRITON_CACHE_DIR": folder,
                }
                subprocess.run([sys.executable, __file__, "--one", name, way], env=environment, check=True)


if __name__ == "__main__":
    main()
