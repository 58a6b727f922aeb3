"""The command line, as a user runs it."""

# mypy: allow-untyped-calls

import os
import re
import subprocess
import sys
from pathlib import Path

import forked
import torch

from torchjit.demo.slowness import library_share, why_not_faster

PROGRAM = """
import torch, torchjit

@torchjit.compile
def traced(x):
    y = x.sin()
    print("broken", flush=True)
    return y.cos() + 1

traced(torch.randn(8)); traced(torch.randn(9)); traced(torch.randn(10))
"""


def _run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return forked.run([sys.executable, *command], cwd=cwd, env={**os.environ, **environment})


def test_trace_and_report(tmp_path: Path) -> None:
    done = _run("-c", PROGRAM, cwd=tmp_path, TORCHJIT_TRACE=str(tmp_path / "trace"))
    assert done.returncode == 0, done.stderr
    done = _run("-m", "torchjit.cli", "report", str(tmp_path / "trace"), "-o", "page.html", cwd=tmp_path)
    assert done.returncode == 0 and "page.html" in done.stdout, done.stderr
    page = (tmp_path / "page.html").read_text()
    for part in ("traced", "TJ-VM", "kernel", "captured", "http-equiv"):
        assert part in page, part
    assert "src=" not in page.replace('src=""', ""), "the page is self-contained"
    missing = _run("-m", "torchjit.cli", "report", "nowhere", cwd=tmp_path)
    assert missing.returncode == 2 and "nowhere" in missing.stderr


def test_info_and_usage(tmp_path: Path) -> None:
    done = _run("-m", "torchjit.cli", "info", cwd=tmp_path)
    assert done.returncode == 0 and "inductor" in done.stdout
    assert _run("-m", "torchjit.cli", "nonsense", cwd=tmp_path).returncode == 2


def test_python_runs_the_package_and_no_command_lists_them(tmp_path: Path) -> None:
    done = _run("-m", "torchjit", cwd=tmp_path)
    assert done.returncode == 2 and "doctor" in done.stderr and "explain" in done.stderr, done.stderr
    assert _run("-m", "torchjit", "--version", cwd=tmp_path).stdout.strip()


SWITCHES = """
import os
del os.environ["TORCHJIT_LOGS"]
os.environ["TORCH_COMPILE_DISABLE"] = "1"
assert torchjit.compile(traced.__wrapped__) is traced.__wrapped__
del os.environ["TORCH_COMPILE_DISABLE"]
os.environ["TORCHJIT_LOGS"] = "graph_break"
torchjit.compile(traced.__wrapped__)
"""


def test_logs_from_the_environment(tmp_path: Path) -> None:
    """Read at each `compile()`: one process shows what several would."""
    program = PROGRAM + SWITCHES
    done = _run("-c", program, cwd=tmp_path, TORCHJIT_LOGS="+graph_breaks,recompiles")
    assert "print" in done.stderr and "recompiles" in done.stderr
    assert done.returncode != 0 and "did you mean 'graph_breaks'" in done.stderr


def test_the_demo_agrees_with_eager(tmp_path: Path) -> None:
    # One thread: two that wait for each other beside another busy process take minutes.
    command = ("-m", "torchjit.cli", "demo", "--small", "--seconds", "0.1", "--device", "cpu")
    done = _run(*command, cwd=tmp_path, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("as eager │") == 4 and "torchjit-report.html" in done.stdout
    # A ratio below 1 never stands alone.
    slower = re.findall(r"│ +0\.\d\dx │", done.stdout)
    assert len(re.findall(r", 0\.\d\dx: .*(noise|library calls|so small)", done.stdout)) >= len(slower)
    assert (tmp_path / "torchjit-report.html").stat().st_size > 100_000


def test_the_demo_says_why_a_ratio_is_below_one() -> None:
    eager = [1.0] * 10
    assert why_not_faster(eager, [1.1] * 5 + [0.9] * 5, 0.1).startswith("noise: ")
    assert "50% of 10 rounds" in why_not_faster(eager, [1.1] * 5 + [0.9] * 5, 0.1)
    assert why_not_faster(eager, [1.1] * 10, 0.9).startswith("90% of eager's time")
    assert "reduce-overhead" in why_not_faster(eager, [1.1] * 10, 0.1)


def test_the_share_of_library_calls_is_measured() -> None:
    big, small = torch.randn(300, 300, requires_grad=True), torch.randn(3)
    assert library_share(lambda: (big @ big @ big).sum().backward(), "cpu") > 0.6
    assert library_share(lambda: small.sin().cos().exp(), "cpu") == 0.0
