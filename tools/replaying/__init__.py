"""Process replay: what programs become, as text; see `tools/replay.py`."""
