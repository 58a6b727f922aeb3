"""Context variables, `threading.local` and random numbers: what a call leaves behind, and what another context or thread sees."""

from __future__ import annotations

import contextlib
import contextvars
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from vm_lazy import Jit, Num

V: contextvars.ContextVar[Any] = contextvars.ContextVar("V", default=5)
W: contextvars.ContextVar[Any] = contextvars.ContextVar("W")
LOCAL = threading.local()


class Counter(threading.local):
    """Attributes of each thread, made by `__init__` when it first looks."""

    kind = "k"

    def __init__(self) -> None:
        self.n = 0

    @property
    def twice(self) -> int:
        return self.n * 2

    def bump(self) -> int:
        self.n += 1
        return self.n


COUNTER = Counter()


@contextlib.contextmanager
def scoped(variable: contextvars.ContextVar[Any], value: Any) -> Iterator[Any]:
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def read(x: Num) -> Any:
    seen = []
    try:
        W.get()
    except LookupError as error:
        seen.append(type(error).__name__)
    return V.get(), W.get(None), seen, x + 1


def change(x: Num) -> Any:
    before = V.set(V.get() + 1)
    W.set(["new"])
    return V.get(), before.old_value, before.var is V


def undo(x: Num) -> Any:
    token = V.set(x)
    seen = V.get() + 1
    V.reset(token)
    return V.get(), seen


def scopes(x: Num) -> Any:
    with scoped(V, 7) as seven, scoped(W, 3):
        try:
            with scoped(V, 8):
                raise ValueError(V.get())
        except ValueError as error:
            inner = error.args
        return inner, V.get(), W.get() + seven


def scope_around_break(x: Num) -> Any:
    with scoped(V, 7):
        print(V.get())
        return V.get(), x + 1


def token_across_break(x: Num) -> Any:
    first = V.set(9)
    second = V.set(10)
    print(second.old_value)
    V.reset(second)
    return V.get(), first.old_value is contextvars.Token.MISSING or first.old_value


def leaves_by_exception(x: Num) -> Any:
    V.set(100)
    LOCAL.x = 100
    raise KeyError(V.get())


def local_attributes(x: Num) -> Any:
    a = LOCAL.x
    LOCAL.x += 1
    LOCAL.items.append(a)
    LOCAL.fresh = 1
    del LOCAL.fresh
    try:
        LOCAL.nothing  # noqa: B018  raises
    except AttributeError as error:
        text = str(error)
    return a, LOCAL.x, hasattr(LOCAL, "fresh"), hasattr(LOCAL, "x"), LOCAL.items, text, getattr(LOCAL, "other", 3)


def local_of_a_class(x: Num) -> Any:
    COUNTER.bump()
    COUNTER.last = "v"
    return COUNTER.bump(), COUNTER.twice, COUNTER.kind, vars(type(COUNTER))["kind"]


PROGRAMS = [
    read, change, undo, scopes, scope_around_break, token_across_break, leaves_by_exception, local_attributes, local_of_a_class,
]  # fmt: skip


def observed(function: Callable[..., Any]) -> Any:
    """What two calls do, and what they leave, in a context and thread state of their own."""

    def run() -> Any:
        LOCAL.__dict__.clear()
        LOCAL.x, LOCAL.items = 1, []
        COUNTER.__dict__.clear()
        COUNTER.n = 0
        seen = []
        for _ in range(2):
            try:
                seen.append(function(Num(1)))
            except KeyError as error:
                seen.append(error.args)
            seen.append({v.name: c for v, c in contextvars.copy_context().items() if v in (V, W)})
        return repr((seen, vars(LOCAL), vars(COUNTER)))

    return contextvars.Context().run(run)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_contexts_and_threads_are_left_as_in_plain_python(program: Callable[..., Any]) -> None:
    jit = Jit(program)
    assert observed(jit) == observed(program)
    assert observed(jit) == observed(program)
    if program is not token_across_break:  # whose calls find other values
        assert len(jit.breaks) == program.__name__.count("break")


def test_another_context_is_another_value() -> None:
    jit = Jit(read)
    results = []
    for value in (5, 5, "other"):
        context = contextvars.Context()
        context.run(V.set, value)
        results.append(context.run(jit, Num(1))[0])
    assert results == [5, 5, "other"]
    assert len(jit.captured) == 2


def test_another_thread_has_attributes_of_its_own() -> None:
    def value(x: Num) -> Any:
        return LOCAL.x, COUNTER.n

    jit = Jit(value)
    LOCAL.x, COUNTER.n = 1, 4
    assert jit(Num(1)) == (1, 4)
    errors: list[str] = []

    def elsewhere() -> None:
        try:
            jit(Num(1))
        except AttributeError as error:
            errors.append(str(error))
        LOCAL.x = 2
        errors.append(jit(Num(1)))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert errors == ["'_thread._local' object has no attribute 'x'", (2, 0)]
    assert jit(Num(1)) == (1, 4)


def seeds(x: Num) -> Any:
    random.seed(3)
    items = [1, "b", 3.0, x]
    random.shuffle(items)
    return len(items), random.random(), random.choice("abc"), random.sample(range(50), 4), random.choices([1, 2], k=3)


def keeps(x: Num) -> Any:
    state = random.getstate()
    random.seed("text")
    inner = random.gauss(0, 1), random.getrandbits(70)
    random.setstate(state)
    return inner


def seeds_twice(x: Num) -> Any:
    random.seed(1)
    state = random.getstate()
    first = random.random()
    random.setstate(state)
    print(random.random() == first)
    return random.random()


@pytest.mark.parametrize("program", [seeds, keeps, seeds_twice], ids=lambda f: f.__name__)
def test_the_generator_is_left_as_in_plain_python(program: Callable[..., Any]) -> None:
    jit = Jit(program)
    for _ in range(2):
        random.seed(8)
        expected = program(Num(1)), random.getstate()
        random.seed(8)
        assert (jit(Num(1)), random.getstate()) == expected
