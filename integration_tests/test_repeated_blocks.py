"""Models of many equal blocks: what is made from a few of them is what all of them give, and is the program of all of them."""

# mypy: allow-untyped-calls, no-warn-return-any

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import pytest
import torch
from repeated_models import MODELS, WIDTH, Block, Stack
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import torchjit
import torchjit_aot.joint_passes
import torchjit_inductor.compiled
from torchjit_core import events
from torchjit_inductor.expansion import _layout, _structure
from torchjit_inductor.steps import Program, TensorRef

COUNT = 10
EXPANDS = {
    "plain": ["inference"],
    "all_states": ["inference", "forward", "backward"],
    "shared_bias": ["inference", "forward"],
    "checkpointed": ["inference", "forward", "backward"],
    "counting": ["backward"],
    "convolutions": ["inference"],
    "shared_parameters": ["inference"],
    "one_block": ["inference"],
    "another_in_the_middle": ["inference"],
    "two_kinds": ["inference"],
}
"""Which graphs are made from a few blocks. The others have too few equal ones, or results that few blocks cannot tell."""
TRACED = {
    ("plain", False), ("shared_bias", False), ("two_streams", False), ("convolutions", False), ("shared_parameters", False), ("one_block", False),
    ("checkpointed", True), ("dropout", True),
}  # fmt: skip
"""Where a few blocks are traced, in inference or (True) training."""


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torchjit.reset()
    yield
    torchjit.reset()


