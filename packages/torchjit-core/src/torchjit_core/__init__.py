"""The values and errors that every torchjit package shares: access paths, guards as data, reasons, integer expressions."""
