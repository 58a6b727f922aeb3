"""Random programs of the language, interpreted and captured, beside CPython. More of them: `benchmarks/fuzz.py`."""

from __future__ import annotations

import pytest
from vm_language_fuzz import MODES, difference
from vm_language_programs import write


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(10))
def test_language_program(seed: int, mode: str) -> None:
    found = difference(seed, mode)
    assert found is None, f"{write(seed)}\n{found}"
