"""Loop IR, fusion, and kernels in C (CPU) and Triton (GPU)."""
