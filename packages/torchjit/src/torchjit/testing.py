"""For the tests of libraries: is it one graph, does it recompile, does it compute what eager PyTorch computes?

    from torchjit.testing import assert_equal_to_eager, assert_one_graph

    def test_layer():
        assert_one_graph(layer, torch.randn(4, 8))
        assert_equal_to_eager(layer, torch.randn(4, 8, requires_grad=True))

Each raises `AssertionError`, and returns what was found. With pytest installed there is also the fixture `fresh_torchjit`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import random
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, final

import attrs
import torch
from torch.utils import _pytree as pytree

from torchjit import backends
from torchjit.compiler import compilation_of, compile, is_compiled, reset
from torchjit.config import config
from torchjit.exc import UserError, UserTypeError, wrong_type
from torchjit.inspection import Explanation, describe, explain
from torchjit.stance import set_stance
from torchjit_core.kinds import as_switch
from torchjit_core.reasons import reason

__all__ = ["assert_equal_to_eager", "assert_no_breaks", "assert_one_graph", "assert_recompiles", "fresh"]

BAD_CALLS = reason(
    "TJ-TEST-001",
    "the calls of assert_recompiles are not arguments",
    "Each call is a tuple of positional arguments, or a dict of arguments by name.",
    "For instance calls=[(x,), (y,), {'x': z}].",
)
BAD_ARGUMENT = reason(
    "TJ-TEST-002",
    "a helper of torchjit.testing was called wrongly",
    "The helpers take a function, a method or a module, and the arguments to call it with.",
    "For instance assert_one_graph(model, x), not assert_one_graph(model(x)).",
)


@contextlib.contextmanager
def fresh() -> Iterator[None]:
    """Nothing is compiled at the beginning, nor at the end; errors inside torchjit are raised in the block rather than told in a warning.

    Settings, stance and default backend that the block changes are as before at its end. Also a decorator.
    """
    backend = backends._default  # as it was set, which `get_default_backend` does not tell
    reset()
    try:
        with set_stance("default"), config.kept():
            config.on_error = "raise"
            yield
    finally:
        backends._default = backend
        reset()


def assert_one_graph(f: Any, *args: Any, **kwargs: Any) -> Explanation:
    """Is `f(*args, **kwargs)` captured as exactly one graph, without a break?

    Args:
        f: a function, method or module, compiled or not. It is captured anew, and runs by eager operators.
        args, kwargs: what it is called with.

    Returns:
        What `torchjit.explain` tells.

    Raises:
        AssertionError: it is not; the message has each break's line and what to write instead.
        Exception: what `f` raises.
    """
    __tracebackhide__ = True
    told = _explained(f, args, kwargs)
    if told.graph_count != 1 or told.breaks:
        raise AssertionError(f"{_name(f)} is not one graph: {_counts(told)}{_obstacles(told, 'Break')}")
    return told


def assert_no_breaks(f: Any, *args: Any, **kwargs: Any) -> Explanation:
    """Is `f(*args, **kwargs)` captured without a graph break? It may have no graph at all, or several, of functions that it compiles.

    Arguments, result and errors are those of `assert_one_graph`.
    """
    __tracebackhide__ = True
    told = _explained(f, args, kwargs)
    if told.breaks:
        raise AssertionError(f"{_name(f)} breaks the graph: {_counts(told)}{_obstacles(told, 'Break')}")
    return told


def assert_recompiles(f: Any, calls: Iterable[Any], *, at_most: int = 0, dynamic: bool | None = None) -> Explanation:
    """Do these calls, one after the other, compile again at most so often?

    What the first call compiles is no recompilation. With sizes that vary, one is: the second size makes it a symbol.

    Args:
        f: a function, method or module. One that is compiled already is called as it is, with its own settings, and only what these
            calls make counts.
        calls: the arguments of each: a tuple of positional ones, or a dict by name.
        at_most: how many recompilations are well.
        dynamic: as of `torchjit.compile`, where `f` is not compiled yet.

    Returns:
        What was compiled, as `f.compiled.stats` tells it.

    Raises:
        AssertionError: there were more; the message has each guard that missed, its line, and how to avoid it.
        UserError: a call is neither, or `at_most` is no number of times.
        Exception: what `f` raises.
    """
    __tracebackhide__ = True
    if type(at_most) is not int or at_most < 0:
        kind = UserError if type(at_most) is int else UserTypeError
        raise kind(BAD_ARGUMENT, f"at_most={at_most!r}, want an int of at least 0")
    bound = _bound(calls)
    _callable(f)
    compiled = f if is_compiled(f) else compile(f, backend="eager", isolate_recompiles=True, dynamic=dynamic)
    before = {r.compile_id for r in _stats(compiled).regions}
    with config.patch(on_error="raise", recompile_limit=max(config.recompile_limit, len(bound))):
        for args, kwargs in bound:
            compiled(*args, **kwargs)
    told = _stats(compiled)
    made = Explanation(tuple(r for r in told.regions if r.compile_id not in before and r.recompile is not None))
    if len(made.regions) > at_most:
        times = "once" if len(made.regions) == 1 else f"{len(made.regions)} times"
        text = f"{_name(f)} compiled again {times} in {len(bound)} calls, want at most {at_most}"
        raise AssertionError(text + _obstacles(made, "Recompile"))
    if not told.regions:
        raise AssertionError(_nothing(f))
    return told


def assert_equal_to_eager(
    f: Any,
    *args: Any,
    gradients: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    compile: Callable[..., Any] = compile,
    **kwargs: Any,
) -> Any:
    """Does `f`, compiled, do what it does in eager mode: results, gradients, writes to arguments and modules, exceptions?

    Both run on copies, with the same random numbers: `args`, `kwargs` and the module or object that `f` belongs to stay as they are.
    What else a function reads and writes, such as globals, is common to both runs.

    Args:
        f: a function, method or module. One that is compiled already is called as it is; in eager mode nothing compiled in it runs.
        args, kwargs: what it is called with. Wrap `f` in a lambda where it has an argument called as one of this function's.
        gradients: compare the gradients of tensors in the arguments and of the parameters of modules, too, where results require them.
        rtol, atol: tolerances, as of `torch.testing.assert_close`: both or none.
        compile: what compiles: for instance `functools.partial(torchjit.compile, dynamic=True)`.

    Returns:
        Eager's result.

    Raises:
        AssertionError: what differs, by name, and which stage of the compiler makes the difference.
        Exception: what both raise, if both raise the same type.
        UserError: arguments that cannot be copied.
    """
    __tracebackhide__ = True
    if as_switch(gradients) is None:
        raise wrong_type("gradients", gradients, "True or False")
    if not callable(compile):
        raise wrong_type("compile", compile, "a function, such as functools.partial(torchjit.compile, dynamic=True)")
    if not all(isinstance(tolerance, float | int | None) for tolerance in (rtol, atol)):
        raise UserTypeError(BAD_ARGUMENT, f"rtol={rtol!r}, atol={atol!r}, want numbers")
    if (rtol is None) != (atol is None):
        raise UserError(BAD_ARGUMENT, f"rtol={rtol!r}, atol={atol!r}: give both, or none")
    _callable(f)
    run_compiled = functools.partial(_run, f, args, kwargs, gradients, compile=compile)
    wanted, got = _run(f, args, kwargs, gradients, eager=True), run_compiled()
    difference = _difference(got, wanted, rtol, atol)
    if difference:
        stage = _stage(run_compiled, wanted, rtol, atol)
        raise AssertionError(f"{_name(f)} compiled differs from eager: {difference}{stage}") from got.error
    if wanted.error is not None:
        raise wanted.error
    if not got.was_compiled:
        raise AssertionError(_nothing(f))
    return wanted.values["the result"]


# ---------------------------------------------------------------------- what was captured
def _explained(f: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Explanation:
    __tracebackhide__ = True
    _callable(f)
    with config.patch(on_error="raise"):
        told = explain(f)(*args, **kwargs)
    if not told.regions:
        raise AssertionError(_nothing(f))
    return told


def _stats(compiled: Any) -> Explanation:
    found = compilation_of(compiled)
    if found is None and isinstance(compiled, torch.nn.Module):  # `module.compile()`
        found = compilation_of(compiled.__dict__.get("_compiled_call_impl"))
    return Explanation(()) if found is None else describe(found)


def _callable(f: Any) -> None:
    if not callable(f):
        raise UserTypeError(BAD_ARGUMENT, f"got a {type(f).__name__}, want something that can be called")


def _bound(calls: Iterable[Any]) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    if isinstance(calls, (str, Mapping, torch.Tensor)) or not isinstance(calls, Iterable):
        raise UserTypeError(BAD_CALLS, f"calls is a {type(calls).__name__}, want a list")
    bound: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    for call in calls:
        if isinstance(call, Mapping):
            bound.append(((), dict(call)))
        elif isinstance(call, tuple):
            bound.append((call, {}))
        else:
            raise UserTypeError(BAD_CALLS, f"call {len(bound)} is a {type(call).__name__}, want a tuple or a dict")
    return bound


def _name(f: Any) -> str:
    return getattr(f, "__qualname__", None) or type(f).__qualname__


def _nothing(f: Any) -> str:
    return (
        f"nothing of {_name(f)} was compiled: it is disabled, it runs no tensor operation, or compilation is switched off "
        "(TORCHJIT_DISABLE, torchjit.config.disable, torchjit.set_stance)"
    )


def _counts(told: Explanation) -> str:
    graphs, breaks = told.graph_count, told.graph_break_count
    return f"{graphs} graph{'s' * (graphs != 1)}, {breaks} break{'s' * (breaks != 1)}"


def _obstacles(told: Explanation, kind: str) -> str:
    """Line, reason and cure of each, in the words of `torchjit.explain` without its times."""
    texts: list[str] = []
    for obstacle in told.obstacles:
        if obstacle.kind == kind:
            lines = [f"{kind} {len(texts) + 1}: {'; '.join(obstacle.texts)}"]
            lines += obstacle.location.render().splitlines() if obstacle.location else []
            lines += [f"{'hint' if kind == 'Break' else 'avoid it'}: {cure}" for cure in obstacle.cures]
            texts.append("\n" + "\n    ".join(lines))
    return "".join(texts)


# ---------------------------------------------------------------------- two runs
@final
@attrs.frozen
class _Run:
    """What a call did: values by name, or an error.

    Attributes:
        values: the result, the arguments and the state of modules afterwards, gradients.
    """

    values: dict[str, Any]
    error: Exception | None
    was_compiled: bool = False


def _run(
    f: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    gradients: bool,
    *,
    eager: bool = False,
    compile: Callable[..., Any] = compile,
) -> _Run:
    called, args, kwargs = _copied(f, args, dict(kwargs))
    if not eager and not is_compiled(f):
        called = compile(called)
    values: dict[str, Any] = {}
    error = None
    stance = set_stance("force_eager") if eager else contextlib.nullcontext()
    with stance, config.patch(on_error="raise"), _same_random_numbers():
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
    return _Run(values, error, was_compiled=eager or bool(_stats(called).regions))


def _copied(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Copies that share among each other what the originals share. Results of operations become leaves."""
    leaves: dict[int, torch.Tensor] = {}

    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_leaf:
            return tensor
        return leaves.setdefault(id(tensor), tensor.detach().requires_grad_(tensor.requires_grad))

    given = pytree.tree_map_only(torch.Tensor, leaf, (args, kwargs))
    memo: dict[int, Any] = {}
    try:
        copied_args, copied_kwargs = copy.deepcopy(given, memo)
        return _copied_owner(f, memo), copied_args, copied_kwargs
    except Exception as error:
        text = f"{type(error).__name__}: {error}; make what cannot be copied inside the function"
        raise UserTypeError(BAD_ARGUMENT, f"the arguments of {_name(f)} cannot be copied: {text}") from None


def _copied_owner(f: Any, memo: dict[int, Any]) -> Any:
    """What `f` belongs to is copied; a function is what it is."""
    return f if isinstance(f, types.FunctionType) or inspect.isbuiltin(f) else copy.deepcopy(f, memo)


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


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _backward(result: Any) -> None:
    """From all results at once, each element with a weight of its own."""
    ends = [t for t in _tensors(result) if t.requires_grad]
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


# ---------------------------------------------------------------------- comparison
def _difference(got: _Run, wanted: _Run, rtol: float | None, atol: float | None) -> str:
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


def _stage(run: Callable[..., _Run], wanted: _Run, rtol: float | None, atol: float | None) -> str:
    """The first backend with which it differs, as text: each does more than the one before."""
    for backend, what in (("eager", "the capture"), ("aot_eager", "the joint graph, or its backward")):
        with set_stance(force_backend=backend):
            got = run()
        if _difference(got, wanted, rtol, atol):
            return f"\nIt differs with backend={backend!r} already: {what} makes the difference."
    return "\nWith the backends 'eager' and 'aot_eager' it is equal: the kernels, or a backend of yours, make the difference."
