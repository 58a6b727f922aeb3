"""Where the suite's time goes: processor seconds of each package's and each file's tests, and the slowest tests.

    uv run pytest --seconds /tmp/seconds && python tools/test_seconds.py /tmp/seconds [--files N] [--tests N]

Processor seconds, with those of the processes that a test starts, hardly depend on what else runs, unlike pytest's durations.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path


def read(path: Path) -> dict[str, float]:
    """Seconds by test; where a file holds several runs of a test, the last counts."""
    lines = (line.split("\t") for line in path.read_text().splitlines())
    return {test: float(seconds) for seconds, test in lines}


def summed(tests: dict[str, float], key: Callable[[str], str]) -> list[tuple[str, float, int]]:
    """(name, seconds, number of tests) of each name that `key` gives, the largest first."""
    seconds: dict[str, float] = defaultdict(float)
    number: dict[str, int] = defaultdict(int)
    for test, spent in tests.items():
        seconds[key(test)] += spent
        number[key(test)] += 1
    return sorted(((name, seconds[name], number[name]) for name in seconds), key=lambda row: -row[1])


def suite(test: str) -> str:
    """`packages/torchjit-fx` or `integration_tests`."""
    parts = test.split("/")
    return "/".join(parts[:2]) if parts[0] in ("packages", "tools") else parts[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--tests", type=int, default=60)
    arguments = parser.parse_args()
    tests = read(arguments.file)
    print(f"{sum(tests.values()):.0f} s of {len(tests)} tests")
    by_function = summed(tests, lambda test: test.partition("[")[0])
    for rows in (
        summed(tests, suite),
        summed(tests, lambda test: test.partition("::")[0])[: arguments.files],
        by_function[: arguments.tests],
    ):
        print()
        for name, seconds, number in rows:
            print(f"{seconds:8.1f} {number:6} {name}")


if __name__ == "__main__":
    main()
