"""The README's example runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def test_example() -> None:
    readme = Path(__file__).parent.parent / "README.md"
    if not readme.exists():
        pytest.skip("no README beside the tests")
    blocks = re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
    assert len(blocks) == 1
    exec(compile(blocks[0], str(readme), "exec"), {})
