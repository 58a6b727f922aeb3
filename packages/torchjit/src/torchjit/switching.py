"""Make `torch.compile` torchjit's, for programs and libraries that call it by that name."""

from __future__ import annotations

from typing import Any, final

import torch

from torchjit.compiler import compile
from torchjit.exc import UserError, told
from torchjit_core.reasons import reason
from torchjit_core.user_warnings import warn_user

__all__ = ["replace_torch_compile"]

REPLACED_TWICE = reason(
    "TJ-API-075",
    "torch.compile was replaced by something else inside of the block of replace_torch_compile",
    "That function stays. If it calls what it has replaced, it calls torchjit.compile still.",
    "Import the library that replaces torch.compile before the block, or call torchjit.replace_torch_compile() for the whole process.",
)


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
        """What stood there before is back, unless somebody else has put another function there meanwhile: that one stays, with a warning."""
        now: Any = torch.compile
        if now is compile:
            torch.compile = self._before
        elif now is not self._before and getattr(now, "__module__", None) != "torch":
            name = f"{getattr(now, '__module__', '?')}.{getattr(now, '__qualname__', told(now))}"
            warn_user(str(UserError(REPLACED_TWICE, name)))
