"""bytearray."""

from __future__ import annotations

from torchjit_vm.capture.mirrors import mirrored

__all__: list[str] = []


def _restore(target: bytearray, content: bytes) -> None:
    target[:] = content


mirrored(bytearray, freeze=bytes, thaw=bytearray, restore=_restore)
