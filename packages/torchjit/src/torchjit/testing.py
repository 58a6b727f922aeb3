"""For the tests of libraries: is it one graph, does it recompile, does it compute what eager PyTorch computes?

    from torchjit.testing import assert_equal_to_eager, assert_one_graph

    def test_layer():
        assert_one_graph(layer, torch.randn(4, 8))
        assert_equal_to_eager(layer, torch.randn(4, 8, requires_grad=True))

Each raises `AssertionError`, and returns what was found. With pytest installed there is also the fixture `fresh_torchjit`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from torchjit import backends
from torchjit.compiler import compile, reset
from torchjit.config import config
from torchjit.exc import UserError, UserTypeError, wrong_type
from torchjit.inspection import Explanation, explain, stats_of
from torchjit.stance import set_stance
from torchjit_core.kinds import as_switch
from torchjit_core.reasons import reason
from torchjit_session.callables import is_compiled
from torchjit_session.comparison import Outcome, copied, difference, outcome_of
from torchjit_session.explanation import counts_text, obstacle_texts

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
        raise AssertionError(f"{_name(f)} is not one graph: {counts_text(told)}{obstacle_texts(told, 'Break')}")
    return told


def assert_no_breaks(f: Any, *args: Any, **kwargs: Any) -> Explanation:
    """Is `f(*args, **kwargs)` captured without a graph break? It may have no graph at all, or several, of functions that it compiles.

    Arguments, result and errors are those of `assert_one_graph`.
    """
    __tracebackhide__ = True
    told = _explained(f, args, kwargs)
    if told.breaks:
        raise AssertionError(f"{_name(f)} breaks the graph: {counts_text(told)}{obstacle_texts(told, 'Break')}")
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
    before = {r.compile_id for r in stats_of(compiled).regions}
    with config.patch(on_error="raise", recompile_limit=max(config.recompile_limit, len(bound))):
        for args, kwargs in bound:
            compiled(*args, **kwargs)
    told = stats_of(compiled)
    made = Explanation(tuple(r for r in told.regions if r.compile_id not in before and r.recompile is not None))
    if len(made.regions) > at_most:
        times = "once" if len(made.regions) == 1 else f"{len(made.regions)} times"
        text = f"{_name(f)} compiled again {times} in {len(bound)} calls, want at most {at_most}"
        raise AssertionError(text + obstacle_texts(made, "Recompile"))
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
    run_compiled = functools.partial(_run, f, args, kwargs, gradients, compile)
    (wanted, _), (got, was_compiled) = _run(f, args, kwargs, gradients, None), run_compiled()
    text = difference(got, wanted, rtol, atol)
    if text:
        stage = _stage(run_compiled, wanted, rtol, atol)
        raise AssertionError(f"{_name(f)} compiled differs from eager: {text}{stage}") from got.error
    if wanted.error is not None:
        raise wanted.error
    if not was_compiled:
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


# ---------------------------------------------------------------------- two runs
def _run(
    f: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    gradients: bool,
    compile: Callable[..., Any] | None,
) -> tuple[Outcome, bool]:
    """What a call of copies does, by eager operators without `compile`; and was something compiled?"""
    try:
        called, args, kwargs = copied(f, args, dict(kwargs))
    except Exception as error:
        text = f"{type(error).__name__}: {error}; make what cannot be copied inside the function"
        raise UserTypeError(BAD_ARGUMENT, f"the arguments of {_name(f)} cannot be copied: {text}") from None
    if compile is not None and not is_compiled(f):
        called = compile(called)
    stance = set_stance("force_eager") if compile is None else contextlib.nullcontext()
    with stance, config.patch(on_error="raise"):
        outcome = outcome_of(called, args, kwargs, gradients=gradients)
    return outcome, bool(stats_of(called).regions)


def _stage(run: Callable[[], tuple[Outcome, bool]], wanted: Outcome, rtol: float | None, atol: float | None) -> str:
    """The first backend with which it differs, as text: each does more than the one before."""
    for backend, what in (("eager", "the capture"), ("aot_eager", "the joint graph, or its backward")):
        with set_stance(force_backend=backend):
            got, _ = run()
        if difference(got, wanted, rtol, atol):
            return f"\nIt differs with backend={backend!r} already: {what} makes the difference."
    return "\nWith the backends 'eager' and 'aot_eager' it is equal: the kernels, or a backend of yours, make the difference."
