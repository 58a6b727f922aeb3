"""The table of docs/learn/comparison.md: five programs in four capture systems of torch and in this one, each beside eager."""

import json
import re
import sys
from pathlib import Path

import forked

PAGE = Path(__file__).parent.parent / "docs" / "learn" / "comparison.md"
RUN = '''
import contextlib, io, json, sys, warnings
warnings.simplefilter("ignore")
import torch, torch._lazy, torch._lazy.ts_backend, torchjit
import programs as P

torch._lazy.ts_backend.init()
ones = torch.ones(4)
CALLS = {
    "branch": [ones, -3 * ones],
    "state": [ones] * 3,
    "speaking": [ones] * 2,
    "sizes": [torch.arange(4.0), torch.arange(8.0), torch.arange(6.0)],
    "library": [torch.arange(4.0), torch.arange(4.0) + 1],
}

def lazily(f):
    def run(x):
        y = f(x.to("lazy"))
        torch._lazy.mark_step()
        return y.cpu()
    return run

SYSTEMS = {
    "torch.jit.script": lambda f, x: torch.jit.script(f),
    "torch.jit.trace": lambda f, x: torch.jit.trace(f, (x,), check_trace=False),
    "torch.fx.symbolic_trace": lambda f, x: torch.fx.symbolic_trace(f),
    "torch._lazy": lambda f, x: lazily(f),
    "torchjit.compile": lambda f, x: torchjit.compile(f, on_error="raise"),
}

def observed(f, inputs):
    """Results, what was printed, and the program's state after the calls."""
    P.history.clear(), P.counts.update(calls=0)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        results = [f(x.clone()) for x in inputs]
    return results, (said.getvalue(), list(P.history), dict(P.counts))

def equal(got, want):
    return got[1] == want[1] and all(torch.equal(a, b) for a, b in zip(got[0], want[0]))

table = {}
for name, inputs in CALLS.items():
    f = getattr(P, name)
    want = observed(f, inputs)
    for system, make in SYSTEMS.items():
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                made = make(f, inputs[0].clone())
            outcome = "right" if equal(observed(made, inputs), want) else "wrong"
        except Exception as error:
            outcome = "error"
        table[f"{name} {system}"] = outcome
print(json.dumps(table))
'''


def test_the_table_says_what_happens(tmp_path: Path) -> None:
    page = PAGE.read_text()
    block = re.search(r"^```python\n(.*?)^```", page, re.M | re.S)
    assert block is not None
    (tmp_path / "programs.py").write_text(block[1])
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    systems = [cell.strip("`") for cell in rows[0][1:]]
    shown = {}
    for row in rows[2:]:
        name = row[0].split("`")[1]
        shown |= {f"{name} {system}": re.split(r"\W", cell)[0] for system, cell in zip(systems, row[1:], strict=True)}
    assert len(shown) == 25
    done = forked.run([sys.executable, "-c", RUN], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == shown
