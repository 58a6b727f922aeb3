"""The demo's two models and two phases, its table and its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch.nn import functional as F

from torchjit.commands.console import console as make_console
from torchjit.demo.measure import PHASES, Row, measure
from torchjit.demo.models import GPT, resnet18
from torchjit_core import events
from torchjit_report import Recorder, write_report

__all__ = ["run_demo"]


def run_demo(
    report: Path,
    *,
    device: str | None = None,
    mode: str | None = None,
    seconds: float | None = None,
    small: bool = False,
) -> bool:
    """Run the main job and print its table.

    Args:
        report: where the HTML report goes.
        device: `cuda` or `cpu`; None takes a GPU when there is one.
        mode: of `torchjit.compile`.
        seconds: timing budget per row; None: 4, and 0.5 where small.
        small: fewer and smaller images, and a GPT of two layers: a check of an installation, not a measurement.

    Returns:
        True if every value agreed with eager.
    """
    if seconds is None:
        seconds = 0.5 if small else 4.0
    console = make_console()
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    where = torch.cuda.get_device_name() if chosen == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    console.print(f"torchjit demo on {where}, torch {torch.__version__}")
    recorder = Recorder()
    rows: list[Row] = []
    with events.listen(recorder):
        for name, make, inputs, loss in _jobs(chosen, small):
            for phase in PHASES:
                row = measure(name, make, inputs, loss, phase, seconds=seconds, mode=mode)
                rows.append(row)
                console.print(_line(row))
    console.print(_table(rows))
    for line in _remarks(rows, small):
        console.print(line, soft_wrap=True)
    write_report(recorder.events, report)
    console.print(f"Report, for a browser: {report.resolve()}", soft_wrap=True)
    right = all(row.right for row in rows)
    if not right:
        console.print("[bold red]Some values differ from eager by more than their tolerance.")
    return right


def _jobs(device: str, small: bool) -> list[tuple[str, Any, torch.Tensor, Any]]:
    torch.manual_seed(0)
    batch, pixels, layers, width = (2, 64, 2, 64) if small else (16, 128, 12, 256)
    images = torch.randn(batch, 3, pixels, pixels, device=device)
    tokens = torch.randint(0, 1024, (8, 128), device=device)

    def next_token_loss(logits: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    return [
        (f"resnet18, {pixels} px, batch {batch}", lambda: resnet18().to(device), images, lambda out: out.pow(2).mean()),
        (f"GPT, {layers} layers, width {width}", lambda: GPT(layers, width).to(device), tokens, next_token_loss),
    ]


def _line(row: Row) -> str:
    told = f"  {row.model}, {row.phase}: {row.ratio:.2f}x eager, first call {row.first_call_s:.1f} s, "
    if row.right:
        return told + f"values as eager's (relative error {row.worst[1].compiled:.0e})"
    name, error = row.worst
    return told + f"DIFFERS from eager: {name}, relative error {error.compiled:.1e}, eager's {error.eager:.1e}"


def _remarks(rows: list[Row], small: bool) -> list[str]:
    """What a reader of the table asks."""
    told = [
        "ratio: how many times as fast as eager (medians). first call: compiling, once, or without kernels "
        "reading what an earlier run has left on disk. "
        "values: outputs, gradients and buffers, each beside the same computation in float64."
    ]
    told += [f"{row.model}, {row.phase}, {row.ratio:.2f}x: {row.why}." for row in rows if row.why]
    if small:
        told.append("These are the small sizes: they check an installation. `torchjit demo` measures.")
    return told


def _table(rows: list[Row]) -> Table:
    table = Table(title="eager against torchjit.compile")
    for title in ("model", "phase"):
        table.add_column(title)
    for title in ("eager ms", "compiled ms", "ratio", "first call s", "graphs", "breaks", "kernels"):
        table.add_column(title, justify="right")
    table.add_column("values")
    for r in rows:
        table.add_row(
            r.model, r.phase, f"{r.eager_ms:.2f}", f"{r.compiled_ms:.2f}", f"{r.ratio:.2f}x", f"{r.first_call_s:.2f}",
            str(r.graphs), str(r.breaks), "-" if r.kernels is None else str(r.kernels), "as eager" if r.right else "DIFFER",
        )  # fmt: skip
    return table
