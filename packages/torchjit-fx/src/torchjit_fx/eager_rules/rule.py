"""The fields of a rule, and the call of an operator that rules are applied to."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, final

import attrs
import torch
from torch._ops import OpOverload

__all__ = [
    "Inside", "NamedValues", "OperatorCall", "OperatorRule", "Overlap", "Overload", "ShapeCheck", "Size", "Sizes",
    "Strides", "StridesRule", "Value", "Values", "tensors_in",
]  # fmt: skip

Value: TypeAlias = Any
"""What an operator is given or gives: a fake tensor, a size or number, a plain value, or containers of these."""
Values: TypeAlias = "Sequence[Value]"
NamedValues: TypeAlias = "Mapping[str, Value]"
Size: TypeAlias = Any
"""An int, or a torch.SymInt."""
Sizes: TypeAlias = "Sequence[Size]"
Overload: TypeAlias = "OpOverload[..., Any]"
ShapeCheck: TypeAlias = "Callable[..., str | None]"
"""From the call's arguments to why eager refuses their shapes."""
Strides: TypeAlias = "Sequence[Sizes | None]"
"""Of the first results; None: as the fakes say."""
StridesRule: TypeAlias = "Callable[[list[Value], Values, NamedValues], Strides]"
"""From the results and the call's arguments."""


class Overlap(enum.Enum):
    """What a kernel says to reading the memory that it writes, if it is no elementwise one."""

    REFUSED = enum.auto()
    """Even if it is the same tensor; or the result is not defined then."""
    REFUSED_IN_PART = enum.auto()
    """As elementwise ones, which may be given the very tensor that they write."""


class Inside(enum.Enum):
    """What the kernel for CPUs calls that autocast changes."""

    PRODUCT = enum.auto()
    """The result is rounded, or of the 16-bit type."""
    CONCATENATION = enum.auto()
    """It raises for the other 16-bit type."""


@final
@attrs.frozen
class OperatorRule:
    """In what an ATen operator in eager differs from its fake.

    Attributes:
        probe: the size of each dimension of the tensors that it is tried with for real, to see which dtypes and numbers it refuses: it is
            defined there. 0: it is not tried unless it is elementwise.
        probe_backward: its forward promotes dtypes; whether its backward does is tried, too.
        empty_index: its index (the third argument) may be `torch.tensor([])`, which holds floats: then it is not tried.
        shapes: what the kernel checks of sizes.
        overlap: what it says to reading what it writes.
        inside: what the kernel calls that autocast changes.
        converts: names of the arguments whose numbers it converts to the dtype of its result, and refuses if they do not fit.
        elementwise: whether its result lies as its operands do; None: if torch tags it as elementwise.
        second_first: the kernel's first operand is the call's second one.
        number_apart: the kernel has the number as it is; other overloads for numbers make it a tensor, one of the operands.
        strides: how its first results lie, where the kernel makes them.
        is_view: it is a view of other sizes, which eager may refuse.
        trains: positions of the arguments that it writes without saying so when the argument after the last of them is true.
        prepare: makes of the arguments those that a fake is right for.
        any_kernel: torch asks fakes which of several kernels would run: that is no reason to specialise.
    """

    probe: int = 0
    probe_backward: bool = False
    empty_index: bool = False
    shapes: ShapeCheck | None = None
    overlap: Overlap | None = None
    inside: Inside | None = None
    converts: frozenset[str] = frozenset(
        {"value", "fill_value", "alpha", "beta", "min", "max", "exponent", "s", "weight", "min_val", "max_val", "threshold"}
    )  # fmt: skip
    elementwise: bool | None = None
    second_first: bool = False
    number_apart: bool = False
    strides: StridesRule | None = None
    is_view: bool = False
    trains: tuple[int, ...] = ()
    prepare: Callable[[Values, NamedValues], tuple[Values, NamedValues]] | None = None
    any_kernel: bool = False

    def refined(self, other: OperatorRule) -> OperatorRule:
        """This rule with the fields that `other` sets."""
        fields = [field for field in attrs.fields(OperatorRule) if getattr(other, field.name) != field.default]
        return attrs.evolve(self, **{field.name: getattr(other, field.name) for field in fields})


@final
@attrs.define(eq=False)
class OperatorCall:
    """A call of an ATen overload over fake tensors, with what its rule says of it.

    Attributes:
        beyond: the program's call reaches what its argument does not, see `FunctionRule.beyond`.
        autocast: the dtype of autocast for CPUs, None while it is off.
        kernel_dtype: of the (first) result of the kernel, None where that was not asked.
    """

    func: Overload
    args: Values
    kwargs: NamedValues
    rule: OperatorRule
    beyond: bool = False
    autocast: torch.dtype | None = None
    kernel_dtype: torch.dtype | None = None

    def argument(self, position: int, name: str) -> Value:
        """What is given for an argument, None for nothing."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(name)


def tensors_in(value: Value) -> Iterator[torch.Tensor]:
    """Tensors among arguments, in lists and tuples too."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
