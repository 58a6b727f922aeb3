"""torchvision's resnet18, timed as people do: batch 16, 128 pixels, ten rounds, medians; mode="reduce-overhead" on a GPU."""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

import torchjit

try:
    from torchvision.models import resnet18
except ImportError:
    resnet18 = None
ROUNDS = 10


def timed(run: Callable[[], object]) -> float:
    """Seconds of one call, the GPU's work included."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="batch 2, 64 pixels, inference only")
    parser.add_argument("--upstream", action="store_true", help="torch.compile in torchjit's place")
    options = parser.parse_args()
    if resnet18 is None:
        raise SystemExit("this example needs torchvision: pip install torchvision")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    mode = "reduce-overhead" if device == "cuda" else None
    batch, pixels = (2, 64) if options.small else (16, 128)
    compile = torch.compile if options.upstream else torchjit.compile

    torch.manual_seed(0)
    images = torch.randn(batch, 3, pixels, pixels, device=device)
    labels = torch.randint(0, 1000, (batch,), device=device)
    model = resnet18(weights=None).to(device)
    fast = compile(model, mode=mode)

    def infer(f: Callable[..., torch.Tensor]) -> None:
        with torch.no_grad():
            f(images)

    def train(f: Callable[..., torch.Tensor]) -> None:
        model.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(f(images), labels).backward()

    print(f"resnet18, batch {batch}, {pixels} px, {device}, mode {mode}, {torch.get_num_threads()} threads")
    for name, step in (("inference", infer), ("training", train)):
        if options.small and name == "training":
            continue
        model.train(name == "training")  # one set of weights: both are in this mode
        first = timed(lambda: step(fast))  # noqa: B023
        for _ in range(3):  # warm-up; a CUDA graph is recorded in the second call or later
            step(fast)
        rounds = [(timed(lambda: step(model)), timed(lambda: step(fast))) for _ in range(ROUNDS)]  # noqa: B023
        eager, compiled = (statistics.median(times) * 1e3 for times in zip(*rounds, strict=True))
        print(
            f"{name}: eager {eager:.2f} ms, compiled {compiled:.2f} ms, {eager / compiled:.2f}x, first call {first:.1f} s"
        )


if __name__ == "__main__":
    main()
