"""Recording, replay and the reasons for doing neither, on the simulated device."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from torchjit_core.events import listen
from torchjit_core.failures import FailurePolicy, using_policy
from torchjit_core.reasons import InvalidIR
from torchjit_cudagraphs import (
    Batch,
    CudaGraphSettings,
    GraphPool,
    Padded,
    Recorded,
    find_batch,
    inputs,
    mark_warmup_incomplete,
    record,
)
from torchjit_cudagraphs.simulated import SimulatedDriver


@attrs.define(eq=False)
class Compiled:
    function: Callable[..., Sequence[Any]]
    static_inputs: frozenset[int] = frozenset()
    mutated_inputs: frozenset[int] = frozenset()
    device: torch.device | None = torch.device("cpu")
    reason_not_recordable: str | None = None
    calls: int = 0

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        self.calls += 1
        return self.function(*inputs)


def recorded(
    function: Callable[..., Sequence[Any]],
    inputs: Sequence[Any],
    *,
    static: Sequence[int] = (),
    mutated: Sequence[int] = (),
    driver: SimulatedDriver | None = None,
    **chosen: Any,
) -> tuple[Recorded, SimulatedDriver]:
    driver = driver or SimulatedDriver()
    compiled = Compiled(function, frozenset(static), frozenset(mutated))
    result = record(
        compiled, inputs, CudaGraphSettings(**{"warmup_calls": 1, "copy_up_to": 0, **chosen}), pool=GraphPool(driver)
    )
    assert isinstance(result, Recorded)
    return result, driver


def fallbacks(run: Callable[[], object]) -> list[str]:
    ids: list[str] = []
    with listen(lambda kind, fields: ids.append(fields["reason"]) if kind == "fallback" else None):
        run()
    return ids


def test_warms_up_then_captures_then_replays() -> None:
    w = torch.randn(3, 3)
    f, driver = recorded(lambda x, w: (x @ w,), (torch.randn(2, 3), w), static=[1])
    for call in range(4):
        x = torch.randn(2, 3)
        torch.testing.assert_close(f(x, w)[0], x @ w)
        assert (driver.warmups, driver.captures, driver.replays) == (1, min(call, 1), call)


def test_what_is_stored_of_it_begins_with_warm_ups_again() -> None:
    made, driver = recorded(lambda x, w: [x @ w, x.sum()], (torch.ones(2, 3), torch.ones(3, 3)), static=(1,))
    x, w = torch.randn(2, 3), torch.randn(3, 3)
    want = [[t.clone() for t in made(x, w)] for _ in range(3)]
    again: Recorded = object.__new__(Recorded)
    again.__restore_state__(made.__stored_state__())
    assert (made.recordings, again.recordings) == (1, 0) and again.settings == made.settings
    for results in want:
        assert all(map(torch.equal, again(x, w), results))
    assert again.recordings == 1


@pytest.mark.parametrize("count", [1, 3, 40])
def test_small_results_are_copied_together_and_are_tensors_of_their_own(count: int) -> None:
    """Of several types and sizes, also those that are no whole number of words, and a larger one; two of them share their memory."""
    kinds = [torch.float32, torch.int8, torch.bfloat16, torch.float64, torch.bool]

    def function(x: torch.Tensor) -> Sequence[Any]:
        made = [(x[: k % 5 + 1] * (k + 1)).to(kinds[k % len(kinds)]) for k in range(count)]
        return [*made, made[0].view(-1)[:1], torch.cat([x, x, x]), x.repeat(5000)]

    f, driver = recorded(function, (torch.ones(5),), copy_up_to=1 << 20)
    kept: list[tuple[torch.Tensor, Sequence[Any]]] = []
    for call in range(6):
        x = torch.arange(5.0) + call
        kept.append((x, f(x)))
    for x, results in kept:
        for got, want in zip(results, function(x), strict=True):
            assert got.dtype == want.dtype and got.stride() == want.stride() and torch.equal(got, want)
    assert driver.captures == 1 and driver.replays == 5
    owners = {r.untyped_storage().data_ptr() for _, results in kept[1:] for r in results[:count]}
    assert len(owners) == 5 * count
    for _, results in kept[1:]:
        assert results[count].untyped_storage().data_ptr() == results[0].untyped_storage().data_ptr()


def test_a_warm_up_may_ask_for_another_one() -> None:
    asks = [True, True, False]

    def function(x: torch.Tensor) -> Sequence[Any]:
        if asks and asks.pop(0):
            mark_warmup_incomplete()
        return (x + 1,)

    f, driver = recorded(function, (torch.zeros(2),))
    mark_warmup_incomplete()  # outside of a warm-up: nothing
    for call in range(5):
        assert f(torch.full((2,), float(call)))[0].tolist() == [call + 1.0] * 2
        assert (driver.warmups, driver.captures) == (min(call + 1, 3), int(call > 2))


def test_held_outputs_are_never_overwritten() -> None:
    f, driver = recorded(lambda x: (x + 1,), (torch.zeros(2),), max_held=2)
    held = [f(torch.full((2,), float(i)))[0] for i in range(8)]
    assert [h.tolist() for h in held] == [[i + 1.0] * 2 for i in range(8)]
    # Two recordings gave out their memory, a third one copies.
    assert driver.captures == 3
    del held
    for i in range(4):
        assert f(torch.full((2,), float(i)))[0].tolist() == [i + 1.0] * 2
    assert driver.captures == 3


def test_dropped_outputs_need_one_recording_and_no_copy() -> None:
    f, driver = recorded(lambda x: (x + 1,), (torch.zeros(2),))
    addresses = {f(torch.zeros(2))[0].data_ptr() for _ in range(6)}
    assert driver.captures == 1
    assert len(addresses) == 2  # the warm-up's, and the pool's


def test_a_mutated_buffer_is_updated_once_per_call() -> None:
    counter = torch.zeros(1)

    def step(x: torch.Tensor, counter: torch.Tensor) -> Sequence[Any]:
        counter.add_(1)
        return (x * counter,)

    f, _ = recorded(step, (torch.ones(1), counter), static=[1], mutated=[1])
    for call in range(1, 6):
        assert f(torch.ones(1), counter)[0].item() == call
        assert counter.item() == call


def test_moved_parameters_are_recorded_anew_up_to_the_limit() -> None:
    f, driver = recorded(lambda x, w: (x * w,), (torch.ones(2), torch.ones(2)), static=[1], max_versions=2)
    x = torch.ones(2)
    keep = [torch.full((2,), float(i)) for i in range(4)]

    def run() -> None:
        for w in (keep[0], *keep, *keep):
            assert f(x, w)[0].tolist() == w.tolist()

    assert fallbacks(run) == ["TJ-CG-007"]
    assert driver.captures == 2
    assert f.recordings == 2


def test_sizes_are_recorded_up_to_the_limit_then_run_without() -> None:
    f, driver = recorded(lambda x: (x.sin(),), (torch.ones(2),), max_recordings=3)

    def run() -> None:
        for _ in range(3):
            for n in range(1, 6):
                x = torch.randn(n)
                torch.testing.assert_close(f(x)[0], x.sin())

    assert fallbacks(run) == ["TJ-CG-006"]
    assert driver.captures == 3


def test_numbers_are_part_of_the_recording() -> None:
    f, driver = recorded(lambda x, n: (x * n, n), (torch.ones(1), 2), copy_up_to=64)
    for n in (2, 2, 3, 3, 2, 3, 2.0, 2.0, True, True):
        out, same = f(torch.ones(1), n)
        assert out.item() == float(n)
        assert same is n or same == n
    assert driver.captures == 4


def test_outputs_that_are_inputs_or_share_memory() -> None:
    w = torch.randn(4)

    def function(x: torch.Tensor, w: torch.Tensor) -> Sequence[Any]:
        y = x + w
        return (x, x[1:], w, y, y[2:], y.view(2, 2).t(), None, x.view(torch.int32)[1:])

    x0 = torch.randn(4)
    f, _ = recorded(function, (x0, w), static=[1])
    f(x0, w)
    x = torch.randn(8)[4:]
    out = f(x, w)
    assert out[0] is x and out[2] is w and out[6] is None
    assert out[1].data_ptr() == x[1:].data_ptr()
    assert out[7].data_ptr() == x[1:].data_ptr() and out[7].dtype == torch.int32
    for got, want in zip(out, function(x, w), strict=True):
        if isinstance(want, torch.Tensor):
            assert torch.equal(got, want) and got.stride() == want.stride()
    assert out[4].untyped_storage().data_ptr() == out[3].untyped_storage().data_ptr()
    out[3].zero_()
    assert out[5].tolist() == [[0, 0], [0, 0]]


def test_layouts_of_inputs() -> None:
    f, driver = recorded(lambda *xs: [x.clone() for x in xs], (torch.ones(2),), copy_up_to=1000)
    base = torch.randn(6, 8)
    views = (base.t(), base[::2, 1:5], base[:1].expand(5, 8), base[0, 0], base[:0], base.permute(1, 0)[2:])
    for _ in range(3):
        for got, want in zip(f(*views), views, strict=True):
            assert torch.equal(got, want)
    assert driver.captures == 1


def test_overlapping_input_is_refused() -> None:
    x = torch.randn(10).unfold(0, 4, 1)
    compiled = Compiled(lambda x: (x + 1,))
    got: list[object] = []
    assert fallbacks(lambda: got.append(record(compiled, (x,), pool=GraphPool(SimulatedDriver())))) == ["TJ-CG-009"]
    assert got == [compiled]


@pytest.mark.parametrize(
    ("compiled", "inputs", "reason_id"),
    [
        (Compiled(lambda x: (x,), device=None), (torch.ones(1),), "TJ-CG-001"),
        (Compiled(lambda x: (x,), device=torch.device("meta")), (torch.ones(1),), "TJ-CG-001"),
        (Compiled(lambda x: (x,)), (torch.ones(1, device="meta"),), "TJ-CG-002"),
        (Compiled(lambda x: (x,), reason_not_recordable="aten.nonzero"), (torch.ones(1),), "TJ-CG-004"),
        (Compiled(lambda x: (x,)), (torch.ones(1, requires_grad=True),), "TJ-CG-005"),
    ],
)
def test_refusals_return_the_callable_and_say_why(compiled: Compiled, inputs: Sequence[Any], reason_id: str) -> None:
    got: list[object] = []
    assert fallbacks(lambda: got.append(record(compiled, inputs, pool=GraphPool(SimulatedDriver())))) == [reason_id]
    assert got == [compiled]


def test_the_cpu_is_refused_by_the_real_driver_without_touching_cuda() -> None:
    compiled = Compiled(lambda x: (x,))
    assert record(compiled, (torch.ones(1),)) is compiled


def test_a_failed_capture_leaves_the_callable_working() -> None:
    driver = SimulatedDriver()
    driver.fail = RuntimeError("operation not permitted when stream is capturing")
    f, _ = recorded(lambda x: (x + 1,), (torch.ones(1),), driver=driver)

    def run() -> None:
        for i in range(4):
            assert f(torch.full((1,), float(i)))[0].item() == i + 1

    assert fallbacks(run) == ["TJ-CG-008"]


def test_inside_another_capture_the_callable_runs_itself() -> None:
    f, driver = recorded(lambda x: (x + 1,), (torch.ones(1),))
    f(torch.ones(1)), f(torch.ones(1))
    driver.inside = True
    assert f(torch.ones(1))[0].item() == 2
    assert driver.replays == 1


def test_streams_wait_for_each_other() -> None:
    f, driver = recorded(lambda x: (x + 1,), (torch.ones(1),))
    for stream in (1, 1, 1, 2, 2, 1):
        driver.current = stream
        f(torch.ones(1))
    assert driver.waits == [(1, 2), (2, 1)]


def test_inference_mode_and_normal_mode_share_a_recording() -> None:
    f, _ = recorded(lambda x: (x * 2,), (torch.ones(2),))
    with torch.inference_mode():
        f(torch.ones(2)), f(torch.ones(2))
    assert f(torch.full((2,), 3.0))[0].tolist() == [6, 6]


def test_a_failed_capture_is_said_once_or_raised() -> None:
    x = torch.ones(2)

    def failing(error: Exception) -> Recorded:
        f, driver = recorded(lambda x: (x * 2,), (x,))
        driver.fail = error
        f(x)
        return f

    with using_policy(FailurePolicy()):
        graphs = [failing(RuntimeError("not permitted")) for _ in range(3)]
    with warnings.catch_warnings(record=True) as told:  # the later calls belong to no compilation
        warnings.simplefilter("always")
        for f in graphs:
            assert f(x)[0].tolist() == f(x)[0].tolist() == [2, 2]
    assert len(told) == 1 and "TJ-CG-008" in str(told[0].message) and "not permitted" in str(told[0].message)

    with using_policy(FailurePolicy(raises=True)):
        graphs = [failing(error) for error in (RuntimeError("not permitted"), torch.OutOfMemoryError("full"))]
    for f, wanted in zip(graphs, (InvalidIR, torch.OutOfMemoryError), strict=True):
        with pytest.raises(wanted, match="TJ-CG-008.*not permitted|full"):
            f(x)
        assert f(x)[0].tolist() == [2, 2] and f.recordings == 0  # the pool that was given is closed


def test_what_a_listener_raises_during_a_capture_is_the_programs() -> None:
    class Stop(Exception):
        pass

    def stop(kind: str, fields: dict[str, Any]) -> None:
        if kind == "phase":
            raise Stop

    x = torch.ones(2)
    f, _ = recorded(lambda x: (x * 2,), (x,))
    f(x)
    with listen(stop), pytest.raises(Stop):
        f(x)
    assert f(x)[0].tolist() == [2, 2]


def test_both_ways_to_compare_addresses_agree() -> None:
    tensors: list[Any] = [torch.ones(1), 3, torch.ones(2), torch.empty(0)]
    right = [tensors[0].data_ptr(), 0, tensors[2].data_ptr(), 0]
    for compare in (inputs._addresses_equal, inputs._python_addresses_equal):
        assert compare(tensors, right, [0, 2, 3])
        assert not compare(tensors, [*right[:2], 8, 0], [0, 2, 3])
        assert compare(tensors, [*right[:2], 8, 0], [0, 3])
        assert compare(tensors, right, [])


def batched(function: Callable[..., Sequence[Any]], batch: Batch, **compiled: Any) -> tuple[Padded, SimulatedDriver]:
    driver = SimulatedDriver()
    settings = CudaGraphSettings(warmup_calls=1, copy_up_to=0, measure=False, capture_sizes=(2, 4, 8))
    made = record(
        Compiled(function, **compiled), (torch.ones(3, 2), torch.ones(2)), settings, pool=GraphPool(driver), batch=batch
    )
    assert isinstance(made, Padded)
    return made, driver


def test_batches_are_filled_up_to_the_next_size() -> None:
    w = torch.randn(2)
    f, driver = batched(lambda x, w: (x * w + 1, (x @ w)), Batch({0: 0}, {0: 0, 1: 0}), static_inputs=frozenset({1}))
    held = []
    for _ in range(3):
        for count in range(1, 9):
            x = torch.randn(count, 2)
            first, second = f(x, w)
            torch.testing.assert_close(first, x * w + 1)
            torch.testing.assert_close(second, x @ w)
            held.append((first, x * w + 1))
            held = held[-2:]
            for got, want in held:
                torch.testing.assert_close(got, want)
    sizes = {key[0][0] for key in f.recorded._recordings}
    assert sizes == {(2, 2), (4, 2), (8, 2)}
    assert driver.replays > 12

    assert fallbacks(lambda: [f(torch.ones(9, 2), w), f(torch.ones(10, 2), w)]) == ["TJ-CG-011"]
    assert f(torch.ones(9, 2), w)[0].shape == (9, 2)


def test_what_is_written_to_a_filled_batch_reaches_the_caller() -> None:
    def step(x: torch.Tensor, y: torch.Tensor) -> Sequence[Any]:
        x.add_(1)
        return (x.sum(1) + y.sum(),)

    f, _ = batched(step, Batch({0: 0}, {0: 0}), mutated_inputs=frozenset({0}))
    for count in (3, 3, 3, 4, 3, 1):
        x = torch.randn(count, 2)
        want = x + 1
        (got,) = f(x, torch.ones(2))
        torch.testing.assert_close(x, want)
        torch.testing.assert_close(got, want.sum(1) + 2)


def test_rows_that_depend_on_one_another_are_found_out() -> None:
    f, driver = batched(lambda x, w: (x - x.mean(0) + w,), Batch({0: 0}, {0: 0}))
    w = torch.ones(2)

    def run() -> None:
        for count in (3, 3, 3, 3, 4, 4, 4):
            x = torch.randn(count, 2)
            torch.testing.assert_close(f(x, w)[0], x - x.mean(0) + w)

    driver.inside = True  # somebody captures: nothing may wait for the device
    run()
    driver.inside = False
    assert fallbacks(run) == ["TJ-CG-013"]
    assert driver.captures == 1  # of batches that are as large as a capture size


def test_the_number_of_rows_is_that_of_the_recording() -> None:
    f, _ = batched(lambda n, x: (x.new_ones(n, 2) + x,), Batch({1: 0}, {0: 0}, counts=(0,)))
    for count in (3, 3, 3, 1, 2, 4):
        x = torch.randn(count, 2)
        torch.testing.assert_close(f(count, x)[0], x + 1)


def test_refusals_name_the_input() -> None:
    details: list[str] = []
    given = (torch.ones(2), torch.ones(4).as_strided((3, 2), (1, 1)))
    with listen(lambda kind, fields: details.append(fields["detail"]) if kind == "fallback" else None):
        record(
            Compiled(lambda x, y: (x,)),
            given,
            pool=GraphPool(SimulatedDriver()),
            names=["input x", "input y (used at a.py:3)"],
        )
    assert details == ["input y (used at a.py:3) has sizes [3, 2] and strides [1, 1]"]


def graph_of(function: Callable[..., Any], *inputs: torch.Tensor) -> torch.fx.GraphModule:
    """The function's graph with a symbolic first dimension of every input that has three rows or more."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    fakes = []
    for x in inputs:
        dims = [DimDynamic.DYNAMIC if len(x) > 2 and k == 0 else DimDynamic.STATIC for k in range(x.dim())]
        context: Any = StatelessSymbolicContext(dims)
        fakes.append(mode.from_tensor(x, symbolic_context=context))
    with mode:
        return make_fx(function)(*fakes)


