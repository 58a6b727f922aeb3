"""A machine without a C++ compiler: everything runs as in eager, after one warning."""

import os
import sys
from pathlib import Path

import forked

PROGRAM = """
import warnings
import torch, torchjit

f = torchjit.compile(lambda x: torch.relu(x) + 1)
g = torchjit.compile(lambda x: torch.softmax(x, -1) * 2)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    x = torch.randn(4, 8, requires_grad=True)
    f(x).sum().backward()
    assert torch.equal(x.grad, (x > 0).float())
    assert torch.equal(f(x), torch.relu(x) + 1)
    assert torch.equal(g(x), torch.softmax(x, -1) * 2)
    f(torch.randn(3, 3, 3))
(warning,) = [w for w in seen if "TJ-IND-003" in str(w.message)]
assert warning.filename == "<string>", warning.filename  # the line of this program that compiles, not one of ours
ours = [str(w.message) for w in seen if "TJ-IND-003" in str(w.message)]
assert len(ours) == 1, ours
assert "compiler" in ours[0]
print("fine")
"""


def test_without_a_compiler_all_runs_as_in_eager(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "TORCHJIT_CACHE_DIR": str(tmp_path / "cache")}
    environment.pop("CXX", None)
    ran = forked.run([sys.executable, "-c", PROGRAM], env=environment)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "fine\n"
