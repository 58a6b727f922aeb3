"""`python -m torchjit_report trace.jsonl [report.html]`: render a recorded trace."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from torchjit_report.html import write_report
from torchjit_report.trace import read_trace


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 if a file cannot be read or written."""
    parser = argparse.ArgumentParser(prog="python -m torchjit_report", description="Render a torchjit trace as HTML.")
    parser.add_argument("trace", type=Path, help="a file that a Recorder wrote")
    parser.add_argument("report", type=Path, nargs="?", help="default: the trace's name with .html")
    options = parser.parse_args(arguments)
    try:
        trace = read_trace(options.trace)
        written = write_report(trace, options.report or options.trace.with_suffix(".html"))
    except OSError as e:
        print(f"torchjit_report: {e}", file=sys.stderr)
        return 1
    skipped = f", {trace.skipped} unreadable lines skipped" if trace.skipped else ""
    print(f"{written} ({len(trace)} events{skipped})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
