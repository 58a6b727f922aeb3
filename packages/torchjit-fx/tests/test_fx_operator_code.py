"""Custom operators and functions that a program allows in graphs: what of them runs while a graph is made is noted."""

from __future__ import annotations

from typing import Any

import torch

from torchjit_core.storing import NotStorable, ReliedOn, collecting_reliance
from torchjit_fx.operator_code import rely_on_code


@torch.library.custom_op("program_code::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def fake_twice(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


_library: Any = torch.library.Library
LIBRARY: Any = _library("program_code2", "FRAGMENT")
LIBRARY.define("thrice(Tensor x) -> Tensor")
LIBRARY.define("negated(Tensor x) -> Tensor")
LIBRARY.impl("negated", lambda x: -x, "CompositeImplicitAutograd")
torch.library.register_fake("program_code2::thrice", lambda x: torch.empty_like(x), lib=LIBRARY)


def noted(target: Any) -> tuple[list[str], list[str]]:
    with collecting_reliance() as found:
        rely_on_code(target)
    refused = [r.reason.id for r in found.values() if isinstance(r, NotStorable)]
    return [type(r.function).__name__ for r in found.values() if isinstance(r, ReliedOn)], refused


def test_operators_are_noted_with_what_torch_keeps_of_them() -> None:
    assert noted(torch.ops.program_code.twice.default) == (["CustomOpDef"], [])
    assert noted(torch.ops.program_code.twice) == (["CustomOpDef"], [])
    assert noted(torch.ops.program_code2.thrice.default) == (["SimpleOperatorEntry"], [])


def test_kernels_that_cannot_be_looked_at_are_refused() -> None:
    assert noted(torch.ops.program_code2.negated.default)[1] == ["TJ-STORE-023"]
