"""Triton kernels for NVIDIA GPUs: `TritonBackend` compiles the loop IR."""

from torchjit_inductor.triton.backend import TritonBackend, TritonSettings

__all__ = ["TritonBackend", "TritonSettings"]