def test_where_the_batch_of_a_graph_is() -> None:
    x, w = torch.ones(5, 3), torch.ones(2, 3)
    assert "memory of an input" in str(find_batch(graph_of(lambda x, w: (x.sin(), x[:, :1]), x, w)))
    assert find_batch(graph_of(lambda x, w: ((x @ w.t()).relu(), x.t().sin()), x, w)) == Batch({0: 0}, {0: 0, 1: 1})
    for function, why in (
        (lambda x, w: (x.sum(0), x), "result 0"),
        (lambda x, w: (torch.cat([x, x]),), "result 0"),
        (lambda x, w: (x @ x.t(),), "result 0"),
        (lambda x, w: (torch.rand_like(x),), "random"),
        (lambda x, w: (w + 1,), "result 0"),
        (lambda x, w: (w.copy_(w + x.sum()), x)[1:], "written"),
    ):
        found = find_batch(graph_of(function, x, w))
        assert isinstance(found, str) and why in found, found
    assert "0 dynamic" in str(find_batch(graph_of(lambda x: (x,), w)))


def test_batches_that_cannot_be_filled_are_refused() -> None:
    compiled, inputs = Compiled(lambda x, y: (x + y,)), (torch.ones(2, 2), torch.ones(2, 2))
    sizes, pool = CudaGraphSettings(capture_sizes=(4,)), GraphPool(SimulatedDriver())
    with pytest.raises(ValueError, match="go together"):
        record(compiled, inputs, sizes, pool=pool)
    with pytest.raises(ValueError, match="go together"):
        record(compiled, inputs, pool=pool, batch=Batch({0: 0}, {}))
    with pytest.raises(ValueError, match="at least one"):
        Batch({}, {})
    static = Compiled(compiled.function, static_inputs=frozenset({0}))
    with pytest.raises(ValueError, match="static"):
        record(static, inputs, sizes, pool=pool, batch=Batch({0: 0}, {}))
    f = record(compiled, inputs, sizes, pool=pool, batch=Batch({0: 0, 1: 0}, {0: 0}))
    with pytest.raises(ValueError, match="different sizes"):
        f(torch.ones(2, 2), torch.ones(1, 2))


