"""`torch.cond`, `while_loop` and `scan` with conditions that only the run knows: one graph, and eager PyTorch's results."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

from typing import Any

import pytest
import torch
from compare import check
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import torchjit
from torchjit_core.events import listen

WEIGHT = torch.linspace(-1, 1, 16).reshape(4, 4)


def _nested(x):
    return torch.cond(
        x.sum() > 0,
        lambda a: torch.cond(a.mean() > 1, lambda b: b * 2, lambda b: b * x, (a,)),
        lambda a: a.cos() * x[0],
        (x,),
    )


def _with_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = torch.cond(x.sum() > 0, lambda a: a @ WEIGHT, lambda a: WEIGHT @ a, (x,))
    return y.float() + 1


def _reversed_scan(x):
    def step(state, row):
        return {"h": (state["h"] @ WEIGHT).tanh() + row}, (state["h"] * row, row.exp())

    return scan(step, {"h": x[:, 0].clone()}, x, dim=1, reverse=True)


# What each is, in Python: eager `torch.cond` and its like would compile with torch.compile.
PROGRAMS = {
    "cond": (
        lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) + 1,
        lambda x: (x.sin() if x.sum() > 0 else x.cos()) + 1,
    ),
    "cond with closures": (
        lambda x: torch.cond(x.sum() > 0, lambda: (x * 2 + WEIGHT, x[0].sum()), lambda: (x.cos(), x[1, 1] * 1)),
        lambda x: (x * 2 + WEIGHT, x[0].sum()) if x.sum() > 0 else (x.cos(), x[1, 1] * 1),
    ),
    "cond gives a tree": (
        lambda x: torch.cond(x.sum() > 0, lambda a: {"p": a.sin(), "q": [a * x]}, lambda a: {"p": a * 3, "q": [a + 1]}, (x,)),
        lambda x: {"p": x.sin(), "q": [x * x]} if x.sum() > 0 else {"p": x * 3, "q": [x + 1]},
    ),
    "cond in cond": (
        _nested,
        lambda x: (x * 2 if x.mean() > 1 else x * x) if x.sum() > 0 else x.cos() * x[0],
    ),
    "cond writes what it made": (
        lambda x: torch.cond(x.sum() > 0, lambda a: a.clone().mul_(a).add_(1), lambda a: a * 1, (x,)),
        lambda x: x * x + 1 if x.sum() > 0 else x * 1,
    ),
    "cond twice, one after the other": (
        lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (torch.cond(x[0, 0] > 0, torch.exp, torch.tanh, (x,)),)),
        lambda x: (torch.sin if x.sum() > 0 else torch.cos)((torch.exp if x[0, 0] > 0 else torch.tanh)(x)),
    ),
    "cond under autocast": (
        _with_autocast,
        lambda x: ((x.bfloat16() @ WEIGHT.bfloat16()) if x.sum() > 0 else (WEIGHT.bfloat16() @ x.bfloat16())).float() + 1,
    ),
}  # fmt: skip


def _while_in_python(x):
    i, a = torch.tensor(0), x
    while i < 5 and a.sum().abs() < 100:
        i, a = i + 1, a * 1.5 + x[0] + WEIGHT
    return i.clone(), a.clone()


LOOPS = {
    "while_loop": (
        lambda x: while_loop(
            lambda i, a: (i < 5) & (a.sum().abs() < 100),
            lambda i, a: (i + 1, a * 1.5 + x[0] + WEIGHT),
            (torch.tensor(0), x),
        ),
        _while_in_python,
    ),
    "scan": (
        lambda x: scan(lambda c, r: (c + r * c, (c * r).sum()), x[0].clone(), x),
        lambda x: _scan_in_python(lambda c, r: (c + r * c, (c * r).sum()), x[0].clone(), x),
    ),
    "scan with a cond in it": (
        lambda x: scan(lambda c, r: (torch.cond(c.sum() > 0, torch.sin, torch.exp, (c,)), c * r), x[0].clone(), x),
        lambda x: _scan_in_python(lambda c, r: (c.sin() if c.sum() > 0 else c.exp(), c * r), x[0].clone(), x),
    ),
    "scan of trees, reversed": (_reversed_scan, lambda x: _reversed_in_python(x)),
}


# For the compiler they are all one operator; three of them are compiled.
CASES = [
    *[(name, backend) for name in (*PROGRAMS, *LOOPS) for backend in ("eager", "aot_eager")],
    *[(name, "inductor") for name in ("cond with closures", "while_loop", "scan of trees, reversed")],
]


def _scan_in_python(step, state, xs):
    outputs = []
    for row in xs:
        state, out = step(state, row)
        outputs.append(out)
    return state, torch.stack(outputs)


def _reversed_in_python(x):
    h, made = x[:, 0].clone(), []
    for i in reversed(range(x.shape[1])):
        row = x[:, i]
        made.insert(0, (h * row, row.exp()))
        h = (h @ WEIGHT).tanh() + row
    first, second = zip(*made, strict=True)
    return {"h": h}, (torch.stack(first, 1), torch.stack(second, 1))


def _inputs(grad):
    torch.manual_seed(4)
    tensors = [torch.randn(4, 4), torch.full((4, 4), 2.0), torch.full((4, 4), -1.0), torch.randn(4, 4)]
    return [t.requires_grad_(grad) for t in tensors]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("grad", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize(("name", "backend"), CASES)
def test_captured_whole(name, backend, grad):
    f, meaning = {**PROGRAMS, **LOOPS}[name]
    compiled: Any = torchjit.compile(f, backend=backend, fullgraph=True)
    for x in _inputs(grad):
        check(compiled, meaning, x, backward=grad)
    assert len(compiled.compiled.specializations) == 1


def test_no_stage_falls_back():
    found = []
    compiled = torchjit.compile(PROGRAMS["cond with closures"][0], backend="inductor", fullgraph=True)
    with listen(lambda kind, fields: found.append(fields) if kind == "fallback" else None):
        compiled(torch.randn(4, 4, requires_grad=True))[0].sum().backward()
    assert not found


def test_second_derivatives():
    f, meaning = PROGRAMS["cond in cond"]
    compiled = torchjit.compile(f, backend="eager", fullgraph=True)

    def second(function, x):
        (first,) = torch.autograd.grad(function(x).pow(2).sum(), x, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), x)[0]

    for x in _inputs(True):
        torch.testing.assert_close(second(compiled, x), second(meaning, x))


def test_parameters_of_modules_get_their_gradients():
    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return torch.cond(x.sum() > 0, self.a, self.b, (x,))

    model = Gate()
    compiled = torchjit.compile(model, backend="aot_eager", fullgraph=True)
    for x in _inputs(False)[1:3]:
        model.zero_grad()
        compiled(x).sum().backward()
        taken, other = (model.a, model.b) if x.sum() > 0 else (model.b, model.a)
        torch.testing.assert_close(taken.weight.grad, x.sum(0).expand(4, 4))
        assert other.weight.grad.count_nonzero() == 0  # as for eager `torch.cond`: both branches take part


def test_sizes_that_vary():
    def f(x):
        return torch.cond(x.sum() > 0, lambda a: a * a.shape[0], lambda a: a.view(-1).sin().view(a.shape), (x,))

    compiled: Any = torchjit.compile(f, backend="aot_eager", fullgraph=True, dynamic=True)
    for n in (3, 5, 7):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), x * n if x.sum() > 0 else x.sin())
    assert len(compiled.compiled.specializations) == 1


def test_a_condition_on_sizes_chooses_in_python():
    compiled = torchjit.compile(
        lambda x: torch.cond(x.shape[0] > 4, lambda a: a.sin(), lambda a: a.cos(), (x,)), backend="eager", dynamic=True
    )
    for n in (3, 5, 7):
        x = torch.randn(n)
        assert torch.equal(compiled(x), x.sin() if n > 4 else x.cos())


log: list[int] = []


def _writes_an_operand(a):
    return a.add_(1)


def _logs(a):
    log.append(1)
    return a * 2


def _draws(a):
    return a + torch.rand(4, 4)


def _other_shape(a):
    return a[0]


def _other_type(a):
    return a.double()


def _a_number(a):
    return 3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "branch", [_writes_an_operand, _logs, _draws, _other_shape, _other_type, _a_number], ids=lambda f: f.__name__
)
def test_what_is_no_graph_behaves_as_in_eager_mode(branch):
    def f(x):
        return torch.cond(x.sum() > 0, branch, lambda a: a.cos(), (x.clone(),))

    def outcome(function, x):
        log.clear()
        torch.manual_seed(3)
        try:
            return function(x), list(log)
        except Exception as error:
            return type(error).__name__, list(log)

    compiled = torchjit.compile(f, backend="eager")
    x = torch.ones(4, 4)
    for _ in range(2):
        got, want = outcome(compiled, x), outcome(f, x)
        assert got[1] == want[1]
        if isinstance(want[0], torch.Tensor):
            torch.testing.assert_close(got[0], want[0])
        else:
            assert got[0] == want[0]
