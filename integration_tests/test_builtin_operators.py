"""Operators on pairs of built-in values inside a compiled function: results, identities and errors as in Python."""

from __future__ import annotations

import collections
import itertools
import random
from typing import Any

import pytest
import torch

import torchjit

VALUES = [
    "[1, 2]", "(1, 2)", "{'a': 1}", "{1, 2}", "frozenset({1})", "'ab'", "b'a'", "3", "2.5", "None", "True", "range(3)",
    "collections.deque([1])", "collections.OrderedDict(a=1)", "[('k', 2)]", "collections.Counter('aab')", "{'z': 3}.keys()",
    "{'z': 3}.items()", "int", "1j", "slice(1)", "collections.defaultdict(int, {'q': 1})", "iter([1])", "{'z': 3}.values()",
]  # fmt: skip
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "|", "&", "^", "<<", ">>", "@"]
COMPARISONS = ["<", "<=", "==", "!=", ">", ">=", "in", "not in"]


def _statements() -> list[str]:
    made = []
    for a, b in itertools.product(VALUES, VALUES):
        made += [f"r = {a} {op} {b}" for op in OPERATORS]
        made += [f"a = {a}; c = a; a {op}= {b}; r = a, a is c" for op in OPERATORS]
        made += [f"r = ({a}) {op} ({b})" for op in COMPARISONS]
    return made


ONCE_WRONG = [
    "r = {'z': 3}.keys() - [1, 2]", "r = [1, 2] - {'z': 3}.keys()", "r = {'a': 1} | {'z': 3}.keys()",
    "r = frozenset({1}) ^ {'z': 3}.keys()", "a = {1, 2}; c = a; a &= {'z': 3}.keys(); r = a, a is c",
    "a = {'a': 1}; a |= [('k', 2)]; r = a", "r = [1] == collections.deque([1])", "r = [1, 2] >= collections.deque([1])",
    "r = [1] in {1, 2}", "r = {1} in {frozenset({1})}", "r = {1, 2} in frozenset({1})", "r = [1] in 'ab'", "r = [1] in b'ab'",
    "r = {'z': 3}.keys() in {1: 2}", "a = object(); a += 1", "a = [1]; a *= 'x'", "r = -collections.deque([1])", "r = ~[1]",
    "r = collections.Counter('aab') | collections.defaultdict(int, {'q': 1})", "r = None + collections.Counter('a')",
    "r = 1 in None", "r = [1] not in slice(1)", "a = [1]; a *= [2]", "r = 'x' * [1]",
]  # fmt: skip


def _described(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value).__name__, [_described(item) for item in value]
    if isinstance(value, set | frozenset):  # in which order depends on hashes of strings
        return type(value).__name__, sorted(map(repr, value))
    return type(value).__name__, "" if hasattr(value, "__next__") else repr(value)


def _results(run: Any) -> list[Any]:
    return [_described(result) for result in run(torch.ones(1))[1]]


def _function(statements: list[str], caught: str) -> Any:
    lines = ["def f(x):", "    out = []"]
    for statement in statements:
        lines += ["    try:", f"        {statement}", "        out.append(r)", "    except Exception as error:", f"        out.append({caught})"]  # fmt: skip
    names: dict[str, Any] = {"collections": collections}
    exec("\n".join([*lines, "    return x + 1, out"]), names)
    return names["f"]


def test_what_was_wrong_once() -> None:
    f = _function(ONCE_WRONG, "(type(error), str(error))")
    assert _results(torchjit.compile(f, backend="eager")) == _results(f)


@pytest.mark.parametrize("seed", range(8))
def test_pairs_of_values(seed: int) -> None:
    f = _function(random.Random(seed).sample(_statements(), 40), "type(error)")
    assert _results(torchjit.compile(f, backend="eager")) == _results(f)
