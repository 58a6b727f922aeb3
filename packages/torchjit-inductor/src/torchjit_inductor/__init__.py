"""Loop IR, fusion, and kernels in C (CPU) and Triton (GPU)."""

import importlib
from typing import TYPE_CHECKING, Any

from torchjit_inductor.settings import InductorSettings

if TYPE_CHECKING:
    from torchjit_inductor.attention.call import AttentionCall, AttentionOperators, Formula
    from torchjit_inductor.compiled import Inductor
    from torchjit_inductor.compiled_graph import CompiledGraph, show_ranges
    from torchjit_inductor.cpp.folders import private_folder
    from torchjit_inductor.folding import scalars_on_devices
    from torchjit_inductor.freezing import freeze
    from torchjit_inductor.joint_layouts import LayoutPlan

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
    "scalars_on_devices",
    "show_ranges",
]

_LATER = {
    "AttentionCall": "attention.call",
    "AttentionOperators": "attention.call",
    "CompiledGraph": "compiled_graph",
    "Formula": "attention.call",
    "Inductor": "compiled",
    "LayoutPlan": "joint_layouts",
    "freeze": "freezing",
    "private_folder": "cpp.folders",
    "scalars_on_devices": "folding",
    "show_ranges": "compiled_graph",
}
"""What compiles, and the module that has it."""


if not TYPE_CHECKING:  # type checkers shall go on to report names that are not there

    def __getattr__(name: str) -> Any:
        """What compiles, when it is first asked for: a process whose graphs are all loaded from disk does without it."""
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
