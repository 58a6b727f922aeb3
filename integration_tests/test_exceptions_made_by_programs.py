"""Exceptions whose making breaks the graph: `args`, attributes, notes and causes are those of plain Python, in the region and out of it."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import dataclasses
import time

import pytest
import torch

import torchjit


class BreaksFirst(Exception):
    def __init__(self, message, n):
        torchjit.graph_break()
        super().__init__(message)
        self.n = n


class BreaksLast(Exception):
    def __init__(self, message, n):
        super().__init__(message, n)
        self.n = n
        torchjit.graph_break()


class CallsTheClock(ValueError):
    def __init__(self, message):
        self.when = time.perf_counter() > 0
        super().__init__(f"{message}!")


class KeywordsOnly(RuntimeError):
    def __init__(self, *, code, hint="none"):
        torchjit.graph_break()
        super().__init__(f"code {code}")
        self.code, self.hint = code, hint


class BreaksTwice(BreaksFirst):
    def __init__(self, message):
        torchjit.graph_break()
        super().__init__(message, 3)
        self.message = message


class NeverCallsSuper(Exception):
    def __init__(self, a, b):
        torchjit.graph_break()
        self.b = b


class OwnNew(Exception):
    def __new__(cls, *args):
        torchjit.graph_break()
        made = super().__new__(cls, *args)
        made.made = len(args)
        return made


class NewAndInit(Exception):
    def __new__(cls, message, code):
        made = super().__new__(cls, message)
        made.first = made.args
        return made

    def __init__(self, message, code):
        torchjit.graph_break()
        super().__init__(code, message)


class OwnStr(Exception):
    def __init__(self, size):
        torchjit.graph_break()
        self.size = size

    def __str__(self):
        torchjit.graph_break()
        return f"size {self.size}"


@dataclasses.dataclass
class DataError(Exception):
    code: int
    where: str = "here"

    def __post_init__(self):
        torchjit.graph_break()
        super().__init__(self.code, self.where)


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    code: int


class Missing(KeyError):
    def __init__(self, key):
        torchjit.graph_break()
        super().__init__(key)


class Failed(OSError):
    def __init__(self, number, text):
        torchjit.graph_break()
        super().__init__(number, text)


class Group(ExceptionGroup):
    def derive(self, errors):
        return Group(self.message, errors)


MAKERS = [
    lambda: BreaksFirst(message="hello", n=3),
    lambda: BreaksLast("hello", 3),
    lambda: CallsTheClock("late"),
    lambda: KeywordsOnly(code=4),
    lambda: KeywordsOnly(code=4, hint="more"),
    lambda: BreaksTwice("twice"),
    lambda: NeverCallsSuper(1, b=2),
    lambda: OwnNew("new", 1),
    lambda: NewAndInit("text", 7),
    lambda: OwnStr(5),
    lambda: DataError(5),
    lambda: DataError(5, where="there"),
    lambda: FrozenError(9),
    lambda: Missing("key"),
    lambda: Failed(2, "no such thing"),
    lambda: Group("several", [BreaksFirst("one", 1), Missing("two")]),
]


def told(error):
    """All that a program can see of an exception."""
    if error is None:
        return None
    attributes = {k: v for k, v in vars(error).items() if k != "__notes__"}
    members = [told(e) for e in getattr(error, "exceptions", ())]
    chain = told(error.__cause__), told(error.__context__), error.__suppress_context__
    notes = list(getattr(error, "__notes__", ()))
    own = [getattr(error, name, None) for name in ("errno", "strerror")]
    return type(error), repr(error.args), str(error), repr(error), attributes, notes, own, members, *chain


def outcome(function, *args):
    try:
        return "returned", [r.tolist() if isinstance(r, torch.Tensor) else r for r in function(*args)]
    except Exception as error:
        return "raised", told(error)


def raises(make):
    def f(x):
        y = x + 1
        raise make()
        return (y,)

    return f


def catches(make):
    def f(x):
        try:
            x = x * 2
            raise make()
        except Exception as error:
            kept = error
            x = x + len(error.args)
        return x, told(kept)

    return f


def raises_from(make):
    def f(x):
        try:
            raise make()
        except Exception as error:
            error.add_note("seen")
            raise make() from error

    return f


def raises_in_a_handler(make):
    def f(x):
        try:
            x[10]
        except IndexError:
            error = make()
            error.add_note(f"of {x.shape[0]}")
            raise error from None

    return f


def gives_back(make):
    def f(x):
        error = make()
        error.add_note("kept")
        return x * 2, told(error)

    return f


def leaves_a_block(make):
    def f(x):
        log = []
        try:
            try:
                raise make()
            finally:
                log.append(x.shape[0])
        except (BreaksFirst, BreaksLast, ValueError, OSError) as error:
            return x + 1, log, told(error)
        except Exception as error:
            return x - 1, log, told(error)

    return f


@pytest.mark.parametrize(
    "kind",
    [raises, catches, raises_from, raises_in_a_handler, gives_back, leaves_a_block],
    ids=lambda kind: kind.__name__,
)
def test_exceptions_are_those_of_plain_python(kind):
    x = torch.arange(3.0)
    for number, make in enumerate(MAKERS):
        function = kind(make)
        want = outcome(function, x)
        compiled = torchjit.compile(function, backend="eager")
        for call in range(2):
            assert outcome(compiled, x) == want, (number, call)


def test_a_compiled_function_raises_into_another_one():
    """The caller catches what an inner function with a break has made."""

    def inner(x, n):
        if n > 1:
            raise KeywordsOnly(code=n)
        return x * n

    def outer(x):
        total = x
        for n in range(4):
            try:
                total = total + inner(x, n)
            except KeywordsOnly as error:
                total = total - error.code
                note = error.args, error.hint
        return total, note

    compiled = torchjit.compile(outer, backend="eager")
    for _ in range(2):
        assert outcome(compiled, torch.ones(2)) == outcome(outer, torch.ones(2))
