"""What `import torchjit` costs over `import torch`, and what the first `torchjit.compile` loads: processor seconds, medians of fresh processes.

The first process writes bytecode and does not count. The ratio is within one process, so that a busy machine or a slow one changes it little.

    uv run python benchmarks/import_time.py [--rounds 9]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

_PROGRAM = """
import json, time
def seconds(statement):
    start = time.process_time()
    exec(statement, globals())
    return time.process_time() - start
steps = ["import torch", "import torchjit", "f = torchjit.compile(lambda x: x)"]
print(json.dumps([*map(seconds, steps)]))
"""


def _measured(environment: dict[str, str]) -> list[float]:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=True)
    figures: list[float] = json.loads(done.stdout)
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment |= {
            "PYTHONPYCACHEPREFIX": folder,
            "OMP_NUM_THREADS": "1",
            "TORCHJIT_CACHE_DIR": str(Path(folder) / "cache"),
        }
        _measured(environment)
        rows = [_measured(environment) for _ in range(rounds)]
    names = ("import torch", "import torchjit", "torchjit.compile")
    for place, name in enumerate(names):
        taken = [row[place] for row in rows]
        ratio = statistics.median(row[place] / row[0] for row in rows)
        print(f"{name:20} {statistics.median(taken):.3f} s (least {min(taken):.3f}), {ratio:.3f} of import torch")


if __name__ == "__main__":
    main()
