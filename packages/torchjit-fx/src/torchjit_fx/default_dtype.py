"""Calls under a default dtype that the program has set inside of a region.

The graph runs under the default dtype of its start, whatever it is compiled by. So a call that another default would change is
written with its `dtype=`; one that takes none breaks the graph, and runs for real under the program's default.
"""

from __future__ import annotations

from typing import Any

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.flatten import Arguments, UnwritableArgument
from torchjit_fx.leaves import Function, RawArgs, RawKwargs
from torchjit_fx.metas import MetaService
from torchjit_fx.modes import TorchModes
from torchjit_fx.outcomes import Constant, Made, Nested, Outcome, Same, Sym, Template
from torchjit_fx.ownership import graph_target

__all__ = ["written_out"]


def written_out(
    metas: MetaService, modes: TorchModes, fn: Function, args: RawArgs, kwargs: RawKwargs
) -> dict[str, Any]:
    """The keywords with which a call does under the first default dtype what it does under the program's.

    Raises:
        GraphBreak: there are none, or the call fails.
    """
    try:
        wanted = _outcome(metas, fn, args, kwargs)
        dtypes = {made.record.dtype for made in _made(wanted.result)}
        with modes.first_default():
            for more in ({}, *({"dtype": dtype} for dtype in dtypes if kwargs.get("dtype") is None)):
                try:
                    found = _outcome(metas, fn, args, kwargs | more)
                except GraphBreak:
                    continue  # it takes no such keyword
                if _alike(found.result, wanted.result) and found.changed == wanted.changed:
                    return kwargs | more
    except UnwritableArgument:
        pass
    raise GraphBreak(breaks.NOT_CAPTURABLE, f"{getattr(fn, '__qualname__', fn)} under another default dtype")


def _outcome(metas: MetaService, fn: Function, args: RawArgs, kwargs: RawKwargs) -> Outcome:
    _, target = graph_target(fn)
    return metas.run(target, args, kwargs, Arguments(args, kwargs), own_fakes=True)[0]


def _made(template: Template) -> list[Made]:
    if type(template) is Nested:
        return [made for item in template.items for made in _made(item)]
    return [template] if type(template) is Made else []


def _alike(a: Template, b: Template) -> bool:
    if type(a) is not type(b):
        return False
    if type(a) is Nested and type(b) is Nested:
        return len(a.items) == len(b.items) and all(map(_alike, a.items, b.items))
    if type(a) is Made and type(b) is Made:
        return a.record is b.record and a.shares == b.shares
    if type(a) is Same and type(b) is Same:
        return a.index == b.index
    if type(a) is Constant and type(b) is Constant:
        return type(a.value) is type(b.value) and bool(a.value == b.value)
    return type(a) is Sym and type(b) is Sym and a.expr is b.expr
