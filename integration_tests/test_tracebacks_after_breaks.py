"""Exceptions that come after a graph break, or through one: tracebacks, chains, `name` and `obj` as in plain Python."""

# mypy: ignore-errors
# ruff: noqa
# The programs are meant to be odd.

import contextlib
import traceback

import pytest
import torch

import torchjit


class A:
    def __getattr__(self, name):
        torchjit.graph_break()
        raise AttributeError("no " + name)

    @property
    def p(self):
        torchjit.graph_break()
        return object().nope


class B:
    @property
    def p(self):
        torchjit.graph_break()
        raise AttributeError("plain")


def f_getattr(x):
    return A().foo


def f_getattr2(x):
    a = A()
    try:
        a.foo
    except AttributeError as e:
        return e.name, type(e.obj).__name__, e.obj is a, str(e)


def f_prop(x):
    return B().p


def f_prop2(x):
    return A().p


def f_hasattr(x):
    return hasattr(A(), "zz"), getattr(B(), "p", 3)


@contextlib.contextmanager
def cm(v):
    try:
        yield v
    finally:
        torchjit.graph_break()


@contextlib.contextmanager
def cm_before(v):
    torchjit.graph_break()
    try:
        yield v
    finally:
        pass


@contextlib.contextmanager
def cm_except(v):
    try:
        yield v
    except KeyError:
        torchjit.graph_break()
        raise ValueError("other")


@contextlib.contextmanager
def cm_swallow(v):
    try:
        yield v
    except KeyError:
        torchjit.graph_break()


@contextlib.contextmanager
def cm_reraise(v):
    try:
        yield v
    except KeyError:
        torchjit.graph_break()
        raise


def raiser(x):
    y = x + 1
    raise KeyError("k")


def f_cm(x):
    with cm(1) as v:
        raiser(x)


def f_cm_direct(x):
    with cm(1) as v:
        y = x + v
        raise KeyError("d")


def f_cm_nested(x):
    with cm(1), cm(2):
        raiser(x)


def f_cm_before(x):
    with cm_before(1):
        raiser(x)


def f_cm_except(x):
    with cm_except(1):
        raiser(x)


def f_cm_swallow(x):
    with cm_swallow(1):
        raiser(x)
    return x


def f_cm_reraise(x):
    with cm_reraise(1):
        raiser(x)


def f_cm_inner(x):
    return f_cm(x) + 1


def f_cm_caught(x):
    try:
        f_cm(x)
    except KeyError as e:
        return [f.name for f in traceback.extract_tb(e.__traceback__)]


class M:
    def __enter__(self):
        return self

    def __exit__(self, t, v, tb):
        torchjit.graph_break()
        self.seen = [(f.name, f.lineno) for f in traceback.extract_tb(tb)]
        return False


def f_class_cm(x):
    m = M()
    with m:
        raiser(x)


def f_finally(x):
    try:
        raiser(x)
    finally:
        torchjit.graph_break()


def f_except_break(x):
    try:
        raiser(x)
    except KeyError:
        torchjit.graph_break()
        raise


def f_exc_from(x):
    try:
        raiser(x)
    except KeyError as e:
        torchjit.graph_break()
        raise RuntimeError("z") from e


def gen(x):
    try:
        yield x
        torchjit.graph_break()
        raise KeyError("g")
    finally:
        pass


def f_gen(x):
    for v in gen(x):
        x = x + v
    return x


def f_genexpr(x):
    return list(raiser(x) for _ in range(2))


def f_comp(x):
    torchjit.graph_break()
    return [raiser(x) for _ in range(2)]


def f_deep(x):
    def a(n):
        if n == 0:
            torchjit.graph_break()
            raise KeyError(n)
        return a(n - 1)

    return a(3)


def f_lambda(x):
    torchjit.graph_break()
    return (lambda v: raiser(v))(x)


def f_exitstack(x):
    with contextlib.ExitStack() as s:
        s.enter_context(cm(1))
        s.callback(torchjit.graph_break)
        raiser(x)


def f_suppress(x):
    with contextlib.suppress(ValueError):
        torchjit.graph_break()
        raiser(x)


class Lacking:
    @property
    def field(self):
        torchjit.graph_break()
        return self.stored

    def __getattr__(self, name):
        raise AttributeError(name)


def read_field(owner):
    return owner.field


def f_missing_below_a_property(x):
    return read_field(Lacking())


PROGRAMS = [f for name, f in list(globals().items()) if name.startswith("f_")]


def described(error):
    if error is None:
        return None
    entries = [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__) if f.name != "outcome"]
    fields = (getattr(error, "name", None), type(getattr(error, "obj", None)).__name__)
    return type(error).__name__, str(error), entries, fields, described(error.__cause__), described(error.__context__)


def outcome(function, x):
    try:
        return "returned", repr(function(x))
    except Exception as error:
        return described(error)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_exceptions_look_as_in_plain_python(program):
    torchjit.reset()
    x = torch.ones(2)
    expected = outcome(program, x)
    compiled = torchjit.compile(program, backend="eager")
    for _ in range(2):
        assert outcome(compiled, x) == expected


def grouped(x):
    y = x * 2
    try:
        raise ExceptionGroup("g", [KeyError(1), ValueError(y.shape[0])])
    except* KeyError:
        torchjit.graph_break()


def calls_grouped(x):
    return grouped(x + 1)


@pytest.mark.parametrize("program", [grouped, calls_grouped])
def test_a_frame_with_an_except_star_is_left_to_python(program):
    """Parts of a group are told by the very traceback that C gives them."""
    x = torch.ones(2)
    with torchjit.config.patch(on_error="eager"):
        compiled = torchjit.compile(program, backend="eager")
        with pytest.warns(RuntimeWarning, match=r"except\*"):
            found = outcome(compiled, x)
    assert found == outcome(program, x)


def fails_to_compile(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> object:
    raise ValueError("of the backend")


@pytest.mark.parametrize("ends", ["break", "raise"])
def test_what_a_backend_raises_did_not_come_while_a_break_was_handled(ends: str) -> None:
    """The graph before a break, or before an exception of the region, is compiled once that was met."""

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        seen.append(y)
        if ends == "break":
            torchjit.graph_break()
        raise KeyError("of the program")

    seen: list[torch.Tensor] = []
    with pytest.raises(torchjit.exc.BackendCompilerFailed) as info:
        torchjit.compile(f, backend=fails_to_compile)(torch.ones(2))
    error: BaseException | None = info.value
    chain = []
    while error is not None:
        chain.append(type(error))
        error = error.__cause__ or error.__context__
    assert chain == [torchjit.exc.BackendCompilerFailed, ValueError]
