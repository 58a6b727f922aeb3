"""The rules of the loop IR for each kind of value. `Value.verify` checks one; kernels, steps and programs check their own parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import torch

from torchjit_core.reasons import InvalidIR, reason
from torchjit_inductor.ir.dtypes import EIGHT_BIT_FLOATS, HALF, KERNEL_DTYPES

if TYPE_CHECKING:
    from torchjit_inductor.ir.values import Value

__all__ = ["BROKEN_KERNEL", "REDUCTIONS", "SCANS", "check", "check_value"]

BROKEN_KERNEL = reason(
    "TJ-IND-001",
    "a fused kernel broke the rules of the loop IR",
    "This is a bug in torchjit_inductor: a lowering or the scheduler built a kernel that no backend can run.",
    "Report it with the graph (TORCHJIT_LOGS=aot_graphs).",
)

_DTYPES = KERNEL_DTYPES - set(HALF)
_ERRORS = ("index", "gather", "embedding", "probability")
_NUMBERS: Mapping[bool, type[int | float]] = MappingProxyType({True: float, False: int})

Rules: TypeAlias = "Iterator[tuple[bool, str]]"
"""Pairs of what holds in valid IR and what to say where it does not. A rule may count on those before it."""

REDUCTIONS: Mapping[str, tuple[int, torch.dtype | None]] = MappingProxyType(
    {
        **dict.fromkeys(("sum", "prod", "max", "min", "welford_mean", "welford_m2"), (1, None)),
        **dict.fromkeys(("any", "all"), (1, torch.bool)),
        **dict.fromkeys(("argmax", "argmin"), (1, torch.int64)),
        **dict.fromkeys(("dot", "fast_dot"), (2, None)),
    }
)
"""Kinds of `reduce`: how many operands each has, and its dtype where that is not the operand's. Each is over all inner loop variables of the kernel.

sum, prod: in the operand's dtype (lowerings cast to `accumulate_dtype` first); the order of additions is free.
max, min: a NaN wins. any, all: over bool. argmax, argmin: the int64 position, in the row-major order of the inner
variables, of the first largest (smallest) element; a NaN is larger (smaller) than any number, the first NaN wins.
welford_mean: the mean. welford_m2: the sum of squared distances from the mean. Both of floats, without cancellation.
dot, fast_dot: of two operands, the sum of their products, for the matrix units: see `dot`.
"""
SCANS = ("sum", "prod", "max", "min")
"""Kinds of `scan`: the combination of the operand at this inner point and at all before it, in the row-major order of the
kernel's inner loops. sum, prod: in the operand's dtype. max, min: a NaN wins, and stays."""


def check(holds: bool, node: object, text: str) -> None:
    """Raises:
    InvalidIR: it does not hold; the message names the node.
    """
    if not holds:
        raise InvalidIR(BROKEN_KERNEL, f"{node}: {text}")


def check_value(value: Value) -> None:
    """Check one node, not its operands.

    Raises:
        InvalidIR: a rule of its kind is broken.
    """
    check(value.dtype in _DTYPES, value.op, f"values have no dtype {value.dtype}")
    for holds, text in _RULES.get(value.op, _operation)(value):
        check(holds, value.op, text)


def _positions(value: Value, others: int) -> Rules:
    """The first operands stand for the binders of the index, `others` follow."""
    binders = value.data.binders
    yield len(value.args) == len(binders) + others, f"{len(value.args)} operands for {len(binders)} positions"
    yield len(set(binders)) == len(binders), "two positions have one symbol"
    yield all(a.dtype == torch.int64 for a in value.args[: len(binders)]), "a position is no int64"


def _load(value: Value) -> Rules:
    yield from _positions(value, int(value.data.masked))
    if value.data.masked:
        yield value.args[-1].dtype == torch.bool, "the mask is no bool"
    elif value.data.other != 0:
        yield False, "a value for what is masked off, and no mask"


def _constant(value: Value) -> Rules:
    yield not value.args, "a constant has operands"
    kind = bool if value.dtype == torch.bool else _NUMBERS[value.dtype.is_floating_point]
    yield type(value.data) is kind, f"{value.data!r} is no {value.dtype}"


def _index(value: Value) -> Rules:
    yield from _positions(value, 0)
    yield value.dtype == torch.int64, f"an index is int64, not {value.dtype}"


def _bounded(value: Value) -> Rules:
    yield len(value.args) == 1 + len(value.data.binders), "one position is checked"
    yield value.dtype == value.args[0].dtype == torch.int64, "a position is int64"
    yield value.data.error in _ERRORS, f"unknown error {value.data.error}"


def _segment(value: Value) -> Rules:
    yield len(value.args) > 1, "a segment needs a position and ends"
    yield value.dtype == value.args[0].dtype == torch.int64, "a position is int64"
    yield all(a.dtype in (torch.int32, torch.int64) for a in value.args[1:]), "an end is no integer"


def _reduce(value: Value) -> Rules:
    yield value.data in REDUCTIONS, f"unknown reduction {value.data!r}"
    count, dtype = REDUCTIONS[value.data]
    yield len(value.args) == count, f"{value.data} takes {count} operands"
    if count == 2:
        wanted = torch.int32 if value.args[0].dtype == torch.int8 else torch.float32
        yield value.dtype == wanted, f"products of {value.args[0].dtype} are summed in {wanted}"
    else:
        yield (
            value.dtype == (dtype or value.args[0].dtype),
            f"{value.data} of {value.args[0].dtype} is no {value.dtype}",
        )


def _scan(value: Value) -> Rules:
    yield value.data in SCANS, f"unknown scan {value.data!r}"
    yield len(value.args) == 1 and value.dtype == value.args[0].dtype, "a scan is of its operand's dtype"


def _sort(value: Value) -> Rules:
    yield len(value.args) == 1, "one row is sorted"
    wanted = torch.int64 if value.data.positions else value.args[0].dtype
    yield value.dtype == wanted, f"a sort gives {wanted}"


def _cast(value: Value) -> Rules:
    yield len(value.args) == 1 and value.data is None, "one value is cast"
    yield value.dtype != value.args[0].dtype, "a cast to its own dtype"


def _round_to(value: Value) -> Rules:
    yield value.data in (*HALF, *EIGHT_BIT_FLOATS), f"{value.data} is computed in itself"
    yield len(value.args) == 1 and value.args[0].dtype == value.dtype == torch.float32, "a float32 is rounded"


def _where(value: Value) -> Rules:
    yield len(value.args) == 3, "a choice is of two"
    condition, yes, no = value.args
    yield condition.dtype == torch.bool, "the condition is no bool"
    yield yes.dtype == no.dtype == value.dtype, "both sides are of the result's dtype"


def _operation(value: Value) -> Rules:
    from torchjit_inductor.ir.operations import result_dtype  # noqa: PLC0415  # as in `values.apply`

    try:
        wanted = result_dtype(value.op, value.args)
    except ValueError as error:
        yield False, str(error)
        return
    yield value.dtype == wanted, f"it gives {wanted}, not {value.dtype}"
    yield value.data is None, "an operation of the table has no data"


_RULES: Mapping[str, Callable[[Value], Rules]] = MappingProxyType(
    {
        "load": _load, "constant": _constant, "index": _index, "bounded": _bounded, "segment": _segment, "reduce": _reduce,
        "scan": _scan, "sort": _sort, "cast": _cast, "round_to": _round_to, "where": _where,
    }
)  # fmt: skip
