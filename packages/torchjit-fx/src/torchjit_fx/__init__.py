"""The tensor domain: torch calls become torch.fx nodes with metadata."""
