"""Text that people read: emitted code, guards and graphs of small programs, as golden files."""

import re
from typing import Any

import torch
from torch import nn

import torchjit
from torchjit.inspection import describe


def affine(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.relu(x * scale) + 1


def branch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def _told(f: Any, *args: Any) -> Any:
    compiled = torchjit.compile(f, backend="eager")
    compiled(*args)
    return describe(compiled.compiled)


def test_graph_of_a_function(golden: Any) -> None:
    told = _told(affine, torch.ones(3), 2.5)
    golden.check("affine.graph.py", told.graphs[0].code)


def test_guards_of_a_module(golden: Any) -> None:
    told = _told(nn.Linear(2, 3), torch.ones(4, 2))
    own = [g for g in told.regions[0].guards if "weight" in g or "bias" in g or g.startswith("input:")]
    golden.check("linear.guards", "\n".join(sorted(own)))


def test_code_around_a_break(golden: Any) -> None:
    told = _told(branch, torch.ones(3), torch.ones(3))
    # Bytecode offsets differ between Python versions, graph numbers between orders of tests.
    golden.check("branch.py", re.sub(r"(resume_branch|graph)_\d+", r"\1_N", told.regions[0].source))
