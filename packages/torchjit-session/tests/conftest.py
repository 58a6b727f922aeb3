"""Fixtures of the session's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from torchjit_session import stance, upstream


@pytest.fixture
def forced() -> Iterator[None]:
    """A stance forces the backend `aot_eager`."""
    before = stance.own_stance()
    stance.become(upstream.Stance("default", "aot_eager"))
    yield
    stance.become(before)
