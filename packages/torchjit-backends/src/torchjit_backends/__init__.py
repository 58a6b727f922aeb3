"""Backends of torchjit: captured graph in, callable out. They compose AOT autograd with a compiler of its graphs."""
