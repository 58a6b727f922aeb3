"""Calls that are not simply recorded: one rule for each callable, see `call.py`."""
