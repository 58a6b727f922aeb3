"""torchjit."""
