"""SLEEF's vector functions, which libtorch contains and exports: eager's own sines, powers and logarithms.

Generated files call them by address. The table that they get has six entries for each operation: float vectors of
16, 32 and 64 bytes, then double vectors; None where this build of libtorch has none, and files then go lane by lane.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

__all__ = ["declaration", "table"]

# The accuracies are those that ATen's own vectors ask for. SLEEF's sinh, cosh, asinh and acosh are
# infinite too early, so they are not used.
_PRECISIONS = {
    "exp": "u10", "exp2": "u10", "expm1": "u10", "log": "u10", "log2": "u10", "log10": "u10", "log1p": "u10",
    "sin": "u35", "cos": "u35", "tan": "u10", "asin": "u10", "acos": "u10", "atan": "u10", "tanh": "u10", "atanh": "u10",
    "erf": "u10", "erfc": "u15", "lgamma": "u10",
    "pow": "u10", "atan2": "u10", "hypot": "u05", "fmod": "", "nextafter": "",
}  # fmt: skip
_FLOAT_LANES, _DOUBLE_LANES = (4, 8, 16), (2, 4, 8)


def declaration() -> str:
    """The C line that numbers the operations of the table."""
    return "enum { " + ", ".join(f"MATH_{name}" for name in _PRECISIONS) + " };"


@functools.cache
def table(library: ctypes.CDLL | None) -> Any:
    """The addresses that libtorch has for each operation and type of vectors."""
    addresses: list[int | None] = []
    for name, precision in _PRECISIONS.items():
        # For doubles there is no faster variant of sine and cosine in ATen.
        double = "u10" if precision == "u35" else precision
        names = [f"Sleef_{name}f{n}_{precision}" for n in _FLOAT_LANES] + [
            f"Sleef_{name}d{n}_{double}" for n in _DOUBLE_LANES
        ]
        addresses += [_address(library, text.rstrip("_")) for text in names]
    return (ctypes.c_void_p * len(addresses))(*addresses)


def _address(library: ctypes.CDLL | None, name: str) -> int | None:
    try:
        return None if library is None else ctypes.addressof(ctypes.c_char.in_dll(library, name))
    except ValueError:  # there is no such symbol
        return None
