"""Random programs of the language over tensors (`fuzz_language.py` runs more of them), and what they showed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fuzz_language import told
from vm_language_programs import write

import torchjit


@pytest.mark.parametrize("seed", [3, 5, 7, 11])
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