def test_symbolic_sizes_are_recorded_one_by_one_and_overlap_is_found_then() -> None:
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        example = mode.from_tensor(torch.ones(5, 4))  # its sizes are symbols
    compiled = Compiled(lambda x: (x * 2,))
    pool = GraphPool(SimulatedDriver())
    f = record(compiled, (example,), CudaGraphSettings(warmup_calls=1, measure=False), pool=pool)
    assert isinstance(f, Recorded)

    def run() -> None:
        for _ in range(3):
            for x in (torch.randn(5, 4), torch.randn(3, 4), torch.randn(9).as_strided((3, 4), (2, 1))):
                torch.testing.assert_close(f(x)[0], x * 2)

    assert fallbacks(run) == ["TJ-CG-009"]
    assert f.recordings == 2


def test_settings_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="max_recordings must be at least 1"):
        CudaGraphSettings(max_recordings=0)
    with pytest.raises(ValueError, match="ascending"):
        CudaGraphSettings(capture_sizes=(4, 2))


@pytest.mark.usefixtures("older_objects_rest")  # among which the holders of results are looked for
@hypothesis_settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), st.booleans()), min_size=1, max_size=12))
def test_any_sequence_of_calls_equals_eager(calls: list[tuple[int, int, bool]]) -> None:
    weights = [torch.full((3,), float(i + 1)) for i in range(3)]

    def function(x: torch.Tensor, w: torch.Tensor) -> Sequence[Any]:
        return (x * w, x, (x + w).sum(0))

    f, _ = recorded(function, (torch.ones(1, 3), weights[0]), static=[1], max_recordings=2, max_versions=2)
    results = []
    for rows, which, transpose in calls:
        x = torch.randn(3, rows).t() if transpose else torch.randn(rows, 3)
        results.append((f(x, weights[which]), function(x, weights[which])))
    for got, want in results:
        for a, b in zip(got, want, strict=True):
            assert torch.equal(a, b)
