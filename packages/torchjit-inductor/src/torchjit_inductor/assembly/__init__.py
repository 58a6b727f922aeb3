"""Compiling Triton kernels to machine code, in this process or in others. Imports neither torch nor Triton."""
