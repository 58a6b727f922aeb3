"""NumPy in a graph: arrays on the memory of tensors, and calls of NumPy's functions."""
