"""Breaks anywhere: every kind of obstacle, at every kind of position, at several depths of inlined calls.

Each program is compared with plain execution over both domains, and the breaks are counted as they happen: one obstacle
that is met once costs one break.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import linecache
from collections.abc import Iterator
from typing import Any

import pytest
from vm_compare import outcome
from vm_lazy import Jit, Num

from torchjit_vm import interpret


def hidden(x: Any) -> Any:
    """A function that the policy keeps out."""
    return x * 2


class Manager:
    def __init__(self, log: list[Any], swallow: bool = False) -> None:
        self.log, self.swallow = log, swallow

    def __enter__(self) -> str:
        self.log.append("enter")
        return "entered"

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        self.log.append(kind)
        return self.swallow


@contextlib.contextmanager
def managed(log: list[Any]) -> Iterator[int]:
    log.append("in")
    try:
        yield 3
    finally:
        log.append("out")


OBSTACLES = {
    "c_call": 'print("obstacle") or x',
    "not_inlined": "hidden(x)",
    "value": "float(x) + 1",
    "attribute": "len(x.kind)",
    "jump": "(x if x > 0 else -x)",
    "raises": "fails(x)",
}
"""An expression each; the last one raises where only Python can know it."""

POSITIONS = {
    "statement": "y = <O>\nlog.append(y)",
    "half_built_call": "log.append(three(x + 1, <O>, x * 2))",
    "half_built_method": "log.append(Box(x).add(x + 1, <O>, last=x))",
    "keywords": "log.append(three(x, c=<O>, b=x + 1))",
    "starred": "log.append(three(*[x, <O>], **{'c': x}))",
    "list": "log.append([x + 1, <O>, x])",
    "dict": "log.append({'a': x + 1, 'b': <O>, 'c': x})",
    "tuple_unpacked": "a, b, *c = x, <O>, x, x\nlog.append((a, b, c))",
    "operator": "log.append((x + 1) * 1 if <O> is None else (x + 2, <T>))",
    "f_string": "log.append(f'{3}{type(<O>).__name__}{4}')",
    "conditional": "log.append(1 if <O> is not None else 2)",
    "walrus": "log.append((y := <O>, y))",
    "subscript_store": "d = {}\nd['k'] = <O>\nlog.append(d)",
    "attribute_store": "b = Box(x)\nb.value = <O>\nlog.append(b.value)",
    "augmented": "d = {'k': [x]}\nd['k'] += [<O>]\nlog.append(d)",
    "assertion": "assert <O> is not None\nlog.append(x)",
    "default": "def f(a=<O>):\n    return a\nlog.append(f())",
    "lambda": "log.append((lambda a: (a + 1, <O>))(x))",
    "closure": "n = 0\ndef f():\n    nonlocal n\n    n += 1\n    r = <O>\n    n += 10\n    return r\nlog.append((f(), n))",
    "try": "try:\n    log.append(<O>)\nexcept KeyError:\n    log.append('no')\nelse:\n    log.append('else')\nfinally:\n    log.append('f')",
    "except": "try:\n    raise KeyError('k')\nexcept KeyError as e:\n    log.append((e.args, <O>))\n    log.append(e.args)",
    "finally": "try:\n    log.append(x + 1)\nfinally:\n    log.append(<O>)",
    "finally_unwinding": "try:\n    try:\n        raise KeyError('k')\n    finally:\n        log.append(<O>)\nexcept KeyError:\n    log.append('k')",
    "caught_outside": "try:\n    try:\n        log.append(<O>)\n    except KeyError:\n        log.append('no')\nexcept ValueError as e:\n    log.append(('v', e.args))",
    "with": "with Manager(log) as m:\n    log.append((m, <O>))\n    log.append(1)",
    "with_swallowing": "with Manager(log, True):\n    log.append(<O>)\n    raise ValueError('gone')\nlog.append(2)",
    "two_managers": "with Manager(log) as m, managed(log) as n:\n    log.append((m, n, <O>))\nlog.append(3)",
    "exit_stack": "with contextlib.ExitStack() as s:\n    s.enter_context(Manager(log))\n    log.append(<O>)\n    s.callback(log.append, 'cb')",
    "for": "for i, v in enumerate([x, x + 1]):\n    log.append((i, <O>))\n    v = v * 2\nelse:\n    log.append('done')",
    "for_in_for": "for i in range(2):\n    for j in zip([1], 'a'):\n        log.append((i, j, <O>))",
    "while": "i = 0\nwhile i < 2:\n    i += 1\n    log.append(<O>)\n    if i == 1:\n        continue\n    break",
    "comprehension": "log.append([(i, <O>) for i in range(2)])",
    "dict_comprehension": "log.append({i: <O> for i in range(2)})",
    "nested_comprehension": "log.append([[<O> for j in range(2)] for i in range(1)])",
    "iterator_of_for": "for v in [<O>, x]:\n    log.append(v)",
    "generator": "def g():\n    yield 1\n    yield <O>\n    yield 3\nfor v in g():\n    log.append(v)",
    "beside_a_generator": "def g():\n    yield 1\n    yield 2\nit = g()\nlog.append(next(it))\nlog.append(<O>)\nlog.append(next(it))",
    "generator_expression": "log.append(list(<O> for i in range(2)))",
    "yield_from": "def g():\n    yield 1\n    yield <O>\ndef h():\n    yield 0\n    r = yield from g()\n    yield r\nlog.append([*h()])",
    "callback": "log.append(sorted([2, 1], key=lambda i: (<O>, i)[1]))",
    "map": "log.append(list(map(lambda i: (i, <O>), [1, 2])))",
    "partial": "log.append(functools.partial(three, x + 1)(x, <O>))",
    "property": "class_property(log, x, lambda x: <O>)",
    "recursion": "def down(n, x):\n    if n == 0:\n        return <O>\n    return [x + n, down(n - 1, x)]\nlog.append(down(3, x))",
    "match": "match (x, 1, <O>):\n    case (a, 1, b):\n        log.append((a, b))\n    case _:\n        log.append('no')",
    "manager_enter": "with managed_by(lambda: <O>, log):\n    log.append(x + 1)",
    "assert_message_unused": "assert x is not None, <O>\nlog.append(1)",
}

OFTEN = {
    "for": 2, "for_in_for": 2, "while": 2, "comprehension": 2, "dict_comprehension": 2, "nested_comprehension": 2,
    "assert_message_unused": 0,
}  # fmt: skip
"""How often the obstacle is met where that is not once. What C code calls back for runs in one piece, whatever is in there."""


def three(a: Any, b: Any, c: Any = None) -> Any:
    return [a, b, c]


class Box:
    def __init__(self, value: Any) -> None:
        self.value = value

    def add(self, *values: Any, last: Any) -> Any:
        return [self.value, *values, last]


def fails(x: Any) -> Any:
    """Its last call raises in C."""
    return x + len(open("/no such file").read())


class Computed:
    def __init__(self, function: Any, x: Any) -> None:
        self.function, self.x = function, x

    @property
    def value(self) -> Any:
        return [self.function(self.x)]


def class_property(log: list[Any], x: Any, function: Any) -> None:
    log.append(Computed(function, x).value)


@contextlib.contextmanager
def managed_by(function: Any, log: list[Any]) -> Iterator[None]:
    log.append(function())
    yield
    log.append("left")


def program(obstacle: str, position: str, depth: int) -> Any:
    """`f(x, log)`: the position inside `depth` more functions, each with work before and after."""
    text = POSITIONS[position].replace("<O>", f"({OBSTACLES[obstacle]})").replace("<T>", "x")
    body = "\n".join("    " + line for line in text.split("\n"))
    source = f"def f0(x, log):\n    before = x + 1\n{body}\n    log.append(before)\n    return before * 2\n"
    for level in range(1, depth + 1):
        source += (
            f"def f{level}(x, log):\n    kept = [x * {level}]\n    with Manager(log):\n"
            f"        r = three(kept, f{level - 1}(x, log), x + {level})\n    kept.append(r)\n    return kept\n"
        )
    name = f"<{obstacle} {position} {depth}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace = {**globals(), "__name__": "matrix"}
    exec(compile(source, name, "exec"), namespace)
    return namespace[f"f{depth}"]


def run(obstacle: str, position: str, depth: int) -> tuple[Any, Any, Any, int, int, Jit]:
    function = program(obstacle, position, depth)
    args: tuple[Any, ...] = (Num(3), [])
    expected = outcome(function, copy.deepcopy(args))
    concrete = outcome(functools.partial(interpret, function), copy.deepcopy(args))
    jit = Jit(function, inline=lambda f: f.__name__ != "hidden")
    captured = outcome(jit, copy.deepcopy(args))
    first = sum(len(c.breaks) for c in jit.log)
    jit.log.clear()
    again = outcome(jit, copy.deepcopy(args))
    assert again == captured
    return expected, concrete, captured, first, sum(len(c.breaks) for c in jit.log), jit


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_one_obstacle_costs_one_break(obstacle: str, position: str) -> None:
    for depth in (0, 1, 3):
        expected, concrete, captured, first, again, jit = run(obstacle, position, depth)
        sources = "\n".join(c.source for c in jit.captured)
        assert captured == expected, sources
        assert concrete == expected
        times = OFTEN.get(position, 1)
        times = min(times, 1) if obstacle == "raises" else times
        assert (first, again) == (times, times), [(b.reason.id, b.detail) for c in jit.captured for b in c.breaks]
