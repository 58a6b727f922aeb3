"""The README's example and the tutorial run."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("name", ["README.md", "docs/tutorial.md"])
def test_blocks_run(name: str) -> None:
    """In order, in one namespace; `inspect` and messages find the source."""
    text = (Path(__file__).parent.parent / name).read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert blocks
    namespace: dict[str, Any] = {"__name__": "document"}
    for number, block in enumerate(blocks):
        filename = f"<{name} block {number}>"
        linecache.cache[filename] = (len(block), None, block.splitlines(True), filename)
        exec(compile(block, filename, "exec"), namespace)
