"""Sweeps of whole model collections: torchjit against eager, beside torch.compile."""
