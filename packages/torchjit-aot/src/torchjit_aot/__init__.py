"""Ahead-of-time autograd: one joint graph, functionalized, cut for memory."""
