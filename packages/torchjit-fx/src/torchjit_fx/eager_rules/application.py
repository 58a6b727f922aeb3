"""The mechanisms that apply the rule of an operator to a call of it on fake tensors, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchjit_fx.eager_rules.autocast import refuse_autocast
from torchjit_fx.eager_rules.dtype_probe import refuse_dtypes, refuse_other_dtype
from torchjit_fx.eager_rules.memory_checks import refuse_memory
from torchjit_fx.eager_rules.number_ranges import refuse_numbers
from torchjit_fx.eager_rules.rule import OperatorCall
from torchjit_fx.eager_rules.shape_checks import refuse_shapes

__all__ = ["CHECKS", "RESULT_CHECKS"]

CHECKS: tuple[Callable[[OperatorCall], None], ...] = (refuse_dtypes, refuse_shapes, refuse_memory, refuse_autocast)
"""Before the call: they raise what eager raises, or RuntimeError where no graph can do as eager does."""
RESULT_CHECKS: tuple[Callable[[OperatorCall, Any], None], ...] = (refuse_other_dtype, refuse_numbers)
"""Of its result over fakes, likewise."""
