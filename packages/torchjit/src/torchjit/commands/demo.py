"""Compile resnet18 and a transformer, check and time them against eager, and write a report."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["HELP", "add_arguments", "run"]

HELP = "compile resnet18 and a transformer, check and time them against eager"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: the GPU when there is one")
    parser.add_argument("--mode", help="as torchjit.compile's, for example reduce-overhead")
    parser.add_argument("--seconds", type=float, help="timing budget per row (default: 4; small: 0.5)")
    parser.add_argument("--small", action="store_true", help="small sizes: checks an installation in half a minute")
    parser.add_argument("--report", type=Path, default=Path("torchjit-report.html"), help="where the HTML report goes")


def run(options: argparse.Namespace) -> int:
    """Exit status 0 where every value agreed with eager."""
    from torchjit.demo.run import run_demo  # noqa: PLC0415  torchvision is an extra, and slow to import

    chosen = {"device": options.device, "mode": options.mode, "seconds": options.seconds, "small": options.small}
    return 0 if run_demo(options.report, **chosen) else 1
