"""Autograd in a region: custom functions, hooks, transforms, gradients that are asked for, and who requires them."""
