"""Make the self-contained HTML report of a trace that TORCHJIT_TRACE wrote."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from torchjit_report import read_trace, write_chrome_trace, write_report

__all__ = ["HELP", "add_arguments", "run"]

HELP = "make the HTML report of a trace (see TORCHJIT_TRACE)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("trace", type=Path, help="a trace file, or the folder that TORCHJIT_TRACE named")
    parser.add_argument(
        "--perfetto",
        action="store_true",
        help="write the times as a file for https://ui.perfetto.dev or chrome://tracing instead",
    )
    parser.add_argument(
        "-o", "--output", type=Path, help="default: torchjit-report.html, or torchjit-trace.json with --perfetto"
    )


def run(options: argparse.Namespace) -> int:
    """Exit status 2 where there is no trace."""
    if not options.trace.exists():
        print(
            f"torchjit report: there is no {options.trace}; run the program with TORCHJIT_TRACE=FOLDER first",
            file=sys.stderr,
        )
        return 2
    write, kind = (write_chrome_trace, "Trace") if options.perfetto else (write_report, "Report")
    output = options.output or Path("torchjit-trace.json" if options.perfetto else "torchjit-report.html")
    try:
        trace = read_trace(options.trace)
        if not trace.events:
            print(
                f"torchjit report: there are no events in {options.trace}; run the program with TORCHJIT_TRACE=FOLDER "
                "first, and name that folder",
                file=sys.stderr,
            )
            return 2
        write(trace, output)
    except OSError as error:
        print(f"torchjit report: {error}", file=sys.stderr)
        return 1
    print(f"{kind}: {output.resolve()}")
    return 0
