"""Generated programs of views, in-place operators, no_grad regions, detach and dropout, against eager PyTorch."""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F
from aot_harness import fresh, run_both
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from torchjit_aot import AotSettings
from torchjit_core.reasons import GraphBreak

Step = tuple[str, int, int, int]

UNARY = [torch.sin, torch.exp, torch.tanh, torch.relu, lambda t: t * 2, lambda t: t.clone(), lambda t: t.sum(0)]
BINARY = [torch.add, torch.mul, lambda a, b: a - b.sigmoid(), torch.maximum]
VIEWS = [
    lambda t: t.t() if t.dim() == 2 else t.unsqueeze(0),
    lambda t: t[0] if t.dim() else t.view(1),
    lambda t: t[1:] if t.dim() and t.shape[0] > 1 else t.unsqueeze(-1),
    lambda t: t.reshape(-1),
    lambda t: t[..., ::2] if t.dim() else t.expand(2),
    lambda t: t.unsqueeze(1) if t.dim() else t.view(1),
    lambda t: t.split(1, 0)[-1] if t.dim() else t.view(1),
    lambda t: t.diagonal() if t.dim() == 2 else t.view(t.shape),
    lambda t: t.detach(),
    lambda t: t.unbind(0)[0] if t.dim() else t.view(1),
    lambda t: t.movedim(0, -1) if t.dim() else t.view(1),
]
WRITES = [
    lambda t, o: t.add_(1.5),
    lambda t, o: t.mul_(o) if o.shape == t.shape else t.mul_(0.5),
    lambda t, o: t.copy_(o) if o.shape == t.shape else t.copy_(o.mean()),
    lambda t, o: t.zero_(),
    lambda t, o: t.fill_(2.0),
    lambda t, o: t.tanh_(),
    lambda t, o: t.add_(o.sum()),
    lambda t, o: t.masked_fill_(t > 0.5, 0.25),
]

RESHAPES = [
    lambda t: t.t_() if t.dim() == 2 else t.unsqueeze_(0),
    lambda t: t.unsqueeze_(-1),
    lambda t: t.squeeze_(),
    lambda t: t.transpose_(0, -1) if t.dim() else t.unsqueeze_(0),
]
"""Changes of sizes and strides in place."""


