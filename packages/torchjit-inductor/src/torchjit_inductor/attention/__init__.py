"""Attention whose scores the user changes: what a call is, its functions as values, and the kernels that compute it on GPUs."""
