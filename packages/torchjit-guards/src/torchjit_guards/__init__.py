"""Guards as a flat C program, and symbolic shapes."""

from torchjit_guards.explain import Miss
from torchjit_guards.program import GuardProgram

__all__ = ["GuardProgram", "Miss"]