def execute(steps: list[Step], picks: list[int], pool: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Run a program. Which tensors a step takes depends on the numbers alone."""
    with contextlib.ExitStack() as stack:
        for kind, a, b, c in steps:
            x, y = pool[a % len(pool)], pool[b % len(pool)]
            if kind == "unary":
                pool.append(UNARY[c % len(UNARY)](x))  # type: ignore[no-untyped-call]
            elif kind == "binary":
                same = [t for t in pool if t.shape == x.shape]
                pool.append(BINARY[c % len(BINARY)](x, same[b % len(same)]))  # type: ignore[operator]
            elif kind == "view":
                pool.append(VIEWS[c % len(VIEWS)](x))
            elif kind == "write":
                WRITES[c % len(WRITES)](x, y)
            elif kind == "reshape":
                RESHAPES[c % len(RESHAPES)](x)
            elif kind == "dropout":
                pool.append(F.dropout(x, 0.5))
            elif kind == "no_grad":
                stack.enter_context(torch.no_grad() if c % 2 else torch.enable_grad())
            elif kind == "leave":
                stack.close()
    return tuple(pool[p % len(pool)] for p in picks)


KINDS = [
    "unary",
    "binary",
    "binary",
    "view",
    "view",
    "view",
    "write",
    "write",
    "write",
    "reshape",
    "dropout",
    "no_grad",
    "leave",
]
small = st.integers(0, 30)
programs = st.tuples(
    st.lists(st.tuples(st.sampled_from(KINDS), small, small, small), min_size=1, max_size=9),
    st.lists(small, min_size=1, max_size=4),
    st.integers(0, 15),
)


def arguments(kinds: int) -> list[torch.Tensor]:
    """Three tensors: leaves, others, transposed ones; from 8 on all are views of one, some next to a leaf."""
    generator = torch.Generator().manual_seed(kinds)
    if kinds >= 8:
        base = torch.randn(6, 4, generator=generator)
        views = [base[:3], base[3:], base[1:4], base.view(4, 6)[:, 1:4].t(), base.view(-1)[::2].view(3, 4)]
        chosen = [views[kinds % 5], views[kinds * 2 % 5]]
        return [*chosen, torch.randn(3, 4, generator=generator).requires_grad_(kinds % 2 == 0)]
    made = []
    for i in range(3):
        t = torch.randn(3, 4, generator=generator)
        if (kinds + i) % 4 == 1:
            t = t.requires_grad_()
        elif (kinds + i) % 4 == 2:
            t = t.requires_grad_() * 1.0
        elif (kinds + i) % 4 == 3:
            t = t.t().contiguous().t()
        made.append(t)
    return made


def check(program: tuple[list[Step], list[int], int]) -> str:
    """Compare; returns what became of the program."""
    steps, picks, kinds = program
    args = arguments(kinds)

    def f(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return execute(steps, picks, list(inputs))

    mine, _ = fresh(args)
    try:
        outputs = f(*mine)
        loss = sum((o.sum() for o in outputs if o.requires_grad), torch.zeros(()))
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
    except RuntimeError:
        return "eager raises"
    with contextlib.suppress(GraphBreak):
        run_both(f, args, calls=1)
        return "compiled"
    run_both(f, args, calls=1, settings=AotSettings())
    return "fallback"


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs)
def test_programs_equal_eager(program: tuple[list[Step], list[int], int]) -> None:
    assume(check(program) != "eager raises")


def test_programs_that_were_wrong_once() -> None:
    assert (
        check(([("no_grad", 21, 7, 30), ("dropout", 10, 30, 0), ("write", 30, 28, 20)], [1, 7, 7, 20], 4)) == "compiled"
    )
    # A detached view of one of split's results is written: the node of the result cannot be read any more.
    steps = [("unary", 0, 0, 0), ("view", 1, 0, 28), ("view", 24, 0, 30), ("write", 29, 0, 0)]
    assert check((steps, [29], 0)) != "eager raises"
    # A view of an input changes its sizes in place: that moves the input's version.
    assert check(([("view", 1, 5, 29), ("reshape", 27, 5, 10), ("unary", 28, 27, 26)], [30, 28], 2)) == "compiled"
    # Inputs with gaps overlap, and one is written while the other is read: what eager PyTorch gives depends on its loops.
    assert check(([("write", 30, 25, 9)], [28], 8)) == "fallback"
    # An item of a list of views changes its sizes in place and is written.
    steps = [("unary", 1, 6, 17), ("view", 8, 30, 9), ("reshape", 24, 19, 13), ("write", 4, 3, 8)]
    assert check((steps, [30], 8)) == "compiled"
    # One of two views of a tensor is transposed in place, which moves the version of what the backward of the other reads.
    steps = [("binary", 0, 14, 0), ("reshape", 1, 0, 0), ("unary", 0, 0, 0), ("unary", 13, 0, 0)]
    assert check((steps, [29], 8)) == "fallback"
    # A detached view of an input changes its sizes, which moves the version of what nobody but the recomputation would read.
    steps = [("binary", 17, 18, 2), ("view", 12, 2, 19), ("dropout", 30, 18, 19), ("reshape", 22, 17, 21)]
    assert check((steps, [27], 2)) == "compiled"
    steps = [
        ("view", 22, 2, 23),
        ("view", 1, 5, 30),
        ("binary", 21, 17, 8),
        ("unary", 19, 29, 10),
        ("reshape", 4, 30, 16),
    ]
    assert check(([*steps, ("dropout", 12, 27, 13)], [30], 1)) != "eager raises"
    # The same, read by an operator that comes after the change: what it saves is of the moved version.
    steps = [
        ("view", 23, 0, 20),
        ("binary", 16, 3, 0),
        ("unary", 4, 19, 0),
        ("reshape", 3, 10, 7),
        ("binary", 18, 27, 21),
    ]
    steps += [("binary", 7, 7, 11), ("binary", 26, 7, 15), ("binary", 7, 23, 17)]
    assert check((steps, [28], 6)) == "compiled"
    # A copy of an input, seen through the view without a mark that `reshape` makes, is returned; then the input is written.
    steps = [("view", 16, 12, 14), ("view", 16, 16, 14), ("write", 29, 23, 2), ("write", 22, 2, 24)]
    assert check((steps, [4], 13)) == "compiled"
