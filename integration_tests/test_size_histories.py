"""Which sizes are evidence for symbols: of the same network within one process, and of no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchjit


class Net(nn.Module):
    """Frozen: with a backward, what is called once is not stored."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width)])
        self.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return x


def _symbols(compiled: Any) -> list[int]:
    """How many sizes vary in each specialisation."""
    return [made.symbols for made in compiled.compiled.specializations]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHJIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHJIT_STORE", "on")
    return tmp_path


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("mode", ["on", "off"])
def test_a_second_network_of_a_class_is_static(
    store: Path, monkeypatch: pytest.MonkeyPatch, mode: str, reset: bool
) -> None:
    monkeypatch.setenv("TORCHJIT_STORE", mode)
    first: Any = torchjit.compile(Net(4), backend="aot_eager")
    first(torch.ones(3, 4)), first(torch.ones(5, 4))
    assert _symbols(first) == [0, 1]
    if reset:
        torchjit.reset()
    second: Any = torchjit.compile(Net(8), backend="aot_eager")
    second(torch.ones(6, 8))
    assert _symbols(second) == [0]
    second(torch.ones(7, 8))
    assert _symbols(second) == [0, 1]


def test_a_reset_forgets_sizes(store: Path) -> None:
    compiled: Any = torchjit.compile(Net(4), backend="aot_eager")
    for rows in (3, 5):
        compiled(torch.ones(rows, 4))
        assert _symbols(compiled) == [0]
        torchjit.reset()
    compiled(torch.ones(3, 4)), compiled(torch.ones(7, 4))
    assert _symbols(compiled) == [0, 1]
    assert [made.storage for made in compiled.compiled.specializations] == ["loaded", "stored"]


_PROGRAM = """
import json, sys, torch, torchjit
sys.path.insert(0, {folder!r})
from test_size_histories import Net
compiled = torchjit.compile(Net(int(sys.argv[1])), backend="aot_eager")
for rows in sys.argv[2:]:
    compiled(torch.ones(int(rows), int(sys.argv[1])))
print(json.dumps([(made.cause.split(",")[0], made.symbols) for made in compiled.compiled.specializations]))
"""


def _process(cache: Path, width: int, *rows: int) -> list[tuple[bool, int]]:
    """Of each specialisation of a process that calls a network: was it loaded, and how many sizes vary?"""
    program = _PROGRAM.format(folder=str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", program, str(width), *map(str, rows)], capture_output=True, text=True, check=False,
        env={**os.environ, "TORCHJIT_CACHE_DIR": str(cache), "TORCHJIT_STORE": "on"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return [(cause == "loaded from disk", symbols) for cause, symbols in json.loads(done.stdout.splitlines()[-1])]


def test_other_processes_know_what_varied_and_no_single_sizes(tmp_path: Path) -> None:
    assert _process(tmp_path, 4, 3) == [(False, 0)]
    assert _process(tmp_path, 4, 5) == [(False, 0)]  # 3 was another process's
    assert _process(tmp_path, 4, 5, 6) == [(True, 0), (False, 1)]
    assert _process(tmp_path, 4, 7, 8) == [(True, 1)]
    assert _process(tmp_path, 4, 5, 8) == [(True, 0), (True, 1)]  # the code for one size is the faster one
    assert _process(tmp_path, 8, 9) == [(False, 0)]  # another network


class Decorated(nn.Module):
    def __init__(self, width: int, place: int = 0) -> None:
        super().__init__()
        self.weight, self.place = nn.Parameter(torch.ones(width)), place

    @torchjit.compile(backend="aot_eager")
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.place

    @torchjit.compile(backend="aot_eager")
    def doubled(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.fixture(autouse=True)
def forgotten() -> None:
    torchjit.reset()


def test_a_compiled_method_keeps_unlike_modules_apart() -> None:
    for width, rows in ((2, 3), (4, 5), (6, 7)):
        Decorated(width)(torch.ones(rows, width))
    assert _symbols(Decorated.forward) == [0, 0, 0]
    Decorated(6)(torch.ones(9, 6))  # like the last one
    assert _symbols(Decorated.forward) == [0, 0, 0, 1]


def test_equal_blocks_are_one_kind_whatever_numbers_they_hold() -> None:
    blocks = [Decorated(4, place) for place in range(4)]
    for rows, block in enumerate(blocks, 2):
        block(torch.ones(rows, 4))
    assert _symbols(Decorated.forward) == [0, 2]  # the rows and the place


def test_very_many_kinds_share_symbols_before_the_limit() -> None:
    for width in range(2, 20):
        Decorated(width).doubled(torch.ones(3, width))
    assert _symbols(Decorated.doubled) == [0, 0, 0, 0, 2]  # a size and a stride


def test_modules_that_a_function_names_count(store: Path) -> None:
    def called(net: nn.Module, rows: int) -> list[int]:
        compiled: Any = torchjit.compile(lambda x: net(x).sin(), backend="aot_eager")
        compiled(torch.ones(rows, 4))
        return _symbols(compiled)

    wide = nn.Sequential(nn.Linear(4, 9), nn.Linear(9, 4)).requires_grad_(False)
    assert called(Net(4), 3) == [0] and called(wide, 5) == [0]
