"""Where torch's NumPy layer computes what NumPy does: types and ranks of results, and arguments that are refused.

NumPy says what type and rank a result has, asked with small arrays.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from torchjit_core.forks import caught_warnings
from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.leaves import SymLeaf
from torchjit_fx.numpy.arrays import ArrayLeaf, Arrays, name_of
from torchjit_fx.numpy.facts import NUMPY_SCALARS, PLAIN_ATOMS, numpy_module
from torchjit_fx.numpy.functions import COUNTING, OF_COMPLEX

__all__ = [
    "check_values", "expected", "fits", "numpy_dtype", "numpy_or_torch_dtype", "refuse", "same_kind", "tensors_of", "torch_dtype",
]  # fmt: skip

_np = numpy_module


def refuse(fn: Any, why: str, capture: Any) -> GraphBreak:
    return GraphBreak(breaks.NUMPY, f"{name_of(fn)} {why}", capture.location())


def expected(fn: Any, name: str, args: Any, kwargs: Any, capture: Any) -> tuple[torch.dtype, int, bool]:
    """Type and rank of NumPy's result, and whether it is a scalar: of arrays with one element, or none, for each dimension."""
    small = tuple([_small(a, name) for a in args])
    named = {k: _small(v, name) for k, v in kwargs.items()}
    try:
        with caught_warnings("ignore"), _np.errstate(all="ignore"):
            result = fn(*small, **named)
        return torch_dtype(result.dtype), result.ndim, not isinstance(result, _np.ndarray)
    except Exception as error:  # the run for real shows what it was
        raise refuse(fn, f": {error}", capture) from error


def _small(arg: Any, name: str) -> Any:
    if type(arg) is ArrayLeaf:
        if arg.leaf is None:
            sizes, dtype = arg.real.shape, arg.real.dtype
        else:
            sizes, dtype = arg.leaf.record.sizes, numpy_dtype(arg.leaf.record.dtype)
        made = _np.full([0 if n == 0 else 1 for n in sizes], 0 if name == "take" else 1, dtype)
        return made[()] if arg.scalar else made
    if type(arg) is SymLeaf:
        return 1.0 if isinstance(arg.value, torch.SymFloat) else 1
    if type(arg) in (list, tuple):
        return type(arg)([_small(item, name) for item in arg])
    return numpy_dtype(arg) if isinstance(arg, torch.dtype) else arg


@functools.cache
def torch_dtype(dtype: Any) -> torch.dtype:
    """
    Raises:
        TypeError: torch has none.
    """
    return torch.from_numpy(_np.empty(0, dtype)).dtype


@functools.cache
def numpy_dtype(dtype: torch.dtype) -> Any:
    """
    Raises:
        TypeError: NumPy has none.
    """
    return torch.empty(0, dtype=dtype).numpy().dtype


def numpy_or_torch_dtype(arg: Any) -> Any:
    """A dtype, a type that stands for one, or anything else."""
    if arg is bool or arg is int or arg is float or arg is complex or isinstance(arg, (type, _np.dtype)):
        try:
            return torch_dtype(_np.dtype(arg))
        except TypeError:
            return arg
    return arg


def check_values(name: str, fn: Any, args: Any, kwargs: Any, capture: Any) -> None:
    """Refuse what torch computes otherwise than NumPy for some values."""
    arrays = [a for a in args if type(a) is ArrayLeaf]
    dtypes = [a.leaf.record.dtype if a.leaf is not None else torch_dtype(a.real.dtype) for a in arrays]
    some_complex = any(d.is_complex for d in dtypes) or any(type(a) is complex for a in args)
    if some_complex and (name not in OF_COMPLEX or not all(d.is_complex for d in dtypes)):
        raise refuse(fn, "of complex numbers", capture)
    if torch.float16 in dtypes and name in ("sum", "prod", "mean", "std", "var", "cumsum", "cumprod", "matmul", "dot"):
        raise refuse(fn, "of half precision", capture)
    floating = any(d.is_floating_point for d in dtypes)
    divisor = args[1] if len(args) > 1 else None
    if name in ("floor_divide", "remainder") and not (type(divisor) in (int, float) and divisor):
        raise refuse(fn, "that may divide by zero", capture)
    if name == "power" and not (floating or (type(divisor) is int and divisor >= 0)):
        raise refuse(fn, "of integers", capture)
    if name not in COUNTING and not all(fits(n, d) for n in args if type(n) is int for d in dtypes):
        raise refuse(fn, "of a number out of range", capture)
    if name in ("tensordot", "ceil", "floor", "trunc", "subtract") and torch.bool in dtypes:
        raise refuse(fn, "of truth values", capture)
    if name == "sign" and floating:
        raise refuse(fn, "of what may be no number", capture)
    asked = [a for a in (*args[1:], *kwargs.values()) if isinstance(a, torch.dtype) and not _is_floating(a)]
    if asked and name != "astype" and (floating or name in ("mean", "std", "var")):
        raise refuse(fn, "to integers", capture)
    if name == "squeeze" and (len(args) > 1 or kwargs):
        raise refuse(fn, "of one axis", capture)  # torch leaves one of another size alone
    if name == "power" and type(divisor) is float and abs(divisor) == 0.5:
        raise refuse(fn, "by a root", capture)
    if name == "reciprocal" and not floating:
        raise refuse(fn, "of integers", capture)
    if name == "astype" and (floating or len(args) != 2) and not _is_floating(args[-1]):
        raise refuse(fn, "to integers", capture)  # numbers out of range
    if name == "repeat" and (len(args) < 2 or type(args[1]) is not int):
        raise refuse(fn, "of arrays", capture)


def fits(number: int, dtype: torch.dtype) -> bool:
    """NumPy refuses a Python integer that an array of integers cannot hold."""
    if dtype is torch.bool or dtype.is_floating_point or dtype.is_complex:
        return True
    return torch.iinfo(dtype).min <= number <= torch.iinfo(dtype).max


def _is_floating(dtype: Any) -> bool:
    return isinstance(dtype, torch.dtype) and (dtype.is_floating_point or dtype is torch.bool or dtype.is_complex)


def same_kind(given: torch.dtype, wanted: torch.dtype) -> bool:
    return bool(_np.can_cast(numpy_dtype(given), numpy_dtype(wanted), "same_kind"))


def tensors_of(domain: CallDomain, arg: Any, fn: Any, capture: Any) -> Any:
    """The argument for `numpy_call`."""
    if type(arg) is ArrayLeaf:
        return domain.of(Arrays).constant(arg.real, capture) if arg.constant else domain.of(Arrays).tensor(arg, capture)
    if isinstance(arg, NUMPY_SCALARS):  # its type counts
        return domain.recorder.call(torch.full, ((), arg.item()), {"dtype": torch_dtype(arg.dtype)}, capture)
    if type(arg) in (list, tuple):
        return type(arg)([tensors_of(domain, item, fn, capture) for item in arg])
    if type(arg) in PLAIN_ATOMS or type(arg) is SymLeaf or isinstance(arg, torch.dtype):
        return arg
    raise refuse(fn, f"is given a {type(arg).__name__}", capture)
