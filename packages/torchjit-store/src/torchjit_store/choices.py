"""Small facts about programs that a process has found out by trying, for the next one: a file of JSON for each."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from torchjit_core.handlers import let_through
from torchjit_store.private_files import cache_root, made_folder, opened_folder, read_private, write_private

__all__ = ["CHOICES", "ChoiceFolder"]

CHOICES = "choices"
MOST = 4096
"""Files; the oldest half goes when there are more."""


@final
class ChoiceFolder:
    """`<cache folder>/choices/<key>.json`. No method raises for what is on the disk.

    Args:
        cache_dir: the cache folder; None is the user's.
    """

    def __init__(self, cache_dir: str | None) -> None:
        self._cache_dir = cache_dir

    def read(self, key: str) -> Mapping[str, Any] | None:
        """What was kept under this key (a file's name); None if there is nothing that can be read."""
        try:
            with opened_folder(cache_root(self._cache_dir), CHOICES) as at:
                found = json.loads(b"".join(read_private(f"{key}.json", at)))
        except (OSError, ValueError):
            let_through()
            return None
        return found if isinstance(found, dict) else None

    def write(self, key: str, record: Mapping[str, Any]) -> None:
        """Keep a record that JSON can say, if the folder takes it."""
        try:
            root = cache_root(self._cache_dir)
            made_folder(root, CHOICES)
            with opened_folder(root, CHOICES) as at:
                write_private(f"{key}.json", json.dumps(dict(record)).encode(), at)
            _trim(root / CHOICES)
        except OSError:
            let_through()

    def clear(self) -> None:
        """Remove all of them."""
        with contextlib.suppress(OSError):
            for path in (cache_root(self._cache_dir) / CHOICES).glob("*.json"):
                path.unlink()


def _trim(folder: Path) -> None:
    names = os.listdir(folder)
    if len(names) <= MOST:
        return
    with contextlib.suppress(OSError):
        for path in sorted((folder / name for name in names), key=lambda p: p.stat().st_mtime)[: len(names) // 2]:
            path.unlink()
