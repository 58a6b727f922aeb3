"""Capture a compiled callable in CUDA graphs and replay it: one launch per call in place of one per kernel.

`record(compiled, example_inputs, settings)` is the entry point; see its docstring. `split` cuts a graph into pieces around
what no CUDA graph can hold. docs/rules.md explains the memory pool that all recordings of a device share.
"""

from torchjit_cudagraphs.driver import Capture, GraphDriver, Ground, TorchGraphDriver
from torchjit_cudagraphs.graph_compiler import RecordingCompiler
from torchjit_cudagraphs.padded import Batch, Padded, find_batch
from torchjit_cudagraphs.partition import Chain, Piece, Split, line_of, split, tell_split
from torchjit_cudagraphs.pool import GraphPool, mark_step_begin
from torchjit_cudagraphs.record import Recorded, mark_warmup_incomplete, record, reset
from torchjit_cudagraphs.recordable import NO_BATCH, Recordable
from torchjit_cudagraphs.settings import CudaGraphSettings

__all__ = [
    "NO_BATCH",
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
    "RecordingCompiler",
    "Split",
    "TorchGraphDriver",
    "find_batch",
    "line_of",
    "mark_step_begin",
    "mark_warmup_incomplete",
    "record",
    "reset",
    "split",
    "tell_split",
]
