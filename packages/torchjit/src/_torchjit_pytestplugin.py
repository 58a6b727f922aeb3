"""What pytest finds by the entry point `pytest11`. It is no module of `torchjit`, so that pytest starts without torch."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

__all__ = ["fresh_torchjit"]


@pytest.fixture
def fresh_torchjit() -> Iterator[ModuleType]:
    """Nothing is compiled at the test's beginning, nor at its end; errors inside torchjit fail the test.

    Settings, stance and default backend that the test changes are as before at its end. The value is `torchjit.testing`.
    """
    import torchjit.testing  # noqa: PLC0415  it imports torch, which most sessions of pytest do not need

    with torchjit.testing.fresh():
        yield torchjit.testing
