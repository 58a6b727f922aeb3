"""Strides of results whose kernels lay them out otherwise than fake tensors say: the program, which may ask, sees eager's."""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import torchjit

CASES: dict[str, Callable[[], Tensor]] = {
    "rows and columns": lambda: torch.randn(3, 4).t(),
    "sequence": lambda: torch.randn(5, 4, 3).transpose(1, 2),
    "expanded": lambda: torch.randn(5, 3, 1).expand(5, 3, 4),
    "permuted images": lambda: torch.randn(3, 2, 4, 5).transpose(0, 1),
    "every second column, channels last": lambda: torch.randn(2, 3, 4, 10).to(memory_format=torch.channels_last)[..., ::2],
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "volumes": lambda: torch.randn(2, 3, 4, 5, 6).permute(0, 1, 4, 3, 2),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "backend"), [*[(n, b) for n in CASES for b in ("eager", "aot_eager")], ("sequence", "inductor")]
)
def test_batch_norms_of_inputs_in_another_order(name: str, backend: str) -> None:
    def program(norm: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, object]:
        y = norm(x)
        return y, y.reshape(-1)[:2], (y.stride(), y.is_contiguous())

    x = CASES[name]()
    norm = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[x.dim()](3)
    for training in (True, False):
        norm.train(training)
        compiled = torchjit.compile(program, backend=backend, fullgraph=True, dynamic=name == "sequence" or None)
        want, got = program(norm, x), compiled(norm, x)
        torch.testing.assert_close(got, want)
        assert got[2] == want[2] and got[0].stride() == want[0].stride()