class Watch:
    """What is told of repeated blocks, and the programs that host programs are written for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[dict[str, Any]] = []
        self.programs: dict[str, Program] = {}
        write = torchjit_inductor.compiled.write_host_program

        def written(program: Program, *args: Any, **keywords: Any) -> Any:
            self.programs[program.name] = program
            return write(program, *args, **keywords)

        monkeypatch.setattr(torchjit_inductor.compiled, "write_host_program", written)

    def hear(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == "repeated_blocks":
            self.told.append(dict(fields))

    @property
    def expanded(self) -> list[str]:
        """The final graphs that were made from a few blocks."""
        return [t["name"].removeprefix("graph_") for t in self.told if t["expanded"] and t["name"] != "graph_joint"]

    @property
    def traced(self) -> bool:
        """Were a few blocks traced for all of them?"""
        return any(t["expanded"] for t in self.told if t["name"] == "graph_joint")


def run(model: nn.Module, f: Callable[..., Any], x: Tensor, training: bool) -> list[Any]:
    """Results, gradients and buffers."""
    torch.manual_seed(1)
    x = x.clone().requires_grad_(training)
    model.zero_grad()
    with torch.set_grad_enabled(training):
        results = pytree.tree_leaves(f(x))
    found = [r.detach().clone() for r in results]
    if training:
        sum((r * torch.arange(r.numel()).view(r.shape).cos()).sum() for r in results).backward()  # type: ignore[union-attr]
        found += [x.grad, *(p.grad for p in model.parameters())]
    return found + [b.clone() for b in model.buffers()]


def canonical(program: Program) -> list[Hashable]:
    """The program without names: inputs are numbered, and other buffers known by the step that first writes them."""
    places: dict[str, Hashable] = {n: ("input", k) for k, n in enumerate(program.inputs) if isinstance(n, str)}
    found: list[Hashable] = [tuple(_layout(program.buffers[n]) for n in places if n in program.buffers)]
    for position, step in enumerate(program.steps):
        for slot, name in enumerate(step.writes):
            places.setdefault(name, (position, slot))
        written = tuple(_layout(program.buffers[n]) for n in step.writes if n in program.buffers)
        found.append((_structure(step, lambda n: places.get(n, "constant")), written))
    for output in program.outputs:
        ref = isinstance(output, TensorRef)
        found.append((places[output.buffer], output.sizes, output.strides, output.offset) if ref else output)
    return [*found, tuple(program.symbol_sources.items())]


def compare(model: nn.Module, compiled: Callable[..., Any], sizes: list[int], training: bool) -> None:
    """Nothing is much further from what float64 gives than eager's results are, for batches of these sizes.

    Sums in another order err differently: ten blocks make of that what no fixed bound fits, on one machine more than on another.
    """
    plain, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    for size in sizes:
        x = torch.randn(size, 6, WIDTH)
        got, want, right = (
            run(m, f, y, training) for m, f, y in ((model, compiled, x), (plain, plain, x), (exact, exact, x.double()))
        )
        for g, w, r in zip(got, want, right, strict=True):
            assert (g.shape, g.dtype) == (w.shape, w.dtype)
            assert error(g, r) <= 3 * error(w, r) + 1e-6 * float(r.abs().max())


def error(found: Tensor, right: Tensor) -> float:
    """The largest difference."""
    return float((found.double() - right).abs().max())


CASES = [(name, False) for name in MODELS if name not in ("checkpointed", "dropout")]
CASES += [(name, True) for name in ("all_states", "shared_bias", "checkpointed", "counting", "dropout", "convolutions")]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Races between libraries are kept: of several threads on a busy machine they are run, and may be decided, anew."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("name", "training"), CASES)
def test_results_are_those_of_eager_and_programs_those_of_all_blocks(
    name: str, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = MODELS[name](COUNT).train(training)
    watch = Watch(monkeypatch)
    with events.listen(watch.hear, {"repeated_blocks"}):
        compare(model, torchjit.compile(model), [3], training)
        assert watch.traced is ((name, training) in TRACED)
        assert watch.expanded == [k for k in EXPANDS.get(name, []) if (k == "inference") is not training]
        programs = dict(watch.programs)
        if watch.expanded or watch.traced:
            watch.told.clear()
            model = MODELS[name](COUNT).train(training)
            run(model, torchjit.compile(model, options={"repeated_blocks": False}), torch.randn(3, 6, WIDTH), training)
            assert not watch.told
    for graph, program in programs.items():
        assert canonical(program) == canonical(watch.programs[graph])


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_sizes_that_vary(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = MODELS["all_states"](COUNT)
    watch = Watch(monkeypatch)
    with events.listen(watch.hear, {"repeated_blocks"}):
        compare(model, torchjit.compile(model, dynamic=True), [2, 5], training)
    assert watch.expanded == (["forward", "backward"] if training else ["inference"])


def test_other_dtypes_and_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    watch = Watch(monkeypatch)
    model = MODELS["plain"](COUNT)
    compiled = torchjit.compile(model)
    x = torch.randn(3, 6, WIDTH)
    with events.listen(watch.hear, {"repeated_blocks"}), torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(compiled(x), model(x), rtol=0.1, atol=0.1)
    assert watch.expanded == ["inference"]


def test_a_few_blocks_are_compiled_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    model = Stack([Block() for _ in range(4)])
    with events.listen(watch.hear, {"repeated_blocks"}):
        compare(model, torchjit.compile(model), [3], training=False)
    assert not watch.told


def test_the_mark_of_a_block_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    @torchjit.nested_compile_region
    def block(x: Tensor, w: Tensor) -> Tensor:
        return x + torch.relu(x @ w)

    def f(x: Tensor, *ws: Tensor) -> Tensor:
        for w in ws:
            x = block(x, w)
        return x

    inputs = [torch.randn(3, 4, requires_grad=True), *(torch.randn(4, 4, requires_grad=True) for _ in range(10))]
    watch = Watch(monkeypatch)
    with events.listen(watch.hear, {"repeated_blocks"}):
        got, want = torchjit.compile(f, fullgraph=True)(*inputs), f(*inputs)
    assert watch.traced
    torch.testing.assert_close(got, want)
    found, right = (torch.autograd.grad(result.sum(), inputs) for result in (got, want))
    torch.testing.assert_close(found, right)


def test_copies_ask_for_names_without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a taken name with a number torch 2.11 tries all numbers from 1 on: of many copies that takes longer than all else."""
    asked: list[str] = []
    create, write = torch.fx.Graph.create_node, torchjit_aot.joint_passes.with_all_blocks

    def created(graph: torch.fx.Graph, *args: Any, **keywords: Any) -> torch.fx.Node:
        node = create(graph, *args, **keywords)
        name = args[4] if len(args) > 4 else keywords.get("name")
        if name is not None and name != node.name:
            asked.append(name)
        return node

    def written(*args: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(torch.fx.Graph, "create_node", created)
            return write(*args)

    model = MODELS["checkpointed"](COUNT)
    watch = Watch(monkeypatch)
    monkeypatch.setattr(torchjit_aot.joint_passes, "with_all_blocks", written)
    with events.listen(watch.hear, {"repeated_blocks"}):
        run(model, torchjit.compile(model), torch.randn(3, 6, WIDTH), training=True)
    assert watch.traced
    assert len(asked) > COUNT
    assert not [name for name in asked if name.rpartition("_")[2].isdecimal()]
