"""What importing and using the package pulls in."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import torchjit_fx

_USE = """
import sys
import torch, torch.nn.functional as F
from torchjit_fx.testing import SimpleSizes, capture_by_proxy
net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.GELU(), torch.nn.LayerNorm(6))
captured = capture_by_proxy(lambda x: F.softmax(net(x), -1).mean(), torch.randn(2, 3, 8, 8))
captured(torch.randn(2, 3, 8, 8)).backward()
capture_by_proxy(lambda x: x.view(-1) * x.shape[0], torch.randn(4, 3), sizes=SimpleSizes())
for constant in (lambda: torch.tensor([1.0, 2.0, 3.0]), lambda: torch.tensor(2.0), lambda: torch.as_tensor([True, False, True])):
    captured = capture_by_proxy(lambda x: x * constant(), torch.randn(4, 3))
    assert torch.equal(captured(torch.ones(4, 3)), torch.ones(4, 3) * constant())
torch.func.grad(lambda x: (x * x).sum())(torch.ones(2))
loaded = [name for name in sys.modules if name.split(".")[:2] in (["torch", "_dynamo"], ["torch", "_inductor"])]
assert not loaded, loaded
"""

_AFTERWARDS = """
assert torch._dynamo.config.suppress_errors is False
torch._dynamo.config.suppress_errors = True
import torch._dynamo.config
assert torch._dynamo.config.suppress_errors is True and "torch._dynamo" in sys.modules
torch._dynamo.config.suppress_errors = False
compiled = torch.compile(lambda x: torch.cos(x) + 1, backend="eager")
assert torch.equal(compiled(torch.ones(3)), torch.cos(torch.ones(3)) + 1)
captured = capture_by_proxy(lambda x: F.gelu(x) / 2, torch.randn(4, 3))
"""


def _run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_torchs_own_compiler_is_not_imported() -> None:
    _run(_USE)


@pytest.mark.slow
def test_torchs_own_compiler_still_works_when_it_is_imported() -> None:
    _run(_USE + _AFTERWARDS)


def test_no_imports_in_a_circle_even_for_types() -> None:
    """Handlers see a protocol of the domain, steps one of their scope. The package's own names, which are loaded late, are not counted."""
    root = Path(torchjit_fx.__file__).parent
    modules = {
        ".".join(("torchjit_fx", *path.relative_to(root).with_suffix("").parts)): path for path in root.rglob("*.py")
    }
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items() if name != "torchjit_fx.__init__"}
    imports: dict[str, set[str]] = {}
    for name, path in modules.items():
        froms = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        named = {f"{node.module}.{alias.name}" for node in froms for alias in node.names}
        imports[name] = ({node.module or "" for node in froms} | named) & modules.keys() - {name}
    assert len(imports) > 100 and sum(map(len, imports.values())) > 400
    TopologicalSorter(imports).prepare()  # raises CycleError
