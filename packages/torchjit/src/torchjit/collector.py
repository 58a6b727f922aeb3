"""Python's cyclic garbage collector during a capture.

A capture makes some hundred thousand objects and drops most of them at once; with torch and a model library loaded, one full
collection that this sets off takes as long as the whole capture (0.3 s of 0.6 s on BERT). So there is none before its end.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["collector_paused", "collector_resumed"]


@contextlib.contextmanager
def collector_paused() -> Iterator[bool]:
    """No automatic collections inside, in any thread. Gives what `collector_resumed` asks for: were they on?"""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield was_on
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def collector_resumed(was_on: bool) -> Iterator[None]:
    """Inside of `collector_paused`: collections as they were before it."""
    if was_on:
        gc.enable()
    try:
        yield
    finally:
        if was_on:
            gc.disable()
