"""Triton kernels for NVIDIA GPUs: `backend.TritonBackend` compiles the loop IR. Without imports: attention stands on modules of this folder."""
