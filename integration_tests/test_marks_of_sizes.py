"""Arguments of `mark_unbacked` and its kind, `substitute_in_graph(can_constant_fold_through=)`: ours and upstream's, against eager."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._dynamo.decorators

import torchjit
from torchjit import exc

_UPSTREAM = torch._dynamo.decorators.mark_unbacked
_HAS_RANGES = "min" in inspect.signature(_UPSTREAM).parameters  # not in torch 2.11
MARKS = [
    torchjit.mark_unbacked,
    pytest.param(_UPSTREAM, marks=pytest.mark.skipif(not _HAS_RANGES, reason="takes no range")),
]


def compiles(f: Callable[..., Any], mark: Callable[..., Any], *sizes: Any, **compile_options: Any) -> int:
    """Run on tensors of these sizes, marked; how often was it compiled?"""
    compiled = torchjit.compile(f, backend="eager", **compile_options)
    for each in sizes:
        tensors = [torch.arange(float(n)) for n in (each if isinstance(each, tuple) else (each,))]
        for x in tensors:
            mark(x)
        torch.testing.assert_close(compiled(*tensors), f(*tensors))
    return len(compiled.compiled.specializations)


class TestUnbacked:
    @pytest.mark.parametrize("mark", MARKS)
    def test_ranges_may_be_relied_on(self, mark: Any) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            return x.sin() if x.shape[0] <= 8 else x.cos()

        assert compiles(f, lambda x: mark(x, 0, min=2, max=8), 3, 5, 8, fullgraph=True) == 1
        with pytest.raises(exc.Unsupported):
            compiles(f, lambda x: mark(x, 0), 3, fullgraph=True)

    @pytest.mark.parametrize("mark", MARKS)
    def test_what_is_outside_of_a_range_is_an_error(self, mark: Any) -> None:
        compiled = torchjit.compile(lambda x: x.sin() if x.shape[0] <= 8 else x.cos(), backend="eager")
        mark(x := torch.ones(3), 0, max=8)
        compiled(x)
        torch.testing.assert_close(compiled(torch.ones(9)), torch.ones(9).cos())  # not marked
        mark(y := torch.ones(9), 0, max=8)
        with pytest.raises(exc.UserError, match="at most 8"):
            torchjit.compile(lambda x: x * 2, backend="eager")(y)

    @pytest.mark.parametrize("mark", MARKS)
    def test_equal_sizes_share_a_symbol(self, mark: Any) -> None:
        def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (x + y).sin() if x.shape[0] == y.shape[0] else x.sum() + y.sum()

        named = lambda x: mark(x, 0, shape_id="batch")
        assert compiles(f, named, (3, 3), (5, 5), (1, 1), fullgraph=True) == 1
        with pytest.raises(exc.Unsupported):
            compiles(f, lambda x: mark(x, 0), (3, 3), fullgraph=True)
        compiled = torchjit.compile(f, backend="eager")
        for n, m in ((3, 3), (4, 5), (6, 6)):
            named(x := torch.ones(n)), named(y := torch.ones(m))
            torch.testing.assert_close(compiled(x, y), f(x, y))

    def test_arguments_of_upstream_are_taken(self) -> None:
        def mark(x: torch.Tensor) -> None:
            torchjit.mark_unbacked(x, [0], 7, True, [lambda n: n == 8], None, 1, 9)

        assert compiles(lambda x: x * 2, mark, 1, 8) == 1
        torchjit.mark_dynamic(x := torch.ones(3), 0, hint_override=7, specialize_on=[lambda n: n == 8])
        for wrong in (torchjit.mark_unbacked, torchjit.maybe_mark_dynamic, torchjit.mark_dynamic):
            with pytest.raises(exc.UserError, match="min=5, max=4"):
                wrong(x, 0, min=5, max=4)


def test_a_possible_range() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() if x.shape[0] <= 8 else x.cos()

    assert compiles(f, lambda x: torchjit.maybe_mark_dynamic(x, 0, min=2, max=8), 3, 5, 8) == 1
    assert compiles(f, lambda x: torchjit.maybe_mark_dynamic(x, 0, min=2, max=8), 20, 3, 5, dynamic=False) == 2


def digits(text: str) -> int:
    """A function whose substitute differs, so that one sees which of them ran."""
    return len(text)


def digits_in_graph(text: str) -> int:
    return len(text) + 100


@pytest.mark.parametrize("folds", [False, True])
def test_constants_are_folded_through_the_original(folds: bool) -> None:
    calls = []

    def original(x: Any, n: int) -> Any:
        calls.append(n)
        return n + 1 if isinstance(x, int) else x * n

    @torchjit.substitute_in_graph(original, can_constant_fold_through=folds)
    def substitute(x: Any, n: int) -> Any:
        return n + 101 if isinstance(x, int) else x * n * 2

    def of_constants(x: torch.Tensor) -> torch.Tensor:
        return x * original(3, 1)

    def of_tensors(x: torch.Tensor) -> torch.Tensor:
        return original(x, 3)

    def of_keywords(x: torch.Tensor) -> torch.Tensor:
        return x + original(n=4, x=2)

    one = torch.ones(2)
    runs = [torchjit.compile(f, backend="eager", fullgraph=True)(one) for f in (of_constants, of_tensors, of_keywords)]
    assert [r[0].item() for r in runs] == ([2, 6, 6] if folds else [102, 6, 106])
    assert calls == ([1, 4] if folds else [])


def test_constants_are_folded_as_upstream_says() -> None:
    @torch._dynamo.substitute_in_graph(digits, can_constant_fold_through=True)
    def _(text: str) -> int:
        return digits_in_graph(text)

    compiled = torchjit.compile(lambda x, text: x + digits(text), backend="eager", fullgraph=True)
    assert compiled(torch.zeros(1), "four").item() == 4
