"""What cannot be in a graph says why, and leaves no trace."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torchjit_core.guards import Different, SameObject, TensorMatches
from torchjit_core.reasons import GraphBreak, all_reasons
from torchjit_fx.eager_rules.dtype_probe import kernel_dtype
from torchjit_fx.eager_rules.rule import OperatorCall
from torchjit_fx.eager_rules.table import rule_of
from torchjit_fx.testing import Captured, SimpleSizes, StaticSizes, capture_by_proxy

Check = Callable[..., Captured]


def r(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape).requires_grad_(grad)


def _assign(name: str, value: Any) -> Callable[[Any], Any]:
    return lambda x: setattr(x, name, value)


BREAKS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "item": (lambda x: x.sum().item(), (r(3),), "TJ-FX-001"),
    "bool": (lambda x: 1 if x.sum() > 0 else 2, (r(3),), "TJ-FX-001"),
    "int": (lambda x: int(x[0]), (r(3),), "TJ-FX-001"),
    "float": (lambda x: float(x[0]), (r(3),), "TJ-FX-001"),
    "tolist": (lambda x: x.tolist(), (r(3),), "TJ-FX-001"),
    "numpy": (lambda x: x.bfloat16().numpy(), (r(3),), "TJ-FX-001"),
    "one_hot": (lambda x: F.one_hot(x), (torch.arange(3),), "TJ-FX-001"),
    "mask_index": (lambda x: x[x > 0], (r(3),), "TJ-FX-002"),
    "nonzero": (lambda x: x.nonzero(), (r(3),), "TJ-FX-002"),
    "unique": (lambda x: torch.unique(x), (r(3),), "TJ-FX-002"),
    "wrong_shapes": (lambda x, y: x @ y, (r(3, 4), r(3, 4)), "TJ-FX-003"),
    "sparse_result": (lambda x: x.to_sparse(), (r(3),), "TJ-FX-004"),
    "sparse_input": (lambda x: x + x, (torch.eye(3).to_sparse(),), "TJ-FX-004"),
    "generator": (lambda x: x.bernoulli(0.5, generator=torch.default_generator), (r(3),), "TJ-FX-005"),
    "data_ptr": (lambda x: x.data_ptr(), (r(3),), "TJ-FX-007"),
    "resize": (lambda x: x.resize_(2), (r(3),), "TJ-FX-008"),
    "t_in_place": (lambda x: x.t_(), (r(3, 2, grad=True) * 1,), "TJ-FX-008"),
    "detach_in_place": (lambda x: x.detach_(), (r(3, 2),), "TJ-FX-008"),
    "requires_grad_": (lambda x: (x * 2).requires_grad_(), (r(3),), "TJ-FX-008"),
    "grad_fn": (lambda x: (x * 2).grad_fn, (r(3, grad=True),), "TJ-FX-011"),
    "set_data": (_assign("data", None), (r(3),), "TJ-FX-012"),
    "set_grad": (lambda x: setattr(x * 2, "grad", None), (r(3),), "TJ-FX-012"),
    "set_grad_of_another_shape": (lambda x: setattr(x, "grad", x.sum()), (r(3),), "TJ-FX-012"),
    "set_attribute": (_assign("mark", 1), (r(3),), "TJ-FX-012"),
    "backward": (lambda x: x.sum().backward(), (r(3, grad=True),), "TJ-FX-013"),
    "hook": (lambda x: x.register_hook(print), (r(3, grad=True),), "TJ-FX-013"),
    "number_minus_bools": (lambda x: 1.5 - x, (torch.ones(2, dtype=torch.bool),), "TJ-FX-003"),
    "abs_of_bools": (lambda x: x.abs(), (torch.ones(2, dtype=torch.bool),), "TJ-FX-003"),
    "abs_of_bools_in_place": (lambda x: x.abs_(), (torch.ones(2, dtype=torch.bool),), "TJ-FX-003"),
    "abs_of_bools_out": (lambda x: torch.abs(x, out=x), (torch.ones(2, dtype=torch.bool),), "TJ-FX-003"),
    "relu_of_bools": (lambda x: F.relu(x), (torch.ones(2, dtype=torch.bool),), "TJ-FX-003"),
    "ceil_of_complex": (lambda x: x.ceil(), (torch.ones(0, 2, dtype=torch.complex64),), "TJ-FX-003"),
    "bool_alpha": (lambda x: torch.add(x, x, alpha=True), (r(3),), "TJ-FX-003"),
    "negative_power_of_ints": (lambda x: (x**2) ** -1, (torch.ones(2, dtype=torch.int64),), "TJ-FX-003"),
    "softmax_over_no_dimension": (lambda x: x.softmax(-99), (r(3),), "TJ-FX-003"),
    "layer_norm_of_two_dtypes": (lambda x, w: F.layer_norm(x, (3,), w, w), (r(2, 3), r(3).half()), "TJ-FX-003"),
    "group_norm_of_two_dtypes": (lambda x, w: F.group_norm(x, 2, w, w.float()), (r(2, 4, 5), r(4).half()), "TJ-FX-003"),
    "product_of_two_dtypes": (lambda x, w: x @ w, (r(2, 3), r(3).half()), "TJ-FX-003"),
    "interpolated_ints": (lambda x: F.interpolate(x, scale_factor=2), (torch.ones(1, 2, 3, 4, dtype=torch.int64),), "TJ-FX-003"),
    "classes_of_floats": (lambda x: F.one_hot(x, 3), (torch.ones(2),), "TJ-FX-003"),
    "shrunk_ints": (lambda x: F.hardshrink(x), (torch.arange(3),), "TJ-FX-003"),
    "margins_of_ints": (lambda x: F.multi_margin_loss(x, x[0]), (torch.ones(3, 3, dtype=torch.int64),), "TJ-FX-003"),
    "variance_of_ints": (lambda x: x.var(), (torch.arange(3),), "TJ-FX-003"),
    "ints_drawn_between_0_and_1": (lambda x: x.uniform_(), (torch.arange(3),), "TJ-FX-003"),
    "requires_grad_of_no_leaf": (lambda x: setattr(x * 2, "requires_grad", True), (r(3, grad=True),), "TJ-FX-012"),
    "write_of_another_shape": (lambda x, i: x.__setitem__(i, x + 1), (r(3, 4), torch.tensor([0, 1])), "TJ-FX-003"),
    "write_for_a_mask": (lambda x: x.__setitem__(x > 0, x + 1), (r(3, 4),), "TJ-FX-003"),
    "indices_of_two_shapes": (lambda x, i: x.__setitem__((i, i[:2]), 1.0), (r(3, 4), torch.tensor([0, 1, 2])), "TJ-FX-003"),
    "index_put": (lambda x, i: x.index_put((i,), x), (r(3, 4), torch.tensor([0, 1])), "TJ-FX-003"),
    "index_add": (lambda x, i: x.index_add(0, i, x[:2, :3]), (r(3, 4), torch.tensor([0, 1])), "TJ-FX-003"),
    "index_reduce": (lambda x, i: x.index_reduce(0, i, x + 1, "amax"), (r(3, 4), torch.tensor([0, 1])), "TJ-FX-003"),
    "index_select": (lambda x, i: x.index_select(0, i[None]), (r(3, 4), torch.tensor([0, 1])), "TJ-FX-003"),
    "index_select_of_a_number": (lambda x, i: x.index_select(0, i), (torch.ones(()), torch.tensor([0, 0])), "TJ-FX-003"),
    "put": (lambda x, i: x.put_(i, x + 1), (r(3, 4), torch.tensor([0, 1])), "TJ-FX-003"),
    "masked_scatter": (lambda x: x.masked_scatter_(x[:2] > 0, x + 1), (r(3, 4),), "TJ-FX-003"),
    "select_scatter": (lambda x: x.select_scatter(x, 0, 1), (r(3, 4),), "TJ-FX-003"),
    "select_scatter_out_of_range": (lambda x: x.select_scatter(x[0], 0, 5), (r(3, 4),), "TJ-FX-003"),
    "selected_out_of_range": (lambda x: x.select(0, 3) + 1, (r(3, 4),), "TJ-FX-003"),
    "selected_before_the_first": (lambda x: torch.select_copy(x, 1, -5), (r(3, 4),), "TJ-FX-003"),
    "slice_scatter": (lambda x: x.slice_scatter(x, 0, 1, 3), (r(3, 4),), "TJ-FX-003"),
    "diagonal_scatter": (lambda x: x.diagonal_scatter(x), (r(3, 4),), "TJ-FX-003"),
    "strided_beyond_its_memory": (lambda x: (x + 1).as_strided((2,), (1,), 11), (r(3, 4),), "TJ-FX-003"),
    "read_while_written": (lambda x: x[1:].add_(x[:-1]), (r(3, 4),), "TJ-FX-003"),
    "transposed_while_written": (lambda x: x.copy_(x.t()), (r(3, 3),), "TJ-FX-003"),
    "row_while_written_out": (lambda x: torch.add(x[1:], 1, out=x[:-1]), (r(3, 4),), "TJ-FX-003"),
    "scattered_onto_itself": (lambda x, i: x.scatter_(0, i, x), (r(3, 4), torch.zeros(2, 2, dtype=torch.int64)), "TJ-FX-003"),
    "joined_onto_a_part": (lambda x: torch.cat([x[:1], x[1:]], out=x), (r(3, 4),), "TJ-FX-003"),
    "windows_written": (lambda x: x.unfold(0, 2, 1).add_(1), (r(3, 4),), "TJ-FX-003"),
    "leaf_written_under_grad": (lambda x: x.add_(1), (r(3, grad=True),), "TJ-FX-003"),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_break(name: str) -> None:
    fn, args, reason = BREAKS[name]
    with pytest.raises(GraphBreak) as caught:
        capture_by_proxy(fn, *args)
    assert caught.value.reason.id == reason
    assert caught.value.location is not None and caught.value.location.filename == __file__


@pytest.mark.parametrize("name", [name for name, (_, _, reason) in BREAKS.items() if reason == "TJ-FX-003"])
def test_break_with_sizes_that_vary(name: str) -> None:
    """Each size is a symbol of its own, so the values at capture are all that says that they do not fit."""
    fn, args, reason = BREAKS[name]
    with pytest.raises(GraphBreak) as caught:
        capture_by_proxy(fn, *args, sizes=SimpleSizes())
    assert caught.value.reason.id == reason


def test_a_break_keeps_what_came_before() -> None:
    """After a refused call the region still compiles, without any part of that call."""

    def fn(x: Any) -> Any:
        y = x * 2
        v = y.view(-1)
        with pytest.raises(GraphBreak):
            v.add_(torch.ones(7))
        return y, v

    captured = capture_by_proxy(fn, r(3))
    x = r(3)
    assert torch.equal(captured(x)[0], x * 2) and torch.equal(captured(x)[1], x * 2)
    assert captured.gm is not None and not [n for n in captured.gm.graph.nodes if n.target == "add_"]


def test_own_attributes_of_inputs() -> None:
    x = r(3)
    x.scale = 2.5  # type: ignore[attr-defined]

    def fn(x: Any) -> Any:
        return x * x.scale if not hasattr(x, "missing") else x

    captured = capture_by_proxy(fn, x)
    assert torch.equal(captured(x), x * 2.5)
    other, marked = copy.copy(x), copy.copy(x)
    other.scale = 3.0  # type: ignore[attr-defined]
    marked.scale, marked.missing = 2.5, 1  # type: ignore[attr-defined]
    assert captured.check(x) and not captured.check(other) and not captured.check(marked) and not captured.check(r(3))


def test_grad_of_an_input() -> None:
    x = r(3, grad=True)
    none = capture_by_proxy(lambda x: x.detach() * 2 if x.grad is None else x.grad * 3, x)
    assert none.check(x)
    torch.autograd.backward(x.sum())
    assert not none.check(x)
    some = capture_by_proxy(lambda x: x.detach() * 2 if x.grad is None else x.grad * 3, x)
    assert some.check(x) and torch.equal(some(x), torch.full((3,), 3.0))
    x.grad = None
    assert not some.check(x)


# ---- guards


def test_tensor_guard_discriminates() -> None:
    captured = capture_by_proxy(lambda x: x + 1, r(3, 4))
    assert captured.check(r(3, 4))
    for other in (
        r(3, 5), r(4, 3).t(), r(3, 4).double(), r(3, 4, grad=True), torch.nn.Parameter(r(3, 4), requires_grad=False), r(12),
    ):  # fmt: skip
        assert not captured.check(other)


def test_leafness_matters_only_where_it_is_used() -> None:
    x = r(3, grad=True)
    plain = capture_by_proxy(lambda x: x * 2, x * 1)
    assert plain.check(x * 1) and plain.check(x)
    asked = capture_by_proxy(lambda x: x.is_leaf, x * 1)
    assert asked.check(x * 1) and not asked.check(x)
    written = capture_by_proxy(lambda x: x.mul_(2), x * 1)
    assert written.check(x * 1) and not written.check(x)


def test_same_and_different_inputs() -> None:
    x, y = r(3), r(3)
    twice = capture_by_proxy(lambda a, b: a + b, x, x)
    assert any(isinstance(g, SameObject) for g in twice.guards)
    assert twice.check(y, y) and not twice.check(x, y)
    pure = capture_by_proxy(lambda a, b: a + b, x, y)
    assert pure.check(x, x) and not any(isinstance(g, Different) for g in pure.guards)
    writing = capture_by_proxy(lambda a, b: a.add_(b), x, y)
    assert writing.check(y, x) and not writing.check(x, x) and not writing.check(x, x.view(3))


def test_writing_shared_memory_breaks() -> None:
    x = r(4)
    for order in (lambda a, b: a.add_(b), lambda a, b: (a + b).sum() + b.mul_(2).sum()):
        with pytest.raises(GraphBreak) as caught:
            capture_by_proxy(order, x, x[:])
        assert caught.value.reason.id == "TJ-FX-009"


def test_late_input_on_written_memory_breaks() -> None:
    x = r(4)
    alias = x[1:]

    def fn(a: Any) -> Any:
        a.add_(1)
        return a[1:] + alias

    with pytest.raises(GraphBreak) as caught:
        capture_by_proxy(fn, x)
    assert caught.value.reason.id == "TJ-FX-009"


def test_view_input_written_with_history_breaks() -> None:
    base = r(4)
    with pytest.raises(GraphBreak) as caught:
        capture_by_proxy(lambda a, w: a.mul_(w), base[1:], r(3, grad=True))
    assert caught.value.reason.id == "TJ-FX-010"


def test_offset_is_free_until_it_is_asked(check: Check) -> None:
    base = r(6, 3)
    captured = capture_by_proxy(lambda x: x * 2, base[2])
    assert captured.check(base[4])
    asked = capture_by_proxy(lambda x: torch.as_strided(x, (2,), (1,), 1) + x.storage_offset(), base[0])
    assert asked.check(r(3)) and not asked.check(base[4])
    with pytest.raises(GraphBreak) as caught:
        capture_by_proxy(lambda x: x.storage_offset(), base[2])
    assert caught.value.reason.id == "TJ-FX-016"


def test_modules_with_buffers(check: Check) -> None:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(inplace=True), torch.nn.Flatten(), torch.nn.Linear(144, 5)
    )  # fmt: skip
    twin = copy.deepcopy(model)
    x = r(2, 3, 8, 8)
    captured = capture_by_proxy(lambda x: model(x), x)
    for _ in range(2):
        got, want = captured(x), twin(x)
        torch.testing.assert_close(got, want, rtol=0, atol=0)
        got.sum().backward()
        want.sum().backward()
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=0)
    for a, b in zip(model.buffers(), twin.buffers(), strict=True):
        assert torch.equal(a, b)
    (writes,) = (g for g in captured.guards if isinstance(g, Different))
    assert writes.storages and len(writes.paths) == 10
    assert sum(isinstance(g, TensorMatches) for g in captured.guards) == 10


def test_reasons_have_explanations() -> None:
    mine = [reason for reason in all_reasons() if reason.id.startswith("TJ-FX-")]
    assert len(mine) >= 16 and all(reason.explanation and reason.headline[0].islower() for reason in mine)


def test_asking_the_kernels_draws_no_random_numbers() -> None:
    """Neither of the default generator nor of the program's."""
    own = torch.Generator()
    x = r(3)
    before = torch.get_rng_state(), own.get_state()
    for func, options in ((torch.ops.aten.normal_.default, {"generator": own}), (torch.ops.aten.uniform_.default, {})):
        assert kernel_dtype(OperatorCall(func, (x, 0.0, 5.5), options, rule_of(func))) is torch.float32
    assert torch.equal(own.get_state(), before[1]) and torch.equal(torch.get_rng_state(), before[0])


