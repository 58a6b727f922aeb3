"""The trace format and the self-contained HTML report."""
