"""Runs pages that show what their blocks print: `python shown_pages.py [--show] PAGE...`.

A Python block that is followed by a `text` block must print that text; `...` stands for anything, and runs of white space are
equal, as in doctest. `--show` prints what each block prints instead, for whoever writes a page.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import linecache
import re
import sys
from pathlib import Path

import torch

import torchjit
from torchjit_report.logs import log_names

FENCE = re.compile(r"^```(python|text)\n(.*?)^```", re.M | re.S)
COMPARE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks_of(page: Path) -> list[tuple[str, int, str | None]]:
    """Each Python block, the line where it begins, and the text that the page shows for it."""
    text = page.read_text()
    found: list[tuple[str, int, str | None]] = []
    behind = -1  # where the last Python block ends
    for match in FENCE.finditer(text):
        if match[1] == "python":
            found.append((match[2], text.count("\n", 0, match.start(2)), None))
            behind = match.end()
        elif found and not text[behind : match.start()].strip():
            found[-1] = (*found[-1][:2], match[2])
    return found


def run(page: Path, show: bool) -> bool:
    """Does every block print what the page shows?"""
    name, good = page.name, True
    linecache.cache[name] = (1, None, page.read_text().splitlines(keepends=True), name)  # source lines, for messages
    said = io.StringIO()  # one stream for the page: loggers keep the one that they met first
    namespace = {"__name__": "__main__"}
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        for code, line, wanted in blocks_of(page):
            before = len(said.getvalue())
            exec(compile("\n" * line + code, name, "exec"), namespace)
            printed = said.getvalue()[before:]
            if show:
                print(f"--- line {line}\n{printed}", file=sys.__stdout__)
            elif wanted is not None and not doctest.OutputChecker().check_output(wanted, printed, COMPARE):
                good = False
                print(f"{name}:{line}: shown\n{wanted}\nprinted\n{printed}", file=sys.__stdout__)
    return good


def main() -> int:
    paths = [Path(word) for word in sys.argv[1:] if word != "--show"]
    results = []
    for path in paths:
        print("page", path, file=sys.stderr, flush=True)
        torch.manual_seed(0)
        results.append(run(path, "--show" in sys.argv))
        torchjit.set_logs(**dict.fromkeys(log_names(), False))
        torchjit.reset()
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