def test_an_empty_index_of_floats() -> None:
    """As `torch.tensor([])` is. Eager looks at the dtype of others only."""
    x, none = r(3), torch.tensor([])
    captured = capture_by_proxy(lambda x, i: (x.gather(0, i), x.scatter(0, i, 1.0), x.scatter_add(0, i, x)), x, none)
    assert all(map(torch.equal, captured(x, none), (none, x, x)))


WRITES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "row": lambda x, i, b: x.__setitem__(i, b),
    "broadcast": lambda x, i, b: x.__setitem__(i, b[:1]),
    "ones_in_front": lambda x, i, b: x.__setitem__(i, b[None]),
    "masks": lambda x, i, b: x.__setitem__(x[:, 0] > 0, b[:1]),
    "all_of_a_mask": lambda x, i, b: x.__setitem__(torch.ones_like(x, dtype=torch.bool), x.flatten() * 2),
    "apart": lambda x, i, b: x[:, None].__setitem__((i, slice(None), i), b[:, :1]),
    "outer": lambda x, i, b: x.__setitem__((i[:, None], i), b[:, :2]),
    "index_add": lambda x, i, b: x.index_add_(-1, i, x[:, :2] + 1),
    "put": lambda x, i, b: x.put_(i, b[0, :2]),
    "masked_scatter": lambda x, i, b: x.masked_scatter_(x[0] > 0, x + 1),
    "other_half": lambda x, i, b: x[:2].add_(x[2:]),
    "same": lambda x, i, b: x.mul_(x[:]),
    "columns": lambda x, i, b: x[:, :2].add_(x[:, 1:3] * 2),
    "strided_to_the_end": lambda x, i, b: (x + 1).as_strided((2,), (3,), 12),
    "diagonal": lambda x, i, b: x.diagonal().add_(1),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_that_fit_do_not_break(name: str) -> None:
    fn = WRITES[name]

    def program(x: Any, i: Any, b: Any) -> Any:
        fn(x, i, b)
        return x * 1

    given = r(4, 4), torch.tensor([0, 2]), r(2, 4)
    captured = capture_by_proxy(program, *given)
    copies = [t.clone() for t in given]
    assert torch.equal(captured(*given), program(*copies)) and torch.equal(given[0], copies[0])
    varying = capture_by_proxy(program, *given, sizes=SimpleSizes())
    for columns in (4, 7):  # the guards say no more than what eager demands
        given = r(4, columns), torch.tensor([0, 2]), r(2, columns)
        copies = [t.clone() for t in given]
        assert varying.check(*given)
        assert torch.equal(varying(*given), program(*copies)) and torch.equal(given[0], copies[0])


