"""The command line: `torchjit demo`, `torchjit report`, `torchjit info`."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

import torchjit
from torchjit.demo.run import run_demo
from torchjit_report import read_trace, write_report

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    status: int = options.run(options)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torchjit", description=torchjit.__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=torchjit.__version__)
    commands = parser.add_subparsers(required=True, metavar="command")
    demo = commands.add_parser("demo", help="compile resnet18 and a transformer, check and time them against eager")
    demo.add_argument("--device", choices=["cpu", "cuda"], help="default: the GPU when there is one")
    demo.add_argument("--mode", help="as torchjit.compile's, for example reduce-overhead")
    demo.add_argument("--seconds", type=float, default=4.0, help="timing budget per row (default: 4)")
    demo.add_argument("--small", action="store_true", help="small sizes: checks an installation in seconds")
    demo.add_argument("--report", type=Path, default=Path("torchjit-report.html"), help="where the HTML report goes")
    demo.set_defaults(run=_demo)
    report = commands.add_parser("report", help="make the HTML report of a trace (see TORCHJIT_TRACE)")
    report.add_argument("trace", type=Path, help="a trace file, or the folder that TORCHJIT_TRACE named")
    report.add_argument("-o", "--output", type=Path, default=Path("torchjit-report.html"))
    report.set_defaults(run=_report)
    info = commands.add_parser("info", help="versions, backends and the state of the machine, for bug reports")
    info.set_defaults(run=_info)
    return parser


def _demo(options: argparse.Namespace) -> int:
    chosen = {"device": options.device, "mode": options.mode, "seconds": options.seconds, "small": options.small}
    return 0 if run_demo(options.report, **chosen) else 1


def _report(options: argparse.Namespace) -> int:
    if not options.trace.exists():
        print(f"torchjit report: there is no {options.trace}", file=sys.stderr)
        return 2
    write_report(read_trace(options.trace), options.output)
    print(f"Report: {options.output.resolve()}")
    return 0


def _info(options: argparse.Namespace) -> int:
    print(f"torchjit {torchjit.__version__}, torch {torch.__version__}, Python {platform.python_version()}")
    print(f"GPU: {torch.cuda.get_device_name() if torch.cuda.is_available() else 'none'}")
    print(f"CPU: {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads")
    print(f"backends: {', '.join(torchjit.list_backends(exclude_tags=None))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
