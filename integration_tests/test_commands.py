"""The commands that look at a machine or at a script, as a user runs them; tables in this process, scripts in their own."""

# mypy: allow-untyped-defs

from __future__ import annotations

import copy
import sys
import warnings
from pathlib import Path

import forked
import pytest
import torch
from torch import nn

import torchjit
from torchjit.cli import main
from torchjit.commands import COMMANDS, doctor
from torchjit.config import describe_settings
from torchjit.environment import VARIABLES
from torchjit.options import describe_modes, describe_options
from torchjit_report.logs import describe_logs, log_names

SCRIPT = """
import sys
import torch

@torch.compile
def step(x):
    y = x.sin()
    print("seen", sys.argv[1:])
    return y.cos().sum()

model = torch.compile(torch.nn.Linear(4, 4))
for _ in range(8):
    step(model(torch.ones(2, 4))).backward()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("backends", ["inductor", "openvino", "pip install openvino"]),
        ("modes", ["reduce-overhead", "triton.cudagraphs=True"]),
        ("options", ["freezing", "activation_memory_budget", "1.0"]),
        ("logs", ["graph_breaks", "TORCHJIT_LOGS"]),
        ("info", ["torch", torch.__version__]),
        ("reasons", ["TJ-VM-002", "call of a C function that the VM does not know", "torchjit reasons ID"]),
    ],
)
def test_tables(command, told, capsys):
    assert main([command]) == 0
    out = capsys.readouterr().out
    for text in told:
        assert text in out


@pytest.mark.parametrize("spelling", ["TJ-VM-002", "vm-002", "TJ-VM-002:"])
def test_a_reason_by_its_id(spelling, capsys):
    assert main(["reasons", spelling]) == 0
    out = capsys.readouterr().out
    assert out.startswith("TJ-VM-002: call of a C function")
    assert "only runs those during capture that it knows to be pure" in out  # the explanation
    assert "hint: Move the call out of the compiled region." in out


def test_several_reasons_and_one_that_does_not_exist(capsys):
    assert main(["reasons", "TJ-IND-003", "TJ-CG-008"]) == 0
    assert [line[:10] for line in capsys.readouterr().out.splitlines() if line.startswith("TJ-")] == [
        "TJ-IND-003",
        "TJ-CG-008:",
    ]
    assert main(["reasons", "TJ-IMD-003"]) == 2
    assert "TJ-IND-003" in capsys.readouterr().err
    assert main(["reasons", "everything"]) == 2
    assert "is no reason id" in capsys.readouterr().err


def test_everything_is_described():
    assert [each.name for each in describe_options()] == torchjit.list_options()
    assert [name for name, _, _ in describe_modes()] == list(torchjit.list_mode_options())
    for each in (*describe_options(), *describe_settings(), *VARIABLES):
        assert each.name and each.takes and each.meaning
    assert sorted(describe_logs()) == log_names()
    assert all(c.HELP for c in COMMANDS.values())


def test_doctor(capsys, monkeypatch, tmp_path):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for what in (
        "Python",
        "torch",
        "packages",
        "Triton",
        "cache",
        "C++ compiler",
        "Everything that is needed is there",
    ):
        assert what in out
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    switched = {f.what: f for f in doctor.findings()}["settings"]
    assert switched.state == "note" and "TORCH_COMPILE_DISABLE" in switched.detail and switched.cure


def test_doctor_tells_that_sources_are_compiled_in_each_process(monkeypatch, tmp_path):
    kept = tmp_path / "torch.pyc"
    kept.touch()
    for module in (torch, torchjit):
        monkeypatch.setattr(module.__spec__, "cached", str(kept))
    assert not list(doctor._bytecode())
    monkeypatch.setattr(torch.__spec__, "cached", str(tmp_path / "there is none"))
    (found,) = doctor._bytecode()
    assert (
        found.state == "note"
        and "none is kept of torch: each" in found.detail
        and "UV_COMPILE_BYTECODE=1" in found.cure
    )


def test_doctor_names_a_missing_compiler(tmp_path):
    """In a process of its own: what was found before stays found."""
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "TORCHJIT_CACHE_DIR": str(tmp_path / "cache")}
    done = forked.run([sys.executable, "-m", "torchjit.cli", "doctor"], env=environment)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "fail  C++ compiler" in done.stdout and "CXX" in done.stdout


def test_explain_a_script(script, capsys):
    assert main(["explain", str(script), "one", "two"]) == 0
    out = capsys.readouterr().out
    assert "seen ['one', 'two']" in out and "Graph breaks: 1" in out and "Linear" in out
    assert f'File "{script}", line 8, in step' in out
    assert main(["explain", "nowhere.py"]) == 2


def test_explain_and_bench_a_module(tmp_path, capfd, monkeypatch):
    """As `python -m` finds and runs it: relative imports, the folder that one is in, a package by its `__main__`."""
    package = tmp_path / "a_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "layers.py").write_text("def double(x):\n    return x * 2\n")
    text = """import sys
