"""Make `torch.compile` torchjit's, for programs and libraries that call it by that name."""

from __future__ import annotations

from typing import Any, final

import torch

from torchjit.compiler import compile

__all__ = ["replace_torch_compile"]


@final
class replace_torch_compile:
    """Make `torch.compile` torchjit's, at once; in a `with` block until its end.

        torchjit.replace_torch_compile()             # from now on, in the whole process

        with torchjit.replace_torch_compile():       # in the block
            model.compile()

    `nn.Module.compile`, and libraries that call `torch.compile(...)`, use it too. A library that took the function itself
    (`from torch import compile`) before this call keeps what it took. What the program compiled before stays as it is.
    """

    def __init__(self) -> None:
        self._before: Any = torch.compile
        ours: Any = compile
        torch.compile = ours

    def __enter__(self) -> None:
        """Already replaced."""

    def __exit__(self, *error: object) -> None:
        torch.compile = self._before
