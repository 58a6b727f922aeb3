"""Entries of real captures, written as documents and read again in one process: same guards, same results, same errors.

References are positions in a list here; how they find the program's objects in another process is tested with `torchjit_store.origins`.
"""

from __future__ import annotations

import functools
import json
import os
import traceback
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch

import torchjit
from torchjit_core.storing import loading_from
from torchjit_frame import Entry
from torchjit_guards import GuardProgram
from torchjit_session.site import Site
from torchjit_store.forms import Document, decode, encode
from torchjit_store.testing import Table
from torchjit_vm.capture.real_caches import RealCache, _Holds, _same_as


@attrs.define
class Doors:
    """Front doors of continuations are the session's to make: here they stay what they are."""

    held: list[object] = attrs.field(factory=list)

    def name(self, obj: object) -> tuple[str, object] | None:
        if type(obj).__name__ != "FrontDoor":
            return None
        self.held.append(obj)
        return "door", len(self.held) - 1

    def build(self, tag: str, payload: Any) -> object:
        return self.held[payload]


def rewritten(entry: Entry, nslots: int) -> Entry:
    """The entry after a way through text, with a guard program of its own."""
    table, doors = Table(), Doors()
    before = (entry.data.guards, entry.guard.gather, entry.target, entry.unwrap)
    document = encode(before, table, doors)
    text = json.dumps(document.data, allow_nan=False)
    with loading_from(os.environ.get("TORCHJIT_CACHE_DIR")):
        after: Any = decode(Document(json.loads(text), document.blobs), table, doors)
    guards, gather, target, unwrap = after
    assert list(map(str, guards)) == list(map(str, entry.data.guards))
    assert [g.location for g in guards] == [g.location for g in entry.data.guards]
    assert all(a is b for a, b in zip(gather, entry.guard.gather, strict=True))
    assert target is not entry.target
    return Entry(GuardProgram(guards, gather, nslots), target, unwrap, entry.data, entry.hook, entry.on_raise)


@pytest.fixture
def rewriting(monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    """Every entry is replaced by what comes back of it."""
    capture, made = Site._capture, []

    def instead(site: Site, *args: Any) -> Any:
        entry, *others = capture(site, *args)
        made.append(rewritten(entry, site.region.nslots))
        return (made[-1], *others)

    monkeypatch.setattr(Site, "_capture", instead)
    return made


def pointwise(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x + y).relu() * 2


def containers(x: torch.Tensor, y: torch.Tensor) -> Any:
    found = {"a": [x.sin(), (y, 3)], "n": None}
    found["a"].append(x.shape[0])
    return found


def draws(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + torch.rand(x.shape) * torch.nn.functional.dropout(y, 0.5)


def modes(x: torch.Tensor, y: torch.Tensor) -> Any:
    with torch.no_grad():
        made = x * y
    return made, torch.is_grad_enabled()


def breaking(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    made = x + y
    if made.sum() > -1e9:
        made = made * 3
    return made.cos()


def by_default(
    x: torch.Tensor, y: torch.Tensor, *, scale: tuple[int, ...] = (2, 3), where: dict[str, float] = {"k": 1.5}
) -> torch.Tensor:  # noqa: B006
    return x * scale[0] + y * where["k"]


def nested(x: torch.Tensor, y: torch.Tensor) -> Any:
    def inner(n: int) -> torch.Tensor:
        return x * n + y

    return inner(2), [inner(k) for k in range(2)]


@pytest.mark.parametrize("function", [pointwise, containers, draws, modes, breaking, by_default, nested])
def test_functions(function: Callable[..., Any], rewriting: list[Entry]) -> None:
    compiled = torchjit.compile(function)
    for sizes in ((4, 5), (4, 5), (6, 5), (7, 5)):
        x, y = torch.randn(sizes), torch.randn(sizes)
        torch.manual_seed(0)
        want = function(x, y)
        torch.manual_seed(0)
        found = compiled(x, y)
        torch.testing.assert_close(found, want) if function is not modes else torch.testing.assert_close(
            found[0], want[0]
        )
    assert rewriting


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.calls, self.marks = torch.nn.Linear(8, 8), 0, {"last": (1, "x")}
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x.detach().sum(0))
        return torch.nn.functional.gelu(self.linear(x)) * self.marks["last"][0]


def test_modules(rewriting: list[Entry]) -> None:
    module, x = torch.nn.Sequential(Block(), Block()), torch.randn(3, 8)
    compiled = torchjit.compile(module)
    with torch.no_grad():
        want = module(x)
        before = module[0].seen.clone()
        torch.testing.assert_close(compiled(x), want)
        torch.testing.assert_close(module[0].seen, before * 2)
    assert len(rewriting) == 1


def test_a_changed_fact_is_noticed(rewriting: list[Entry]) -> None:
    module, x = Block(), torch.randn(3, 8)
    compiled = torchjit.compile(module)
    with torch.no_grad():
        compiled(x)
        for mark in ((3, "x"), (3, "z"), (1, "y")):
            module.marks["last"] = mark
            torch.testing.assert_close(compiled(x), module(x))
    assert len(rewriting) == 2  # the text is not read


def raising(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x + 1
    return wrongly(x, y)


def wrongly(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    raise ValueError(f"of {x.shape[0]}")


def test_errors_come_from_the_same_lines(rewriting: list[Entry]) -> None:
    def lines(call: Callable[..., Any]) -> Any:
        with pytest.raises(ValueError) as raised:
            call(torch.randn(2), torch.randn(2))
        shown = traceback.extract_tb(raised.value.__traceback__)
        return str(raised.value), [(f.name, f.lineno) for f in shown if f.name in ("raising", "wrongly")]

    assert lines(torchjit.compile(raising)) == lines(raising)
    assert rewriting


class Tagged(torch.Tensor):
    pass


def test_subclasses(rewriting: list[Entry]) -> None:
    x, y = torch.randn(4).as_subclass(Tagged), torch.randn(4)
    found = torchjit.compile(pointwise)(x, y)
    assert type(found) is Tagged
    torch.testing.assert_close(found.as_subclass(torch.Tensor), pointwise(x, y).as_subclass(torch.Tensor))
    assert rewriting


def test_what_a_cache_holds_is_asked_again() -> None:
    @functools.lru_cache(maxsize=4)
    def doubled(x: int) -> int:
        return 2 * x

    doubled(3)
    test = _Holds(RealCache(doubled), 3, _same_as(6))
    table = Table()
    document = encode(test, table, Doors())
    read: Any = decode(Document(json.loads(json.dumps(document.data)), document.blobs), table, Doors())
    assert test(None) and read(None)
    doubled.cache_clear()
    assert not read(None)
