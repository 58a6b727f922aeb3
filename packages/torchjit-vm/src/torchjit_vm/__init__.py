"""A symbolic interpreter for CPython bytecode."""

from collections.abc import Sequence
from typing import Any

from torchjit_core.region import RegionCode
from torchjit_vm.assembly import is_resume_code, resume_function
from torchjit_vm.capture.api import Captured, GraphBreakRecord, capture
from torchjit_vm.capture.policy import (
    CaptureContext,
    CapturePolicy,
    DictChainGetattr,
    InOnePiece,
    LeafHandler,
    NewObject,
    RegionCompiler,
    ReturnConstant,
)
from torchjit_vm.concrete import interpret
from torchjit_vm.region import Region

__all__ = [
    "CaptureContext",
    "CapturePolicy",
    "Captured",
    "DictChainGetattr",
    "GraphBreakRecord",
    "InOnePiece",
    "LeafHandler",
    "NewObject",
    "Region",
    "RegionCode",
    "RegionCompiler",
    "ReturnConstant",
    "capture",
    "interpret",
    "is_resume_code",
    "resume",
    "resume_function",
]


def resume(region: Region, slots: Sequence[Any]) -> Any:
    """Run a region in CPython, from its start to the return of its function.

    Args:
        region: an entry or a continuation.
        slots: what the region's layout says.

    Raises:
        Whatever the code raises.
    """
    return resume_function(region)(*slots)
