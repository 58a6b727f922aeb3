"""The examples of the project's first issue, each against eager, with gradients."""

# mypy: allow-untyped-calls, no-warn-return-any

from typing import Any

import pytest
import torch
from compare import check
from torch import nn

import torchjit

BACKENDS = ["eager", "aot_eager", "inductor"]


class ExpOfDouble(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(2 * x)


class ExpOfNegative(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(-x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_module_classes_give_two_specialisations(backend: str) -> None:
    def f(x: torch.Tensor, mod: nn.Module) -> torch.Tensor:
        y = mod(x)
        z = torch.log(y)
        return z

    compiled: Any = torchjit.compile(f, backend=backend)
    mods = ExpOfDouble(), ExpOfNegative()
    for _ in range(3):
        for mod in mods:
            check(lambda x: compiled(x, mod), lambda x: f(x, mod), torch.randn(10, requires_grad=True), backward=True)
    root = compiled.compiled.root
    assert len(root.specializations) == 2
    assert torchjit.counters["stats"]["unique_graphs"] == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_branch_on_a_tensor_is_one_break_with_two_continuations(backend: str) -> None:
    def toy(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    compiled: Any = torchjit.compile(toy, backend=backend)
    for _ in range(2):
        for sign in (1.0, -1.0):
            a, b = torch.randn(10, requires_grad=True), (torch.rand(10) * sign).requires_grad_()
            check(compiled, toy, a, b, backward=True)
    sites = compiled.compiled.sites
    assert len(sites) == 3
    assert [len(s.specializations) for s in sites] == [1, 1, 1]
    assert sum(len(s.breaks) for s in compiled.compiled.specializations) == 1
    assert len(torchjit.explain(toy)(torch.randn(10), torch.randn(10)).breaks) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_sizes_become_dynamic_after_the_second(backend: str) -> None:
    def function(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        x = inputs["x"]
        y = inputs["y"]
        x = x.cos().cos()
        if x.mean() > 0.5:
            x = x / 1.1
        return x * y

    compiled: Any = torchjit.compile(function, backend=backend)
    counts = []
    for size in (10, 8, 5, 7, 9):
        inputs = {"x": torch.randn(size, requires_grad=True), "y": torch.randn(size, requires_grad=True)}
        check(compiled, function, inputs, backward=True)
        counts.append(len(compiled.compiled.specializations))
    assert counts[2:] == [counts[1]] * 3, counts


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_two_chained_cosines_save_one_tensor(backend: str) -> None:
    saved: list[Any] = []

    def listen(kind: str, fields: dict[str, Any]) -> None:
        if kind == "saved_tensors":
            saved.append(fields["tensors"])

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.cos().cos()

    compiled = torchjit.compile(f, backend=backend)
    with torchjit_events_listen(listen):
        check(compiled, f, torch.randn(64, requires_grad=True), backward=True)
    assert len(saved) == 1 and len(saved[0]) == 1, saved


def torchjit_events_listen(listener: Any) -> Any:
    from torchjit_core import events

    return events.listen(listener)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(100, 10)
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.lin(x))


@pytest.mark.parametrize("backend", BACKENDS)
def test_module_through_every_form(backend: str) -> None:
    net = Net()
    x = torch.randn(10, 100, requires_grad=True)

    def call(x: torch.Tensor) -> torch.Tensor:
        return net(x)

    @torchjit.compile(backend=backend)
    def decorated(x: torch.Tensor) -> torch.Tensor:
        return net(x)

    compiled = torchjit.compile(net, backend=backend)
    assert list(compiled.state_dict()) == list(net.state_dict()) == ["lin.weight", "lin.bias"]
    assert isinstance(compiled, Net)
    for form in (torchjit.compile(call, backend=backend), decorated, compiled):
        check(form, net, x, backward=True)
    want, got = [], []
    for f, grads in ((net, want), (compiled, got)):
        net.zero_grad()
        f(x).sum().backward()
        grads += [p.grad.clone() for p in net.parameters()]
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_printing_a_tensor_in_the_middle(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        print("middle", y)
        return y + 1

    compiled: Any = torchjit.compile(f, backend=backend)
    x = torch.ones(3)
    f(x)
    want = capsys.readouterr().out
    for _ in range(2):
        check(compiled, lambda x: x * 2 + 1, x)
        assert capsys.readouterr().out == want
    assert len(compiled.compiled.specializations) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_appending_to_a_callers_list(backend: str) -> None:
    def f(x: torch.Tensor, out: list[Any]) -> torch.Tensor:
        out.append(x.sin())
        out.append("done")
        return x + 1

    compiled: Any = torchjit.compile(f, backend=backend)
    for _ in range(2):
        x = torch.randn(4)
        mine: list[Any] = []
        theirs: list[Any] = []
        torch.testing.assert_close(compiled(x, mine), f(x, theirs))
        torch.testing.assert_close(mine[0], theirs[0])
        assert mine[1:] == theirs[1:] == ["done"]
    assert len(compiled.compiled.specializations) == 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("where", ["python", "torch"])
def test_raising_as_eager_does(backend: str, where: str) -> None:
    def f(x: torch.Tensor, log: list[str]) -> torch.Tensor:
        y = x.sin()
        log.append("before")
        if where == "python":
            raise KeyError("not here")
        return y @ x.reshape(-1, 1, 1)

    compiled = torchjit.compile(f, backend=backend)
    x = torch.randn(3, 4)
    for _ in range(2):
        errors, logs = [], []
        for g in (f, compiled):
            log: list[str] = []
            with pytest.raises(Exception) as caught:
                g(x, log)
            errors.append((type(caught.value), str(caught.value)))
            logs.append(log)
        assert errors[0] == errors[1]
        assert logs[0] == logs[1] == ["before"]
    ok = torchjit.compile(lambda x: x + 1, backend=backend)
    torch.testing.assert_close(ok(x), x + 1)