import torch
from .layers import double

f = torch.compile(double)
for _ in range(6):
    f(torch.ones(2))
print("seen", sys.argv[1:], __name__, __spec__.name)
"""
    for name in ("train.py", "__main__.py"):
        (package / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    for name, spec in (("a_package.train", "a_package.train"), ("a_package", "a_package.__main__")):
        before = sys.path[:], sys.argv[:]
        assert main(["explain", "-m", name, "--epochs", "2"]) == 0
        out = capfd.readouterr().out
        assert f"seen ['--epochs', '2'] __main__ {spec}" in out and "Graphs: 1 " in out and f"explain -m {name}" in out
        assert (sys.path, sys.argv) == before
    assert main(["bench", "--compilers", "eager", "torchjit", "-m", "a_package.train"]) == 0
    assert "1.00x" in capfd.readouterr().out
    assert main(["explain", "-m", "a_package.nothing"]) == 2
    assert "there is no module a_package.nothing" in capfd.readouterr().err


def test_explain_a_script_that_raises(tmp_path, capsys):
    path = tmp_path / "bad.py"
    path.write_text("import torch\n\nf = torch.compile(lambda x: x + 1)\nf(torch.ones(2))\nraise ValueError('mine')\n")
    assert main(["explain", str(path)]) == 1
    told = capsys.readouterr()
    assert "ValueError: mine" in told.err and "runpy" not in told.err and "Graphs: 1" in told.out
    path.write_text("print(1)")
    assert main(["explain", str(path)]) == 0 and "nothing was compiled" in capsys.readouterr().out


def test_bench(script, capfd):
    assert main(["bench", "--compilers", "eager", "torchjit", "--", str(script)]) == 0
    out = capfd.readouterr().out
    assert "1.00x" in out and "torchjit" in out and " 7 " in out


def test_what_a_library_puts_over_torch_compile_stays():
    """And is told of: it calls torchjit still. What was there before the block, or is put back by its own manager, is no matter."""
    before = torch.compile

    def wrapping(*args, **kwargs):
        return under(*args, **kwargs)

    try:
        with pytest.warns(RuntimeWarning, match=r"TJ-API-075.*wrapping") as told, torchjit.replace_torch_compile():
            under = torch.compile
            torch.compile = wrapping
        assert torch.compile is wrapping and told[0].filename == __file__
        with torchjit.replace_torch_compile():
            assert torch.compile is torchjit.compile
        assert torch.compile is wrapping

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.compile = before
            with torchjit.replace_torch_compile(), torchjit.replace_torch_compile():
                torch.compile = wrapping
                torch.compile = torchjit.compile
            assert torch.compile is before
            first, second = torchjit.replace_torch_compile(), torchjit.replace_torch_compile()
            first.__exit__()
            second.__exit__()
            assert torch.compile is before
            with torchjit.replace_torch_compile():
                torch.compile = before
            assert torch.compile is before
    finally:
        torch.compile = before


def test_replace_torch_compile():
    before = torch.compile
    with torchjit.replace_torch_compile():
        assert torch.compile is torchjit.compile
        model = nn.Linear(3, 3)
        reference = copy.deepcopy(model)
        model.compile(backend="eager")
        x = torch.ones(2, 3)
        torch.testing.assert_close(model(x), reference(x))
        decorated = torch.compile(backend="eager")(lambda x: x + 1)
        assert decorated.compiled is not None
    assert torch.compile is before
    torchjit.replace_torch_compile()
    try:
        assert torch.compile is torchjit.compile
    finally:
        torch.compile = before