def test_sizes_that_do_not_fit_later() -> None:
    """They are guarded, so the call is captured again, and refused."""
    captured = capture_by_proxy(
        lambda x, i, b: x.index_put((i,), b), r(4, 3), torch.tensor([0, 2]), r(2, 3), sizes=SimpleSizes()
    )
    assert captured.check(r(5, 4), torch.tensor([0, 1, 2]), r(3, 4))
    assert not captured.check(r(5, 4), torch.tensor([0, 1, 2]), r(2, 4))
    strided = capture_by_proxy(lambda x: (x + 1).as_strided((2, 2), (3, 1)), r(4, 3), sizes=SimpleSizes())
    assert strided.check(r(2, 3)) and not strided.check(r(2, 2))


def test_memory_beyond_a_view() -> None:
    """What a stand-in for the view does not have; and what one base has is not remembered for another one."""
    for sizes in (StaticSizes, SimpleSizes):
        captured = capture_by_proxy(lambda x: (x * 2)[:2].as_strided((4, 4), (4, 1)), r(6, 4), sizes=sizes())
        x = r(6, 4)
        assert torch.equal(captured(x), x[:4] * 2)
        with pytest.raises(GraphBreak):
            capture_by_proxy(lambda x: (x * 2).as_strided((4, 4), (4, 1)), r(2, 4), sizes=sizes())
