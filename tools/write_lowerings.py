"""Write docs/lowerings.md: which aten ops become kernels, and which core ops are called through aten.

uv run python tools/write_lowerings.py
"""

from __future__ import annotations

import functools
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

import torchjit_aot
import torchjit_inductor.lowering.graph  # noqa: F401  # fills the table
from torchjit_inductor.lowering.registry import LOWERINGS

PAGE = Path(__file__).parent.parent / "docs" / "lowerings.md"


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


def main() -> None:
    """Write the page."""
    table: dict[str, list[str]] = defaultdict(list)
    for op, fn in LOWERINGS.items():
        table[defined(fn).__module__.rsplit(".", 1)[-1]].append(short(op))
    decomposed = torchjit_aot.default_decompositions()
    core = core_ops()
    left = sorted(short(op) for op in core if op not in LOWERINGS and op not in decomposed)
    lines = [
        "# Lowerings",
        "",
        f"Written by `tools/write_lowerings.py` for torch {torch.__version__.split('+')[0]}. An op of the first table becomes part of a kernel; a lowering may still",
        "leave single calls to aten (dtypes, symbolic sizes: it raises `NotLowered` with the reason). What is in neither list is",
        "called through aten in the host program, and stops fusion there; so are convolutions, whose lowerings choose a layout only.",
        "",
        "| module of `torchjit_inductor.lowering` | ops |",
        "|---|---|",
        *(f"| {module} | {', '.join(sorted(ops))} |" for module, ops in sorted(table.items())),
        "",
        f"## Core ATen ops that are called through aten ({len(left)} of {len(core)})",
        "",
        ", ".join(left),
        "",
    ]  # fmt: skip
    PAGE.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
