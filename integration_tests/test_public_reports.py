"""Programs after public reports on torch.compile: eager's values, states and kinds of errors with every backend."""

# mypy: allow-untyped-defs

from __future__ import annotations

import pytest
import torch
from compare import assert_same
from public_reports import PROGRAMS

import torchjit

pytestmark = pytest.mark.usefixtures("older_objects_rest")


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_public_report(name, backend):
    torch.manual_seed(0)
    want = PROGRAMS[name](lambda f: f)
    torch.manual_seed(0)
    got = PROGRAMS[name](lambda f: torchjit.compile(f, backend=backend))
    assert_same(got, want)
