"""Random programs, captured and plain: with breaks, effects, loops, exceptions and closures anywhere."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vm_compare import check
from vm_lazy import Num

LIMIT = 14


class Writer:
    """Writes a function of a number, a list and a dict."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.left = LIMIT
        self.loops = 0

    def pick(self, *options: str) -> str:
        return self.random.choice(options)

    def number(self) -> str:
        return self.pick("x", "y", "items[0]", "table['a']", "len(items)", "n", "2", "bump()", "float(x)", "scale(y)")

    def expression(self) -> str:
        return self.pick(
            f"{self.number()} + {self.number()}",
            f"{self.number()} * 2",
            f"[{self.number()}, {self.number()}][n % 2]",
            f"({self.number()} if {self.condition()} else {self.number()})",
            f"sum([{self.number()} for i in range(2)], {self.number()})",
            f"max([n, {self.random.randrange(4)}])",
            f"(lambda v, w=n: v + w)({self.number()})",
        )

    def condition(self) -> str:
        return self.pick("n > 1", "x > 2", "len(items) > 2", "'b' in table", "not items", "y", "n == 2 and x > n")

    def block(self, depth: int) -> None:
        for _ in range(self.random.randrange(1, 4)):
            if self.left <= 0:
                break
            self.statement(depth)
        self.add(depth, "pass")

    def add(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def statement(self, depth: int) -> None:
        self.left -= 1
        kinds = ["assign"] * 4 + ["effect"] * 3 + ["print"] * 2 + ["raise"]
        if depth < 4:
            kinds += ["if", "for", "try", "with", "while", "unpack"]
        getattr(self, "write_" + self.pick(*kinds))(depth)

    def write_assign(self, depth: int) -> None:
        target = self.pick("x", "y", "n", "table['a']", "items[0]", "holder.value")
        value = "n + 1" if target == "n" else self.expression()
        self.add(depth, f"{target} {self.pick('=', '=', '+=') if target != 'holder.value' else '='} {value}")

    def write_effect(self, depth: int) -> None:
        self.add(
            depth,
            self.pick(
                f"items.append({self.expression()})", "table.setdefault('b', [n]).append(x)", "items.insert(0, n)",
                "table.pop('b', None)", "items.sort(key=id) if not items else None", "table.update(c=items)",
                "items.extend([n, x])", "bump()", "holder.value = [x, items]", "log(y)", "del items[2:]",
            ),
        )  # fmt: skip

    def write_print(self, depth: int) -> None:
        self.add(depth, f"print({self.pick('x', 'n', 'len(items)', 'sorted(table)')})")

    def write_raise(self, depth: int) -> None:
        self.add(depth, f"if {self.condition()}: raise {self.pick('ValueError(n)', 'KeyError', 'Custom(n)')}")

    def write_if(self, depth: int) -> None:
        self.add(depth, f"if {self.condition()}:")
        self.block(depth + 1)
        if self.random.random() < 0.5:
            self.add(depth, "else:")
            self.block(depth + 1)

    def write_for(self, depth: int) -> None:
        self.loops += 1
        source = self.pick("range(2)", "list(items)[:2]", "enumerate('ab')", "gen(2)", "zip([1, 2], [x, y])")
        self.add(depth, f"for i{self.loops} in {source}:")
        self.block(depth + 1)
        if self.random.random() < 0.3:
            self.add(depth + 1, f"if {self.condition()}: {self.pick('break', 'continue')}")

    def write_while(self, depth: int) -> None:
        self.loops += 1
        name = f"w{self.loops}"
        self.add(depth, f"{name} = 0")
        self.add(depth, f"while {name} < 2:")
        self.add(depth + 1, f"{name} += 1")
        self.block(depth + 1)

    def write_try(self, depth: int) -> None:
        self.add(depth, "try:")
        self.block(depth + 1)
        if self.random.random() < 0.5:
            self.add(depth + 1, self.pick("table['zz']", "[][n]", "int('q')", "log(None)"))
        self.add(
            depth, f"except {self.pick('ValueError', 'KeyError', '(KeyError, IndexError)', 'Exception')} as error:"
        )
        self.add(depth + 1, "items.append(type(error).__name__)")
        self.block(depth + 1)
        if self.random.random() < 0.5:
            self.add(depth, "finally:")
            self.block(depth + 1)

    def write_with(self, depth: int) -> None:
        self.add(depth, f"with {self.pick('Block(items)', 'Block(items, True)', 'scope(items)')} as entered:")
        self.block(depth + 1)

    def write_unpack(self, depth: int) -> None:
        self.add(depth, f"x, (y, *rest) = {self.number()}, [{self.expression()}, n, {self.number()}]")

    def source(self) -> str:
        self.block(1)
        body = "\n".join(self.lines)
        return PRELUDE + f"def program(x, items, table, n):\n{LOCALS}{body}\n    return x, y, n, bump, holder\n"


PRELUDE = """
import contextlib

class Custom(Exception):
    def __init__(self, code):
        super().__init__("custom", code)
        self.code = code

class Holder:
    value = None

class Block:
    def __init__(self, items, swallow=False):
        self.items, self.swallow = items, swallow
    def __enter__(self):
        self.items.append("enter")
        return self
    def __exit__(self, kind, value, traceback):
        self.items.append(kind and kind.__name__)
        return self.swallow

@contextlib.contextmanager
def scope(items):
    items.append("in")
    try:
        yield items
    finally:
        items.append("out")

def scale(v, by=3):
    return v * by

def log(v):
    print("log", v)
    return scale(v)

def gen(n):
    for i in range(n):
        yield i

"""
LOCALS = """    y = x * 2
    holder = Holder()
    calls = 0
    def bump():
        nonlocal calls
        calls += 1
        return calls
"""


def run(seed: int) -> None:
    source = Writer(seed).source()
    namespace: dict[str, Any] = {"__name__": "random_program"}
    exec(compile(source, f"<random {seed}>", "exec"), namespace)
    try:
        check(namespace["program"], Num(3), [Num(1), 2], {"a": Num(4)}, seed % 4)
    except AssertionError as error:
        raise AssertionError(f"{source}\n{error}") from error


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_random_programs(seed: int) -> None:
    run(seed)


@pytest.mark.parametrize("seed", range(60))
def test_fixed_programs(seed: int) -> None:
    run(seed)
