"""The tests that the page on semantics names are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_tests_that_the_page_names_exist() -> None:
    found = 0
    for row in (ROOT / "docs" / "semantics.md").read_text().splitlines():
        source = ""
        for name in re.findall(r"`([\w.]+)`", row.rpartition(" | ")[2]) if row.startswith("|") else ():
            if name.endswith(".py"):
                places = (ROOT / "packages" / "torchjit-aot" / "tests" / name, ROOT / "integration_tests" / name)
                source = next(place for place in places if place.exists()).read_text()
            else:
                assert re.search(rf"def {name}\(", source), name
            found += 1
    assert found > 100
