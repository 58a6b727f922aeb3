"""What the user may choose about CUDA graphs."""

from __future__ import annotations

from typing import Any, final

import attrs

__all__ = ["CudaGraphSettings"]


def _positive(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value < 1:
        raise ValueError(f"{attribute.name} must be at least 1, not {value}")


def _ascending(_: object, attribute: attrs.Attribute[Any], value: tuple[int, ...]) -> None:
    if any(n < 1 for n in value) or list(value) != sorted(set(value)):
        raise ValueError(f"{attribute.name} must be positive and ascending, not {value}")


@final
@attrs.frozen(kw_only=True)
class CudaGraphSettings:
    """Choices for one recorded callable.

    Attributes:
        copy_up_to: results of up to so many bytes are copied out of the pool. Larger ones lie in the pool, nothing is
            copied, and one that is still held when the next call comes makes that call use, or make, another recording.
        warmup_calls: ordinary calls before a recording is made, so that kernels load and libraries choose their
            algorithms outside the capture. Each returns its true result.
        measure: time the last of two or more warm-up calls and some replays, and drop recordings that copies, or few launches, make slower.
        max_recordings: how many combinations of input sizes are recorded; calls with further ones run `compiled`.
        max_versions: how many recordings are made per combination of sizes, for parameters that moved and for earlier
            results that are held; calls that none of them fits run `compiled`.
        capture_sizes: with a `Batch`: the sizes of batches that are recorded; others are filled up to the next one.
        max_held: after so many of these because of held results of the same callable, the next one returns copies.
    """

    copy_up_to: int = 1 << 20
    warmup_calls: int = attrs.field(default=2, validator=_positive)
    measure: bool = True
    max_recordings: int = attrs.field(default=16, validator=_positive)
    max_versions: int = attrs.field(default=8, validator=_positive)
    capture_sizes: tuple[int, ...] = attrs.field(default=(), validator=_ascending)
    max_held: int = attrs.field(default=2, validator=_positive)
