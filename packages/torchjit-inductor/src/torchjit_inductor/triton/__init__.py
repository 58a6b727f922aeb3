"""Triton kernels for NVIDIA GPUs: `TritonBackend` compiles the loop IR."""
