"""Ahead-of-time autograd: one joint graph, functionalized, cut for memory."""

from torchjit_aot.ambient import saved_tensor_hooks_aside
from torchjit_aot.api import aot_function, joint_graph
from torchjit_aot.compiler_protocol import GraphCompiler, Kind
from torchjit_aot.decompositions import default_decompositions
from torchjit_aot.entry import compile
from torchjit_aot.joint import JointGraph
from torchjit_aot.partition import Partition, min_cut_partition
from torchjit_aot.passes import GraphPass, as_graph_pass, graph_pass
from torchjit_aot.run_eagerly import run_eagerly
from torchjit_aot.settings import AotSettings

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
