"""The end of a region: the live steps become an fx.GraphModule and go to the backend."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from torchjit_core.events import emit, listening
from torchjit_core.guards import Different
from torchjit_core.location import CodeLocation
from torchjit_core.node_notes import lines_of, values_of
from torchjit_core.paths import AccessPath
from torchjit_fx.autograd.custom_gradient import CapturedFunction
from torchjit_fx.flatten import leaves_in, map_raw
from torchjit_fx.leaves import InputLeaf, Raw, Step, StepScope, Storage, SymLeaf, TensorLeaf
from torchjit_fx.naming import module_name, placeholder_name
from torchjit_torch.node_meta import CHECKPOINT_POLICY, CHECKPOINT_REGION, RECOMPUTE
from torchjit_torch.operators import is_custom_operator

__all__ = ["GraphWriter", "acts_outside", "emit_graph", "live_steps", "storage_guards", "used_inputs"]


def live_steps(
    steps: Sequence[Step],
    asked: Sequence[TensorLeaf | SymLeaf],
    initial: Callable[[Any], Any],
    scope: StepScope | None = None,
) -> list[Step]:
    """The steps that the asked leaves, the inputs' memory or the outside world need, in order.

    Walks backwards: a step is needed when one of its results is, when it writes memory that is needed later or that
    belongs to an input, or when it has an effect of its own. A backward pass is later, too: it reads the memory that autograd
    remembers as it is then, which a write through `.data` changes unseen.

    Args:
        steps: in order.
        asked: the region's results.
        initial: the ambient state at the start, by key.
        scope: what the steps belong to; None for the region.
    """
    read_later: set[int] = set()
    while True:
        live = _needed_steps(steps, asked, scope, read_later)
        kept = set(map(id, live))
        lost = {id(s) for step in steps if id(step) not in kept for s in step.written} - read_later
        found = _remembered_memory(live) & lost if lost else set()
        if not found:
            return _without_idle_modes(live, initial)
        read_later |= found


def _needed_steps(
    steps: Sequence[Step], asked: Sequence[TensorLeaf | SymLeaf], scope: StepScope | None, read_later: set[int]
) -> list[Step]:
    needed_steps: set[int] = set()
    needed_memory: set[int] = set(read_later)

    def need(leaf: Raw) -> None:
        if leaf.step is not None:
            needed_steps.add(id(leaf.step))
        storage = getattr(leaf, "storage", None)
        if storage is not None:
            needed_memory.add(id(storage))

    for leaf in asked:
        need(leaf)
    live: list[Step] = []
    for step in reversed(steps):
        if (
            id(step) in needed_steps
            or _must_run(step)
            or any(_is_needed(s, needed_memory, scope) for s in step.written)
        ):
            live.append(step)
            map_raw((step.args, step.kwargs), need)
    live.reverse()
    return live


def _remembered_memory(steps: Sequence[Step]) -> set[int]:
    """The ids of the storages that a backward pass of these steps may read: of what they are given, and of what they make."""
    recorded = [step for step in steps if any(made.record.requires_grad for made in step.results)]
    leaves = [leaf for step in recorded for leaf in (*leaves_in((step.args, step.kwargs)), *step.results)]
    return {id(leaf.storage) for leaf in leaves if getattr(leaf, "storage", None) is not None}


def _must_run(step: Step) -> bool:
    if isinstance(step.target, CapturedFunction):
        return any(is_custom_operator(node.target) for node in step.target.forward.graph.nodes)
    return step.effect or is_custom_operator(step.target)


def _is_needed(storage: Storage, needed: set[int], scope: StepScope | None) -> bool:
    return id(storage) in needed or any(leaf.step is None or leaf.step.scope is not scope for leaf in storage.leaves)


def acts_outside(step: Step) -> bool:
    """Does it write to memory that was there before the region, or may it do anything?"""
    return is_custom_operator(step.target) or any(
        leaf.step is None for storage in step.written for leaf in storage.leaves
    )


def _without_idle_modes(steps: list[Step], initial: Callable[[Any], Any]) -> list[Step]:
    """Keep those changes of ambient state that an operation runs under, and those that undo them at the end."""
    kept: list[Step] = []
    now: dict[Any, Any] = {}
    pending: dict[Any, Step] = {}

    def settle() -> None:
        for key, step in pending.items():
            value = step.mode[1]  # type: ignore[index]
            if value != (now[key] if key in now else initial(key)):
                kept.append(step)
                now[key] = value
        pending.clear()

    for step in steps:
        if step.mode is not None:
            pending[step.mode[0]] = step
        else:
            settle()
            kept.append(step)
    if kept:
        settle()
    return kept


def used_inputs(steps: Sequence[Step], asked: Sequence[Raw]) -> tuple[list[InputLeaf], list[SymLeaf]]:
    """The input tensors and plain symbols that steps and results refer to, in order of first use."""
    tensors: dict[int, InputLeaf] = {}
    symbols: dict[int, SymLeaf] = {}
    for leaf in (*leaves_in([(step.args, step.kwargs) for step in steps]), *asked):
        if type(leaf) is InputLeaf:
            tensors.setdefault(id(leaf), leaf)
        elif type(leaf) is SymLeaf and leaf.step is None:
            symbols.setdefault(id(leaf.expr), leaf)
    return list(tensors.values()), list(symbols.values())


def storage_guards(inputs: Sequence[InputLeaf], storages: Callable[[InputLeaf], int]) -> list[Different]:
    """The guards that a graph relies on when it writes inputs: a written input shares no memory with another input, unless it
    did so at capture.

    Args:
        inputs: the graph's tensor inputs.
        storages: identifies the memory of an input.
    """
    inputs = [leaf for leaf in inputs if not leaf.new]  # alone on their memory
    if len(inputs) < 2 or not any(leaf.storage is not None and leaf.storage.written for leaf in inputs):
        return []
    representatives: dict[int, InputLeaf] = {}
    doubles: list[InputLeaf] = []
    for leaf in inputs:
        if representatives.setdefault(storages(leaf), leaf) is not leaf:
            doubles.append(leaf)
    guards = [Different(tuple(leaf.path for leaf in representatives.values()), storages=True)]
    written = {storages(leaf): leaf for leaf in inputs if leaf.storage is not None and leaf.storage.written}
    for double in doubles:
        others = [leaf.path for key, leaf in written.items() if key != storages(double)]
        guards.append(Different((*others, double.path), storages=True))
    return [guard for guard in guards if len(guard.paths) > 1]


@final
class GraphWriter:
    """Writes steps into an fx graph."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.inputs: list[InputLeaf | SymLeaf] = []
        self._values: dict[int, fx.Node] = {}
        self._lifted: dict[int, fx.Node] = {}
        self._parts: dict[tuple[int, tuple[Any, ...]], fx.Node] = {}
        self._traces: dict[tuple[CodeLocation, ...], str] = {}
        self._modules: dict[Any, dict[str, tuple[str, type]]] = {}
        self.first_write: fx.Node | None = None

    def place(self, leaf: InputLeaf | SymLeaf, key: int, path: AccessPath, val: Any, static: bool) -> None:
        """Add a placeholder. Placeholders come before every step."""
        name = _name_of(leaf, path)
        node = self.graph.create_node("placeholder", name, name=name)
        node.target = node.name  # which is free, and no word that generated code needs
        node.meta.update(val=val, path=path, static=static)
        if type(leaf) is InputLeaf and leaf.address_stays:
            node.meta["address_stays"] = True
        if isinstance(val, torch.Tensor):
            node.meta["example_value"] = val
        self._values[key] = node
        self.inputs.append(leaf)

    def lift(self, leaf: TensorLeaf | SymLeaf, key: int, name: str) -> None:
        """Add a placeholder for a leaf that was made outside of this graph. `key`: as in `node`."""
        self._lifted[key] = self.graph.placeholder(name)
        fake = leaf.value if isinstance(leaf, SymLeaf) else leaf.fake
        if fake is not None:
            self._lifted[key].meta["val"] = fake

    def write(self, step: Step) -> None:
        """Add the node of one step."""
        args = map_raw(step.args, self.node)
        node = self.graph.create_node(
            step.op, step.target, args, map_raw(step.kwargs, self.node) if step.kwargs else {}
        )
        if step.location is not None:
            node.meta["location"] = step.location
            node.meta["stack_trace"] = self._trace(step.stack)
        if step.modules and (modules := self._module_stack(step.modules)):
            node.meta["nn_module_stack"] = modules
            node.meta["module_path"] = next(reversed(modules.values()))[0]
        if step.checkpoint is not None:
            RECOMPUTE.put(node, CheckpointPolicy.PREFER_RECOMPUTE)
            CHECKPOINT_REGION.put(node, step.checkpoint.number)
            if step.checkpoint.policy is not None:
                CHECKPOINT_POLICY.put(node, step.checkpoint.policy)
        if len(step.results) == 1 and not step.results[0].way and step.results[0].fake is not None:
            node.meta["val"] = step.results[0].fake
        self._values[id(step)] = node
        if self.first_write is None and acts_outside(step):
            self.first_write = node

    def _trace(self, stack: tuple[CodeLocation, ...]) -> str:
        text = self._traces.get(stack)
        if text is None:
            text = self._traces[stack] = "\n".join("  " + place.render().replace("\n", "\n  ") for place in stack)
        return text

    def _module_stack(self, receivers: tuple[tuple[type, AccessPath], ...]) -> dict[str, tuple[str, type]]:
        """torch's form: from a key for each module that is being called, outermost first, to its name and class."""
        found = self._modules.get(receivers)
        if found is None:
            modules = [(cls, path) for cls, path in receivers if issubclass(cls, torch.nn.Module)]
            found = self._modules[receivers] = {str(path): (module_name(path), cls) for cls, path in modules}
        return found

    def node(self, leaf: Raw) -> fx.Node:
        """The node of a leaf; parts of a step's result are taken out on first use."""
        if self._lifted:
            lifted = self._lifted.get(id(leaf.expr) if type(leaf) is SymLeaf and leaf.step is None else id(leaf))
            if lifted is not None:
                return lifted
        key = id(leaf.expr) if type(leaf) is SymLeaf and leaf.step is None else id(leaf.step or leaf)
        node = self._values[key]
        for i, index in enumerate(leaf.way if leaf.step is not None else ()):
            part = (key, leaf.way[: i + 1])
            if part not in self._parts:
                self._parts[part] = self._take(node, index, leaf if i + 1 == len(leaf.way) else None)
            node = self._parts[part]
        return node

    def _take(self, node: fx.Node, index: Raw, leaf: Raw) -> fx.Node:
        part = self.graph.call_function(operator.getitem, (node, index))
        for name in ("location", "stack_trace", "nn_module_stack", "module_path", "recompute", "ac_graph_id"):
            if name in node.meta:
                part.meta[name] = node.meta[name]
        if leaf is not None and getattr(leaf, "fake", None) is not None:
            part.meta["val"] = leaf.fake
        return part

    def finish(self, outputs: Sequence[Any]) -> None:
        """Add the output node."""
        self.graph.output(tuple(self.node(leaf) for leaf in outputs))


def _name_of(leaf: InputLeaf | SymLeaf, path: AccessPath) -> str:
    return str(leaf.expr) if type(leaf) is SymLeaf else placeholder_name(path)


def emit_graph(gm: fx.GraphModule, name: str) -> None:
    """Tell listeners about a captured graph."""
    if listening():
        nodes = gm.graph.nodes
        notes = {"values": values_of(nodes), "lines": lines_of(nodes)}
        emit("graph", stage="captured", name=name, code=gm.code, nodes=len(nodes), **notes)
