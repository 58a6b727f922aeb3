"""Programs of the libraries that people train and serve with: their values are eager PyTorch's, with few graphs and no breaks.

They are `slow`: `tools/test_libraries.sh` installs the libraries beside the project and runs them.
"""

from __future__ import annotations

import warnings

import libraries.answering
import libraries.training  # noqa: F401
import pytest
import torch
from libraries.recording import PROGRAMS, outcome_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps(name: str) -> None:
    program = PROGRAMS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for package in program.packages:
            pytest.importorskip(package)
        eager = outcome_of(program, "eager")
        ours = outcome_of(program, "torchjit")
    assert len(ours.values) == len(eager.values) > 0
    for i, (got, right) in enumerate(zip(ours.values, eager.values)):
        torch.testing.assert_close(
            got, right, rtol=program.tolerance, atol=program.tolerance, msg=lambda text: f"step {i}: {text}"
        )
    assert sum(ours.breaks.values()) == program.breaks, ours.breaks
    assert ours.graphs <= program.graphs
    assert ours.late_graphs == 0
