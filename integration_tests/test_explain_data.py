"""`explain` and `stats` as data: the tree of regions, calls with modules, phases, kernels, guards with costs; and as JSON."""

from __future__ import annotations

import inspect
import json
from typing import Any

import torch
from torch import nn

import torchjit
from torchjit.inspection import Explanation, PhaseInfo, RegionInfo
from torchjit_session.region_info import RegionNode

X = torch.ones(2, 4)


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = self.linear(hidden)
        torchjit.graph_break("look at it")
        return hidden + 1


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Inner()])
        self.table = torch.full((100,), 0.8125)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            pixels = block(pixels)
        return pixels * self.table.sum()


def line_of(f: object, text: str) -> int:
    lines, first = inspect.getsourcelines(f)  # type: ignore[arg-type]
    return first + next(k for k, line in enumerate(lines) if text in line)


def numbered(node: RegionNode) -> list[tuple[str, str, int]]:
    return [(node.kind, node.function, node.location.lineno), *(n for c in node.children for n in numbered(c))]


def test_regions_are_a_tree_with_lines() -> None:
    told = torchjit.explain(Outer())(X)
    (root,) = told.tree
    broken, call = line_of(Inner.forward, "graph_break"), line_of(Outer.forward, "block(pixels)")
    found = numbered(root)
    assert found[0] == ("function", "Outer", line_of(Outer.forward, "def forward"))
    assert ("continuation", f"Inner.forward (continuation at line {broken})", broken) in found
    assert {n[0] for n in found[1:]} == {"continuation"}
    assert {n[2] for n in found[1:]} == {broken, *range(call - 1, call + 2)}
    assert [r.compile_id for r in root.specializations] == [told.regions[0].compile_id]
    assert f"break at line {broken}" in str(root)


def test_a_loop_of_continuations_is_no_endless_tree() -> None:
    def loop(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = x + 1
            torchjit.graph_break()
        return x

    told = torchjit.explain(loop)(X)
    assert len(told.tree) == 1
    assert len(numbered(told.tree[0])) == len({r.function for r in told.regions})


def test_functions_that_python_calls_at_a_break_have_trees_of_their_own() -> None:
    @torchjit.disable(recursive=False)
    def outside(x: torch.Tensor) -> torch.Tensor:
        return inside(x) + 1

    def inside(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    told = torchjit.explain(lambda x: outside(x * 2))(X)
    assert [n.kind for n in told.tree].count("function") == 1
    assert any(n.kind == "call" and n.function.endswith("inside") for n in told.tree)


def test_breaks_have_their_calls_with_modules() -> None:
    told = torchjit.explain(Outer())(X)
    (found,) = told.breaks
    assert [(c.location.function, c.receiver, c.path) for c in found.calls] == [
        ("Outer.forward", "Outer", ""),
        ("Inner.forward", "Inner", "blocks.0"),
    ]
    assert [c.location.lineno for c in found.calls] == [
        line_of(Outer.forward, "block(pixels)"),
        line_of(Inner.forward, "graph_break"),
    ]
    assert "in Inner.forward [blocks.0: Inner]" in str(found) and "look at it" in str(found)
    assert "in Outer.forward [self: Outer]" in str(told)


def test_a_break_in_a_continuation_has_the_calls_around_that() -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        torchjit.graph_break("one")
        x = x * 2
        torchjit.graph_break("two")
        return x

    def middle(x: torch.Tensor) -> torch.Tensor:
        return twice(x) + 1

    def outer(x: torch.Tensor) -> torch.Tensor:
        return middle(x) - 1

    told = torchjit.explain(outer)(X)
    chains = {b.detail: [c.location.function.rpartition(".")[2] for c in b.calls] for b in told.breaks}
    assert list(chains.values()) == [["outer", "middle", "twice"]] * 2


def phases_of(regions: tuple[RegionInfo, ...]) -> list[PhaseInfo]:
    found: list[PhaseInfo] = []
    todo = [p for r in regions for p in r.phases]
    while todo:
        found.append(todo.pop())
        todo += found[-1].phases
    return found


def test_phases_and_kernels_are_kept_without_listeners() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    fast = torchjit.compile(model)
    fast(X).sum().backward()
    (region,) = fast.compiled.stats.regions  # type: ignore[attr-defined]
    phases = phases_of((region,))
    assert {"capture", "backend", "joint trace", "compile forward", "compile backward", "inductor kernels"} <= {
        p.name for p in phases
    }
    for phase in phases:
        assert 0 <= phase.self_seconds <= phase.seconds
        assert abs(phase.seconds - phase.self_seconds - sum(p.seconds for p in phase.phases)) < 1e-6
    assert {k.graph for k in region.kernels} == {"graph_forward", "graph_backward"}
    assert all(k.language == "c" and k.name.startswith("fused_") and k.origins for k in region.kernels)


def test_guards_have_costs() -> None:
    region = torchjit.explain(Outer())(X).regions[0]
    assert region.guard_seconds is not None and 0 < region.guard_seconds < 1e-3
    assert len(region.checks) == len(region.guards) and [c.text for c in region.checks] == list(region.guards)
    costs = [c.seconds for c in region.checks]
    assert all(cost is not None and 0 <= cost < 1e-3 for cost in costs) and any(costs)
    assert any(c.location is not None and c.location.function == "Outer.forward" for c in region.checks)


def test_guards_of_what_runs_are_measured_on_request() -> None:
    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        y = x * n
        torchjit.graph_break()
        return y.sin()

    fast: Any = torchjit.compile(f, backend="eager", dynamic=False)
    for n in (1, 2):
        fast(X, n)
    compiled = fast.compiled
    assert all(r.guard_seconds is None and r.checks[0].seconds is None for r in compiled.stats.regions)
    before = len(compiled.stats.regions)
    with compiled.measuring_guards():
        assert torch.equal(fast(X, 2), f(X, 2))
    told = compiled.stats
    assert [r.guard_seconds is not None for r in told.regions if r.function.endswith(".f")] == [False, True]
    assert any(r.guard_seconds for r in told.regions if "continuation" in r.function)
    for n in (1, 2):
        assert torch.equal(fast(X, n), f(X, n))
    assert len(compiled.stats.regions) == before


def test_everything_is_json_and_short() -> None:
    told = torchjit.explain(Outer())(X)
    text = json.dumps(told.as_dict())
    read = json.loads(text)
    assert read["regions"][0]["graphs"][0]["code"].startswith("def forward(self, pixels, ")
    assert read["regions"][0]["graphs"][0]["values"]["pixels"] == "float32[2, 4]"
    assert read["tree"][0]["children"][0]["kind"] == "continuation"
    assert read["obstacles"][0]["cures"] and read["obstacles"][0]["seconds"] > 0
    assert "0.8125" not in text and "tensor(" not in text
    assert isinstance(told, Explanation) and json.dumps(Explanation(()).as_dict())
