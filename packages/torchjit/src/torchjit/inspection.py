"""`explain`: regions, recompiles and graph breaks of a function as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchjit.compiler import compile
from torchjit.exc import UserTypeError, told, wrong_type
from torchjit_session.callables import NOT_CALLABLE, compilation_of
from torchjit_session.explanation import Explanation
from torchjit_session.inspection import describe
from torchjit_session.region_info import BreakInfo, GuardInfo, KernelInfo, PhaseInfo, RegionInfo, StoreInfo

__all__ = [
    "BreakInfo",
    "Explanation",
    "GuardInfo",
    "KernelInfo",
    "PhaseInfo",
    "RegionInfo",
    "StoreInfo",
    "describe",
    "explain",
    "stats_of",
]


def explain(f: Any, *, dynamic: bool | None = None) -> Callable[..., Explanation]:
    """`explain(f)(*args)`: capture `f` on these arguments, run the graphs eagerly, and say what happened.

    Args:
        f: a function or module, compiled or not; what is already compiled is left alone.
        dynamic: as of `compile`: True makes every size symbolic from the first call, False never.

    Raises:
        UserError: a wrong value; the call raises what `compile` and the function raise.
    """
    if not callable(f):
        raise UserTypeError(NOT_CALLABLE, f"got {told(f)}")
    found = compilation_of(f)
    original = f if found is None else getattr(f, "_torchjit_original", found.function)

    if dynamic not in (True, False, None):
        raise wrong_type("dynamic", dynamic, "True, False or None")

    def run(*args: Any, **kwargs: Any) -> Explanation:
        compiled = compile(original, backend="eager", isolate_recompiles=True, dynamic=dynamic)
        compilation = compilation_of(compiled)
        if compilation is None:
            # compile() returns its argument when it is disabled: there is nothing to tell.
            compiled(*args, **kwargs)
            return Explanation(())
        compilation.measures_guards = True
        compiled(*args, **kwargs)
        return describe(compilation)

    return run


def stats_of(compiled: Any) -> Explanation:
    """The state of the compilation behind something that `compile` returned, or of a module's own (`module.compile()`)."""
    found = compilation_of(compiled)
    if found is None and isinstance(compiled, torch.nn.Module):
        found = compilation_of(compiled.__dict__.get("_compiled_call_impl"))
    return Explanation(()) if found is None else describe(found)
