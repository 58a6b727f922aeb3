"""NumPy beside torch: scalars are constants, functions of constants are evaluated at capture, arrays break the graph."""

from __future__ import annotations

import contextlib
import types
from typing import Any

import torch

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks

__all__ = ["NUMPY_FUNCTIONS", "NUMPY_METHODS", "NUMPY_SCALARS", "call_numpy", "plain_numbers"]

_np: Any = None
with contextlib.suppress(ImportError):  # torch works without NumPy, and so do we
    import numpy

    _np = numpy

NUMPY_SCALARS: tuple[type[Any], ...] = ()
"""Types of NumPy's numbers: immutable values."""

NUMPY_METHODS: tuple[Any, ...] = ()
"""Methods of theirs that only compute, and give such numbers or Python's."""

if _np is not None:
    NUMPY_SCALARS = tuple({t: None for t in _np.sctypeDict.values() if issubclass(t, (_np.number, _np.bool_))})
    NUMPY_METHODS = tuple(getattr(_np.generic, n) for n in ("item", "tolist", "astype", "round", "conj", "conjugate"))

# Functions besides ufuncs that only compute. All others (random numbers, files, error states, arrays) run for real.
_COMPUTING = (
    "prod", "sum", "max", "min", "amax", "amin", "mean", "median", "std", "var", "any", "all", "argmax", "argmin", "isclose",
    "allclose", "dot", "vdot", "inner", "trace", "round", "around", "ptp", "count_nonzero", "ndim", "size", "array_equal",
    "isscalar", "iscomplexobj", "isrealobj", "clip", "interp", "nan_to_num",
)  # fmt: skip


def _functions() -> frozenset[int]:
    if _np is None:
        return frozenset()
    kinds = (_np.ufunc, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
    spaces = (_np, _np.random, _np.linalg, _np.fft)
    return frozenset(
        id(getattr(value, "__func__", value))
        for space in spaces
        for name, value in vars(space).items()
        if not name.startswith("_") and callable(value) and not isinstance(value, type)
        # functions of C have types of their own: dispatchers of NumPy, functions and methods of Cython
        if isinstance(value, kinds) or type(value).__name__ in ("_ArrayFunctionDispatcher", "cython_function_or_method")
    )


NUMPY_FUNCTIONS: frozenset[int] = _functions()
"""The ids of NumPy's functions, which live as long as the process."""

_PURE: frozenset[int] = frozenset(id(getattr(_np, name)) for name in _COMPUTING if hasattr(_np, name))
_ATOMS: tuple[type[Any], ...] = (bool, int, float, complex, str, type(None), type, *NUMPY_SCALARS)


def _is_constant(arg: Any) -> bool:
    if type(arg) in (list, tuple) or isinstance(arg, torch.Size):
        return all(map(_is_constant, arg))
    return isinstance(arg, _ATOMS)


def call_numpy(domain: Any, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], capture: Any) -> Any:
    """Evaluate a function whose arguments and result are constants.

    Raises:
        GraphBreak: anything else, and errors, which the run for real then raises.
    """
    name = str(getattr(fn, "__qualname__", None) or getattr(fn, "__name__", repr(fn)))
    computes = isinstance(fn, _np.ufunc) or id(fn) in _PURE
    if computes and all(map(_is_constant, args)) and all(map(_is_constant, kwargs.values())):
        try:
            with _np.errstate(all="raise"):  # a warning must be seen
                result = fn(*args, **kwargs)
        except Exception as error:
            raise GraphBreak(breaks.NUMPY, f"{name}: {error}", capture.location()) from error
        if _is_constant(result):
            return result
    raise GraphBreak(breaks.NUMPY, name, capture.location())


# These take their dtype from a NumPy scalar.
_TYPED = frozenset({torch.tensor, torch.as_tensor, torch.asarray})


def plain_numbers(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """Arguments with Python numbers in the place of NumPy's, where torch makes no difference between them; else None."""
    if fn in _TYPED:
        data = args[0] if args else None
        if not isinstance(data, NUMPY_SCALARS) or len(args) > 1:
            return None
        kwargs = {"dtype": torch.from_numpy(_np.asarray(data)).dtype} | kwargs
        return (data.item(),), kwargs
    if fn is torch.Tensor.new_tensor:
        return None
    assigns = getattr(fn, "__name__", "") in ("setitem", "__setitem__")
    try:
        return tuple([_plain(a, assigns) for a in args]), {k: _plain(v, assigns) for k, v in kwargs.items()}
    except TypeError:
        return None


def _plain(arg: Any, assigns: bool) -> Any:
    if isinstance(arg, NUMPY_SCALARS):
        real = isinstance(arg, _np.integer | _np.floating)
        if not real or (assigns and not isinstance(arg, float | _np.integer)):
            raise TypeError(type(arg).__name__)  # torch takes truth values and complex numbers for floats
        return arg.item()
    if type(arg) in (list, tuple):
        return type(arg)([_plain(a, assigns) for a in arg])
    return arg
