"""Programs whose default dtype or device is not that of their tensors."""

from __future__ import annotations

import pytest
import torch

import torchjit


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_what_is_timed_at_compilation_is_of_the_programs_dtype(dtype: torch.dtype) -> None:
    """Products are timed on samples; of another dtype the library refuses them."""
    linear, x = torch.nn.Linear(24, 40), torch.ones(6, 24)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torchjit.config.patch(caches=False):
            found = torchjit.compile(linear, on_error="raise")(x)
    finally:
        torch.set_default_dtype(before)
    torch.testing.assert_close(found, linear(x))
