"""Random programs of the language over tensors (`fuzz_language.py` runs more of them), and what they showed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fuzz_language import told
from vm_language_programs import write

import torchjit


@pytest.mark.parametrize("seed", [3, 4, 7, 10])
def test_language_program(seed: int) -> None:
    source = write(seed)
    found = told(source, f"<program {seed}>")
    assert found is None, f"{source}\n{found}"


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_augmented_assignment_of_numbers_that_vary(backend: str) -> None:
    """It changes no number that somebody else holds."""

    def program(x: Any, n: int, log: list[Any]) -> Any:
        total = n
        for _ in range(3):
            log.append(total)
            total += n
        product = total
        product *= n
        product -= 1
        return x + total, total, product, x.size(0)

    compiled = torchjit.compile(program, backend=backend)
    for n in (1, 2, 3, 5):
        plain: list[Any] = []
        changed: list[Any] = []
        got, want = compiled(torch.ones(n + 2), n, changed), program(torch.ones(n + 2), n, plain)
        assert got[1:] == want[1:]
        assert changed == plain
        torch.testing.assert_close(got[0], want[0])


RAISING: list[Callable[[float, int], Any]] = [
    lambda n, m: 3 // n, lambda n, m: 3 % n, lambda n, m: m / n, lambda n, m: n**-1, lambda n, m: m**n, lambda n, m: math.sqrt(n),
    lambda n, m: math.log(n), lambda n, m: n / (m - 3), lambda n, m: math.pow(n, m), lambda n, m: (m - 3) ** -1, lambda n, m: math.exp(n * 1000),
    lambda n, m: round(n, m), lambda n, m: complex(m, n), lambda n, m: f"{m:0{m - 5}d}", lambda n, m: int("12", m),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(RAISING)))
def test_arithmetic_that_raises_for_some_numbers(at: int) -> None:
    """Inside a `try`: the program catches it, also where an earlier call captured it with numbers that are fine."""

    def program(x: Any, n: float, m: int) -> Any:
        try:
            return x + 1, RAISING[at](n, m)
        except (ArithmeticError, ValueError) as error:
            return repr(error)

    compiled = torchjit.compile(program, backend="eager", on_error="raise")
    for n, m in ((1.5, 7), (2.5, 5), (0.0, 4), (-1.5, 3), (1e300, 6), (4.5, 2)):
        assert repr(compiled(torch.ones(1), n, m)) == repr(program(torch.ones(1), n, m)), (n, m)


def test_hash_of_a_number_that_varies() -> None:
    """It is an index like any other number."""

    def program(x: Any, n: int, items: list[Any]) -> Any:
        items[hash(n)] = n
        return x + hash(n)

    compiled = torchjit.compile(program, backend="eager")
    for n in (1, 2, 0, 1):
        plain, changed = [7, 8, 9], [7, 8, 9]
        torch.testing.assert_close(compiled(torch.ones(2), n, changed), program(torch.ones(2), n, plain))
        assert changed == plain


def halves(x: Any, s: str) -> Any:
    return x + 1, s.split(), s.rsplit(" ", 1)


def lines(x: Any, s: str) -> Any:
    return x + 1, [*s.splitlines(), *s.partition(" ")], s.splitlines()


def table(x: Any, s: str) -> Any:
    return x + 1, str.maketrans(s, s[::-1]), sorted(s)


def parts(x: Any, s: str) -> Any:
    found = s.split()
    found.append(s.upper())
    return x + 1, found, found[0]


@pytest.mark.parametrize("program", [halves, lines, table, parts])
def test_each_call_has_its_own_list_of_what_constants_give(program: Callable[..., Any]) -> None:
    compiled = torchjit.compile(program, backend="eager")
    for _ in range(2):
        results = compiled(torch.ones(2), "a b")[1:]
        assert results == program(torch.ones(2), "a b")[1:]
        for found in results:
            if not isinstance(found, str):
                found.clear()
    assert len(compiled.compiled.specializations) == 1
