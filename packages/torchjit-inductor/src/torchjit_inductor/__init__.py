"""Loop IR, fusion, and kernels in C (CPU) and Triton (GPU)."""

from torchjit_inductor.attention.call import AttentionCall, AttentionOperators, Formula
from torchjit_inductor.compiled import CompiledGraph, Inductor, show_ranges
from torchjit_inductor.cpp.folders import private_folder
from torchjit_inductor.freezing import freeze
from torchjit_inductor.joint_layouts import LayoutPlan
from torchjit_inductor.settings import InductorSettings

__all__ = [
    "AttentionCall",
    "AttentionOperators",
    "CompiledGraph",
    "Formula",
    "Inductor",
    "InductorSettings",
    "LayoutPlan",
    "freeze",
    "private_folder",
    "show_ranges",
]
