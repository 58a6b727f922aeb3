"""Every integration test starts from a clean process state and shows internal errors instead of falling back."""

from collections.abc import Iterator

import pytest
import torch

import torchjit
from torchjit_aot.settings import verify_by_default

verify_by_default(True)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    torchjit.reset()
    torch.manual_seed(0)
    with torchjit.config.patch(on_error="raise"):
        yield
    torchjit.reset()
