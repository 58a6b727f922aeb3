"""Capture a compiled callable in CUDA graphs and replay it: one launch per call in place of one per kernel.

`record(compiled, example_inputs, settings)` is the whole entry point; see its docstring. docs/rules.md explains the memory
pool that all recordings of a device share.
"""

from torchjit_cudagraphs.driver import Capture, GraphDriver, Ground, TorchGraphDriver
from torchjit_cudagraphs.padded import Batch, Padded
from torchjit_cudagraphs.partition import Chain, Piece, Split, split, tell_split
from torchjit_cudagraphs.pool import GraphPool, mark_step_begin
from torchjit_cudagraphs.record import Recorded, record, reset
from torchjit_cudagraphs.recordable import Recordable
from torchjit_cudagraphs.settings import CudaGraphSettings

__all__ = [
    "Batch",
    "Capture",
    "Chain",
    "CudaGraphSettings",
    "GraphDriver",
    "GraphPool",
    "Ground",
    "Padded",
    "Piece",
    "Recordable",
    "Recorded",
    "Split",
    "TorchGraphDriver",
    "mark_step_begin",
    "record",
    "reset",
    "split",
    "tell_split",
]
