"""Torch works without NumPy, and so does torchjit."""

# mypy: allow-untyped-defs

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, warnings
sys.modules["numpy"] = None
warnings.simplefilter("ignore")
import torch, torchjit
from torch import nn

class Holder:
    pass

holder = Holder()
f = torchjit.compile(lambda x, h: (nn.functional.relu(x) * 2, h, x.shape[0]), backend="eager", fullgraph=True)
assert torch.equal(f(torch.ones(3), holder)[0], torch.full((3,), 2.0))
"""


def test_without_numpy():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=120)
