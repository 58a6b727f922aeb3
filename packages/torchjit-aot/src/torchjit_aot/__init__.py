"""Ahead-of-time autograd: one joint graph, functionalized, cut for memory."""

import importlib
from typing import TYPE_CHECKING, Any

from torchjit_aot.ambient import saved_tensor_hooks_aside
from torchjit_aot.compiler_protocol import GraphCompiler, Kind
from torchjit_aot.passes import GraphPass, as_graph_pass, graph_pass
from torchjit_aot.run_eagerly import run_eagerly
from torchjit_aot.settings import AotSettings

if TYPE_CHECKING:
    from torchjit_aot.api import aot_function, joint_graph
    from torchjit_aot.decompositions import default_decompositions
    from torchjit_aot.entry import compile
    from torchjit_aot.joint import JointGraph
    from torchjit_aot.partition import Partition, min_cut_partition

__all__ = [
    "AotSettings",
    "GraphCompiler",
    "GraphPass",
    "JointGraph",
    "Kind",
    "Partition",
    "aot_function",
    "as_graph_pass",
    "compile",
    "default_decompositions",
    "graph_pass",
    "joint_graph",
    "min_cut_partition",
    "run_eagerly",
    "saved_tensor_hooks_aside",
]

_LATER = {
    "JointGraph": "joint",
    "Partition": "partition",
    "aot_function": "api",
    "compile": "entry",
    "default_decompositions": "decompositions",
    "joint_graph": "api",
    "min_cut_partition": "partition",
}


def __getattr__(name: str) -> Any:
    """What compiles, when it is first asked for: a program that only imports torchjit, or captures graphs for a backend of its own,
    does without it."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    return found
