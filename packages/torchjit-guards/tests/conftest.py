"""Fixtures of this package's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from torchjit_guards import _c


@pytest.fixture(autouse=True)
def early_snapshots() -> Iterator[None]:
    """Programs take a snapshot at their first hit: tests that call one again test the snapshot too."""
    before = _c.snapshot_after(0)
    yield
    _c.snapshot_after(before)
