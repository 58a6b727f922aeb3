"""What holds for the workspace as a whole: who may be imported, what loads what."""

import ast
import subprocess
import sys
from pathlib import Path

import forked
import pytest

ROOT = Path(__file__).parent.parent
REPLACED = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "torch._functorch.partitioners")
# It keeps torch's own fake tensors from importing torch._dynamo, so it must name it.
NAMES_IT = {"deferred.py"}
SOURCES = sorted(ROOT.glob("packages/*/src/**/*.py"))


def _imported(tree: ast.AST) -> list[str]:
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Attribute) or isinstance(node, ast.Name):
            names.append(ast.unparse(node))
    return names


def test_there_are_sources() -> None:
    assert len(SOURCES) > 50


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT / "packages")))
def test_the_product_never_imports_what_it_replaces(path: Path) -> None:
    if path.name in NAMES_IT:
        pytest.skip("defers the import that torch's fake tensors make; see its docstring")
    bad = [n for n in _imported(ast.parse(path.read_text())) if n.startswith(REPLACED)]
    assert not bad, f"{path.name} uses {bad}"


@pytest.mark.parametrize(
    "package", ["torchjit_core", "torchjit_vm", "torchjit_frame", "torchjit_guards", "torchjit_report"]
)
def test_importing_leaves_torch_unloaded(package: str) -> None:
    code = f"import sys, {package}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_processes_that_tests_start_keep_bytecode() -> None:
    """Or each compiles torch's modules anew (`conftest.py`)."""
    code = "import sys; sys.exit(sys.dont_write_bytecode)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_first_call_imports_neither_sympy_nor_what_writes_reports() -> None:
    code = """
import sys, torch, torchjit
f = torchjit.compile(lambda x: torch.relu(x).sin() + x, backend="aot_eager")
f(torch.randn(3, 4))
sys.exit(str([name for name in ("sympy", "jinja2", "pygments") if name in sys.modules] or ""))
"""
    done = forked.run([sys.executable, "-c", code])
    assert not done.stderr.strip(), done.stderr
