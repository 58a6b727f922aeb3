"""What a program says through upstream's own names: `torch.compiler` and `torch._dynamo`.

Libraries carry these markers, so they count here too. They are found through attributes of functions and through
`sys.modules`: `torch._dynamo` is never imported for it.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any, final

__all__ = [
    "MarkedConstant",
    "MarkedForGraph",
    "asked_break",
    "disabled_message",
    "leaves_first_call",
    "marked",
    "meaning_of",
    "rests_below",
    "substitutes",
]

_DYNAMO = "torch._dynamo"


def marked(fn: object, name: str) -> Any:
    """The value of a marker of `fn`, None without it. Code of the program that answers for attributes is not asked."""
    cls = type(fn)
    asks = hasattr(cls, "__getattr__") or isinstance(cls.__getattribute__, types.FunctionType)
    return inspect.getattr_static(fn, name, None) if asks else getattr(fn, name, None)


def disabled_message(fn: object) -> str | None:
    """Is it what `torch.compiler.disable` made? Then the reason that the program gave, or an empty text."""
    if not marked(fn, "_torchdynamo_disable"):
        return None
    # Decorators over such a function copy its attributes, `functools.wraps` does; they can be captured themselves.
    function = fn.__func__ if isinstance(fn, types.MethodType) else fn
    if marked(function, "_torchdynamo_wrapper_id") not in (None, id(function)):
        return None
    return marked(function, "_torchdynamo_disable_msg") or ""


def rests_below(function: types.FunctionType) -> bool:
    """Must what this function calls run as plain Python too?"""
    return bool(marked(function, "_torchdynamo_disable_recursive")) and disabled_message(function) is not None


def leaves_first_call(code: types.CodeType) -> bool:
    """Is it the code of the wrapper that `torch.compiler.disable(recursive=False)` puts around functions?"""
    return code is getattr(sys.modules.get(f"{_DYNAMO}.decorators"), "_nonrecursive_disable_wrapper_code", None)


def asked_break(fn: object) -> bool:
    """Is it a function of upstream's that only asks for a graph break?"""
    return type(fn) is types.FunctionType and fn.__module__ == f"{_DYNAMO}.decorators" and fn.__name__ in _BREAKS


_BREAKS = frozenset({"graph_break", "skip_frame", "step_unsupported"})


def meaning_of(function: types.FunctionType) -> Any:
    """What is interpreted instead of a function of upstream's, or of a function that it wrapped; None if it means itself."""
    inner = marked(function, "__marked_compile_region_fn__")  # torch.compiler.nested_compile_region
    if inner is not None:
        return inner
    # torch.compiler.substitute_in_graph marks the functions that stand for others; torch's own have theirs elsewhere
    substitute = marked(function, "__torch_dynamo_polyfill__")
    if substitute is not None and not _is_torchs(substitute):
        return substitute
    return None


def substitutes() -> dict[Any, Any]:
    """The program's calls of `torch.compiler.substitute_in_graph`, by original."""
    variable = getattr(sys.modules.get(f"{_DYNAMO}.variables.functions"), "PolyfilledFunctionVariable", None)
    if variable is None:
        return {}
    found = {}
    for original, wrapper in variable._get_polyfill_handlers().items():
        substitute = marked(wrapper, "__torch_dynamo_polyfill__")
        if substitute is not None and not _is_torchs(substitute):
            found[original] = substitute
    return found


def _is_torchs(function: Any) -> bool:
    module = getattr(function, "__module__", None) or ""
    return module == "torch" or module.startswith("torch.")


@final
class MarkedForGraph(Collection[object]):
    """`ours`, and what the program gave to `torch.compiler.allow_in_graph` or `nonstrict_trace`."""

    def __init__(self, ours: Collection[object]) -> None:
        self._ours = ours
        rules = sys.modules.get(f"{_DYNAMO}.trace_rules")
        self._ids = _ids(rules, "_allowed_callable_ids") - _ids(rules, "_leaf_function_ids")

    def __contains__(self, fn: object) -> bool:
        return id(fn) in self._ids or fn in self._ours

    def __iter__(self) -> Iterator[object]:
        return iter(self._ours)

    def __len__(self) -> int:
        return len(self._ours) + len(self._ids)


@final
class MarkedConstant(Collection[object]):
    """`ours`, and what the program gave to `torch.compiler.assume_constant_result`."""

    def __init__(self, ours: Collection[Callable[..., Any]]) -> None:
        self._ours = ours

    def __contains__(self, fn: object) -> bool:
        if fn in self._ours:
            return True
        return type(fn) is types.FunctionType and "_dynamo_marked_constant" in fn.__dict__ and not _is_torchs(fn)

    def __iter__(self) -> Iterator[object]:
        return iter(self._ours)

    def __len__(self) -> int:
        return len(self._ours)


def _ids(rules: Any, name: str) -> frozenset[int]:
    return frozenset(getattr(getattr(rules, name, None), "function_ids", None) or ())
