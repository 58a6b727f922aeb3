"""Is the memory that was handed out still held by anybody, in Python or C++? Weak references to storages, and counts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol, final

import torch

__all__ = ["Lent", "LentAgain", "LentOnce", "StorageRef", "expired"]

# Private to torch, in 2.11 and 2.15; torch.multiprocessing builds on the same functions.
expired: Any = torch.UntypedStorage._expired
"""Is the storage with this id gone? Only while a `StorageRef` to it lives."""
_free: Any = torch.UntypedStorage._free_weak_ref
_count: Any = torch._C._storage_Use_Count
Block = tuple[int, int]
"""Address and size in bytes, as the allocator counts them."""


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


class Lent(Protocol):
    """A storage that was handed out for a block.

    Attributes:
        block: the block, in use while `idle` is False.
        cdata: the storage's id.
        templates: tensors over it that are not in anybody's hands.
    """

    block: Block
    cdata: int
    templates: Sequence[torch.Tensor]

    def idle(self) -> bool:
        """Is it in nobody's hands any more?"""
        ...


@final
class LentOnce:
    """A storage that dies when the last tensor over it is dropped."""

    __slots__ = ("_ref", "block", "cdata", "templates")

    def __init__(self, block: Block, storage: Any) -> None:
        self.block = block
        self._ref = StorageRef(storage)
        self.cdata = self._ref.cdata
        self.templates: Sequence[torch.Tensor] = ()

    def idle(self) -> bool:
        return bool(expired(self.cdata))


@final
class LentAgain:
    """A storage that lives as long as its recording and is handed out at each replay, as copies of `templates`.

    A copy of a tensor costs a fraction of a storage with a weak reference and a tensor over it. That nobody holds one is read
    off the counts of references: of the storage in C++, and of the object that stands for it in Python, which a user may
    hold without a tensor.
    """

    __slots__ = ("_held", "_objects", "_storage", "block", "cdata", "templates")

    def __init__(self, block: Block, storage: Any, templates: Sequence[torch.Tensor]) -> None:
        self.block = block
        self.cdata: int = storage._cdata
        self.templates = templates
        self._storage = storage
        del storage  # the counts are those without it
        self._held = 0
        self._objects = 0

    def settle(self) -> None:
        """Now it is in nobody's hands."""
        self._held, self._objects = _count(self.cdata), sys.getrefcount(self._storage)

    def idle(self) -> bool:
        return _count(self.cdata) == self._held and sys.getrefcount(self._storage) == self._objects
