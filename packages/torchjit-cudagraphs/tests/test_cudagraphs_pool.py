"""The memory that recordings share: chains, held results, consumed inputs, failures, ends. On the simulated device."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from torchjit_core.events import listen, using_compile_id
from torchjit_cudagraphs import CudaGraphSettings, GraphPool, Recorded, mark_step_begin, record
from torchjit_cudagraphs import pool as pool_module
from torchjit_cudagraphs.holders import describe_holders
from torchjit_cudagraphs.simulated import SimulatedDriver

record_module = sys.modules["torchjit_cudagraphs.record"]  # the function hides it


@attrs.define(eq=False)
class Boxed:
    """Takes its inputs as a list and empties it."""

    function: Callable[[list[Any]], Sequence[Any]]
    static_inputs: frozenset[int] = frozenset()
    mutated_inputs: frozenset[int] = frozenset()
    device: torch.device | None = torch.device("cpu")
    reason_not_recordable: str | None = None

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        return self.function(list(inputs))

    def boxed(self, inputs: list[Any]) -> Sequence[Any]:
        return self.function(inputs)


def make(
    pool: GraphPool, function: Callable[[list[Any]], Sequence[Any]], count: int, *, static: Sequence[int] = (),
    mutated: Sequence[int] = (), internal: Sequence[int] = (), name: str = "graph", **chosen: Any,
) -> Recorded:  # fmt: skip
    examples = [torch.zeros(4)] * count
    settings = CudaGraphSettings(**{"warmup_calls": 1, "copy_up_to": 0, "measure": False, **chosen})
    compiled = Boxed(function, frozenset(static), frozenset(mutated))
    made = record(compiled, examples, settings, internal=frozenset(internal), pool=pool, name=name)
    assert isinstance(made, Recorded)
    return made


def forward(inputs: list[Any]) -> Sequence[Any]:
    x, w = inputs
    inputs.clear()
    a = x * w
    b = a.sin()
    del x, w
    return [b.exp(), a, b]


def backward(inputs: list[Any]) -> Sequence[Any]:
    a, b, w, g = inputs
    inputs.clear()
    db = g * b.exp()
    del b, g
    da = db * a.cos()
    del db, a
    return [da * w, da]


def training_step(fwd: Any, bwd: Any, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, list[Any]]:
    out, a, b = fwd.boxed([x, w])
    saved = [a, b, w, torch.ones_like(out)]
    del a, b
    return out, bwd.boxed(saved)


def test_forward_and_backward_share_the_pool_and_pass_memory_on() -> None:
    driver = SimulatedDriver()
    pool = GraphPool(driver)
    w = torch.randn(64)
    fwd, bwd = make(pool, forward, 2, static=[1], internal=[1, 2]), make(pool, backward, 4, static=[2])
    for _ in range(6):
        x = torch.randn(64)
        out, (dx, dw) = training_step(fwd, bwd, x, w)
        a = x * w
        torch.testing.assert_close(out, a.sin().exp())
        grad = a.sin().exp() * a.cos()
        torch.testing.assert_close(dx, grad * w)
        torch.testing.assert_close(dw, grad)
        del out, dx, dw
    assert (fwd.recordings, bwd.recordings) == (1, 1)
    # The gradients lie where saved tensors and scratch lay: the pool is no larger than the two steps' largest moment.
    assert max(a + n for r in bwd._recordings.values() for a, n in r[0]._blocks.items()) - driver._base <= 6 * 256


def test_saved_tensors_that_somebody_holds_are_not_consumed() -> None:
    pool = GraphPool(SimulatedDriver())
    w, x = torch.randn(64), torch.randn(64)
    fwd, bwd = make(pool, forward, 2, static=[1], internal=[1, 2]), make(pool, backward, 4, static=[2])
    for step in range(8):
        out, a, b = fwd.boxed([x, w])
        saved = [a, b, w, torch.ones_like(out)]
        again = list(saved) if step % 2 else None  # retain_graph=True
        del a, b
        first = bwd.boxed(saved)
        if again is not None:
            second = bwd.boxed(list(again))
            for one, other in zip(first, second, strict=True):
                assert torch.equal(one, other)
        grad = out * (x * w).cos()
        torch.testing.assert_close(first[1], grad)
    assert bwd.recordings <= 4


def test_gradients_that_accumulate() -> None:
    """`.grad` holds the first gradient while the next ones are added to it."""
    pool = GraphPool(SimulatedDriver())
    w = torch.randn(64)
    fwd, bwd = make(pool, forward, 2, static=[1], internal=[1, 2]), make(pool, backward, 4, static=[2])
    total: torch.Tensor | None = None
    expected = torch.zeros(64)
    for _ in range(10):
        x = torch.randn(64)
        out, (_, dw) = training_step(fwd, bwd, x, w)
        expected = expected + (x * w).sin().exp() * (x * w).cos()
        total = dw if total is None else total.add_(dw)
        del out, dw, _
    assert total is not None
    torch.testing.assert_close(total, expected)
    assert bwd.recordings <= 3


def test_a_chain_of_recordings_copies_nothing() -> None:
    pool = GraphPool(SimulatedDriver())
    first = make(pool, lambda i: [i[0] + 1], 1)
    second = make(pool, lambda i: [i[0] * 2], 1)
    for n in range(5):
        x = torch.full((8,), float(n))
        y = first(x)[0]
        z = second(y)[0]
        assert z.tolist() == [2.0 * (n + 1)] * 8
        assert y.tolist() == [n + 1.0] * 8
        del y, z
    recording = next(iter(second._recordings.values()))[0]
    assert not recording.inputs.copied


def test_a_result_that_is_an_input_leaves_nothing_behind() -> None:
    pool = GraphPool(SimulatedDriver())
    f = make(pool, lambda i: [i[0], i[0][1:], i[0] * 2], 1)
    for n in range(4):
        x = torch.full((4,), float(n))
        same, rest, double = f(x)
        assert same is x and rest.tolist() == [n] * 3 and double.tolist() == [2 * n] * 4
        del same, rest, double
    assert f.recordings == 1 and not pool._permanent


def test_inputs_that_are_written_to_are_copied_back() -> None:
    pool = GraphPool(SimulatedDriver())

    def step(inputs: list[Any]) -> Sequence[Any]:
        inputs[0].add_(1)
        return [inputs[0] * 2]

    f = make(pool, step, 1, mutated=[0])
    for n in range(5):
        x = torch.full((4,), float(n))
        assert f(x)[0].tolist() == [2.0 * (n + 1)] * 4
        assert x.tolist() == [n + 1.0] * 4


@pytest.mark.usefixtures("older_objects_rest")
def test_results_outlive_their_callable() -> None:
    driver = SimulatedDriver()
    pool = GraphPool(driver)
    f = make(pool, lambda i: [i[0] + 1], 1)
    x = torch.zeros(8)
    f(x)
    held = f(x)[0]
    del f
    gc.collect()
    g = make(pool, lambda i: [(i[0] - 1).sin() * 0 + 7], 1)
    for _ in range(4):
        assert g(x)[0].tolist() == [7.0] * 8
    assert held.tolist() == [1.0] * 8
    assert pool._orphans
    del held
    assert pool.idle() and not pool._orphans


class Holder:
    best: torch.Tensor


@pytest.mark.usefixtures("older_objects_rest")
def test_the_limit_on_recordings_names_who_holds_results() -> None:
    f = make(GraphPool(SimulatedDriver()), lambda i: [i[0] + 1], 1, max_versions=2, max_held=9)
    holder = Holder()
    details: list[str] = []

    def keep() -> None:
        outs = [f(torch.full((4,), 1.0))[0]]  # a warm-up: not in the pool
        outs.append(f(torch.full((4,), 2.0))[0])
        holder.best = f(torch.full((4,), 3.0))[0]
        f(torch.full((4,), 4.0))
        assert f(torch.full((4,), 5.0))[0].tolist() == [6.0] * 4
        assert holder.best.tolist() == [4.0] * 4 and outs[1].tolist() == [3.0] * 4

    with listen(lambda kind, fields: details.append(fields["detail"]) if kind == "fallback" else None):
        keep()
    (detail,) = details
    assert detail.startswith("2 recordings for these sizes exist; ")
    assert "float32[4] is held by" in detail
    # Either result would do to explain it: the recording made while only `outs` was held misses `holder.best` alone.
    assert "Holder.best" in detail and " cell" not in detail
    del holder.best
    gc.collect()
    # Reading the variables of frames keeps nothing alive.
    assert f._pool is not None and f._pool.idle()


@pytest.mark.usefixtures("older_objects_rest")
def test_holders_are_found_in_attributes_gradients_and_containers() -> None:
    holder, layer = Holder(), torch.nn.Linear(4, 4)
    held = {"a": torch.ones(4), "b": torch.zeros(2)}
    holder.best, layer.weight.grad = torch.ones(3), torch.ones(4, 4)
    nested = [[torch.ones(5)]]

    def texts(tensor: torch.Tensor) -> str:
        storage = tensor.untyped_storage()._cdata
        del tensor
        return "; ".join(describe_holders({storage}))

    assert "held['a'] of test_holders_are_found" in texts(held["a"])
    assert "Holder.best" in texts(holder.best)
    assert "the gradient of Linear.weight" in texts(layer.weight.grad)
    assert "nested[0][0] of" in texts(nested[0][0])
    assert describe_holders({0}) == []


def test_the_limit_on_recordings_names_parameters_that_moved() -> None:
    compiled = Boxed(lambda i: [i[0] * i[1]], frozenset({1}))
    settings = CudaGraphSettings(warmup_calls=1, measure=False, max_versions=2, copy_up_to=0)
    pool = GraphPool(SimulatedDriver())
    f = record(compiled, [torch.zeros(4)] * 2, settings, pool=pool, names=["x", "self.weight"])
    weights = [torch.full((4,), float(n)) for n in range(5)]
    details: list[str] = []
    with listen(lambda kind, fields: details.append(fields["detail"]) if kind == "fallback" else None):
        for w in weights:
            assert f(torch.ones(4), w)[0].tolist() == w.tolist()
    assert details == ["2 recordings for these sizes exist; memory of self.weight moved since"]


def test_after_a_failed_capture_the_pool_replays_and_records_no_more() -> None:
    driver = SimulatedDriver()
    pool = GraphPool(driver)
    f, g = make(pool, lambda i: [i[0] + 1], 1), make(pool, lambda i: [i[0] + 2], 1)
    x = torch.zeros(4)
    f(x), f(x)
    g(x)
    driver.fail = RuntimeError("not permitted")
    ids: list[str] = []
    with listen(lambda kind, fields: ids.append(fields["reason"]) if kind == "fallback" else None):
        for _ in range(3):
            assert g(x)[0].tolist() == [2.0] * 4
            assert f(x)[0].tolist() == [1.0] * 4
    assert ids == ["TJ-CG-008"]
    assert pool.closed and f.recordings == 1 and g.recordings == 0


def test_a_recording_that_does_not_pay_is_dropped() -> None:
    driver = SimulatedDriver()
    f = make(GraphPool(driver), lambda i: [i[0] + 1], 1, warmup_calls=2, measure=True)
    driver.seconds = [1e-5, 2.5e-5, 2e-5, 3e-5]
    details: list[str] = []
    with listen(lambda kind, fields: details.append(fields["detail"]) if kind == "fallback" else None):
        for n in range(8):
            assert f(torch.full((4,), float(n)))[0].tolist() == [n + 1.0] * 4
    assert details == ["0.010 ms without, 0.020 ms with one, which copies 16 bytes"]
    assert f.recordings == 0 and driver.captures == 1


def test_a_recording_that_pays_stays() -> None:
    driver = SimulatedDriver()
    f = make(GraphPool(driver), lambda i: [i[0] + 1], 1, warmup_calls=2, measure=True)
    driver.seconds = [2e-4, 9e-4, 1e-4, 9.0]  # the first replay that is timed was disturbed
    told: list[Any] = []
    with listen(lambda kind, fields: told.append(fields) if kind == "cudagraph_timed" else None):
        for n in range(8):
            assert f(torch.full((4,), float(n)))[0].tolist() == [n + 1.0] * 4
    assert [(f["plain"], f["replay"], f["kept"]) for f in told] == [(2e-4, 1e-4, True)]
    assert f.recordings == 1 and driver.seconds == [9.0]


def test_events_name_the_compilation_that_made_the_callable() -> None:
    pool = GraphPool(SimulatedDriver())
    with using_compile_id("3/1"):
        f = make(pool, lambda i: [i[0] + 1], 1, name="forward_3", max_recordings=1)
    told: list[tuple[str, Any, Any]] = []
    with (
        using_compile_id("another"),
        listen(lambda kind, fields: told.append((kind, fields["compile_id"], fields.get("graph")))),
    ):
        for size in (4, 4, 5, 5):
            f(torch.zeros(size))
    assert {(kind, *of) for kind, *of in told if kind != "phase"} == {
        ("cudagraph_captured", "3/1", "forward_3"),
        ("fallback", "3/1", "forward_3"),
    }


def test_forgotten_recordings_are_made_again() -> None:
    driver = SimulatedDriver()
    f = make(GraphPool(driver), lambda i: [i[0] + 1], 1)
    x = torch.zeros(4)
    f(x), f(x)
    held = f(x)[0]
    f.forget()
    assert f.recordings == 0
    for n in range(4):
        assert f(torch.full((4,), float(n)))[0].tolist() == [n + 1.0] * 4
    assert held.tolist() == [1.0] * 4


def test_threads_take_turns() -> None:
    pool = GraphPool(SimulatedDriver())

    def scaled(k: int) -> Callable[[list[Any]], Sequence[Any]]:
        return lambda inputs: [inputs[0] * k + k]

    functions = [make(pool, scaled(k), 1) for k in range(1, 4)]
    wrong: list[object] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(20):
            for k, f in enumerate(functions, 1):
                x = torch.randn(8, generator=generator)
                if not torch.equal(f(x)[0], x * k + k):
                    wrong.append((seed, k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


CALLS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 3), st.sampled_from(["drop", "hold", "chain", "free", "write"])),
    max_size=30,
)


@hypothesis_settings(max_examples=60, deadline=None)
@given(CALLS)
def test_any_calls_in_any_order_equal_eager(calls: list[tuple[int, int, str]]) -> None:
    check_calls(calls)


@pytest.mark.slow
@hypothesis_settings(max_examples=2000, deadline=None)
@given(CALLS)
def test_two_thousand_sequences_of_calls_equal_eager(calls: list[tuple[int, int, str]]) -> None:
    check_calls(calls)


def check_calls(calls: list[tuple[int, int, str]]) -> None:
    """Six callables over one pool; results are dropped, held, freed, written to, or given to the next call."""
    pool = GraphPool(SimulatedDriver(1 << 16))
    w = torch.full((1,), 3.0)

    def f0(i: list[Any]) -> list[Any]:
        (x, w) = i
        i.clear()
        y = x * w
        z = y.sin()
        del y
        return [z + x, z]

    def f1(i: list[Any]) -> list[Any]:
        (x, w) = i
        i.clear()
        y = x + w
        return [y, y[1:], x]

    def f2(i: list[Any]) -> list[Any]:
        (x, w) = i
        i.clear()
        x = x.cos()
        x = x * 2
        x = x - w
        return [x]

    def f3(i: list[Any]) -> list[Any]:
        (x, w) = i
        i.clear()
        return [x.view(1, -1), None, (x * w).sum(0), x.exp()]

    def f4(i: list[Any]) -> list[Any]:
        (x, w) = i
        i.clear()
        a, b = x.sin(), x.cos()
        return [torch.cat([a, b]).narrow(0, 0, x.shape[0]), a]

    def f5(i: list[Any]) -> list[Any]:
        (x, w) = i
        i.clear()
        return [x.clone().add_(w)]

    functions = (f0, f1, f2, f3, f4, f5)
    compiled = [
        make(pool, f, 2, static=[1], max_held=1 + k % 3, copy_up_to=24 * (k % 2)) for k, f in enumerate(functions)
    ]
    held: list[tuple[torch.Tensor, torch.Tensor]] = []
    x = torch.arange(4.0)
    for which, size, what in calls:
        if what != "chain" or x.dim() != 1 or x.numel() == 0:
            x = torch.arange(float(size + 1)) + len(held)
        expected = functions[which]([x.clone(), w])
        boxed = [x, w]
        del x
        results = compiled[which].boxed(boxed)
        assert not boxed
        pairs = [(a, b.clone()) for a, b in zip(results, expected, strict=True) if isinstance(b, torch.Tensor)]
        for a, b in pairs:
            assert torch.equal(a, b)
        x = pairs[0][0]
        if what == "hold":
            held += pairs
        elif what == "free":
            del held[::2]
        elif what == "write":
            own = pairs[-1][0]
            if which != 1:
                own.fill_(5.0)
                pairs[-1][1].fill_(5.0)
                held.append(pairs[-1])
        del results, pairs
        for a, b in held:
            assert torch.equal(a, b)
    assert not any(c._broken for c in compiled)


# ---------------------------------------------------------------------- results over memory that is lent again
def test_whoever_holds_only_the_storage_of_a_result_keeps_it() -> None:
    f = make(GraphPool(SimulatedDriver()), lambda i: [i[0] + 1], 1)
    f(torch.zeros(4)), f(torch.zeros(4))
    for n in range(4):
        storage = f(torch.full((4,), float(n)))[0].untyped_storage()
        f(torch.full((4,), 50.0))
        assert torch.empty(0).set_(storage, 0, (4,), (1,)).tolist() == [n + 1.0] * 4
        del storage


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.resize_(2),
        lambda t: t.unsqueeze_(0),
        lambda t: t.set_(torch.ones(7)),
        lambda t: t.add_(5),
        lambda t: t.requires_grad_(),
    ],
    ids=["smaller", "unsqueezed", "set", "written", "leaf"],
)
def test_what_is_done_to_a_result_does_not_reach_the_next(change: Callable[[torch.Tensor], object]) -> None:
    driver = SimulatedDriver()
    f = make(GraphPool(driver), lambda i: [i[0] + 1, i[0] * 2], 1)
    for n in range(6):
        a, b = f(torch.full((4,), float(n)))
        assert (a.tolist(), b.tolist()) == ([n + 1.0] * 4, [n * 2.0] * 4)
        assert a._version == 0 and not a.requires_grad
        change(a)
        del a, b
    assert driver.captures == 1


def test_a_view_of_a_result_and_a_graph_that_saved_it_hold_it() -> None:
    driver = SimulatedDriver()
    f = make(GraphPool(driver), lambda i: [i[0] + 1], 1)
    f(torch.zeros(4)), f(torch.zeros(4))
    view = f(torch.full((4,), 1.0))[0][1:3]
    w = torch.ones(4, requires_grad=True)
    loss = (w * f(torch.full((4,), 2.0))[0]).sum()
    f(torch.full((4,), 9.0))
    assert view.tolist() == [2.0, 2.0]
    loss.backward()
    assert w.grad is not None and w.grad.tolist() == [3.0] * 4


# ---------------------------------------------------------------------- what is given up
def test_a_slower_replay_that_copies_little_was_disturbed() -> None:
    driver = SimulatedDriver()
    f = make(GraphPool(driver), lambda i: [i[0] + 1], 1, warmup_calls=2, measure=True)
    driver.seconds = [1.0, 1.25]
    for n in range(5):
        assert f(torch.full((4,), float(n)))[0].tolist() == [n + 1.0] * 4
    assert f.recordings == 1 and not driver.seconds


@pytest.mark.parametrize(
    "plain, replays, copied, pays",
    [
        pytest.param(5e-3, [2e-2], 1 << 10, True, id="many launches, copies of nothing: whatever was measured"),
        pytest.param(5e-3, [4e-3], 1 << 30, True, id="faster in spite of its copies"),
        pytest.param(5e-3, [6e-3, 7e-3], 1 << 29, None, id="two of three"),
        pytest.param(5e-3, [6e-3, 7e-3, 6e-3], 1 << 29, False, id="its copies make it slower"),
        pytest.param(5e-3, [3e-2, 7e-2, 4e-2], 1 << 29, None, id="copies do not explain so much"),
        pytest.param(5e-3, [3e-2] * 16, 1 << 29, True, id="nor ever"),
        pytest.param(2e-5, [5e-5] * 3, 1 << 10, False, id="few launches: the host takes longer"),
        pytest.param(2e-5, [9e-4] * 3, 1 << 10, None, id="not that much longer"),
        pytest.param(6e-4, [9e-4] * 3, 1 << 10, None, id="half a millisecond of launches"),
    ],
)
def test_a_recording_is_dropped_for_what_it_can_cost_only(
    plain: float, replays: list[float], copied: int, pays: bool | None
) -> None:
    assert record_module._pays(plain, replays, copied) is pays


def test_a_backward_whose_forward_ran_without_a_recording_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_module, "_SAVED_ELSEWHERE", 1 << 10)
    driver = SimulatedDriver()
    pool = GraphPool(driver)
    forward = make(pool, lambda i: [i[0] + 1], 1)
    backward = record(
        Boxed(lambda i: [i[0].sum()]), [torch.empty(1)],
        CudaGraphSettings(warmup_calls=1, measure=False, copy_up_to=0), pool=pool, fixed_layouts=True, takes_saved=True,
    )  # fmt: skip
    assert isinstance(backward, Recorded)
    x = torch.ones(1 << 10)
    for _ in range(2):
        assert backward(forward(x)[0])[0].item() == 2 * x.numel()
    forward(x)
    assert forward.recordings == backward.recordings == 1
    told: list[str] = []
    with listen(lambda kind, fields: told.append(fields["reason"]) if kind == "fallback" else None):
        for _ in range(4):
            assert backward(x + 1)[0].item() == 2 * x.numel()
    assert told == ["TJ-CG-015"]
    assert driver.captures == 2 and backward.recordings == 0


def _on_a_device(monkeypatch: pytest.MonkeyPatch, fail: Exception | None = None) -> tuple[Boxed, list[SimulatedDriver]]:
    """A callable of a CUDA device whose pools are simulated, and the drivers of those that were made."""
    made: list[SimulatedDriver] = []

    def driver_of(device: torch.device) -> SimulatedDriver:
        made.append(SimulatedDriver())
        made[-1].fail = fail
        return made[-1]

    monkeypatch.setattr(pool_module, "TorchGraphDriver", driver_of)
    monkeypatch.setattr(pool_module, "_pools", {})
    monkeypatch.setattr(pool_module, "_closed", [])
    monkeypatch.setattr(record_module, "refusal", lambda *arguments: None)
    return Boxed(lambda i: [i[0] + 1], device=torch.device("cuda", 0)), made


def test_the_pool_is_given_up_with_its_last_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, made = _on_a_device(monkeypatch)
    f = record(compiled, [torch.zeros(4)], CudaGraphSettings(copy_up_to=0))
    assert isinstance(f, Recorded)
    held = []
    for n in range(8):
        if made:
            made[0].seconds = [1e-5] if n == 1 else [2e-5]  # the second call is timed, and then replays
        held.append(f(torch.full((4,), float(n)))[0])
        assert held[-1].tolist() == [n + 1.0] * 4
        if n < 5:
            held.pop()
    assert made[0].released and f.recordings == 0 and made[0].captures == 1
    assert [t.tolist() for t in held] == [[n + 1.0] * 4 for n in (5, 6, 7)]
    held.clear()
    mark_step_begin()
    assert not pool_module._closed


def test_a_failed_capture_is_not_tried_again_in_the_next_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, made = _on_a_device(monkeypatch, RuntimeError("not permitted"))
    f = record(compiled, [torch.zeros(4)], CudaGraphSettings(measure=False))
    for n in range(9):
        assert f(torch.full((4,), float(n)))[0].tolist() == [n + 1.0] * 4
    assert len(made) == 2  # that of the failed capture, which is closed, and the next one's
