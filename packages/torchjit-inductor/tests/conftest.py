"""Makes `inductor_testing` importable under pytest's importlib mode; verifies programs after each pass."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from torchjit_inductor import compiled
from torchjit_inductor.passes import Pass
from torchjit_inductor.steps import Program

sys.path.insert(0, str(Path(__file__).parent))


def _verified_passes(program: Program, passes: Iterable[Pass]) -> Program:
    program.verify()
    for each in passes:
        program = each(program)
        program.verify()
    return program


@pytest.fixture(autouse=True)
def verified_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "run_passes", _verified_passes)
