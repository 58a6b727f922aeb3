"""The compiler that does not compile: straight-line Python that calls the graph's operators one by one."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import fx

from torchjit_aot.compiler_protocol import Boxed, CompiledGraph, Kind
from torchjit_core.writing import NEVER, WRITES_FROM
from torchjit_torch.operators import ONLY_COMPUTE

__all__ = ["run_eagerly"]


def run_eagerly(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    kind: Kind = "inference",
    static_inputs: frozenset[int] = frozenset(),
    name: str = "graph",
) -> CompiledGraph:
    """A `GraphCompiler` for the backend `aot_eager`: each operator is one call; tensors are freed after their last use.

    Returns:
        A function of the graph's inputs that returns its outputs as a tuple.
    """
    if kind != "backward":
        return straight_line(gm, name)
    return _Boxed(straight_line(gm, name, boxed=True))


@final
class _Boxed:
    """A function of a list, as a compiled graph."""

    def __init__(self, boxed: Boxed) -> None:
        self.boxed = boxed

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        return self.boxed(list(inputs))


class _Names:
    """Gives objects names in the generated function's globals."""

    def __init__(self) -> None:
        self.bound: dict[str, Any] = {}
        self._by_id: dict[int, str] = {}

    def __call__(self, obj: Any) -> str:
        name = self._by_id.get(id(obj))
        if name is None:
            name = self._by_id[id(obj)] = f"k{len(self.bound)}"
            self.bound[name] = obj
        return name


def argument_source(value: Any, names: _Names, variables: dict[fx.Node, str]) -> str:
    """Python text for a node's argument."""
    kind = type(value)
    if isinstance(value, fx.Node):
        return variables[value]
    if value is None or kind is bool or kind is int or kind is str or (kind is float and math.isfinite(value)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        parts = [argument_source(v, names, variables) for v in value]
        return f"[{', '.join(parts)}]" if isinstance(value, list) else f"({', '.join(parts)}{',' * (len(parts) == 1)})"
    if kind is slice:
        return (
            f"slice({', '.join(argument_source(v, names, variables) for v in (value.start, value.stop, value.step))})"
        )
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {argument_source(v, names, variables)}" for k, v in value.items()) + "}"
    return names(value)


def straight_line(gm: fx.GraphModule, name: str, *, boxed: bool = False) -> CompiledGraph:
    """Generate and compile the function.

    Args:
        gm: what it computes, and where `get_attr` nodes find their values.
        name: for tracebacks.
        boxed: it takes one list, which it empties, and frees the inputs too.
    """
    names, variables = _Names(), {}
    nodes = list(gm.graph.nodes)
    frees = _last_uses(nodes)
    inputs, lines = [], []
    first_write = NEVER
    for i, node in enumerate(nodes):
        variables[node] = variable = f"v{i}"
        if node.op == "placeholder":
            inputs.append(variable)
            continue
        if node.op == "output":
            lines.append(f"return {argument_source(tuple(node.args[0]), names, variables)}")
            break
        if node.target is torch.ops.aten.copy_.default or getattr(node.target, "namespace", "aten") not in ONLY_COMPUTE:
            first_write = min(first_write, len(lines) + 2)  # the first line is the signature
        lines.append(f"{variable} = {_call_source(node, names, variables, gm)}")
        dead = [variables[n] for n in frees.get(node, ())]
        if dead:
            lines.append(f"del {', '.join(dead)}")
    if boxed:
        lines[:0] = [f"{', '.join(inputs)}, = inputs" if inputs else "pass", "inputs.clear()"]
        inputs = ["inputs"]
        first_write += 2
    body = "\n    ".join(lines) or "return ()"
    source = f"def {_identifier(name)}({', '.join(inputs)}):\n    {body}\n"
    names.bound[WRITES_FROM] = first_write
    exec(compile(source, f"<torchjit {name}>", "exec"), names.bound)
    made: Any = names.bound[_identifier(name)]
    made.writes_last = True
    return made  # type: ignore[no-any-return]


def _identifier(name: str) -> str:
    return name if name.isidentifier() else "graph"


def _call_source(node: fx.Node, names: _Names, variables: dict[fx.Node, str], gm: fx.GraphModule) -> str:
    if node.op == "get_attr":
        # As graph_calls.attribute_of, which this module, a part of `import torchjit`, does not load.
        return names(operator.attrgetter(str(node.target))(gm))
    args = [argument_source(a, names, variables) for a in node.args]
    args += [f"{key}={argument_source(value, names, variables)}" for key, value in node.kwargs.items()]
    if node.op == "call_method":
        return f"{args[0]}.{node.target}({', '.join(args[1:])})"
    if getattr(node.target, "__name__", "") == "getitem" and getattr(node.target, "__module__", "") == "_operator":
        return f"{args[0]}[{args[1]}]"
    return f"{names(node.target)}({', '.join(args)})"


def _last_uses(nodes: Sequence[fx.Node]) -> dict[fx.Node, list[fx.Node]]:
    """For each node, the earlier results that nobody reads after it (the node itself, if nobody reads it)."""
    last: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        if node.op not in ("placeholder", "output"):
            last[node] = node
        for used in node.all_input_nodes:
            last[used] = node
    frees: dict[fx.Node, list[fx.Node]] = {}
    for used, node in last.items():
        if node.op != "output":
            frees.setdefault(node, []).append(used)
    return frees
