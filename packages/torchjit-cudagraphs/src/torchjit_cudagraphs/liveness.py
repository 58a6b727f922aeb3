"""Weak references to storages: is the memory that was handed out still held by anybody, in Python or C++?"""

from __future__ import annotations

from typing import Any, final

import torch

__all__ = ["StorageRef", "expired"]

# Private to torch, in 2.11 and 2.15; torch.multiprocessing builds on the same functions.
expired: Any = torch.UntypedStorage._expired
"""Is the storage with this id gone? Only while a `StorageRef` to it lives."""
_free: Any = torch.UntypedStorage._free_weak_ref


@final
class StorageRef:
    """A weak reference to a storage. While it lives, no other storage gets the same `cdata`.

    Attributes:
        cdata: the storage's id, `UntypedStorage._cdata`.
    """

    __slots__ = ("_free", "cdata")

    def __init__(self, storage: Any) -> None:
        self.cdata: int = storage._weak_ref()
        self._free = _free  # a module's globals may be gone at exit

    def expired(self) -> bool:
        """Is the storage gone?"""
        return bool(expired(self.cdata))

    def __del__(self) -> None:
        self._free(self.cdata)
