"""Capture a compiled callable in CUDA graphs and replay it: one launch per call in place of one per kernel.

`record(compiled, example_inputs, settings)` is the whole entry point; see its docstring.
"""

from torchjit_cudagraphs.driver import GraphDriver, TorchGraphDriver
from torchjit_cudagraphs.record import Recorded, record
from torchjit_cudagraphs.recordable import Recordable
from torchjit_cudagraphs.settings import CudaGraphSettings

__all__ = ["CudaGraphSettings", "GraphDriver", "Recordable", "Recorded", "TorchGraphDriver", "record"]
