"""Fusion of kernels, removal of dead stores, and the life of buffers."""
