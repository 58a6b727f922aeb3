"""What a first call was given goes when the program lets go of it; code objects go with their functions."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchjit

weight = torch.nn.Linear(3, 3)


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    print(end="")
    return y * 2


def branches(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum() > 0 else x


def with_lambdas(x: torch.Tensor) -> list[torch.Tensor]:
    return [f(x) for f in [lambda k, i=i: k * i for i in range(3)]]


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "plain": lambda x: x * 2 + 1, "break": broken, "branch": branches, "lambdas": with_lambdas,
    "module": lambda x: weight(x), "view": lambda x: x.view(-1)[1:], "array": lambda x: torch.from_numpy(x.numpy() * 2),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_inputs_of_a_first_call_go_at_once(name: str, backend: str) -> None:
    compiled = torchjit.compile(PROGRAMS[name], backend=backend)
    x = torch.ones(3)
    reference = weakref.ref(x)
    gc.collect()
    gc.disable()
    try:
        with torch.no_grad():
            compiled(x)
        del x
        assert reference() is None
    finally:
        gc.enable()


def test_code_objects_go_with_their_functions() -> None:
    references = []
    for number in range(5):
        names: dict[str, Any] = {}
        exec(f"def f(x):\n  g = lambda z: z + {number}\n  print(end='')\n  return g(x * {number})", names)
        references.append(weakref.ref(names["f"].__code__))
        torchjit.compile(names["f"], backend="eager")(torch.ones(2))
    del names
    torchjit.reset()
    gc.collect()
    gc.collect()
    assert [r() for r in references] == [None] * 5
