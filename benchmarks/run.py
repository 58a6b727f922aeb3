"""Every CPU figure of docs/benchmarks.md, one after the other.

uv run python benchmarks/run.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    """Run the scripts; returns the first status that is not 0."""
    for script in ("call_overhead.py", "capture_time.py", "demo_models.py"):
        print(f"\n## {script}\n", flush=True)
        status = subprocess.run([sys.executable, str(HERE / script)], check=False).returncode
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
