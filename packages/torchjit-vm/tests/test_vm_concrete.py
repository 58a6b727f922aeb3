"""The interpreter over the concrete domain, against CPython."""

from __future__ import annotations

import copy
import functools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import vm_break_programs
import vm_programs
from vm_compare import outcome

from torchjit_vm import interpret

EVERYTHING = [(f, a) for f, a in vm_programs.PROGRAMS] + [(f, a) for _, f, a in vm_break_programs.PROGRAMS]


@pytest.mark.parametrize(("function", "args"), EVERYTHING, ids=[f.__name__ for f, _ in EVERYTHING])
def test_program(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """The same result, output, exception with its chain, and changes of the arguments."""
    expected = outcome(function, copy.deepcopy(args))
    actual = outcome(functools.partial(interpret, function), copy.deepcopy(args))
    assert actual == expected


def test_import_leaves_torch_unloaded() -> None:
    code = "import sys, torchjit_vm; assert not {'torch', 'triton', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
