"""Damaged documents: an error of the store's own, and nothing is called that the program would notice."""

from __future__ import annotations

import copy
import json
import random
from array import array
from collections.abc import Iterator
from typing import Any

import pytest

from torchjit_core.expr import symbol
from torchjit_core.guards import IdIs, LengthIs, MroIs, TypeIs
from torchjit_core.location import CodeLocation
from torchjit_core.paths import Arg, Pinned
from torchjit_store.forms import Document, FormatError, decode, encode
from torchjit_store.stale import Stale
from torchjit_store.testing import NoExternals, Table

CALLS: list[str] = []


class Watched:
    """An object of the program's: any use of it is noted."""

    def __init__(self) -> None:
        self.started = True

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        CALLS.append("call")

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            CALLS.append(name)
        raise AttributeError(name)

    def __iter__(self) -> Iterator[None]:
        CALLS.append("iter")
        return iter(())


def watched_function(*args: Any, **kwargs: Any) -> None:
    CALLS.append("function")


def a_document() -> tuple[Document, Table]:
    table, watched, x = Table(), Watched(), Arg.of(0, "x")
    where = CodeLocation("f.py", "f", 3, 3, 0, 9)
    cycle: list[Any] = [watched, {"k": (1, 2.5, "text")}, frozenset({1})]
    cycle.append(cycle)
    guards = (
        TypeIs(x.attr("a"), Watched, where), IdIs(x.item(3), watched), LengthIs(Pinned.of(watched, "w").attr("b"), 3, where),
        MroIs(Watched, Watched.__mro__), IdIs(x.computed(watched_function), watched_function), where,
    )  # fmt: skip
    return encode(
        (guards, cycle, symbol("s") * 2 + 1, slice(1, 2), range(4), 2**80, b"bytes", Exception), table, NoExternals()
    ), table


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a document, as its container and its key."""
    for key in range(len(data)) if isinstance(data, list) else data if isinstance(data, dict) else ():
        yield data, key
        yield from places(data[key])


def mutated(data: Any, draw: random.Random) -> Any:
    """The document with some of its places exchanged, left out, moved or put in twice."""
    data = copy.deepcopy(data)
    for _ in range(draw.choice((1, 1, 2, 5))):
        held = list(places(data))
        container, key = draw.choice(held)
        other, there = draw.choice(held)
        kind = draw.randrange(5)
        if kind == 0:
            container[key] = copy.deepcopy(other[there])
        elif kind == 1:
            container[key] = draw.choice(
                (None, True, -1, 0, 1, 7, 10**9, 2.5, "", "dict", "__init__", "os", "system", [], {}, [0], [[]])
            )
        elif kind == 2 and isinstance(container, list):
            del container[key]
        elif kind == 3 and isinstance(container, list):
            container.insert(key, copy.deepcopy(other[there]))
        elif type(container[key]) is int:
            container[key] += draw.choice((-1, 1, 2))
    return data


def with_other_positions(blobs: tuple[bytes, ...], data: Any, draw: random.Random) -> tuple[bytes, ...]:
    """The blobs; half of the time some children are other objects, none, or cut."""
    kept, place = list(blobs), data["positions"]
    positions = array("I", kept[place])
    for _ in range(draw.choice((0, 0, 1, 3))):
        positions[draw.randrange(len(positions))] = draw.choice((0, 1, draw.randrange(40), 10**9))
    kept[place] = positions.tobytes()[: draw.choice((None, None, None, None, -4, -1))]
    return tuple(kept)


@pytest.mark.parametrize("seed", range(2))
def test_mutations(seed: int) -> None:
    document, table = a_document()
    data = json.loads(json.dumps(document.data))
    draw = random.Random(seed)
    outcomes = set()
    CALLS.clear()
    for _ in range(800):
        try:
            decode(
                Document(mutated(data, draw), with_other_positions(document.blobs, data, draw)), table, NoExternals()
            )
            outcomes.add("read")
        except (Stale, FormatError) as error:
            outcomes.add(type(error).__name__)
    assert outcomes >= {"read", "FormatError"}
    assert CALLS == []


@pytest.mark.parametrize(
    ("module", "name"),
    [("os", "system"), ("builtins", "eval"), ("torchjit_core.paths.os", "x"), ("torchjit_evil", "x"), ("torchjit_store.ours", "sys.modules"),
     ("torchjit_store.ours", "importlib.import_module"), ("torchjit_core.guards", "attrs.frozen"), ("", ""), ("torchjit_core.guards", "Guard.__class__")],
)  # fmt: skip
def test_only_what_torchjit_defines_has_names(module: str, name: str) -> None:
    data = {
        "format": 1,
        "atoms": [],
        "late": [],
        "batches": [["named", [module], 1, [name], 0]],
        "positions": 0,
        "root": 0,
    }
    with pytest.raises(FormatError):
        decode(Document(data, (b"",)), Table(), NoExternals())


def test_only_makers_make() -> None:
    batches = [["named", ["torchjit_store.forms"], 1, ["encode"], 0], ["made", [], 1, 0, 1]]
    with pytest.raises(FormatError, match="no maker"):
        decode(
            Document(
                {"format": 1, "atoms": [], "late": [], "batches": batches, "positions": 0, "root": 1}, (bytes(4),)
            ),
            Table(),
            NoExternals(),
        )
