"""Programs that recur: to the limit, where they meet RecursionError as plain Python does, and not so far."""

# mypy: ignore-errors

from __future__ import annotations

from vm_corpus import N, program


def _endless(n):
    return _endless(n + 1)


def _even(n):
    return True if n == 0 else _odd(n - 1)


def _odd(n):
    return False if n == 0 else _even(n - 1)


def _without_end():
    yield from _without_end()


@program(N(1.0), breaks=1)
def recursion_caught(x):
    try:
        _endless(0)
    except RecursionError as error:
        return type(error), x + 1


@program(N(1.0), breaks=1)
def recursion_in_finally(x):
    def f(log):
        log.append(1)
        try:
            return f(log)
        finally:
            log.append(2)

    log = []
    try:
        f(log)
    except RecursionError:
        pass
    return len(log) % 2, log[0], log[-1], x + 1


@program(N(1.0), breaks=None)
def recursion_in_attributes(x):
    class Missing:
        def __getattr__(self, name):
            return self.missing

        def __repr__(self):
            return repr(self)

        def __eq__(self, other):
            return self == other

    found = []
    for action in (lambda a: a.anything, repr, lambda a: a == 1):
        try:
            found.append(action(Missing()))
        except RecursionError as error:
            found.append(type(error))
    return found, x + 1


@program(N(1.0), breaks=1)
def recursion_in_generators(x):
    try:
        return list(_without_end())
    except RecursionError:
        return x + 1


@program(N(1.0))
def recursion_that_ends(x):
    def down(n):
        return down(n - 1) + 1 if n else x

    return _even(300), down(400)
