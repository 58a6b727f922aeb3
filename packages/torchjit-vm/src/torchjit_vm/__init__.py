"""A symbolic interpreter for CPython bytecode."""

from torchjit_core.region import RegionCode
from torchjit_vm.capture.api import Captured, GraphBreakRecord, capture
from torchjit_vm.capture.policy import (
    CaptureContext,
    CapturePolicy,
    DictChainGetattr,
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
    "LeafHandler",
    "NewObject",
    "Region",
    "RegionCode",
    "RegionCompiler",
    "ReturnConstant",
    "capture",
    "interpret",
]
