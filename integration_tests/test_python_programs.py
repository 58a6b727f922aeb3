"""The programs of the VM's corpus on tensors: results, changes, output and exceptions of plain execution, twice."""

# mypy: ignore-errors

from __future__ import annotations

import copy
import dis

import pytest
from python_programs import programs, restored

import torchjit

PROGRAMS, outcome = programs()


@pytest.mark.parametrize("program", PROGRAMS, ids=[p.function.__name__ for p in PROGRAMS])
def test_equal_to_plain_execution(program):
    torchjit.reset()
    # A function with an `except*` is left to Python, with a warning.
    left = any(i.opname == "CHECK_EG_MATCH" for i in dis.get_instructions(program.function))
    with restored(program.function), torchjit.config.patch(on_error="eager" if left else "raise"):
        compiled = torchjit.compile(program.function, backend="eager")
        for _ in range(2):
            expected = outcome(program.function, copy.deepcopy(program.args))
            assert outcome(compiled, copy.deepcopy(program.args)) == expected
