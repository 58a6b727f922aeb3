"""Write docs/lowerings.md: which aten ops become kernels, which are taken apart, and which core ops are called through aten.

uv run python tools/write_lowerings.py [--check]

The page is that of one version of torch, which it names; with another one `--check` has nothing to compare.
"""

from __future__ import annotations

import functools
import sys
from collections import defaultdict
from typing import Any

import torch
from page_writer import DOCS, write_or_check

import torchjit_aot
import torchjit_inductor.lowering.graph  # noqa: F401  # fills the table
from torchjit_inductor.lowering.registry import LOWERINGS

PAGE = DOCS / "lowerings.md"
WRITTEN_FOR = f"Written by `tools/write_lowerings.py` for torch {torch.__version__.split('+')[0]}"


def core_ops() -> list[Any]:
    """Every overload that torch tags as core ATen."""
    found = []
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        if isinstance(packet, torch._ops.OpOverloadPacket):
            overloads = [getattr(packet, o) for o in packet.overloads()]
            found += [op for op in overloads if torch.Tag.core in op.tags]
    return found


def short(op: Any) -> str:
    """`add.Tensor`, `relu`."""
    return str(op).removeprefix("aten.").removesuffix(".default")


def defined(fn: Any) -> Any:
    """The function behind a row of a table."""
    return fn.func if isinstance(fn, functools.partial) else fn


def render() -> str:
    """The page."""
    table: dict[str, list[str]] = defaultdict(list)
    for op, fn in LOWERINGS.items():
        table[defined(fn).__module__.rsplit(".", 1)[-1]].append(short(op))
    decomposed = torchjit_aot.default_decompositions()
    apart = sorted(short(op) for op in decomposed if op not in LOWERINGS)
    core = core_ops()
    left = sorted(short(op) for op in core if op not in LOWERINGS and op not in decomposed)
    lines = [
        "# Lowerings",
        "",
        f"{WRITTEN_FOR}. An op of the first table becomes part of a kernel; a lowering may still",
        "leave single calls to aten (dtypes, symbolic sizes: it raises `NotLowered` with the reason). An op of the second list is taken apart,",
        "as a rule into ops of the first, before the joint graph is cut. All others are called through aten in the host program, and stop fusion there;",
        "so are convolutions, whose lowerings choose a layout only. How one is added: [Your first change](first-change.md#your-third-the-kernel-of-an-operator).",
        "",
        "| module of `torchjit_inductor.lowering` | ops |",
        "|---|---|",
        *(f"| {module} | {', '.join(sorted(ops))} |" for module, ops in sorted(table.items())),
        "",
        f"## Ops that are taken apart ({len(apart)})",
        "",
        "By `torchjit_aot.default_decompositions`, which knows more ops: those of the first table stay whole for this compiler.",
        "",
        ", ".join(apart),
        "",
        f"## Core ATen ops that are called through aten ({len(left)} of {len(core)})",
        "",
        ", ".join(left),
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def main() -> int:
    """Write or check the page; returns the exit status."""
    if "--check" in sys.argv and WRITTEN_FOR not in PAGE.read_text():
        return 0
    return write_or_check(PAGE, render())


if __name__ == "__main__":
    sys.exit(main())
