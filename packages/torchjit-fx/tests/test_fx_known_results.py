"""Results of operators on fakes that a capture makes from what it knows: they are what the operator gives, and calls that say more are made."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.utils._python_dispatch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode

from torchjit_fx import versions
from torchjit_fx.known_results import fake_tensor
from torchjit_fx.simple_results import simple_results
from torchjit_fx.versions import CaptureFakeMode

aten = torch.ops.aten
CPU = torch.device("cpu")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The operators that torch's fake mode was asked for."""
    found: list[Any] = []
    dispatch = FakeTensorMode.dispatch

    def noted(self: Any, func: Any, *rest: Any) -> Any:
        found.append(func)
        return dispatch(self, func, *rest)

    monkeypatch.setattr(FakeTensorMode, "dispatch", noted)
    return found


@pytest.fixture
def mode() -> Iterator[CaptureFakeMode]:
    with CaptureFakeMode() as mode:
        yield mode


def dense(mode: CaptureFakeMode, *sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return fake_tensor(mode, sizes, torch.empty(sizes, device="meta").stride(), dtype, CPU)


def facts(results: Any, args: list[Any]) -> Any:
    """All that can be asked of results, and on whose memory they lie."""
    if isinstance(results, (tuple, list)):
        return isinstance(results, tuple), [facts(result, args) for result in results]
    if not isinstance(results, torch.Tensor):
        return results
    memory = results.untyped_storage()
    shared = [isinstance(a, torch.Tensor) and a.untyped_storage()._cdata == memory._cdata for a in args]
    assert type(results) is FakeTensor
    return (
        results.shape, results.stride(), results.dtype, results.device, results.storage_offset(), results.requires_grad,
        results.is_inference(), results.is_conj(), results.is_neg(), results.layout, memory.nbytes(), shared,
        torch._C._dispatch_keys(results).raw_repr(),
    )  # fmt: skip


CALLS: dict[str, Callable[[CaptureFakeMode], tuple[Any, list[Any]]]] = {
    "pointwise": lambda m: (aten.add.Tensor, [dense(m, 4, 6), dense(m, 6)]),
    "a number": lambda m: (aten.mul.Tensor, [dense(m, 4, 6, dtype=torch.int64), 2.5]),
    "product": lambda m: (aten.addmm.default, [dense(m, 5), dense(m, 4, 6), dense(m, 6, 5)]),
    "several results": lambda m: (aten.var_mean.correction, [dense(m, 4, 6), [1]]),
    "a result is left out": lambda m: (
        aten.convolution_backward.default,
        [dense(m, 2, 4, 5, 5), dense(m, 2, 3, 7, 7), dense(m, 4, 3, 3, 3), [4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, True]],
    ),
    "a list of tensors": lambda m: (aten.cat.default, [[dense(m, 4, 6), dense(m, 2, 6)]]),
    "a list of views": lambda m: (aten.split.Tensor, [dense(m, 4, 6), 3, 1]),
    "a view": lambda m: (aten.view.default, [dense(m, 4, 6), [8, 3]]),
    "a view of a part": lambda m: (aten.slice.Tensor, [aten.transpose.int(dense(m, 4, 6), 0, 1), 0, 2, 5]),
    "a view in secret": lambda m: (aten._unsafe_view.default, [dense(m, 4, 6), [24]]),
    "conjugated": lambda m: (aten._conj.default, [dense(m, 4, dtype=torch.complex64)]),
    "bits of another dtype": lambda m: (aten.view.dtype, [dense(m, 4, 6), torch.int32]),
    "random": lambda m: (aten.native_dropout.default, [dense(m, 4, 6), 0.5, True]),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_the_same_again(name: str, mode: CaptureFakeMode, asked: list[Any]) -> None:
    func, args = CALLS[name](mode)
    first = facts(func(*args), args)
    _, others = CALLS[name](mode)
    asked.clear()
    again = func(*others)
    assert func not in asked or name in ("conjugated", "bits of another dtype")
    assert facts(again, others) == first


def test_what_decides_is_looked_at(mode: CaptureFakeMode) -> None:
    """Numbers that are equal and of other types, modes, strides and places in memory, the default dtype."""
    whole = dense(mode, 4, 6, dtype=torch.int64)
    assert [aten.mul.Tensor(whole, n).dtype for n in (1, 1.0, True)] == [torch.int64, torch.float32, torch.int64]
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        assert aten.mul.Tensor(whole, 1.0).dtype == torch.float64
    finally:
        torch.set_default_dtype(before)
    plain, turned = dense(mode, 4, 6), aten.t.default(dense(mode, 6, 4))
    assert aten.add.Tensor(plain, 1).stride() == (6, 1)
    assert aten.add.Tensor(turned, 1).stride() == (1, 4)
    for start in (0, 1):
        part = aten.slice.Tensor(dense(mode, 4, 6), 0, start, start + 2)
        assert aten.select.int(part, 0, 1).storage_offset() == 6 * (start + 1)
    with torch.inference_mode():
        assert aten.neg.default(plain).is_inference()
    assert not aten.neg.default(plain).is_inference()


def test_calls_that_do_more_are_made(mode: CaptureFakeMode, asked: list[Any]) -> None:
    x = dense(mode, 4, 6)
    for _ in range(2):
        assert aten.add_.Tensor(x, 1) is x
        with pytest.raises(RuntimeError, match="shape"):
            aten.view.default(x, [5, 5])
    assert asked.count(aten.add_.Tensor) == asked.count(aten.view.default) == 2
    known = torch.tensor(3.0)
    assert (known + 1).item() == (known + 1).item() == 4.0
    one, other = aten.neg.default(x), aten.neg.default(x)
    assert one is not other and one.untyped_storage()._cdata != other.untyped_storage()._cdata


def spoiled(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """The same with their channels last."""
    return [
        torch.empty_strided(t.shape, t.contiguous(memory_format=torch.channels_last).stride(), dtype=t.dtype)
        for t in tensors
    ]


def norm_of(
    sizes: tuple[int, ...], dtype: torch.dtype, last: bool = False, statistics: bool = True
) -> Iterator[tuple[Any, list[Any]]]:
    x, grad = torch.empty(sizes, dtype=dtype), torch.empty(sizes, dtype=dtype)
    if last:
        x, grad = spoiled(x, grad)
    c = [torch.empty(sizes[1], dtype=dtype) for _ in range(4)]
    stats = c[2:] if statistics else [None, None]
    for training in (True, False):
        forward = [x, *c[:2], *stats, training, 0.1, 1e-5]
        if statistics or training:
            yield aten.native_batch_norm.default, forward
            yield (
                aten.native_batch_norm_backward.default,
                [grad, x, c[0], *stats, c[1], c[2], training, 1e-5, [True, True, False]],
            )
        if statistics:
            yield aten._native_batch_norm_legit.default, forward
            yield aten._native_batch_norm_legit_functional.default, forward
            yield aten.cudnn_batch_norm.default, forward
    if statistics:
        yield aten._native_batch_norm_legit_no_training.default, [*forward[:5], 0.1, 1e-5]


def simple_calls() -> Iterator[tuple[Any, list[Any]]]:
    yield from norm_of((2, 3, 4, 5), torch.float32)
    yield from norm_of((2, 3, 4, 5), torch.float64, last=True)
    yield from norm_of((4, 3), torch.bfloat16)
    yield from norm_of((2, 3, 4, 5), torch.float32, statistics=False)
    for sizes in ((1, 3, 2), (2, 3, 1, 1), (2, 1, 1, 4, 2)):
        yield from norm_of(sizes, torch.float32)
    yield from norm_of((2, 3, 1, 4), torch.float32, last=True)
    w = torch.empty(5)
    for x in (torch.empty(2, 3, 5), torch.empty(5), torch.empty(3, 2, 5).transpose(0, 1), torch.empty(0, 5)):
        yield aten.native_layer_norm.default, [x, [5], w, None, 1e-5]
    yield aten.native_layer_norm.default, [torch.empty(2, 3, 5), [3, 5], None, torch.empty(3, 5), 1e-5]
    for bias in (torch.empty(5), torch.empty(1), torch.empty(4, 5)):
        yield aten.addmm.default, [bias, torch.empty(4, 6), torch.empty(5, 6).t()]
    for func, more in (
        (aten.threshold_backward.default, [0]),
        (aten.gelu_backward.default, []),
        (aten.tanh_backward.default, []),
    ):
        for x in (torch.empty(4, 1, 6), torch.empty(4, 6).t(), *spoiled(torch.empty(2, 3, 4, 5)), torch.empty(4, 0)):
            yield func, [torch.empty_like(x), x, *more]
            yield func, [torch.empty_like(x).double(), x, *more]
            yield func, [torch.empty_like(x)[:1], x, *more]
    for view in (aten.view.default, aten._unsafe_view.default):
        for shape in ([8, 3], [-1], [4, 2, 3], [2, 2, 6, 1], [1, 24]):
            yield view, [torch.empty(4, 6), shape]
        yield view, [torch.empty(3, 4, 6)[1:], [2, 2, 2, 6]]
        yield view, [torch.empty(6, 4, dtype=torch.complex64).t(), [4, 2, 3]]
        yield view, [torch.empty(0, 6), [3, 0]]
    for x in (
        torch.empty(2, 3, 4, 5), *spoiled(torch.empty(2, 3, 4, 5)), torch.empty(3, 2, 4, 5)[1:].transpose(1, 2), torch.empty(2, 0, 4, 5),
        torch.empty(2, 1, 4, 1).expand(2, 3, 4, 5), torch.empty(2, 3, 4, 5, dtype=torch.int8), torch.empty(2, 3, 4, 5, dtype=torch.bfloat16),
    ):  # fmt: skip
        yield aten.permute.default, [x, [0, -1, 1, 2]]
        yield aten.select.int, [x, 0, -1]
        yield aten.select.int, [x, 3, 2]
        for packet, further in (
            (aten.relu, []), (aten.clone, []), (aten.clamp, [0]), (aten.clamp, [None, 1.5]), (aten.clamp_min, [0.5]), (aten.clamp_max, [1]),
            (aten.hardtanh, []), (aten.hardswish, []), (aten.triu, []), (aten.tril, [1]), (aten.constant_pad_nd, [[1, 2, 0, -1], 0.5]),
            (aten.index_select, [1, torch.empty(6, dtype=torch.int64)]),
        ):  # fmt: skip
            if not (packet is aten.hardswish and not x.is_floating_point()):
                yield packet.default, [x, *further]
        for mask in ((1,), (6, 1, 1, 1, 1), x.shape):
            yield aten.masked_fill.Scalar, [x, torch.empty(mask, dtype=torch.bool), 0.0]


@pytest.mark.parametrize("device", [CPU, torch.device("cuda", 0)], ids=["cpu", "cuda"])
def test_what_is_said_without_running_is_what_torch_says(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, asked: list[Any]
) -> None:
    calls, found, silent = list(simple_calls()), [], 0
    for rules in (simple_results, lambda func, args: None):
        monkeypatch.setattr(versions, "simple_results", rules)
        with CaptureFakeMode() as mode:
            for func, args in calls:
                given = [a if not isinstance(a, torch.Tensor) else twin(mode, a, device) for a in args]
                asked.clear()
                found.append(facts(func(*given), given))
                silent += func not in asked
    for (func, args), ours, torchs in zip(calls, found[: len(calls)], found[len(calls) :], strict=True):
        assert ours == torchs, (func, args)
    assert silent > 60


def twin(mode: CaptureFakeMode, real: torch.Tensor, device: torch.device) -> torch.Tensor:
    memory = fake_tensor(mode, (real.untyped_storage().nbytes() // real.itemsize,), (1,), real.dtype, device)
    return memory.as_strided(real.shape, real.stride(), real.storage_offset())


@pytest.mark.parametrize("call", [(aten.permute.default, [0, 0]), (aten.permute.default, [0]), (aten.select.int, 2, 0)])
def test_calls_that_eager_refuses_are_refused(mode: CaptureFakeMode, call: tuple[Any, ...]) -> None:
    with pytest.raises((RuntimeError, IndexError)):
        call[0](dense(mode, 4, 6), *call[1:])


def test_modes_below_do_not_see_what_is_tried(mode: CaptureFakeMode) -> None:
    seen: list[Any] = []

    class Notes(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = dense(mode, 4, 6)
    with Notes():
        aten.permute.default(x, [1, 0])
    assert seen == [aten.permute.default]


@pytest.mark.parametrize("shape", [[5, 5], [-1, -1], [-1, 7], [-2, 12]])
def test_views_that_eager_refuses_are_refused(mode: CaptureFakeMode, shape: list[int]) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError):
            aten.view.default(dense(mode, 4, 6), shape)
    with pytest.raises(RuntimeError):
        aten.view.default(aten.t.default(dense(mode, 4, 6)), [24])
