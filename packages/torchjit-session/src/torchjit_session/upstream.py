"""What a program says through upstream's own names: `torch.compiler` and `torch._dynamo`.

Libraries carry these markers, so they count here too. They are found through attributes of functions and through
`sys.modules`: `torch._dynamo` is never imported for it.
"""

from __future__ import annotations

import functools
import importlib.machinery
import inspect
import os
import sys
import types
from collections.abc import Callable, Container, Sequence
from typing import Any, final

import attrs

__all__ = [
    "Stance",
    "asked_break",
    "asked_by_torch",
    "backends",
    "call_after",
    "default_backend",
    "disabled_message",
    "leaves_first_call",
    "marked",
    "marked_constant",
    "marked_count",
    "marked_for_graph",
    "meaning_of",
    "rests_below",
    "setting",
    "settings",
    "stance",
    "substitutes",
    "watch",
    "wrapper_class",
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
            import torchjit_vm  # noqa: PLC0415  # asked for by captures only, which have it

            folds = marked(wrapper, "__torch_dynamo_can_constant_fold_through__")
            found[original] = torchjit_vm.Foldable(original, substitute) if folds else substitute
    return found


def _is_torchs(function: Any) -> bool:
    module = getattr(function, "__module__", None) or ""
    return module == "torch" or module.startswith("torch.")


@final
@attrs.frozen
class _Marked(Container[object]):
    """`ours`, and what else is found marked."""

    ours: Container[Any]
    is_marked: Callable[[object], bool]

    def __contains__(self, fn: object) -> bool:
        return self.is_marked(fn) or fn in self.ours


def marked_count() -> int:
    """How many functions the program gave to those two."""
    return len(_marked_ids())


def _marked_ids() -> frozenset[int]:
    rules = sys.modules.get(f"{_DYNAMO}.trace_rules")
    return _ids(rules, "_allowed_callable_ids") - _ids(rules, "_leaf_function_ids")


def marked_for_graph(ours: Container[object]) -> Container[object]:
    """`ours`, with what the program gave to `torch.compiler.allow_in_graph` or `nonstrict_trace` where there is any."""
    ids = _marked_ids()
    return _Marked(ours, lambda fn: id(fn) in ids) if ids else ours


def marked_constant(ours: Container[Callable[..., Any]]) -> Container[object]:
    """`ours`, and what the program gave to `torch.compiler.assume_constant_result`."""

    def is_marked(fn: object) -> bool:
        return type(fn) is types.FunctionType and "_dynamo_marked_constant" in fn.__dict__ and not _is_torchs(fn)

    return _Marked(ours, is_marked)


def _ids(rules: Any, name: str) -> frozenset[int]:
    return frozenset(getattr(getattr(rules, name, None), "function_ids", None) or ())


# ---------------------------------------------------------------------- settings, stance, backends
_SETTINGS = (
    "accumulated_recompile_limit", "automatic_dynamic_shapes", "capture_dynamic_output_shape_ops", "capture_scalar_outputs",
    "disable", "recompile_limit", "reorderable_logging_functions", "suppress_errors",
)  # fmt: skip
"""Of `torch._dynamo.config`, what has the same name and meaning in `torchjit.config`."""
_SOURCES = ("dynamic_sources", "static_sources", "unbacked_sources")
"""Of `torch.compiler.config`, likewise."""


def settings() -> dict[str, Any]:
    """What the program, or a variable of the environment, has set in `torch._dynamo.config` and `torch.compiler.config`."""
    sources = {name: value for name in _SOURCES if (value := _sources(name))}
    if f"{_DYNAMO}.config" not in sys.modules:
        return sources
    return sources | {name: value for name in _SETTINGS if (value := setting(name)) is not None}


def _sources(name: str) -> str:
    """Older versions (2.11) do not have all of them: the variable counts all the same."""
    found = getattr(sys.modules.get("torch.compiler.config"), name, None)
    return os.environ.get(f"TORCH_COMPILE_{name.upper()}", "") if found is None else found


def setting(name: str) -> Any:
    """One of them, None if it is not set."""
    theirs: Any = sys.modules.get(f"{_DYNAMO}.config")
    if (
        theirs is None or name not in theirs.__dict__.get("_config", ()) or theirs._is_default(name)
    ):  # or it is being imported
        return None
    return getattr(theirs, name)


@final
@attrs.frozen
class Stance:
    """A stance and its arguments, as `set_stance` takes them.

    Attributes:
        name: such as `force_eager`.
        backend: what `force_backend` named.
    """

    name: str = "default"
    backend: str | Callable[..., Any] | None = None


def stance() -> Stance:
    """What `torch.compiler.set_stance` has set."""
    theirs = getattr(sys.modules.get(f"{_DYNAMO}.eval_frame"), "_stance", None)
    return _DEFAULT if theirs is None else Stance(theirs.stance, getattr(theirs, "backend", None))


_DEFAULT = Stance()


def backends() -> dict[str, tuple[Callable[..., Any], tuple[str, ...]]]:
    """What the program registered with `torch._dynamo.register_backend`: the backends with their tags, without upstream's own."""
    theirs: Any = sys.modules.get(f"{_DYNAMO}.backends.registry")
    made, tags = getattr(theirs, "_COMPILER_FNS", {}), getattr(theirs, "_BACKEND_TAGS", {})
    # Older versions (2.11) keep the tags on the function.
    carried = {name: tags.get(name) or getattr(fn, "_tags", None) or () for name, fn in list(made.items())}
    return {name: (made[name], tuple(carried[name])) for name in carried if not _is_torchs(made[name])}


def default_backend() -> str | Callable[..., Any] | None:
    """What `torch.compiler.set_default_backend` has set, if anything."""
    found = getattr(sys.modules.get(f"{_DYNAMO}.backends.registry"), "_default_backend", "inductor")
    return None if found == "inductor" else found


# ---------------------------------------------------------------------- being told
def call_after(module: Any, name: str, listener: Callable[[], object]) -> None:
    """Call `listener` whenever this function of a module has returned; nothing if there is none, or it is told already."""
    function = getattr(module, name, None)
    if function is None or hasattr(function, "_torchjit_told"):
        return

    @functools.wraps(function)
    def told(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        listener()
        return result

    told._torchjit_told = True  # type: ignore[attr-defined]
    setattr(module, name, told)


def watch(reset: Callable[[], None], changed_stance: Callable[[], None]) -> None:
    """Call `reset` after `torch.compiler.reset()` and `torch._dynamo.reset()`, and `changed_stance` after `set_stance`.

    Both functions of upstream's import `torch._dynamo`, so its import is waited for.
    """

    def attach() -> None:
        call_after(sys.modules.get(_DYNAMO), "reset", reset)
        for name in ("eval_frame", "decorators"):  # the second imports it from the first
            call_after(sys.modules.get(f"{_DYNAMO}.{name}"), "_set_stance", changed_stance)

    if _DYNAMO in sys.modules:
        attach()
    else:
        sys.meta_path.insert(0, _WaitsForImport(attach))


@final
@attrs.frozen(eq=False)
class _WaitsForImport:
    """Calls `attach` once `torch._dynamo` is imported. A finder that finds nothing itself."""

    attach: Callable[[], None]

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _DYNAMO:
            return None
        sys.meta_path.remove(self)
        specs = (finder.find_spec(name, path, target) for finder in list(sys.meta_path))
        spec = next((spec for spec in specs if spec is not None), None)
        call_after(getattr(spec, "loader", None), "exec_module", self.attach)
        return spec


# ---------------------------------------------------------------------- what libraries ask
def wrapper_class() -> type | None:
    """The class of what `torch.compile` returns for a module, by which libraries ask, once it is loaded."""
    found = getattr(sys.modules.get(f"{_DYNAMO}.eval_frame"), "OptimizedModule", None)
    return found if isinstance(found, type) else None


def asked_by_torch(depth: int) -> bool:
    """Is the code that asks torch's own, so many calls up from the caller?"""
    name = sys._getframe(depth + 1).f_globals.get("__name__") or ""
    return name == "torch" or name.startswith("torch.")
