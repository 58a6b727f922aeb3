"""Guards as a flat C program, and symbolic shapes."""

from torchjit_core.guards import Miss
from torchjit_guards.program import Facts, GuardProgram
from torchjit_guards.shape_env import ShapeEnv
from torchjit_guards.size_history import SizeHistory

__all__ = ["Facts", "GuardProgram", "Miss", "ShapeEnv", "SizeHistory"]
