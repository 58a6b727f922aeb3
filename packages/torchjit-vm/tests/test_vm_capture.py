"""The capture domain against plain execution, one small program per feature, all in one region each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import vm_programs
from vm_compare import check
from vm_programs import PROGRAMS


@pytest.mark.parametrize(("function", "args"), PROGRAMS, ids=[f.__name__ for f, _ in PROGRAMS])
def test_program(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Equal results, and one region without a break."""
    before = dict(vars(vm_programs))
    jit = check(function, *args)
    vars(vm_programs).update(before)
    assert [b for c in jit.captured for b in c.breaks] == []
    assert len(jit.captured) == 1, [c.source for c in jit.captured]
