"""Dtypes that eager's kernels refuse and torch's metadata functions accept: refused at capture, whether or not the result is used."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import torchjit


def _ints(i, *shape):
    return i[0].expand(*shape)


CALLS = {
    "cross_entropy": lambda a, d, i: F.cross_entropy(a, i[[0, 1, 0, 1]]),
    "cdist": lambda a, d, i: torch.cdist(a, d),
    "cdist, one of them": lambda a, d, i: torch.cdist(d, a),
    "pdist": lambda a, d, i: F.pdist(a.half()),
    "index_copy": lambda a, d, i: torch.index_copy(a, 0, i, a[:2]),
    "index_copy_": lambda a, d, i: a.clone().index_copy_(0, i, a[:2]),
    "index_reduce": lambda a, d, i: a.index_reduce(0, i, d[:2], "mean"),
    "put": lambda a, d, i: a.put(i, a[0, :2]),
    "max_pool1d": lambda a, d, i: F.max_pool1d(_ints(i, 3, 4), 2),
    "torch.max_pool1d": lambda a, d, i: torch.max_pool1d(_ints(i, 3, 4), 2),
    "avg_pool2d": lambda a, d, i: F.avg_pool2d(_ints(i, 1, 4, 4), 3, 2, 1),
    "adaptive_avg_pool2d": lambda a, d, i: F.adaptive_avg_pool2d(_ints(i, 1, 4, 4), 2),
    "adaptive_max_pool2d": lambda a, d, i: F.adaptive_max_pool2d(_ints(i, 1, 4, 4), 2),
    "grid_sample": lambda a, d, i: F.grid_sample(a[None, None], d[None, :, :2, None].expand(1, 4, 2, 2)),
    "reflection_pad1d": lambda a, d, i: F.pad(_ints(i, 1, 4).bool(), (1, 1), mode="reflect"),
    "conv1d": lambda a, d, i: F.conv1d(a[None], d[None]),
    "svdvals": lambda a, d, i: torch.linalg.svd(a.half())[1],
    "eigvalsh": lambda a, d, i: torch.linalg.eigvalsh(_ints(i, 2, 2)),
}

ACCEPTED = {
    "cdist": lambda a, d, i: torch.cdist(a, a),
    "pdist": lambda a, d, i: F.pdist(d),
    "index_copy": lambda a, d, i: torch.index_copy(a, 0, i.long(), a[:2]),
    "put": lambda a, d, i: a.put(i.long(), a[0, :2]),
    "max_pool1d": lambda a, d, i: F.max_pool1d(d, 2, padding=1),
    "max_pool1d with indices": lambda a, d, i: F.max_pool1d(d, 2, return_indices=True)[1],
    "avg_pool2d": lambda a, d, i: F.avg_pool2d(d[None], 3, 2, 1),
    "adaptive_max_pool2d": lambda a, d, i: F.adaptive_max_pool2d(a[None], 2),
    "grid_sample": lambda a, d, i: F.grid_sample(a[None, None], a[None, :, :2, None].expand(1, 4, 2, 2), align_corners=True),
    "reflection_pad1d": lambda a, d, i: F.pad(a, (2, 1), mode="reflect"),
    "conv2d": lambda a, d, i: F.conv2d(a[None], a.view(4, 1, 2, 2).repeat(2, 1, 1, 1)[:1], stride=2, padding=1, dilation=1),
    "conv_transpose1d": lambda a, d, i: F.conv_transpose1d(a[None], a.view(4, 1, 4), stride=2, output_padding=1, groups=4),
    "svd": lambda a, d, i: torch.linalg.svd(a)[1],
    "inv": lambda a, d, i: torch.linalg.inv(d + 9 * torch.eye(4)),
    "searchsorted": lambda a, d, i: torch.searchsorted(a[0].sort()[0], a),
}  # fmt: skip


def _outcome(f, *args):
    try:
        return f(*args)
    except Exception as error:
        return type(error), str(error).split("\n", 1)[0]


def _given():
    torch.manual_seed(0)
    return torch.randn(4, 4), torch.randn(4, 4, dtype=torch.float64), torch.tensor([0, 1], dtype=torch.int32)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("name", CALLS)
def test_what_eager_refuses_is_refused(name, used, dynamic):
    def f(a, d, i):
        result = CALLS[name](a, d, i)
        return result if used else a * 2

    def caught(a, d, i):
        try:
            f(a, d, i)
        except RuntimeError:
            return a + 1
        return a - 1

    for g in (f, caught):
        got, want = (
            _outcome(torchjit.compile(g, backend="aot_eager", dynamic=dynamic), *_given()),
            _outcome(g, *_given()),
        )
        assert torch.equal(got, want) if g is caught else got == want


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ACCEPTED)
def test_what_eager_accepts_is_in_the_graph(name, dynamic):
    f = ACCEPTED[name]
    compiled = torchjit.compile(f, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    torch.testing.assert_close(compiled(*_given()), f(*_given()))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_out_of_tensors_that_require_grad(backend, dynamic):
    def onto_an_operand(a, w):  # what a product leaves in its own operand is not defined: the error only is compared
        return torch.matmul(a, w.detach(), out=a) * 2

    def onto_another(a, w):
        return torch.matmul(w.detach(), w.detach(), out=a) * 2

    def unused(a, w):
        torch.matmul(a, w, out=torch.empty(4, 4))
        return w * 2

    for f in (onto_an_operand, onto_another, unused):
        for history in (False, True):

            def given(history=history):
                leaf = torch.ones(4, 4, requires_grad=True)
                return leaf * 1.0 if history else leaf, torch.ones(4, 4)

            compiled = torchjit.compile(f, backend=backend, dynamic=dynamic)
            want = _outcome(f, *given())
            assert want[0] is RuntimeError
            assert _outcome(compiled, *given()) == want
            with torch.no_grad():
                got = compiled(*given())
                if f is not onto_an_operand:
                    torch.testing.assert_close(got, f(*given()))


LOSSES = {"mse": F.mse_loss, "huber": F.huber_loss, "smooth l1": F.smooth_l1_loss}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_backwards_of_losses(loss, backend, dtype):
    def program(a, b):
        return loss(a * 2, b) * 3

    outcomes = []
    for f in (program, torchjit.compile(program, backend=backend)):
        a = torch.linspace(-1, 1, 4, requires_grad=True)
        made = f(a, torch.tensor([0, 1, 1, 0]).to(dtype))
        outcomes.append(_outcome(made.backward))
        if outcomes[-1] is None:
            outcomes[-1] = a.grad
    want, got = outcomes
    if isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want)
    else:
        assert got == want


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_product_into_its_factors(backend):
    """Element by element that is defined; what a reduction leaves in its own operand is not."""

    def f(x):
        torch.mul(x, x, out=x)
        return x * 2

    compiled = torchjit.compile(f, backend=backend)
    for value in (3.0, -2.0):
        want, got = torch.tensor([value]), torch.tensor([value])
        torch.testing.assert_close(compiled(got), f(want))
        assert torch.equal(want, got)
