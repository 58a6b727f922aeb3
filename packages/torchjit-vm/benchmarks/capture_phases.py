"""What the VM's own work costs, phase by phase, without torch.

    python packages/torchjit-vm/benchmarks/capture_phases.py [--profile]

Each figure is the minimum of several runs of one process, in microseconds of processor time: per instruction, per inlined call, per guard
record, per attribute read, per leaf operation, and for the end of a region (emission of Python code, its compilation).
`--profile` adds where a capture spends its time.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable, Sequence
from typing import Any

from torchjit_core.guards import Guard
from torchjit_vm import Box, CapturePolicy, ConcreteDomain, Interpreter, Region, RegionCode, capture

REPEATS = 9


class Node:
    """A leaf: a number whose operations are counted."""


class Number:
    """The real object that becomes a leaf."""

    def __mul__(self, other: object) -> Number:
        return self

    def __add__(self, other: object) -> Number:
        return self


class Handler:
    """The cheapest leaf handler: what is left is the VM's own time."""

    leaf_types = (Node,)

    def wants(self, obj: object, path: object) -> bool:
        return type(obj) is Number

    def input(self, obj: object, path: object, capture: Any) -> object:
        return Node()

    def type_of(self, leaf: object) -> type:
        return Number

    def handles(self, fn: object) -> bool:
        return False

    def call(self, fn: object, args: tuple[object, ...], kwargs: dict[str, object], capture: Any) -> object:
        return Node()

    def compile_region(self, leaves: Sequence[object], capture: Any) -> RegionCode:
        return RegionCode(target=lambda: [None] * len(leaves), outputs=tuple(range(len(leaves))))


def loop(n: int) -> int:
    i = 0
    while i < n:
        i += 1
    return i


def call_loop(n: int) -> int:
    def inner(a: int) -> int:
        return a

    i = 0
    while i < n:
        i = inner(i) + 1
    return i


class Block:
    """Like a module: attributes, a table of children, calls through `__call__`."""

    def __init__(self, depth: int, index: int = 0) -> None:
        self.scale = Number()
        self.index = index
        self.children = {f"c{i}": Block(0, i) for i in range(depth)}
        self.hooks: dict[str, Any] = {}

    def __call__(self, x: Any) -> Any:
        if self.hooks:
            raise AssertionError
        return self.forward(x)

    def forward(self, x: Any) -> Any:
        x = x * self.scale
        for child in self.children.values():
            x = child(x) + child.index
        return x


def reads(block: Any, x: Any) -> Any:
    for child in block.children.values():
        _ = child.index, child.scale, child.hooks
    return x * 2


def model(block: Any, x: Any) -> Any:
    return {"out": block(x)}


def captured(function: Callable[..., Any], *slots: Any) -> Any:
    handler: Any = Handler()
    return capture(
        Region.of_function(function),
        slots,
        leaves=handler,
        compiler=handler,
        continuations=lambda region: lambda *args: None,
        policy=CapturePolicy(step_limit=10_000_000),
    )


def best(function: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Processor seconds, the minimum of several calls."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def instructions(function: Callable[..., Any], *args: Any) -> int:
    """How many canonical instructions a call runs."""
    count = 0

    def trace(frame: Any, index: int) -> None:
        nonlocal count
        count += 1

    Interpreter(ConcreteDomain(), trace=trace).call(Box(function), [Box(a) for a in args])
    return count


def row(name: str, microseconds: float, detail: str = "") -> None:
    print(f"| {name} | {microseconds:.3f} | {detail} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true", help="print the profile of a capture")
    options = parser.parse_args()
    print("| phase | us | of |\n|---|---|---|")
    n = 4000
    empty = best(lambda: captured(loop, 0))
    steps = instructions(loop, n)
    row("instruction, constants", (best(lambda: captured(loop, n)) - empty) / steps * 1e6, f"{steps} instructions")
    concrete = best(lambda: Interpreter(ConcreteDomain()).call(Box(loop), [Box(n)]), 3)
    row("instruction, concrete domain", concrete / steps * 1e6, "the oracle")
    with_calls = best(lambda: captured(call_loop, n)) - best(lambda: captured(loop, n))
    row("inlined call", with_calls / n * 1e6, "of a nested function with one argument")
    block, x = Block(200), Number()
    base = best(lambda: captured(reads, Block(0), x))
    first = best(lambda: captured(reads, block, x))
    guards: tuple[Guard, ...] = captured(reads, block, x).guards
    row("child with 3 attribute reads", (first - base) / 200 * 1e6, "each read for the first time, guarded")
    row("guard record", (first - base) / len(guards) * 1e6, f"{len(guards)} guards, reads included")
    whole = best(lambda: captured(model, block, x))
    row("child block", whole / 200 * 1e6, "2 calls, 2 leaf operations, reads, guards, its share of the end")
    small = best(lambda: captured(model, Block(0), x))
    row("smallest region", small * 1e6, "entry, a leaf operation, emission, compilation of the code")
    row("region of 200 blocks", whole * 1e6, "everything")
    if options.profile:
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(5):
            captured(model, block, x)
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
