"""Functional twins of custom operators that write to their arguments.

An operator of aten has an out-of-place form. One that a user declares (`torch.library.custom_op(..., mutates_args=...)`)
has none, so one is made: it clones what the operator writes to, calls the operator on the clones, and returns its results
and the clones.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from torchjit_core.storing import made_by, maker
from torchjit_torch.operators import written_arguments

__all__ = ["functional_variant"]

_LIBRARY = torch.library.Library("torchjit_functional", "FRAGMENT")  # type: ignore[no-untyped-call]
_MADE: dict[OpOverload, OpOverload | None] = {}
_ATEN = ("aten", "prims", "prim")


def functional_variant(func: OpOverload) -> OpOverload | None:
    """The functional operator, defined when it is first asked for; None if `func` cannot have one.

    Its results are those of `func` that alias nothing, then the new value of each argument that `func` writes to.
    """
    if func not in _MADE:
        _MADE[func] = _define(func)
    return _MADE[func]


def _define(func: OpOverload) -> OpOverload | None:
    schema = func._schema
    written = [schema.arguments[i] for i, _ in written_arguments(func)]
    aliases = any(a.alias_info is not None for a in (*schema.arguments, *schema.returns) if a not in written)
    kinds = [str(a.type) for a in written]
    if func.namespace in _ATEN or aliases or any(kind not in ("Tensor", "List[Tensor]") for kind in kinds):
        return None
    name = "_".join(part for part in (func.namespace, schema.name.split("::")[1], func._overloadname) if part)
    results = [_type_text(r) for r in schema.returns] + ["Tensor[]" if "List" in kind else "Tensor" for kind in kinds]
    text = ", ".join(results)
    _LIBRARY.define(f"{name}({_parameters(schema)}) -> {text if len(results) == 1 else f'({text})'}")  # type: ignore[no-untyped-call]
    run = _runner(func, [a.name for a in written])
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"torchjit_functional::{name}", run, lib=_LIBRARY)
    made: OpOverload = getattr(torch.ops.torchjit_functional, name).default
    made_by(made._op, _entry_of_twin, func)
    return made_by(made, _twin, func)


@maker
def _twin(func: OpOverload) -> OpOverload:
    """In a process that an entry comes to, nobody has asked for the operator yet."""
    found = functional_variant(func)
    if found is None:
        raise ValueError(f"{func} has another schema now")
    return found


@maker
def _entry_of_twin(func: OpOverload) -> Any:
    """What `torch.ops` calls for it."""
    return _twin(func)._op


def _parameters(schema: torch.FunctionSchema) -> str:
    """The text of the parameters without the marks of what is written."""
    text = str(schema)
    inside = text[text.index("(") + 1 : text.rindex(") ->")]
    return re.sub(r"\(\w+!\)", "", inside)


def _type_text(result: Any) -> str:
    kind = str(result.type)
    return "Tensor[]" if kind == "List[Tensor]" else kind


def _runner(func: OpOverload, written: list[str]) -> Callable[..., Any]:
    names = [a.name for a in func._schema.arguments]

    def run(*args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        for name in written:
            value = given[name]
            given[name] = [t.clone() for t in value] if isinstance(value, (list, tuple)) else value.clone()
        by_position = [a.name for a in func._schema.arguments if not a.kwarg_only and a.name in given]
        result = func(*(given[n] for n in by_position), **{n: v for n, v in given.items() if n not in by_position})
        results = () if result is None else result if isinstance(result, tuple) else (result,)
        everything = (*results, *(given[name] for name in written))
        return everything[0] if len(everything) == 1 else everything

    return run
