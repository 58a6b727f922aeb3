"""A debugger that a compiled function calls shows the line and the locals of the program."""

import sys
from pathlib import Path

import forked
import pytest

PROGRAM = """import io, pdb, sys, types
import torch, torchjit

COMMANDS = 'p ("dead", dead.item())|p ("y", y.item())|n|n|p ("z", z.item())|c|'.replace("|", chr(10))
ipdb = types.ModuleType("ipdb")  # a debugger as packages write them
exec('''
import pdb, sys
def make():
    return pdb.Pdb(stdin=sys.stdin, stdout=sys.stdout)
def set_trace(frame=None, condition=True):
    if condition:
        make().set_trace(sys._getframe().f_back if frame is None else frame)
''', ipdb.__dict__)

@torchjit.compile(backend="eager")
def f(x):
    dead = x + 40
    y = x * 2
    STOP
    z = y + 1
    return z

for _ in range(2):
    sys.stdin = io.StringIO(COMMANDS)
    assert f(torch.tensor(1.0)).item() == 3
(broken,) = f.compiled.stats.breaks
assert broken.reason_id == "TJ-VM-017", broken
"""


@pytest.mark.parametrize("stop", ["breakpoint()", "pdb.set_trace()", "ipdb.set_trace()"])
def test_a_debugger_shows_what_the_program_holds(stop: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("STOP", stop))
    done = forked.run([sys.executable, str(program)])
    assert done.returncode == 0, done.stderr + done.stdout
    for told in ("('dead', 41.0)", "('y', 2.0)", "('z', 3.0)", "f()", "-> z = y + 1"):
        assert done.stdout.count(told) >= 2, done.stdout
