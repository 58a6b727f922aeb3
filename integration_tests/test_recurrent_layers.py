"""`nn.RNN`, `nn.GRU`, `nn.LSTM`: one operator forward and one backward, with eager PyTorch's values, gradients and random numbers."""

# mypy: allow-untyped-calls

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

import torchjit
import torchjit_aot.recurrent
from torchjit_core import events


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for item in value for t in _flat(item)] if isinstance(value, (tuple, list)) else []


def _same(got: Any, want: Any) -> None:
    found, wanted = _flat(got), _flat(want)
    assert len(found) == len(wanted)
    for g, w in zip(found, wanted):
        torch.testing.assert_close(g, w)
        assert [s for s, n in zip(g.stride(), g.shape) if n > 1] == [s for s, n in zip(w.stride(), w.shape) if n > 1]


def _step(call: Callable[..., Any], module: nn.Module, *args: Any, times: int = 1) -> list[Any]:
    """Results, gradients, and where the random numbers are afterwards."""
    torch.manual_seed(3)
    module.zero_grad()
    given = [a.clone().requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    results = call(*given)
    loss = torch.stack([t.float().sin().sum() * (n + 1) for n, t in enumerate(_flat(results))]).sum()
    for n in range(times):
        loss.backward(retain_graph=n + 1 < times)
    grads = [p.grad.clone() for p in module.parameters() if p.grad is not None]
    return [
        results,
        grads,
        [a.grad for a in given if isinstance(a, torch.Tensor) and a.grad is not None],
        torch.rand(1),
    ]


def _both(module: nn.Module, *args: Any, backend: str = "inductor") -> None:
    compiled = torchjit.compile(module, backend=backend)
    want = _step(module, module, *args)
    for _ in range(2):
        _same(_step(compiled, module, *args), want)
    with torch.no_grad():
        torch.manual_seed(1)
        wanted = module(*args)
        torch.manual_seed(1)
        _same(compiled(*args), wanted)


LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gru": ("GRU", {}),
    "lstm": ("LSTM", {}),
    "rnn": ("RNN", {}),
    "rnn_relu": ("RNN", {"nonlinearity": "relu", "num_layers": 2}),
    "gru_both_ways": ("GRU", {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "lstm_both_ways": ("LSTM", {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "gru_dropout": ("GRU", {"num_layers": 3, "dropout": 0.5}),
    "lstm_dropout": ("LSTM", {"num_layers": 3, "dropout": 0.5}),
    "gru_no_bias": ("GRU", {"num_layers": 2, "bias": False}),
    "lstm_projected": ("LSTM", {"num_layers": 2, "proj_size": 3}),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", LAYERS)
def test_values_gradients_and_random_numbers(name: str) -> None:
    kind, options = LAYERS[name]
    module = getattr(nn, kind)(4, 5, **options)
    _both(module, torch.randn(3, 6, 4))


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
def test_initial_states_and_doubles(kind: str) -> None:
    module = getattr(nn, kind)(4, 5, num_layers=2, dtype=torch.double)
    state = torch.randn(2, 3, 5, dtype=torch.double)

    class WithState(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = module

        def forward(self, x: torch.Tensor, h: torch.Tensor) -> Any:
            return self.layer(x * 2, (h, h.cos()) if kind == "LSTM" else h)

    _both(WithState(), torch.randn(6, 3, 4, dtype=torch.double), state)


@pytest.mark.parametrize("kind", ["GRU", "RNN"])
def test_autocast(kind: str) -> None:
    module = getattr(nn, kind)(4, 5, num_layers=2, bidirectional=True)

    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = module

        def forward(self, x: torch.Tensor) -> Any:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.layer(x * 1.5)

    _both(Cast(), torch.randn(6, 3, 4))


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_packed_sequences(kind: str) -> None:
    layer = getattr(nn, kind)(4, 5, bidirectional=True)

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
            packed = pack_padded_sequence(x, lengths, enforce_sorted=False, batch_first=True)
            result, state = self.layer(packed)
            return pad_packed_sequence(result, batch_first=True), state

    _both(Packed(), torch.randn(3, 5, 4), torch.tensor([3, 5, 2]))


def test_rows_of_a_packed_sequence_are_data() -> None:
    layer = nn.GRU(4, 5)

    def f(data: torch.Tensor, batches: torch.Tensor, state: torch.Tensor) -> Any:
        return layer(PackedSequence(data, batches), state)[0].data * 2

    compiled, state, data = torchjit.compile(f), torch.zeros(1, 3, 5), torch.randn(10, 4)
    for batches in ([3, 3, 2, 1, 1], [3, 2, 2, 2, 1]):
        _same(compiled(data, torch.tensor(batches), state), f(data, torch.tensor(batches), state))


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.first = nn.Embedding(10, 4), nn.GRU(4, 5, 2, dropout=0.3)
        self.second, self.out = nn.LSTM(5, 6), nn.Linear(6, 3)

    def forward(self, tokens: torch.Tensor) -> Any:
        x = torch.relu(self.embedding(tokens)) * 2  # cheap: it would be computed again in the backward
        x, _ = self.first(x)
        x, (h, _) = self.second(torch.tanh(x))
        return self.out(x + 1), h.sum()


HOOKS: dict[str, Callable[[], Any]] = {
    "none": contextlib.nullcontext,
    "copies": lambda: saved_tensors_hooks(lambda t: t.clone(), lambda t: t.clone()),
    "save_on_cpu": torch.autograd.graph.save_on_cpu,
}


@pytest.mark.parametrize("hooks", HOOKS)
def test_in_a_model_under_hooks_for_saved_tensors(hooks: str) -> None:
    """A copy of the forward's state has nothing hanging on it: the backward runs the layer again, from the same random numbers."""
    model, tokens = _Model(), torch.randint(0, 10, (6, 3))
    compiled = torchjit.compile(model)
    for call in (model, compiled):
        _step(call, model, tokens)

    def under_hooks(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            with HOOKS[hooks]():
                return call(*args)

        return run

    _same(_step(under_hooks(compiled), model, tokens), _step(under_hooks(model), model, tokens))
    _same(_step(compiled, model, tokens, times=2), _step(model, model, tokens, times=2))


def test_in_checkpoints() -> None:
    model, tokens = _Model(), torch.randint(0, 10, (6, 3))

    def inside(x: torch.Tensor) -> Any:
        return checkpoint(model, x, use_reentrant=False)

    want = _step(inside, model, tokens)
    _same(_step(torchjit.compile(inside), model, tokens), want)
    compiled = torchjit.compile(model)
    _same(_step(lambda x: checkpoint(compiled, x, use_reentrant=False), model, tokens), want)


def test_one_operator_whatever_the_length() -> None:
    """Six layers both ways over 100 steps: unrolled, the first call took minutes."""
    names: list[str] = []

    def hear(kind: str, fields: dict[str, Any]) -> None:
        if kind == "host_program":
            names.extend(line for line in fields["source"].splitlines() if "torchjit_recurrent" in line)

    module, x = nn.GRU(8, 8, num_layers=6, bidirectional=True), torch.randn(100, 2, 8)
    compiled = torchjit.compile(module)
    events.start_listening(hear)
    try:
        result = compiled(x)[0]
        result.sum().backward()
    finally:
        events.stop_listening(hear)
    _same(result, module(x)[0])
    assert len(names) == 2


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
def test_a_training_step_runs_the_layer_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the initial states are zeros, which graphs make anew."""
    ran: list[object] = []
    remember = torchjit_aot.recurrent._Remembered.__init__

    def counted(self: Any, *args: Any) -> None:
        ran.append(self)
        remember(self, *args)

    monkeypatch.setattr(torchjit_aot.recurrent._Remembered, "__init__", counted)
    module = getattr(nn, kind)(4, 5, num_layers=2)
    compiled = torchjit.compile(lambda x: module(x.sigmoid() * 2)[0])
    compiled(torch.randn(6, 3, 4)).sum().backward()
    assert len(ran) == 1


def test_sizes_that_vary() -> None:
    module = nn.LSTM(4, 5, batch_first=True)
    compiled = torchjit.compile(module, dynamic=True)
    for steps in (7, 9, 1, 4):
        x = torch.randn(2, steps, 4)
        _same(_step(compiled, module, x), _step(module, module, x))


def test_wrong_sizes_raise_eagers_error() -> None:
    layer = nn.GRU(4, 5)
    weights = [p for p in layer.parameters()]

    def f(x: torch.Tensor, h: torch.Tensor) -> Any:
        return torch.gru(x, h, weights, True, 1, 0.0, False, False, False)

    def outcome(call: Any, x: torch.Tensor, h: torch.Tensor) -> Any:
        try:
            return call(x, h)[0].shape
        except RuntimeError as error:
            return str(error)

    compiled = torchjit.compile(f)
    for sizes, state in (((3, 2, 7), (1, 2, 5)), ((0, 2, 4), (1, 2, 5)), ((3, 2, 4), (1, 1, 5))):
        x, h = torch.randn(sizes), torch.zeros(state)
        want = outcome(f, x, h)
        assert outcome(compiled, x, h) == want
        assert isinstance(want, str) or state[1] == 1  # which some versions of torch broadcast


def test_under_a_transform_it_is_eagers() -> None:
    layer = nn.GRU(3, 4)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, weights, (x,))[0].sin().sum()

    def f(x: torch.Tensor) -> Any:
        return list(torch.func.grad(loss)(parameters, x).values())

    x = torch.randn(5, 2, 3)
    _same(torchjit.compile(f)(x), f(x))
