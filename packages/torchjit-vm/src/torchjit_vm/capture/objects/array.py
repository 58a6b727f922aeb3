"""array.array: numbers of one type, in a row."""

from __future__ import annotations

import array
from typing import Any

from torchjit_vm.capture.mirrors import mirrored

__all__: list[str] = []


def _freeze(real: array.array[Any]) -> tuple[str, bytes]:
    return real.typecode, real.tobytes()


def _thaw(content: tuple[str, bytes]) -> array.array[Any]:
    return array.array(*content)


def _restore(target: array.array[Any], content: tuple[str, bytes]) -> None:
    target[:] = array.array(*content)


mirrored(
    array.array,
    freeze=_freeze,
    thaw=_thaw,
    restore=_restore,
    without=("buffer_info", "fromfile", "tofile"),
)
