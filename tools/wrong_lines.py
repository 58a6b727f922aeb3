"""Read what mypy says: a program's errors have to be at its lines that end with `# wrong`, and there are to be no others.

mypy packages/torchjit/src integration_tests/typed_program.py | python tools/wrong_lines.py integration_tests/typed_program.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path


def main(program: str) -> int:
    said = sys.stdin.read().splitlines()
    own = re.compile(rf"{re.escape(program)}:(\d+): (error|note)")
    told = {int(at[1]) for line in said if (at := own.match(line)) and at[2] == "error"}
    wanted = {n for n, line in enumerate(Path(program).read_text().splitlines(), 1) if line.endswith("# wrong")}
    others = [line for line in said[:-1] if not own.match(line)]
    summary = said[-1] if said else "mypy said nothing"
    print(*others, summary, sep="\n")
    if told != wanted:
        print(f"{program}: not told: lines {sorted(wanted - told)}; told without being wrong: {sorted(told - wanted)}")
    # Whatever else it ends with, a crash above all, is no summary.
    return int(
        any(": error:" in line for line in others)
        or told != wanted
        or not re.match(r"Found \d+ errors? in 1 file ", summary)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
