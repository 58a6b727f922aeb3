"""A symbolic interpreter for CPython bytecode."""

import importlib
from typing import TYPE_CHECKING, Any

import torchjit_vm.capture
from torchjit_core.region import RegionCode
from torchjit_vm.graph_breaks import GraphBreakRecord
from torchjit_vm.region import Region

if TYPE_CHECKING:
    from torchjit_vm import extending
    from torchjit_vm.assembly import is_resume_code, resume, resume_function
    from torchjit_vm.capture.api import Captured, capture
    from torchjit_vm.capture.policy import (
        AtomicPolyfill,
        BreakForbidden,
        CaptureContext,
        CapturePolicy,
        DeferredHandle,
        DictChainGetattr,
        Foldable,
        Interception,
        IsKnownNumber,
        LeafHandler,
        LeftAlone,
        NewObject,
        PassThrough,
        RegionCompiler,
        ReturnConstant,
    )
    from torchjit_vm.capture.restart import ModuleImported
    from torchjit_vm.concrete import Box, ConcreteDomain, execute, interpret
    from torchjit_vm.domain import Domain
    from torchjit_vm.frame import Frame, Raised
    from torchjit_vm.guard_checker import GuardChecker
    from torchjit_vm.interpreter import Interpreter
    from torchjit_vm.liveness import blocks_wait
    from torchjit_vm.rendering import render_captured, render_code, render_frame, render_instruction
else:
    # The function of this name is loaded later, as the rest is, and takes the place of the package, which is in `sys.modules`.
    del torchjit_vm.capture

__all__ = [
    "AtomicPolyfill",
    "Box",
    "BreakForbidden",
    "CaptureContext",
    "CapturePolicy",
    "Captured",
    "ConcreteDomain",
    "DeferredHandle",
    "DictChainGetattr",
    "Domain",
    "Foldable",
    "Frame",
    "GraphBreakRecord",
    "GuardChecker",
    "Interception",
    "Interpreter",
    "IsKnownNumber",
    "LeafHandler",
    "LeftAlone",
    "ModuleImported",
    "NewObject",
    "PassThrough",
    "Raised",
    "Region",
    "RegionCode",
    "RegionCompiler",
    "ReturnConstant",
    "blocks_wait",
    "capture",
    "execute",
    "extending",
    "interpret",
    "is_resume_code",
    "render_captured",
    "render_code",
    "render_frame",
    "render_instruction",
    "resume",
    "resume_function",
]

_MODULES = {
    "assembly": "is_resume_code resume resume_function",
    "capture.api": "Captured capture",
    "capture.policy": "AtomicPolyfill BreakForbidden CaptureContext CapturePolicy DeferredHandle DictChainGetattr Foldable Interception"
    " IsKnownNumber LeafHandler LeftAlone NewObject PassThrough RegionCompiler ReturnConstant",
    "concrete": "Box ConcreteDomain execute interpret",
    "capture.restart": "ModuleImported",
    "domain": "Domain",
    "frame": "Frame Raised",
    "guard_checker": "GuardChecker",
    "interpreter": "Interpreter",
    "liveness": "blocks_wait",
    "rendering": "render_captured render_code render_frame render_instruction",
}
_LATER = {name: module for module, names in _MODULES.items() for name in names.split()}
"""What interprets, and the module that has it."""


if not TYPE_CHECKING:  # type checkers shall go on to report names that are not there

    def __getattr__(name: str) -> Any:
        """What interprets, when it is first asked for: a process whose regions are all loaded from disk does without it."""
        if name == "extending":
            return importlib.import_module(f"{__name__}.extending")
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
