"""From functional ATen graphs to loop nests: one small function per op, in tables."""
