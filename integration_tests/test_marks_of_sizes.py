"""Arguments of `mark_unbacked` and its kind, `substitute_in_graph(can_constant_fold_through=)`: ours and upstream's, against eager."""

# mypy: allow-untyped-calls, no-warn-return-any

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Callable, Sequence
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
    compiled: Any = torchjit.compile(f, backend="eager", **compile_options)
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


# ---------------------------------------------------------------------- by the names of places
class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = 3

    def forward(self, x: torch.Tensor, n: int = 2, *rest: torch.Tensor, s: float = 1.5) -> torch.Tensor:
        y = x.sin() * n * s + self.count
        for each in rest:
            y = y + each.sum()
        torchjit.graph_break()
        return y * y.shape[0]


def entries_after(compiled: Any, sizes: Sequence[int] = (3, 4, 5)) -> list[int]:
    """Compiled entries of each region after calls that change everything at once, each compared with eager."""
    module = compiled._orig_mod
    for k, size in enumerate(sizes):
        module.count = 3 + k
        args = (torch.ones(size, 2), 3 + k, torch.ones(size + 1), torch.ones(size + 2))
        torch.testing.assert_close(compiled(*args, s=2.5 + k), module(*args, s=2.5 + k))
    return [len(site.specializations) for site in compiled.compiled.sites]


@pytest.mark.parametrize(
    ("settings", "entries"),
    [
        ({}, [2, 2]),
        ({"dynamic_sources": "L['x'],L['n'],L['s'],L['rest'][0],L['rest'][1],L['self'].count,L['y']"}, [1, 1]),
        ({"dynamic_sources": "x:0, n, s, rest\\[.*:0, self.count, y:0"}, [1, 1]),
        ({"dynamic_sources": ".*"}, [1, 1]),
        ({"dynamic_sources": ".*:0"}, [1, 1]),  # numbers have no dimensions
        ({"dynamic_sources": ".*:1"}, [2, 2]),
        ({"dynamic_sources": "L['x'],L['n']"}, [2, 2]),
        ({"static_sources": "L['x']"}, [3, 2]),
        ({"static_sources": "n"}, [3, 2]),
        ({"static_sources": "s"}, [3, 2]),
        ({"static_sources": "self.count"}, [3, 2]),
        ({"static_sources": "L['y']:1"}, [2, 2]),
        ({"static_sources": "L['y']:0"}, [2, 3]),
        ({"dynamic_sources": ".*", "static_sources": "L['x']:0"}, [3, 1]),
        ({"unbacked_sources": "x:0,y:0", "dynamic_sources": "self.*,n,s,rest.*"}, [1, 1]),
        ({"dynamic_sources": "xyz,L['z']"}, [2, 2]),
    ],
    ids=str,
)
def test_sizes_and_numbers_by_the_names_of_places(settings: dict[str, str], entries: list[int]) -> None:
    for dynamic in (None, False) if settings.get("dynamic_sources") == ".*" and len(settings) == 1 else (None,):
        with torchjit.config.patch(settings):
            assert entries_after(torchjit.compile(Scaled(), backend="eager", dynamic=dynamic)) == entries


def test_marks_win_over_names_and_upstreams_settings_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def compiled_entries(mark: Callable[[torch.Tensor], None]) -> int:
        compiled: Any = torchjit.compile(f, backend="eager", isolate_recompiles=True)
        for size in (3, 4, 5):
            x = torch.ones(size)
            mark(x)
            assert torch.equal(compiled(x), x * 2)
        return len(compiled.compiled.entries)

    def nothing(x: torch.Tensor) -> None:
        pass

    assert compiled_entries(nothing) == 2
    with torchjit.config.patch(static_sources="L['x']"):
        assert compiled_entries(nothing) == 3
        assert compiled_entries(lambda x: torchjit.mark_dynamic(x, 0)) == 1
    with torchjit.config.patch(dynamic_sources="L['x']"):
        assert compiled_entries(nothing) == 1
        assert compiled_entries(lambda x: torchjit.mark_static(x, 0)) == 3
    with torch.compiler.config.patch(dynamic_sources="L['x']:0"):
        assert compiled_entries(nothing) == 1
        with torchjit.config.patch(dynamic_sources=""):  # set here, it counts alone
            assert compiled_entries(nothing) == 2
    with torch.compiler.config.patch(unbacked_sources="L['x'"), pytest.raises(ValueError, match=r"TJ-API-076.*L\['x'"):
        compiled_entries(nothing)
    assert compiled_entries(nothing) == 2
    monkeypatch.setitem(
        sys.modules, "torch.compiler.config", types.ModuleType("older")
    )  # where torch has no such settings
    for variable, entries in (
        ("TORCH_COMPILE_DYNAMIC_SOURCES", 1),
        ("TORCH_COMPILE_UNBACKED_SOURCES", 1),
        ("TORCH_COMPILE_STATIC_SOURCES", 3),
    ):
        monkeypatch.setenv(variable, "L['x']")
        assert compiled_entries(nothing) == entries


def test_an_unbacked_size_decides_nothing() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] > 3 else x - 1

    x = torch.ones(4)
    with torchjit.config.patch(unbacked_sources="x:0"):
        with pytest.raises(torchjit.exc.Unsupported, match="TJ-GRD-003"):
            torchjit.compile(f, backend="eager", fullgraph=True)(x)
        compiled: Any = torchjit.compile(lambda x: x + 1, backend="eager")
        for size in (0, 1, 5):
            assert torch.equal(compiled(torch.ones(size)), torch.ones(size) + 1)
        assert len(compiled.compiled.entries) == 1


def test_a_recompile_tells_the_line_to_paste() -> None:
    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n

    for first, second in (
        ((torch.ones(3, 2), 2), (torch.ones(4, 2), 2)),
        ((torch.ones(2, 3), 2), (torch.ones(2, 4), 2)),
        ((torch.ones(3), 2), (torch.ones(3), 3)),
    ):
        compiled: Any = torchjit.compile(f, backend="eager", isolate_recompiles=True)
        compiled(*first), compiled(*second)
        (advice,) = (r.advice for r in compiled.compiled.stats.recompiles)
        (line,) = re.findall(r'torchjit\.config\.(dynamic_sources = ".*")', advice)
        told: dict[Any, Any] = {}
        exec(line, told)
        with torchjit.config.patch(dynamic_sources=told["dynamic_sources"]):
            pasted: Any = torchjit.compile(f, backend="eager", isolate_recompiles=True)
            pasted(*first), pasted(*second)
            assert len(pasted.compiled.entries) == 1
