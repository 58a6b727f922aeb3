"""Where torch's NumPy layer computes what NumPy does: types and ranks of results, and arguments that are refused.

NumPy says what type and rank a result has, asked with small arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, final

import torch

from torchjit_core.forks import caught_warnings
from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.leaves import Function, Raw, RawArgs, RawKwargs, SymLeaf
from torchjit_fx.numpy.arrays import ArrayLeaf, Arrays, name_of
from torchjit_fx.numpy.facts import NUMPY_SCALARS, PLAIN_ATOMS, numpy_module
from torchjit_fx.numpy.functions import COUNTING, OF_COMPLEX
from torchjit_fx.protocols import CaptureContext

__all__ = [
    "check_values", "expected", "fits", "numpy_dtype", "numpy_or_torch_dtype", "refuse", "same_kind", "tensors_of",
]  # fmt: skip

_np = numpy_module


def refuse(fn: Function, why: str, capture: CaptureContext) -> GraphBreak:
    return GraphBreak(breaks.NUMPY, f"{name_of(fn)} {why}", capture.location())


def expected(
    fn: Function, name: str, args: RawArgs, kwargs: RawKwargs, capture: CaptureContext
) -> tuple[torch.dtype, int, bool]:
    """Type and rank of NumPy's result, and whether it is a scalar: of arrays with one element, or none, for each dimension."""
    small = tuple([_small(a, name) for a in args])
    named = {k: _small(v, name) for k, v in kwargs.items()}
    try:
        with caught_warnings("ignore"), _np.errstate(all="ignore"):
            result = fn(*small, **named)
        return _torch_dtype(result.dtype), result.ndim, not isinstance(result, _np.ndarray)
    except Exception as error:  # the run for real shows what it was
        raise refuse(fn, f": {error}", capture) from error


def _small(arg: Raw, name: str) -> Raw:
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
def _torch_dtype(dtype: Any) -> torch.dtype:
    """
    Raises:
        TypeError: torch has none.
    """
    return torch.from_numpy(_np.empty(0, dtype)).dtype


@functools.cache
def numpy_dtype(dtype: torch.dtype) -> Raw:
    """
    Raises:
        TypeError: NumPy has none.
    """
    return torch.empty(0, dtype=dtype).numpy().dtype


def numpy_or_torch_dtype(arg: Raw) -> Raw:
    """A dtype, a type that stands for one, or anything else."""
    if arg is bool or arg is int or arg is float or arg is complex or isinstance(arg, (type, _np.dtype)):
        try:
            return _torch_dtype(_np.dtype(arg))
        except TypeError:
            return arg
    return arg


@final
class _Given:
    """What a function of NumPy is given, as far as its rules ask."""

    def __init__(self, name: str, args: RawArgs, kwargs: RawKwargs) -> None:
        arrays = [a for a in args if type(a) is ArrayLeaf]
        self.name, self.args, self.kwargs = name, args, kwargs
        self.dtypes = [a.leaf.record.dtype if a.leaf is not None else _torch_dtype(a.real.dtype) for a in arrays]
        self.floating = any(d.is_floating_point for d in self.dtypes)
        self.complex = any(d.is_complex for d in self.dtypes) or any(type(a) is complex for a in args)
        self.second: Raw = args[1] if len(args) > 1 else None

    def to_integers(self) -> bool:
        """Is a dtype asked for that is of integers?"""
        return any(isinstance(a, torch.dtype) and not _is_floating(a) for a in (*self.args[1:], *self.kwargs.values()))


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DIVISIONS, _AVERAGES = _names("floor_divide remainder"), _names("mean std var")
_REFUSED: tuple[tuple[str, frozenset[str] | None, Callable[[_Given], bool]], ...] = (
    ("of complex numbers", None,
     lambda g: g.complex and (g.name not in OF_COMPLEX or not all(d.is_complex for d in g.dtypes))),
    ("of half precision", _names("sum prod mean std var cumsum cumprod matmul dot"), lambda g: torch.float16 in g.dtypes),
    ("that may divide by zero", _DIVISIONS, lambda g: not (type(g.second) in (int, float) and g.second)),
    ("of integers", _names("power"), lambda g: not (g.floating or (type(g.second) is int and g.second >= 0))),
    ("of a number out of range", None,
     lambda g: g.name not in COUNTING and not all(fits(n, d) for n in g.args if type(n) is int for d in g.dtypes)),
    ("of truth values", _names("tensordot ceil floor trunc subtract"), lambda g: torch.bool in g.dtypes),
    ("of what may be no number", _names("sign"), lambda g: g.floating),
    ("to integers", None, lambda g: g.name != "astype" and (g.floating or g.name in _AVERAGES) and g.to_integers()),
    ("of one axis", _names("squeeze"), lambda g: len(g.args) > 1 or bool(g.kwargs)),  # torch leaves one of another size alone
    ("by a root", _names("power"), lambda g: type(g.second) is float and abs(g.second) == 0.5),
    ("of integers", _names("reciprocal"), lambda g: not g.floating),
    ("to integers", _names("astype"), lambda g: (g.floating or len(g.args) != 2) and not _is_floating(g.args[-1])),  # out of range
    ("of arrays", _names("repeat"), lambda g: len(g.args) < 2 or type(g.args[1]) is not int),
)  # fmt: skip
"""What torch computes otherwise than NumPy for some values: why, of which functions (None: of all), and when."""


def check_values(name: str, fn: Function, args: RawArgs, kwargs: RawKwargs, capture: CaptureContext) -> None:
    """Raises GraphBreak for a row of the table."""
    given = _Given(name, args, kwargs)
    for why, names, holds in _REFUSED:
        if (names is None or name in names) and holds(given):
            raise refuse(fn, why, capture)


def fits(number: int, dtype: torch.dtype) -> bool:
    """NumPy refuses a Python integer that an array of integers cannot hold."""
    if dtype is torch.bool or dtype.is_floating_point or dtype.is_complex:
        return True
    return torch.iinfo(dtype).min <= number <= torch.iinfo(dtype).max


def _is_floating(dtype: Any) -> bool:
    return isinstance(dtype, torch.dtype) and (dtype.is_floating_point or dtype is torch.bool or dtype.is_complex)


def same_kind(given: torch.dtype, wanted: torch.dtype) -> bool:
    return bool(_np.can_cast(numpy_dtype(given), numpy_dtype(wanted), "same_kind"))


def tensors_of(domain: CallDomain, arg: Raw, fn: Function, capture: CaptureContext) -> Raw:
    """The argument for `numpy_call`."""
    if type(arg) is ArrayLeaf:
        return domain.of(Arrays).constant(arg.real, capture) if arg.constant else domain.of(Arrays).tensor(arg, capture)
    if isinstance(arg, NUMPY_SCALARS):  # its type counts
        return domain.recorder.call(torch.full, ((), arg.item()), {"dtype": _torch_dtype(arg.dtype)}, capture)
    if type(arg) in (list, tuple):
        return type(arg)([tensors_of(domain, item, fn, capture) for item in arg])
    if type(arg) in PLAIN_ATOMS or type(arg) is SymLeaf or isinstance(arg, torch.dtype):
        return arg
    raise refuse(fn, f"is given a {type(arg).__name__}", capture)
