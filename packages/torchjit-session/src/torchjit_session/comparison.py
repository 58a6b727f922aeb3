"""Two calls side by side: what each did, from copies and with the same random numbers, and in what they differ."""

from __future__ import annotations

import contextlib
import copy
import inspect
import random
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, final

import attrs
import torch
from torch.utils import _pytree as pytree

__all__ = ["Outcome", "copied", "difference", "outcome_of"]


@final
@attrs.frozen
class Outcome:
    """What a call did: values by name, or an error.

    Attributes:
        values: the result, the arguments and the state of modules afterwards, gradients.
    """

    values: dict[str, Any]
    error: Exception | None


def outcome_of(
    called: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], *, gradients: bool
) -> Outcome:
    """Call it, and backwards from its results where gradients are wanted. The generators of random numbers are as before at the end."""
    values: dict[str, Any] = {}
    error = None
    with _same_random_numbers():
        try:
            result = called(*args, **kwargs)
            if gradients:
                _backward(result)
        except Exception as raised:
            error = raised
        else:
            values["the result"] = result
    values |= {f"argument {i} after the call": value for i, value in enumerate(args)}
    values |= {f"argument {name!r} after the call": value for name, value in kwargs.items()}
    for owner, module in _modules(called, args, kwargs):
        values |= {f"{name}{owner} after the call": value for name, value in module.state_dict().items()}
    if gradients and error is None:
        values |= _gradients(called, args, kwargs)
    return Outcome(values, error)


def copied(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Copies that share among each other what the originals share. Results of operations become leaves. A function is what it is.

    Raises:
        Exception: something cannot be copied.
    """
    leaves: dict[int, torch.Tensor] = {}

    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_leaf:
            return tensor
        return leaves.setdefault(id(tensor), tensor.detach().requires_grad_(tensor.requires_grad))

    given = pytree.tree_map_only(torch.Tensor, leaf, (args, kwargs))
    memo: dict[int, Any] = {}
    copied_args, copied_kwargs = copy.deepcopy(given, memo)
    plain = isinstance(f, types.FunctionType) or inspect.isbuiltin(f)
    return f if plain else copy.deepcopy(f, memo), copied_args, copied_kwargs


@contextlib.contextmanager
def _same_random_numbers() -> Iterator[None]:
    """The block draws from the present states of the generators, which are as before at its end."""
    numpy = sys.modules.get("numpy")
    python, arrays = random.getstate(), None if numpy is None else numpy.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.random.set_state(arrays)


def _backward(result: Any) -> None:
    """From all results at once, each element with a weight of its own."""
    ends = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    weights = [torch.linspace(0.5, 1.5, t.numel(), device=t.device).reshape(t.shape).to(t.dtype) for t in ends]
    if ends:
        torch.autograd.backward(ends, weights)


def _modules(called: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, torch.nn.Module]]:
    """The one that is called or whose method is, and those among the arguments, with whose they are."""
    owner = getattr(called, "__self__", called)
    found = [("", owner)] if isinstance(owner, torch.nn.Module) else []
    for place, leaf in _arguments(args, kwargs):
        if isinstance(leaf, torch.nn.Module):
            found.append((f" of argument {place}", leaf))
    return found


def _arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every value among the arguments, with its place: `0`, `'mask'`, `1['ids']`."""
    for place, value in [*((str(i), v) for i, v in enumerate(args)), *((repr(k), v) for k, v in kwargs.items())]:
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            yield place + pytree.keystr(path), leaf


def _gradients(called: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for place, leaf in _arguments(args, kwargs):
        if isinstance(leaf, torch.Tensor) and leaf.is_leaf and leaf.requires_grad:
            named[f"the gradient of argument {place}"] = leaf.grad
    for owner, module in _modules(called, args, kwargs):
        named |= {f"the gradient of {name}{owner}": parameter.grad for name, parameter in module.named_parameters()}
    return named


def difference(got: Outcome, wanted: Outcome, rtol: float | None, atol: float | None) -> str:
    """The first one, as text; "" where there is none."""
    if type(got.error) is not type(wanted.error):
        return f"eager {_raised(wanted.error)}, compiled it {_raised(got.error)}"
    for name, value in wanted.values.items():
        text = _unequal(got.values.get(name), value, rtol, atol, set())
        if text:
            return f"{name}{text}"
    return ""


def _raised(error: Exception | None) -> str:
    return "raises nothing" if error is None else f"raises {type(error).__name__}: {error}"


def _unequal(got: Any, wanted: Any, rtol: float | None, atol: float | None, seen: set[int]) -> str:
    """How two values differ, which may contain others."""
    got_leaves, got_shape = pytree.tree_flatten_with_path(got)
    wanted_leaves, wanted_shape = pytree.tree_flatten_with_path(wanted)
    if got_shape != wanted_shape:
        return f" has another structure: {_short(got)}, eager {_short(wanted)}"
    for (path, g), (_, w) in zip(got_leaves, wanted_leaves, strict=True):
        text = _unequal_leaf(g, w, rtol, atol, seen)
        if text:
            return pytree.keystr(path) + text
    return ""


def _unequal_leaf(got: Any, wanted: Any, rtol: float | None, atol: float | None, seen: set[int]) -> str:
    if isinstance(wanted, torch.nn.Module) or id(wanted) in seen:
        return ""  # its state is compared by name
    if _plain_type(got) is not _plain_type(wanted):
        return f" is a {type(got).__name__}, eager's a {type(wanted).__name__}"
    if isinstance(wanted, torch.Tensor):
        return _unequal_tensors(got, wanted, rtol, atol)
    if isinstance(wanted, (float, complex)):
        return _unequal_tensors(torch.tensor(got), torch.tensor(wanted), rtol, atol)
    says_equal = getattr(type(wanted), "__eq__") is not object.__eq__  # noqa: B009  a function of any type
    if says_equal:
        return "" if got == wanted else f" is {_short(got)}, eager's {_short(wanted)}"
    if callable(wanted) or not hasattr(wanted, "__dict__"):
        return ""  # made in each run, and nothing to compare
    seen.add(id(wanted))  # an object that only says what it holds
    for name, value in vars(wanted).items():
        text = _unequal(vars(got).get(name), value, rtol, atol, seen)
        if text:
            return f".{name}{text}"
    return ""


def _plain_type(value: Any) -> type:
    """A compiled object's is the one that the program wrote."""
    original = getattr(type(value), "_torchjit_original", None)
    return type(value) if original is None else type(original)


def _unequal_tensors(got: torch.Tensor, wanted: torch.Tensor, rtol: float | None, atol: float | None) -> str:
    if got.requires_grad != wanted.requires_grad:
        return f" has requires_grad={got.requires_grad}, eager's {wanted.requires_grad}"
    try:
        torch.testing.assert_close(got, wanted, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        return f": {error}"
    return ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