def _gradient(loss: Callable[..., Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    def program(x: Tensor, y: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(loss(x, y).sum(), x)[0]

    return program


PROGRAMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "copysign": torch.copysign,
    "xlogy": lambda x, y: torch.xlogy(x, y.abs()),
    "xlogy, a row": lambda x, y: torch.xlogy(x, y[0].abs()),
    "xlog1py, a row": lambda x, y: torch.special.xlog1py(x, y[:, :1].abs()),
    "floor of a quotient": lambda x, y: torch.div(x, y[0, 0], rounding_mode="floor"),
    "floor_divide": lambda x, y: x // y[:1],
    "heaviside": lambda x, y: torch.heaviside(y[:, :1].expand(y.shape), x),
    "logical_and": lambda x, y: torch.logical_and(y[:, :1].expand(y.shape), x),
    "logaddexp": lambda x, y: torch.logaddexp(y[:, :1].expand(y.shape), x),
    "a power of a number": lambda x, y: 2**x,
    "logsigmoid": lambda x, y: nn.functional.logsigmoid(x),
    "rrelu": lambda x, y: nn.functional.rrelu(x, training=True),
    "poisson": lambda x, y: torch.poisson(x.abs()),
    "normal": lambda x, y: torch.normal(x, y.abs()),
    "masked_fill": lambda x, y: x.masked_fill(y > 0, 1.0),
    "ones_like, a column": lambda x, y: torch.ones_like(x[:, :1]),
    "twice a column": lambda x, y: x[:, :1] * 2,
    "mse_loss": _gradient(nn.functional.mse_loss),
    "smooth_l1_loss": _gradient(nn.functional.smooth_l1_loss),
    "huber_loss": _gradient(nn.functional.huber_loss),
    "log_softmax": _gradient(lambda x, y: nn.functional.log_softmax(x, 0) * y),
    "hardtanh": _gradient(lambda x, y: nn.functional.hardtanh(x) * y),
    "leaky_relu": _gradient(lambda x, y: nn.functional.leaky_relu(x) * y),
    "dropout": _gradient(lambda x, y: nn.functional.dropout(x, 0.5) * y),
    "logit": _gradient(lambda x, y: torch.logit(x.sigmoid()) * y),
    "batch_norm": _gradient(lambda x, y: nn.functional.batch_norm(x, None, None, training=True) * y),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_results_of_operands_in_other_orders(backend: str) -> None:
    """The program sees the strides that eager's kernels give, and so does the caller."""
    wrong: list[str] = []
    x, y = torch.randn(4, 3).t(), torch.randn(3, 4)
    z = torch.randn(6, 8)[::2, ::2]
    orders = [(x, x), (x, y), (y, x), (z, x)] if backend == "eager" else [(x, y), (z, x)]
    for number, (name, operation) in enumerate(PROGRAMS.items()):
        for dynamic in (False, True) if backend == "eager" else (None,):
            every = 1 if backend == "aot_eager" else 4 if dynamic else 2
            for first, second in orders[number % every :: every]:

                def program(
                    a: Tensor, b: Tensor, operation: Callable[..., Tensor] = operation
                ) -> tuple[Tensor, object]:
                    made = operation(a, b)
                    return made, (made.stride(), made.is_contiguous())

                torch.manual_seed(0)
                want = program(first, second)
                torch.manual_seed(0)
                got = torchjit.compile(program, backend=backend, fullgraph=True, dynamic=dynamic)(first, second)
                torch.testing.assert_close(got[0], want[0])
                if got[1] != want[1] or got[0].stride() != want[0].stride():
                    wrong.append(
                        f"{name}, {dynamic}, {first.stride()}, {second.stride()}: {got[0].stride()}, {got[1]}, not {want[1]}"
                    )
    assert not wrong, "\n".join(wrong)


def _viewed(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    z = x.unsqueeze(1).view(-1)
    z.add_(1)
    return z, y


def _reshaped(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.unflatten(0, (-1, 1))
    z = y.reshape(2, 1, -1)
    z.add_(1)
    return z, y


def _flattened(x: Tensor) -> tuple[Tensor, object]:
    y = x[:, None].view(x.shape[0], 1, -1)
    return y, (y.stride(), y.is_contiguous())


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", [_viewed, _reshaped, _flattened])
def test_views_over_a_dimension_of_size_1(program: Callable[[Tensor], object], dynamic: bool, backend: str) -> None:
    compiled = torchjit.compile(program, backend=backend, dynamic=dynamic)
    for make in (lambda: torch.ones(2, 4), lambda: torch.ones(4, 2).t(), lambda: torch.ones(2, 8)[:, ::2]):
        seen = []
        for function in (program, compiled):
            x = make()
            try:
                made = function(x)
            except RuntimeError as error:
                made = str(error)
            seen.append((str(made), x.tolist()))
        assert seen[0] == seen[1]


INTO: dict[str, Callable[[Tensor], Tensor]] = {
    "add": lambda x: torch.add(x, x, out=torch.empty(0)),
    "exp": lambda x: torch.exp(x, out=torch.empty(0)),
    "mul, a number": lambda x: torch.mul(x, 2, out=torch.empty(0)),
    "add, a row": lambda x: torch.add(x[0], x, out=torch.empty(0)),
    "addcmul": lambda x: torch.addcmul(x, x, x, out=torch.empty(0)),
    "add, of rank 2": lambda x: torch.add(x, x, out=torch.empty(0, 0)),
    "add, of no rank": lambda x: torch.add(x, x, out=torch.empty(0, 2, 3)),
    "sum": lambda x: torch.sum(x[None], 0, out=torch.empty(0)),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", INTO)
def test_out_without_elements_gets_the_strides_of_a_result(name: str, backend: str) -> None:
    def program(x: Tensor) -> tuple[object, ...]:
        y = INTO[name](x)
        try:
            bits: object = y.view(torch.uint8).shape
        except RuntimeError as error:
            return y, y.stride(), str(error)
        return y, y.stride(), bits

    compiled = torchjit.compile(program, backend=backend)
    for x in (torch.randn(3, 4), torch.randn(4, 3).t(), torch.randn(4, 6)[:, ::2].t()):
        want, got = program(x), compiled(x)
        assert want[1] == got[1] and want[0].stride() == got[0].stride()  # type: ignore[attr-defined]
        torch.testing.assert_close(got[0], want[0])
        assert want[2] == got[2]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("rows", [(3, 5), (5, 3)])
def test_rows_that_are_one_for_some_sizes(backend: str, rows: tuple[int, ...]) -> None:
    """A row of a matrix with gaps has none: what is made like it has its strides."""

    def program(a: Tensor) -> tuple[Tensor, Tensor, object]:
        t = a[: a.shape[0] // 2]
        return torch.ones_like(t), t.clone(), (torch.zeros_like(t).stride(), t.is_contiguous())

    compiled = torchjit.compile(program, dynamic=True, backend=backend)
    for n in rows:
        a = torch.randn(n, 8)[:, :4]
        want, got = program(a), compiled(a)
        assert [t.stride() for t in want[:2]] == [t.stride() for t in got[:2]]
        assert want[2] == got[2]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (lambda x: torch.ldexp(x, torch.tensor(2)), "TJ-FX-003"),
        (lambda x: nn.functional.rrelu(x, training=True).sum(), None),
        (lambda x: nn.functional.multilabel_margin_loss(x[0], torch.tensor([1, -1, 0]), reduction="none"), "TJ-FX-007"),
    ],
    ids=["ldexp", "rrelu", "a margin loss of one row"],
)
def test_rare_operations_of_which_fakes_say_something_else(program: Callable[..., Tensor], reason: str | None) -> None:
    def run(x: Tensor) -> tuple[Tensor, object]:
        made = program(x)
        return made, (made.shape, made.stride())

    x = torch.randn(3, 4).t().requires_grad_()
    compiled = torchjit.compile(run, backend="aot_eager")
    sides = []
    for f in (compiled, run):
        torch.manual_seed(0)
        made, layout = f(x)
        sides.append((made, layout, *torch.autograd.grad(made.sum(), x)))
    for got, want in zip(*sides, strict=True):
        assert torch.equal(got, want) if isinstance(want, Tensor) else got == want
    assert {b.reason.id for s in compiled.compiled.specializations for b in s.breaks} == ({reason} - {None})


def test_rolled_images() -> None:
    """A concatenation of two parts, each of which may have a memory format or none."""
    images = [
        CASES["channels last"](),
        CASES["channels last"]()[:, :, ::2],
        CASES["permuted images"](),
        CASES["sequence"](),
    ]
    calls: list[Callable[[Tensor], Tensor]] = [
        lambda x: x.roll(1, 2),
        lambda x: x.roll((1, 2), (2, -1)),
        lambda x: x.roll(3, 1),
        lambda x: x.roll(0, 2),
        lambda x: x.roll(2),
    ]

    def program(x: Tensor) -> list[tuple[Tensor, object]]:
        return [(y := f(x), y.stride()) for f in calls]

    compiled = torchjit.compile(program, backend="aot_eager", fullgraph=True, dynamic=False)
    for x in images:
        for want, got in zip(program(x), compiled(x), strict=True):
            assert torch.equal(want[0], got[0])
            assert want[1] == got[1] == got[0].stride()
