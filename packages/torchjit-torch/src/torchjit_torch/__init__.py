"""Facts about torch, once: what schemas say of operators, and typed metadata of graph nodes. What captures, transforms or runs graphs stands on it."""
