"""What the user may choose about CUDA graphs."""

from __future__ import annotations

from typing import final

import attrs

__all__ = ["CudaGraphSettings"]


def _positive(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value < 1:
        raise ValueError(f"{attribute.name} must be at least 1, not {value}")


@final
@attrs.frozen(kw_only=True)
class CudaGraphSettings:
    """Choices for one recorded callable.

    Attributes:
        reuse_outputs: return tensors over the recording's own memory, without a copy. They are then valid only until
            the next call, which overwrites them: clone what must live longer. By default outputs are copied out.
        warmup_calls: ordinary calls before a recording is made, on a side stream, so that kernels load and libraries
            choose their algorithms outside the capture. Each returns its true result.
        max_recordings: how many combinations of input sizes are recorded; calls with further ones run `compiled`.
        max_static_versions: how many sets of addresses of static inputs (parameters that were replaced or moved)
            are recorded per combination of sizes; calls with further ones run `compiled`.
    """

    reuse_outputs: bool = False
    warmup_calls: int = attrs.field(default=1, validator=_positive)
    max_recordings: int = attrs.field(default=16, validator=_positive)
    max_static_versions: int = attrs.field(default=8, validator=_positive)
