"""The README's examples run, without torch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def test_readme_examples_run_and_leave_torch_alone() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    check = "import sys\nassert 'torch' not in sys.modules\n"
    done = subprocess.run([sys.executable, "-c", "\n".join(blocks) + check], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "CHECK_INT" in done.stdout
