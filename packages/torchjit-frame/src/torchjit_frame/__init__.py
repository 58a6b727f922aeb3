"""PEP 523 frame hook and the C front door that calls specialised code."""

from torchjit_frame._c import Entry, FrontDoor, is_eager, set_eager
from torchjit_frame.eager import eager

__all__ = ["Entry", "FrontDoor", "eager", "is_eager", "set_eager"]
