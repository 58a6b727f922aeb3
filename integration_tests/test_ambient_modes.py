"""What the program has switched on around its first call sees its own tensors, as often as in eager mode, and none of ours."""

# mypy: allow-untyped-calls

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import graph
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import torchjit


class _WithABreak(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Any:
        y = self.first(x).tanh()
        torchjit.graph_break()
        return self.last(y).exp()


def _net(width: int, broken: bool = False) -> nn.Module:
    torch.manual_seed(0)
    if broken:
        return _WithABreak(width)
    return nn.Sequential(nn.Linear(width, 9), nn.GELU(), nn.LayerNorm(9), nn.Linear(9, width))


def _images() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(16, 16, 1), nn.GELU(), nn.BatchNorm2d(16), nn.Conv2d(16, 16, 1), nn.SiLU())


def _step(net: nn.Module, call: Callable[[Tensor], Tensor], *shape: int) -> list[Any]:
    torch.manual_seed(1)
    x = torch.randn(*shape, requires_grad=True)
    y = call(x)
    y.sin().sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in net.parameters())]


@contextlib.contextmanager
def _packed(seen: list[Tensor]) -> Iterator[None]:
    def pack(t: Tensor) -> Tensor:
        seen.append(t)
        return t

    with graph.saved_tensors_hooks(pack, lambda t: t):
        yield


# Sizes that no other test uses: what a trace has learnt about operators is kept.
@pytest.mark.parametrize(("broken", "width"), [(False, 13), (True, 11)])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_hooks_are_given_what_is_saved(backend: str, broken: bool, width: int) -> None:
    net = _net(width + 20 * (backend == "eager"), broken)
    width = next(net.parameters()).shape[1]
    want = _step(net, net, 3, width)
    net.zero_grad()
    compiled = torchjit.compile(net, backend=backend)
    counts = []
    for _ in range(2):
        seen: list[Tensor] = []
        net.zero_grad()

        def call(x: Tensor, seen: list[Tensor] = seen) -> Any:
            with _packed(seen):
                return compiled(x)

        torch.testing.assert_close(_step(net, call, 3, width), want)
        assert all(type(t) in (Tensor, nn.Parameter) and t.data_ptr() for t in seen)
        counts.append(len(seen))
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("broken", [False, True])
def test_checkpoints_of_what_is_not_compiled_yet(broken: bool, reentrant: bool) -> None:
    width = 14 + 2 * broken + reentrant
    net = _net(width, broken)
    want = _step(net, net, 3, width)
    net.zero_grad()
    compiled = torchjit.compile(net, backend="aot_eager")
    for _ in range(2):
        net.zero_grad()
        got = _step(net, lambda x: checkpoint(compiled, x, use_reentrant=reentrant), 3, width)
        torch.testing.assert_close(got, want)


class _Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.types: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.types.update(type(a).__name__ for a in args)
        return func(*args, **(kwargs or {}))


class _Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.types: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.types.update(type(a).__name__ for a in args)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "around",
    [_Operators, _Functions, lambda: torch.device("meta"), lambda: torch.autograd.set_detect_anomaly(True), graph.save_on_cpu],
)  # fmt: skip
def test_backwards_compiled_under_modes(around: Callable[[], Any]) -> None:
    """They are compiled at the first `backward()`, for one result of two as well."""

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        return (x.sin() * x).sum(1), x.exp() * 2

    compiled = torchjit.compile(program)
    for results in (2, 1):
        grads = []
        for f in (program, compiled):
            torch.manual_seed(0)
            x = torch.randn(5, 17, requires_grad=True)
            y = f(x)
            mode = around()
            with mode:
                torch.autograd.backward([t.sum() for t in y[:results]])
            assert "FakeTensor" not in getattr(mode, "types", ())
            grads.append(x.grad)
        torch.testing.assert_close(grads[1], grads[0])


@pytest.mark.parametrize("hooks", ["on the host", "contiguous", "in double"])
def test_unpacked_tensors_may_lie_otherwise(hooks: str) -> None:
    """The compiled backward relies on strides; here on channels that are innermost."""
    pack = {
        "contiguous": lambda t: t.detach().contiguous().clone(),
        "in double": lambda t: t.detach().double().contiguous() if t.dtype == torch.float32 else t,
    }

    def unpack(t: Tensor) -> Tensor:
        return t.float() if t.dtype == torch.float64 else t

    net = _images()
    want = _step(net, net, 4, 16, 10, 10)
    net.zero_grad()
    compiled = torchjit.compile(net)

    def call(x: Tensor) -> Any:
        with graph.save_on_cpu() if hooks == "on the host" else graph.saved_tensors_hooks(pack[hooks], unpack):
            return compiled(x)

    torch.testing.assert_close(_step(net, call, 4, 16, 10, 10), want, atol=1e-4, rtol=1e-4)


def test_what_hooks_raise_is_the_programs() -> None:
    def pack(t: Tensor) -> Tensor:
        raise KeyError("the program's own")

    compiled = torchjit.compile(lambda x: x.sin() * x, backend="aot_eager")
    x = torch.randn(18, requires_grad=True)
    for _ in range(2):
        with pytest.raises(KeyError, match="the program's own"), graph.saved_tensors_hooks(pack, lambda t: t):
            compiled(x)
        compiled(x).sum().backward()
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:Error detected")
def test_gradients_inside_of_anomaly_mode() -> None:
    def program(x: Tensor) -> Tensor:
        y = (x**3).sum()
        (d,) = torch.autograd.grad(y, x, create_graph=True)
        return (d**2).sum() + y

    x = torch.randn(19, requires_grad=True)
    (want,) = torch.autograd.grad(program(x), x)
    compiled = torchjit.compile(program, backend="aot_eager", fullgraph=True)
    with torch.autograd.set_detect_anomaly(True):
        (got,) = torch.autograd.grad(compiled(x), x)
        assert torch.is_anomaly_enabled()
        assert torchjit.compile(lambda x: x + torch.is_anomaly_enabled(), backend="eager")(torch.zeros(1)).item() == 1
    torch.testing.assert_close(got, want)
    root = torchjit.compile(lambda x: x.sqrt() * 0 + x, backend="aot_eager")
    zero = torch.zeros(3, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError, match="nan values"):
        root(zero).sum().backward()


def test_hooks_of_several_gradients() -> None:
    net = _net(21)
    compiled = torchjit.compile(net, backend="aot_eager")
    calls: list[int] = []
    handle = graph.register_multi_grad_hook(
        list(net.parameters()), lambda grads: calls.append(sum(g is not None for g in grads))
    )
    _step(net, compiled, 3, 21)
    handle.remove()
    assert calls == [6]
