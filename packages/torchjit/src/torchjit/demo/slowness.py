"""Why a compiled program is no faster than eager: what the timings and a profile of one eager step show."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["library_share", "why_not_faster"]

LIBRARY_CALLS = ("mm", "conv", "attention", "linear")
"""Parts of the names of operators that are calls of a library: compiling leaves them as they are, or nearly so."""
MOSTLY = 0.6


@final
class _Clock(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Seconds by operator. torch's profiler would be simpler; where there is no GPU it writes errors to the terminal."""

    def __init__(self, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._wait: Callable[[], Any] = torch.cuda.synchronize if device == "cuda" else lambda: None
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._wait()
        start = time.perf_counter()
        result = func(*args, **(kwargs or {}))
        self._wait()
        self.seconds[func._schema.name] += time.perf_counter() - start
        return result


def library_share(step: Callable[[], Any], device: str) -> float:
    """The part of a step's time, 0 to 1, that is in products, convolutions and attention.

    Args:
        step: the program, run once with a clock at each operator.
        device: `cpu` or `cuda`: whose time counts.
    """
    with _Clock(device) as clock:
        step()
    total = sum(clock.seconds.values())
    library = sum(t for name, t in clock.seconds.items() if any(part in name for part in LIBRARY_CALLS))
    return library / total if total else 0.0


def why_not_faster(eager: Sequence[float], compiled: Sequence[float], library: float) -> str:
    """One sentence.

    Args:
        eager: seconds of each round, the rounds being in turns.
        compiled: the same of the compiled program.
        library: what `library_share` said of eager.
    """
    wins = sum(c < e for e, c in zip(eager, compiled, strict=True)) / len(eager)
    said = []
    if wins > 0.25:
        said.append(
            f"noise: the compiled program was the faster one in {wins:.0%} of {len(eager)} rounds, so the two are about equal"
        )
    if library >= MOSTLY:
        said.append(
            f"{library:.0%} of eager's time is in products, convolutions and attention, "
            "which are the same library calls in both: fusing the rest wins little"
        )
    elif not said:
        said.append(
            "the tensors are so small that calling the compiled program costs more than its fused kernels save; "
            "larger ones, or mode='reduce-overhead' on a GPU, change that"
        )
    return "; ".join(said)
