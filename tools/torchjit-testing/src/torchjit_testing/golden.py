"""Golden files: generated text kept beside the tests, reviewed as a diff.

    def test_kernel(golden):
        golden.check("softmax.c", make_kernel())

`pytest --update-golden` writes them. A golden file holds no addresses, hashes or paths, and at most about 60 lines.
"""

from __future__ import annotations

from pathlib import Path
from typing import final

import pytest

__all__ = ["Golden", "golden", "pytest_addoption"]

LONGEST = 80


@final
class Golden:
    """The golden files of one test module, in the folder `golden/<module>` beside it."""

    def __init__(self, folder: Path, update: bool) -> None:
        self._folder = folder
        self._update = update

    def check(self, name: str, text: str) -> None:
        """Compare `text` with the file `name`, or write it under --update-golden.

        Raises:
            AssertionError: they differ, there is no such file, or the text is too long to be read.
        """
        text = text.rstrip() + "\n"
        assert text.count("\n") <= LONGEST, f"{name} has {text.count(chr(10))} lines: nobody will read that"
        path = self._folder / name
        if self._update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"no golden file {name}: run pytest --update-golden and read what it wrote"
        assert text == path.read_text(), f"{name} changed: read the diff, then pytest --update-golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --update-golden."""
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """The golden files of the test's module."""
    module = Path(request.node.path)
    return Golden(module.parent / "golden" / module.stem, request.config.getoption("--update-golden"))
