"""What a program says of functions under torchjit's own names: `disallow_in_graph`, `forbid_in_graph`, `nonstrict_trace` ..."""

# mypy: allow-untyped-calls

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import torchjit
from torchjit import exc
from torchjit_session import control


@pytest.fixture(autouse=True)
def marks_go() -> Iterator[None]:
    marks: list[set[Any]] = [control.ALLOWED_IN_GRAPH, control.CONSTANT_RESULTS, control.DISALLOWED, control.FORBIDDEN]
    before = [set(marked) for marked in marks]
    yield
    for marked, kept in zip(marks, before, strict=True):
        marked.intersection_update(kept)


def breaks(f: Callable[..., Any], *args: Any) -> list[str]:
    return [b.reason_id for b in torchjit.explain(f)(*args).breaks]


def helper(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


class Holder:
    @staticmethod
    def static(x: torch.Tensor) -> torch.Tensor:
        return x + 3


@pytest.mark.parametrize(
    ("marked", "f"),
    [
        (torch.sub, lambda x: torch.sub(torch.add(x, 1), 1) * 2),
        (helper, lambda x: helper(x + 1) * 2),
        (Holder.static, lambda x: Holder.static(x + 1) * 2),
        (torch.nn.functional.relu, lambda x: torch.nn.functional.relu(x + 1) * 2),
        (torch.is_grad_enabled, lambda x: x + 1 if torch.is_grad_enabled() else x),
    ],
    ids=["torch", "function", "static method", "functional", "question"],
)
def test_disallowed_and_forbidden(marked: Any, f: Any) -> None:
    x = torch.randn(3)
    assert breaks(f, x) == []
    assert torchjit.disallow_in_graph(marked) is marked
    assert breaks(f, x) == ["TJ-API-046"]
    assert torch.equal(torchjit.compile(f, backend="eager")(x), f(x))
    with pytest.raises(exc.Unsupported, match="disallow_in_graph"):
        torchjit.compile(f, backend="eager", fullgraph=True)(x)
    assert torchjit.forbid_in_graph(marked) is marked
    with pytest.raises(exc.UserError, match=r"(?s)TJ-API-047.*test_marks_of_functions.py"):
        torchjit.compile(f, backend="eager")(x)
    assert f(x).shape == x.shape  # plain calls work


def test_a_forbidden_function_may_be_handed_around() -> None:
    torchjit.forbid_in_graph(helper)
    x = torch.randn(3)
    f = torchjit.compile(lambda x, g: (x + 1, g), backend="eager", fullgraph=True)
    assert f(x, helper)[1] is helper
    below = torchjit.compile(lambda x: torchjit.disable(helper)(x) + 1, backend="eager")
    with contextlib.suppress(exc.Unsupported):
        assert torch.equal(below(x), helper(x) + 1)


def test_nonstrict_trace() -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        torchjit.graph_break()
        return x.sin()

    traced = torchjit.nonstrict_trace(body)
    assert traced is not body
    assert traced.__name__ == "body"
    x = torch.randn(3, requires_grad=True)
    assert breaks(lambda x: body(x) + 1, x) == ["TJ-API-011"]
    torchjit.compile(lambda x: traced(x) + 1, backend="aot_eager", fullgraph=True)(x).sum().backward()
    torch.testing.assert_close(x.grad, x.detach().cos())


def test_nested_regions_and_skipped_frames() -> None:
    @torchjit.nested_compile_region
    def block(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    @torchjit.nested_compile_region(max_reuse_entries=2)
    def other(x: torch.Tensor) -> torch.Tensor:
        return x.cos()

    x = torch.randn(3)
    f = torchjit.compile(lambda x: other(block(block(x))), backend="eager", fullgraph=True)
    assert torch.equal(f(x), other(block(block(x))))

    def skips(x: torch.Tensor) -> torch.Tensor:
        torchjit.skip_frame("tables")
        return x + 1

    told = torchjit.explain(skips)(x)
    assert [b.reason_id for b in told.breaks] == ["TJ-API-011"]
    assert "tables" in told.breaks[0].detail


def test_wrap_numpy() -> None:
    @torchjit.wrap_numpy
    def squares(a: Any, more: dict[str, Any]) -> Any:
        return np.sum(a * a) + np.max(more["b"]), [a + 1, "text"]

    x, y = torch.arange(4.0), torch.tensor([2.0, 5.0])
    total, (shifted, text) = squares(x, {"b": y})
    assert (total.item(), shifted.tolist(), text) == (19.0, [1.0, 2.0, 3.0, 4.0], "text")
    compiled = torchjit.compile(squares, backend="eager", fullgraph=True)
    total, (shifted, text) = compiled(x, {"b": y})
    assert (total.item(), shifted.tolist(), text) == (19.0, [1.0, 2.0, 3.0, 4.0], "text")
    for f in (squares, torchjit.compile(squares, backend="eager")):
        with pytest.raises(RuntimeError, match="requires grad"):
            f(x.clone().requires_grad_(), {"b": y})


SCALE = [2.0]


@pytest.mark.parametrize(
    "name",
    [
        "keep_portable_guards_unsafe", "keep_tensor_guards_unsafe", "skip_all_guards_unsafe",
        "skip_guard_on_all_nn_modules_unsafe", "skip_guard_on_globals_unsafe", "skip_guard_on_inbuilt_nn_modules_unsafe",
    ],
)  # fmt: skip
def test_guards_stay_sound(name: str) -> None:
    filters = getattr(torchjit, name)
    assert filters([1, 2]) == [True, True]
    f = torchjit.compile(lambda x: x * SCALE[0], options={"guard_filter_fn": filters})
    try:
        for SCALE[0] in (2.0, 3.0):
            assert f(torch.ones(1)).item() == SCALE[0]
    finally:
        SCALE[0] = 2.0
    with pytest.raises(exc.UserError, match="guard_filter_fn"):
        torchjit.compile(helper, options={"guard_filter_fn": 3})


@pytest.mark.parametrize(
    "mark",
    [torchjit.disallow_in_graph, torchjit.forbid_in_graph, torchjit.nonstrict_trace, torchjit.nested_compile_region, torchjit.wrap_numpy],
)  # fmt: skip
def test_what_cannot_be_called_is_refused(mark: Any) -> None:
    with pytest.raises(exc.UserError, match="TJ-API-045"):
        mark(3)
