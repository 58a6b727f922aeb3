"""Passes: from a lowered program to the one that code is generated for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from torchjit_inductor.steps import Program

__all__ = ["Pass", "run_passes"]

Pass: TypeAlias = Callable[[Program], Program]


def run_passes(program: Program, passes: Iterable[Pass]) -> Program:
    """The program after all of them, in order. Tests replace this function by one that verifies the program after each."""
    for each in passes:
        program = each(program)
    return program
