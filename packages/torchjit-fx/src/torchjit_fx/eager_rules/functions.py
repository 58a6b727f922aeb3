"""The rule of each function of torch, as a program calls it, that eager does otherwise than by the operators that fakes see.

A row says what the call may raise for the values in its tensors, what it does for all sizes, or what its kernel refuses.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import attrs
import torch
import torch.nn.functional as F

from torchjit_fx.eager_rules import runtime_asserts as asserts
from torchjit_fx.eager_rules import symbolic_outcomes as outcomes
from torchjit_fx.eager_rules.runtime_asserts import AssertRule
from torchjit_fx.eager_rules.symbolic_outcomes import SymbolicOutcome

__all__ = ["FUNCTIONS", "FunctionRule", "function_rule"]

_aten = torch.ops.aten


@final
@attrs.frozen
class FunctionRule:
    """In what a function that the program calls differs from its calls of operators on fakes.

    Attributes:
        outcome: what it does for all sizes, found without torch.
        asserts: what has to hold of values for it not to raise.
        raises: it may raise for what is in its tensors.
        late: on a GPU too late for an `except` of the program.
        whole: compilers call it as it is.
        taken_apart: where sizes vary torch computes it by other operations, of which none has the checks of its kernel.
        refuse: raises what eager raises. torch has another kernel for the call than the operations that it makes of fake tensors, or no fake is in it.
        beyond: it reaches what its argument does not: what it does hangs on the memory, which it may share, and not on the argument's record alone.
    """

    outcome: SymbolicOutcome | None = None
    asserts: AssertRule | None = None
    raises: bool = False
    late: bool = False
    whole: bool = False
    taken_apart: bool = False
    refuse: Callable[[Sequence[Any], Mapping[str, Any]], None] | None = None
    beyond: bool = False


def _refuse_no_norms(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    if args and type(args[0]) in (list, tuple) and not args[0]:
        _foreach_norm([])  # raises RuntimeError


def _refuse_pool(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    if not args or not isinstance(args[0], torch.Tensor) or kwargs.get("return_indices"):
        return
    if args[0].device.type == "cpu" and not (args[0].requires_grad and torch.is_grad_enabled()):
        _pool_one(args[0].dtype)


@functools.cache
def _pool_one(dtype: torch.dtype) -> None:
    """Raises the kernel's own NotImplementedError, which the program sees in eager, if it has no code for the dtype."""
    with torch._C.DisableTorchFunction():
        torch.max_pool1d(torch.zeros(1, 1, dtype=dtype, device="cpu"), 1)


_foreach_norm: Any = torch._foreach_norm
_LINALG = (torch.linalg,)
_BOTH = (torch.Tensor, torch)


def _alike(rule: FunctionRule, names: str, spaces: tuple[Any, ...] = _BOTH) -> dict[Any, FunctionRule]:
    """For the functions and methods of these names, as far as this version of torch has them."""
    found = [getattr(space, name, None) for space in spaces for name in names.split()]
    return {f: rule for f in found if f is not None}


_LATE = FunctionRule(raises=True, late=True)


def _tested(test: AssertRule) -> FunctionRule:
    return attrs.evolve(_LATE, asserts=test)


FUNCTIONS: dict[Any, FunctionRule] = {
    # ---- indices
    **dict.fromkeys(
        (operator.getitem, operator.setitem, torch.Tensor.__getitem__, torch.Tensor.__setitem__),
        FunctionRule(asserts=asserts.items),
    ),
    **_alike(
        _tested(asserts.along(negative=False)),
        "gather index_select index_add index_add_ index_copy index_copy_ index_reduce index_reduce_ "
        "scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_",
    ),
    **_alike(_tested(asserts.along(negative=True)), "index_fill index_fill_"),
    F.embedding: _tested(asserts.embedding),
    F.embedding_bag: FunctionRule(raises=True, late=True, whole=True),
    **dict.fromkeys((F.cross_entropy, F.nll_loss), _tested(asserts.classes)),
    **dict.fromkeys((F.multi_margin_loss, F.one_hot), attrs.evolve(_LATE, taken_apart=True)),
    **_alike(_LATE, "take put put_ index_put index_put_"),
    # ---- other values
    **_alike(_LATE, "bernoulli bernoulli_"),
    F.binary_cross_entropy: _LATE,
    **_alike(FunctionRule(raises=True, whole=True), "cholesky inverse multinomial"),
    **_alike(
        FunctionRule(raises=True, whole=True),
        "cholesky inv solve eig eigh eigvals eigvalsh svd svdvals lstsq pinv lu_solve ldl_factor tensorinv tensorsolve matrix_rank",
        _LINALG,
    ),
    **_alike(FunctionRule(raises=True), "take_along_dim"),
    F.ctc_loss: FunctionRule(raises=True),
    # ---- sizes that vary
    **dict.fromkeys((torch.Tensor.view, torch.Tensor.reshape, torch.reshape), FunctionRule(outcome=outcomes.reshape)),
    F.batch_norm: FunctionRule(outcome=outcomes.batch_norm),
    F.linear: FunctionRule(outcome=outcomes.linear),
    torch.addmm: FunctionRule(outcome=outcomes.addmm),
    F.layer_norm: FunctionRule(outcome=outcomes.layer_norm),
    **dict.fromkeys(
        (F.interpolate, F.hardshrink, *_alike(FunctionRule(), "hardshrink")),
        FunctionRule(taken_apart=True),
    ),
    # ---- memory, and kernels of their own
    **dict.fromkeys(
        (torch.as_strided, torch.Tensor.as_strided, torch.Tensor.as_strided_, _aten.as_strided.default, _aten.as_strided_.default),
        FunctionRule(beyond=True),
    ),
    **dict.fromkeys((F.max_pool1d, torch.max_pool1d), FunctionRule(refuse=_refuse_pool)),
    _foreach_norm: FunctionRule(refuse=_refuse_no_norms),
}  # fmt: skip

_NONE = FunctionRule()


def function_rule(target: object) -> FunctionRule:
    """The rule of what a program calls.

    Args:
        target: a callable, or the name of a method.
    """
    if type(target) is str:
        target = getattr(torch.Tensor, target, None)
    try:
        return FUNCTIONS.get(target, _NONE)
    except TypeError:  # it cannot be hashed
        return _NONE
