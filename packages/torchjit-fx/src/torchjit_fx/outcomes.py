"""What a call does, as the metadata service describes it: a template of its result, and what it writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias, final

import attrs

from torchjit_core.expr import Expr
from torchjit_fx.leaves import Raw, Way
from torchjit_fx.records import TensorRecord

__all__ = ["Constant", "Made", "Nested", "Outcome", "Same", "Sym", "SymOther", "Template", "follow", "parts"]


@final
@attrs.frozen(eq=False)
class Made:
    """A tensor that the call made.

    Attributes:
        shares: the argument leaf whose memory it shares, or `-1 - k` for earlier result k.
        also: of a tensor that consists of others, further argument leaves on whose memory they lie.
    """

    record: TensorRecord
    shares: int | None
    way: Way
    also: tuple[int, ...] = ()


@final
@attrs.frozen(eq=False)
class Same:
    """The very tensor that was argument leaf `index`."""

    index: int


@final
@attrs.frozen(eq=False)
class Constant:
    """A plain value."""

    value: Any


@final
@attrs.frozen(eq=False)
class Sym:
    """A symbolic int."""

    expr: Expr
    way: Way


@final
@attrs.frozen(eq=False)
class SymOther:
    """A symbolic bool or float; never cached."""

    value: Any
    way: Way


@final
@attrs.frozen(eq=False)
class Nested:
    """A container; `keys` for a dict."""

    type: type
    items: tuple[Any, ...]
    keys: tuple[Any, ...] | None = None


Template: TypeAlias = "Made | Same | Constant | Sym | SymOther | Nested"


@final
@attrs.frozen(eq=False)
class Outcome:
    """What a call does.

    Attributes:
        result: the shape of the result.
        written: indices of the argument leaves whose memory is written.
        changed: new records of argument leaves, by index.
        random: a generator advances.
        makes: the result holds something that only the graph knows.
        fresh: it holds numbers that only the run knows: another call has others.
        constant: a tensor whose value is known at capture went in or came out (`torch.tensor(3)`, `torch.div(7, 2)`):
            sizes may have been read from it, so that the outcome does not follow from its key.
    """

    result: Template
    written: tuple[int, ...]
    changed: tuple[tuple[int, TensorRecord], ...]
    random: bool
    makes: bool
    fresh: bool = False
    constant: bool = False


def parts(template: Template) -> Iterator[Made | Same | Constant | Sym | SymOther]:
    """What is in a result, containers apart."""
    if type(template) is Nested:
        for item in template.items:
            yield from parts(item)
    else:
        yield template


def follow(result: Raw, way: Way) -> Raw:
    """The item of a result at the end of these indices."""
    for key in way:
        result = result[key]
    return result
