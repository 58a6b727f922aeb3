"""A symbolic interpreter for CPython bytecode."""

from collections.abc import Sequence
from typing import Any

from torchjit_core.region import RegionCode
from torchjit_vm import extending
from torchjit_vm.assembly import is_resume_code, resume_function
from torchjit_vm.capture.api import Captured, GraphBreakRecord, capture
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
from torchjit_vm.concrete import Box, ConcreteDomain, execute, interpret
from torchjit_vm.domain import Domain
from torchjit_vm.frame import Frame, Raised
from torchjit_vm.guard_checker import GuardChecker
from torchjit_vm.interpreter import Interpreter
from torchjit_vm.liveness import blocks_wait
from torchjit_vm.region import Region
from torchjit_vm.rendering import render_captured, render_code, render_frame, render_instruction

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


def resume(region: Region, slots: Sequence[object]) -> Any:
    """Run a region in CPython, from its start to the return of its function.

    Args:
        region: an entry or a continuation.
        slots: what the region's layout says.

    Raises:
        Whatever the code raises.
    """
    return resume_function(region)(*slots)
