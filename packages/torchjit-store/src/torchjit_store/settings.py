"""What a process does with stored entries."""

from __future__ import annotations

from typing import Literal, final

import attrs

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
    """

    mode: Mode = "off"
    cache_dir: str | None = None
    max_bytes: int = 1 << 30
    remote: str | None = None
    secret: bytes | None = attrs.field(default=None, repr=False)
    trusts_remote: bool = False

    @property
    def reads(self) -> bool:
        """Are stored entries looked for?"""
        return self.mode != "off"

    @property
    def writes(self) -> bool:
        """Are entries stored?"""
        return self.mode in ("on", "verify")

    @property
    def verifies(self) -> bool:
        """Is what was loaded compared with what is captured?"""
        return self.mode == "verify"
