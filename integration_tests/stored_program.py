"""A program that is run twice over one cache folder by `test_store_sessions`: the second process finds all of it on disk.

Each case compares with eager PyTorch. What is printed at the end is what the store did, by case.
"""

from __future__ import annotations

import functools
import json
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

import torchjit
from torchjit_core import events

CASES: dict[str, Callable[[], None]] = {}
SCALE = 3.0
HELPERS: dict[str, Any] = {"shift": 2}


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES[function.__name__] = function
    return function


def compared(f: Any, *args: Any, **kwargs: Any) -> Any:
    """A compiled callable, after a call of it was compared with eager: results, and what it did to its arguments."""
    mine = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    theirs = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    compiled = torchjit.compile(f)
    torch.testing.assert_close(compiled(*mine, **kwargs), f(*theirs, **kwargs))
    torch.testing.assert_close(mine, theirs)
    return compiled


def data(*sizes: int) -> torch.Tensor:
    return torch.linspace(-1.0, 1.0, int(torch.tensor(sizes).prod())).reshape(sizes)


# ------------------------------------------------------------------ functions
def scaled(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
    return x.sin() * by + SCALE


@case
def functions_with_defaults_and_globals() -> None:
    compared(lambda x: scaled(x) + HELPERS["shift"], data(4, 8))
    compared(scaled, data(4, 8), by=4.0)


@torchjit.compile
def _compiled(x: torch.Tensor) -> torch.Tensor:
    return x.cos() * SCALE


class _Parts(nn.Module):
    """Compiled in parts, as a method, a forward and a module in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.GELU())
        self.whole: Any = torchjit.compile(nn.Sequential(nn.Linear(4, 4)))
        self.second.forward = torchjit.compile(self.second.forward)  # type: ignore[method-assign]

    @torchjit.compile
    def part(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x).relu()

    def forward(self, x: torch.Tensor) -> Any:
        return self.whole(self.second(self.part(x)))


_PARTS = _Parts()


@case
def compiled_functions_that_call_compiled_ones() -> None:
    compared(lambda x: _compiled(x) + 1, data(3, 4))
    with torch.no_grad():
        compared(_PARTS, data(3, 4))
        compared(lambda x: _PARTS.whole(x).sum(), data(3, 4))


@case
def closures() -> None:
    def outer(k: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def inner(x: torch.Tensor) -> torch.Tensor:
            return x * k + len(kept)

        return inner

    kept = [1, 2]
    compared(outer(5), data(3))
    compared(functools.partial(scaled, by=7.0), data(3))


@case
def arguments_of_all_kinds() -> None:
    def f(x: torch.Tensor, *more: Any, flag: bool = False, **named: Any) -> Any:
        y = x + sum(more)
        return {"y": y, **named} if flag else (y, more)

    compared(f, data(3), 1, 2.5)
    compared(f, data(3), flag=True, a=data(2), b=3)


@case
def results_that_share_objects() -> None:
    def f(x: torch.Tensor, items: list[Any]) -> Any:
        y = x.exp()
        items.append(y)
        return {"y": y, "again": y, "items": items}

    items: list[Any] = []
    made = torchjit.compile(f)(data(3), items)
    assert made["y"] is made["again"] and made["items"] is items and items[0] is made["y"]


@case
def mutated_inputs_and_views() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.add_(1)
        y[0] = x.sum()
        return x.t(), y[1:]

    compared(f, data(4, 3), data(5))


@case
def varying_sizes() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1) * x.shape[0]

    compiled = compared(f, data(4, 8))
    for n in (5, 6, 9):
        torch.testing.assert_close(compiled(data(n, 8)), f(data(n, 8)))


@case
def modes_of_torch() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ x.t()).relu()

    weight = data(4, 4).requires_grad_()
    compiled = torchjit.compile(f)
    for mode in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16)):
        with mode:
            made, wanted = compiled(weight), f(weight)
        torch.testing.assert_close(made, wanted, rtol=2e-2, atol=2e-2)
        assert made.requires_grad == wanted.requires_grad and made.dtype == wanted.dtype
        if made.requires_grad:
            made.sum().backward()


@case
def random_numbers() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.5) + torch.rand(3)

    compiled = torchjit.compile(f)
    for seed in (1, 2):
        torch.manual_seed(seed)
        made = compiled(data(8, 3))
        torch.manual_seed(seed)
        torch.testing.assert_close(made, f(data(8, 3)))


@case
def errors_of_operations() -> None:
    def f(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x[index] + 1

    compiled = compared(f, data(4), torch.tensor([1, 2]))
    try:
        compiled(data(4), torch.tensor([1, 9]))
    except IndexError:
        return
    raise AssertionError("no error")


@case
def exceptions_of_the_program() -> None:
    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        if n > 3:
            raise ValueError(f"{n} is too much")
        return x + n

    try:
        torchjit.compile(f)(data(3), 7)
    except ValueError as error:
        assert str(error) == "7 is too much" and error.__traceback__ is not None
        lines = [error.__traceback__]
        while lines[-1].tb_next is not None:
            lines.append(lines[-1].tb_next)
        assert lines[-1].tb_frame.f_code.co_filename == __file__
        assert lines[-1].tb_lineno == f.__code__.co_firstlineno + 2
        return
    raise AssertionError("no error")


# ------------------------------------------------------------------ graph breaks
@case
def breaks_and_continuations() -> None:
    seen: list[float] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        seen.append(float(y.sum()))
        with torch.no_grad():
            y = y + 1
            torchjit.graph_break()
            y = y.cos()
        return y + len(seen)

    made = torchjit.compile(f)(data(4))
    seen.clear()
    torch.testing.assert_close(made, f(data(4)))


def called_at_a_break(x: torch.Tensor) -> torch.Tensor:
    return x.tanh() + 1


@case
def functions_called_at_breaks() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        for y in map(called_at_a_break, generated(x)):
            x = x + y
        return x

    def generated(x: torch.Tensor) -> Iterator[torch.Tensor]:
        yield x
        torchjit.graph_break()
        yield x + 1

    compared(f, data(4))


@case
def breaks_at_functions_of_numpy() -> None:
    def f(x: Any) -> Any:
        return np.cumsum(x, axis=0) * 2 + np.linalg.norm(x)

    compared(f, np.ones((3, 4)))
    compared(lambda x: torch.as_tensor(np.interp(x.numpy(), [0, 1], [0, 2])) * x, data(4))


class Tripled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 3

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor) -> torch.Tensor:
        return tangent * 3


@case
def breaks_at_autograd_functions_under_transforms() -> None:
    compared(lambda x: torch.func.jvp(Tripled.apply, (x,), (x,)), data(4))


# ------------------------------------------------------------------ modules
class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.calls = 0

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        self.calls += 1
        return x + self.down(nn.functional.gelu(self.up(self.norm(x)))) * scale


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(Block(8), Block(8), nn.BatchNorm1d(8))


@case
def modules() -> None:
    eager, mine = Block(8), Block(8)
    mine.load_state_dict(eager.state_dict())
    compiled = torchjit.compile(mine)
    for _ in range(3):
        with torch.no_grad():
            torch.testing.assert_close(compiled(data(4, 8), scale=2.0), eager(data(4, 8), scale=2.0))
    assert mine.calls == eager.calls == 3


@case
def training() -> None:
    eager, mine = model(), model()
    compiled = torchjit.compile(mine)
    for net, call in ((eager, eager), (mine, compiled)):
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for step in range(3):
            optimizer.zero_grad()
            call(data(6, 8) + step).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(mine.state_dict(), eager.state_dict())


@case
def optimizers() -> None:
    weights = [nn.Parameter(data(3)), nn.Parameter(data(3))]
    for weight, compile_it in zip(weights, (False, True), strict=True):
        optimizer = torch.optim.AdamW([weight], 0.1)
        step: Any = torchjit.compile(optimizer.step) if compile_it else optimizer.step
        for _ in range(3):
            weight.grad = weight.detach() * 2
            step()
    torch.testing.assert_close(weights[1], weights[0])


@case
def losses_of_some_outputs() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        return (x * w).sin(), (x + w).cos()

    for picks in ((0,), (1,), (0, 1)):
        x, w = data(5).requires_grad_(), (data(5) + 1).requires_grad_()
        compiled = torchjit.compile(f)
        grads = []
        for call in (compiled, f):
            outputs = call(x, w)
            grads.append(torch.autograd.grad(sum(outputs[k].sum() for k in picks), (x, w)))
        torch.testing.assert_close(*grads)


@torch.library.custom_op("torchjit_stored::scale", mutates_args=("x",))
def scale_(x: torch.Tensor, by: float) -> None:
    x.mul_(by)


@case
def operators_that_write() -> None:
    """Such an operator has a functional twin, which the first process defines while it traces."""

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        scale_(y, 3.0)
        return y + 1

    compared(f, data(4))
    compared(lambda x: scale_(x, 2.0) or x.sum(), data(4))


@case
def backwards_at_breaks() -> None:
    """What stores the entry when its backward is compiled runs below the break; nothing of it is compiled."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = (x * w).sin()
        y.sum().backward()
        return y.detach() + 1

    results = []
    for call in (torchjit.compile(f), f):
        w = (data(5) + 1).requires_grad_()
        results.append((call(data(5), w), w.grad))
    torch.testing.assert_close(*results)


@case
def hooks_of_modules_and_tensors() -> None:
    block, seen = nn.Linear(4, 4), []
    block.register_forward_hook(lambda module, args, out: seen.append(1) or out * 2)
    with torch.no_grad():
        compared(block, data(2, 4))
    assert len(seen) == 2


@case
def control_flow_over_tensors() -> None:
    def choice(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda a: a.sin() * SCALE, lambda a: a.cos(), (x,))

    def loop(x: torch.Tensor) -> torch.Tensor:
        return torch.while_loop(lambda a: a.sum() < 9, lambda a: (choice(a) + 4,), (x,))[0]

    def rows(x: torch.Tensor) -> torch.Tensor:
        def step(total: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return total + row, (total.unsqueeze(0) @ row.unsqueeze(1)).float()

        return torch.cat([r.flatten() for r in torch._higher_order_ops.scan(step, x[0], x)])

    def below_a_break(x: torch.Tensor) -> torch.Tensor:
        print(end="")
        return choice(-x)

    for f in (choice, loop, rows, below_a_break):
        compared(f, data(2, 4) + 1)
    results = []
    for call in (torchjit.compile(choice), choice):
        for shift in (2, -2):
            x = (data(2, 4) + shift).requires_grad_()
            call(x).sum().backward()
            results.append(x.grad)
    torch.testing.assert_close(results[:2], results[2:])


@case
def stated_facts() -> None:
    def rows(x: torch.Tensor) -> torch.Tensor:
        n = x[0].item()
        torch._check(n >= 0)
        torch._check_index(n <= x.shape[0], lambda: f"{n} rows")
        torch._check_is_size(n)
        return x[:n] * 2

    def sizes(x: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] > 1, lambda: "too short")
        torch._check_value(x.dim() == 1)
        return x + 1

    with torchjit.config.patch(capture_scalar_outputs=True):
        compared(rows, torch.tensor([2, 3, 4]))
    compared(sizes, torch.ones(3))


@case
def threads() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * 3).sum(0)

    compiled, made = torchjit.compile(f), []
    workers = [threading.Thread(target=lambda: made.append(compiled(data(4, 4)))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(made) == 4
    for result in made:
        torch.testing.assert_close(result, f(data(4, 4)))


def main() -> None:
    told: dict[str, dict[str, Any]] = {}
    kinds = ("compile_start", "entry_loaded", "entry_stored", "entry_not_stored", "entry_missed")
    current = ""

    def listen(kind: str, fields: dict[str, Any]) -> None:
        text = " ".join(str(fields[name]) for name in ("function", "reason", "detail", "why") if name in fields)
        told[current].setdefault(kind, []).append(text)

    names = [name for name in CASES if not sys.argv[1:] or name in sys.argv[1:]]
    with events.listen(listen, kinds):
        for name in names:
            current = name
            told[name] = {}
            CASES[name]()
    print(
        json.dumps({"told": told, "counters": torchjit.counters, "capture": "torchjit_vm.interpreter" in sys.modules})
    )


if __name__ == "__main__":
    sys.exit(main())
