"""The programs of the VM's corpus on tensors: results, changes, output and exceptions of plain execution, twice."""

# mypy: ignore-errors

from __future__ import annotations

import copy

import pytest
from python_programs import programs, restored

import torchjit

PROGRAMS, outcome = programs()


@pytest.mark.parametrize("program", PROGRAMS, ids=[p.function.__name__ for p in PROGRAMS])
def test_equal_to_plain_execution(program):
    torchjit.reset()
    with restored(program.function):
        compiled = torchjit.compile(program.function, backend="eager")
        for _ in range(2):
            expected = outcome(program.function, copy.deepcopy(program.args))
            assert outcome(compiled, copy.deepcopy(program.args)) == expected
