"""What a process does with stored entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, final

import attrs

if TYPE_CHECKING:
    from torchjit_store.carried import CarriedEntries

__all__ = ["Mode", "StoreSettings"]

Mode = Literal["off", "on", "read", "verify"]


@final
@attrs.frozen
class StoreSettings:
    """Where entries are, and what is done with them.

    Attributes:
        mode: `off`: nothing; `on`: entries are read and written; `read`: they are read; `verify`: they are read and written, and what
            was read is captured as well and compared.
        cache_dir: the folder that kernels are below, too; None is the user's cache folder.
        max_bytes: of entries and kernels together; what was not used for longest goes.
        remote: a URL that fsspec knows, or None: see `torchjit_store.remote`.
        secret: what bundles are signed with, or None.
        trusts_remote: take what lies at `remote` without a signature.
        anew: nothing is read: all is compiled, and stored.
        carried: the entries of a saved callable: they are read instead of a folder's, and what they do not fit is an error.
    """

    mode: Mode = "off"
    cache_dir: str | None = None
    max_bytes: int = 1 << 30
    remote: str | None = None
    secret: bytes | None = attrs.field(default=None, repr=False)
    trusts_remote: bool = False
    anew: bool = False
    carried: CarriedEntries | None = None

    @property
    def reads(self) -> bool:
        """Are stored entries looked for?"""
        return self.mode != "off" and not self.anew

    @property
    def writes(self) -> bool:
        """Are entries stored?"""
        return self.mode in ("on", "verify")

    @property
    def verifies(self) -> bool:
        """Is what was loaded compared with what is captured?"""
        return self.mode == "verify"
