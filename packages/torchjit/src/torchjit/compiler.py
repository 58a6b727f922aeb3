"""`torchjit.compile` and `torchjit.reset`, and `torch.compile` made torchjit's."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict, TypeVar, Unpack, final, overload

import attrs
import torch

from torchjit.backends import eager, get_default_backend, inductor_backend, lookup_backend
from torchjit.config import comparing, config, store_settings
from torchjit.environment import read_environment
from torchjit.exc import UserError, UserTypeError, told, unknown_name
from torchjit.options import Options, make_options
from torchjit_backends.later import aot_eager_backend
from torchjit_core.kinds import COUNT, LENIENT_SWITCH, Kind, choice
from torchjit_core.reasons import reason
from torchjit_core.showing import shown
from torchjit_core.user_warnings import warn_user
from torchjit_session import profiling, stance, upstream
from torchjit_session.backend_calls import Backend, aot_eager, is_ours, with_arguments
from torchjit_session.callables import compilation_of, compile_any, doors, is_compiled
from torchjit_session.counters import counters
from torchjit_session.dynamic_shapes import DynamicShapes
from torchjit_session.late_imports import import_capture
from torchjit_session.settings import Host
from torchjit_session.sharing import all_compilations, family_of

__all__ = ["compilation_of", "compile", "compile_with", "is_compiled", "replace_torch_compile", "reset"]

_C = TypeVar("_C", bound=Callable[..., Any])
"""What is compiled keeps its type: a function its signature, a module its class."""

_HOST = Host(config.snapshot, config.is_off, lookup_backend, store_settings, comparing)

_LOADS = (
    "torchjit_session.storing",
    "torchjit_store.torch_values",
    "torchjit_inductor.cpp.stored_kernels",
    "torchjit_inductor.compiled_graph",
    "torchjit_inductor.launches",
    "torchjit_vm.capture.runtime",
)
"""What loads an entry that is on disk, and what most of them refer to."""

BAD_ARGUMENT = reason(
    "TJ-API-031",
    "an argument of compile has a value that it cannot have",
    "Each argument of torchjit.compile takes the values of torch.compile's.",
    "See the docstring of torchjit.compile.",
)

REPLACED_TWICE = reason(
    "TJ-API-075",
    "torch.compile was replaced by something else inside of the block of replace_torch_compile",
    "That function stays. If it calls what it has replaced, it calls torchjit.compile still.",
    "Import the library that replaces torch.compile before the block, or call torchjit.replace_torch_compile() for the whole process.",
)


class CompileArguments(TypedDict, total=False):
    """The keywords of `compile`."""

    fullgraph: bool
    dynamic: bool | None
    backend: str | Backend | None
    mode: str | None
    options: Mapping[str, Any] | None
    disable: bool
    name: str | None
    recompile_limit: int | None
    isolate_recompiles: bool
    dynamic_shapes: Any
    on_error: Literal["raise", "eager"] | None


@overload
def compile(model: _C, **keywords: Unpack[CompileArguments]) -> _C: ...
@overload
def compile(model: None = None, **keywords: Unpack[CompileArguments]) -> Callable[[_C], _C]: ...
def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Backend | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    name: str | None = None,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    dynamic_shapes: Any = None,
    on_error: Literal["raise", "eager"] | None = None,
    **unknown: Any,
) -> Any:
    """Compile a function, a method or an `nn.Module`; also a decorator, with or without arguments.

    Args:
        model: what to compile; None to use `compile` as a decorator with arguments.
        fullgraph: raise `torchjit.exc.Unsupported` instead of breaking the graph.
        dynamic: True makes every size symbolic from the first call, False never; None makes a size symbolic once it
            has changed.
        backend: a name of `list_backends()`, or `backend(gm, example_inputs) -> callable`. None is
            `get_default_backend()`: `inductor`, if nothing else was set.
        mode: `default`, `reduce-overhead` (CUDA graphs), `max-autotune`, `max-autotune-no-cudagraphs`.
        options: options by name, see `list_options()`; not together with `mode`. A backend that is not torchjit's own is
            called with what was given here: `backend(gm, example_inputs, mode=..., options=...)`.
        disable: return `model` as it is (useful for tests).
        name: for reports and logs.
        recompile_limit: specialisations per region, instead of `torchjit.config.recompile_limit`.
        isolate_recompiles: share nothing with equal modules that are compiled with the same arguments. What one call compiles
            never counts towards another call's limit.
        dynamic_shapes: which sizes vary, by the names (or in the order) of the arguments, as `torch.export` takes it:
            `{"x": {0: True}}`, with `torch.export.Dim` for a range, None for a constant. What is not mentioned is as `dynamic` says.
            Upstream's `ShapesSpec` is taken, too.
        on_error: what an error inside torchjit does: `eager` warns once and runs the code as it is, `raise` shows it.
            None is `torchjit.config.on_error`, and errors of a backend that you passed are shown.

    Returns:
        For a function or method, a callable with the same signature. For a module, a module of the same class
        that shares everything with the original: parameters, buffers, hooks, `state_dict` keys.

    Raises:
        UserError: `model` cannot be compiled, or an argument has a wrong name or value; the message names the
            nearest right ones.
    """
    for given in unknown:
        raise unknown_name("argument", given, CompileArguments.__annotations__, UserTypeError)
    keywords: dict[str, Any] = _checked(dict(
        fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable, name=name,
        recompile_limit=recompile_limit, isolate_recompiles=isolate_recompiles, dynamic_shapes=dynamic_shapes,
        on_error=on_error,
    ))  # fmt: skip
    if model is None:
        _backend_maker(
            get_default_backend() if backend is None else backend, mode, options
        )  # wrong names are told here
        return functools.partial(compile, **keywords)
    return compile_with(_HOST, model, keywords)


_SIGNATURE = inspect.signature(compile)
compile.__signature__ = _SIGNATURE.replace(  # type: ignore[attr-defined]  # it takes the unknown ones only to refuse them
    parameters=[p for p in _SIGNATURE.parameters.values() if p.kind is not p.VAR_KEYWORD]
)


def compile_with(host: Host, model: Any, keywords: Mapping[str, Any]) -> Any:
    """`compile`, for settings and stored entries of this host.

    Args:
        keywords: of `compile`, all of them, checked.
    """
    fullgraph, dynamic, mode, options = (keywords[name] for name in ("fullgraph", "dynamic", "mode", "options"))
    recompile_limit, name = keywords["recompile_limit"], keywords["name"]
    backend = get_default_backend() if keywords["backend"] is None else keywords["backend"]
    make_backend, chosen = _backend_maker(backend, mode, options)
    environment = read_environment()
    if keywords["disable"] or environment.disable:
        return model
    shapes = DynamicShapes.of(model, keywords["dynamic_shapes"])
    # Imported here, for the same reasons as the compiler: what only imports torchjit needs no interpreter, and listens to nothing.
    from torchjit.listeners import start_from_environment  # noqa: PLC0415
    from torchjit_session.compilation import Compilation  # noqa: PLC0415

    start_from_environment(environment)
    compiler = make_backend()
    _import_for_first_call(host, compiler)

    # A name may be registered anew; what shares keeps its backend alive.
    alike: object = backend if chosen is not None and is_ours(compiler) else id(compiler)
    on_error = keywords["on_error"] or environment.on_error
    settings = (alike, chosen, config.snapshot(), fullgraph, dynamic, recompile_limit, on_error)
    shares = shapes is None and not keywords["isolate_recompiles"] and chosen is not None and not chosen.for_one_object
    given = {key: value for key, value in keywords.items() if value is not None and value is not False}
    told_of = _told_of({**keywords, "backend": backend})

    def make(
        function: types.FunctionType, label: str | None, forwarded: tuple[str, ...] | None, of_object: bool
    ) -> Compilation:
        return Compilation(
            function,
            compiler,
            host,
            backend_is_users=not isinstance(backend, str),
            fullgraph=fullgraph,
            dynamic=dynamic,
            recompile_limit=recompile_limit,
            on_error=on_error,
            name=name or label,
            forwarded=forwarded,
            shapes=shapes,
            family=family_of((function, settings)) if of_object and shares else None,
        )

    return compile_any(model, doors(make, given, told_of), given)


def _import_for_first_call(host: Host, compiler: Backend) -> None:
    """What loads a stored entry where one may be there, else what captures."""
    if not host.store().reads:
        import_capture(compiler)
        return
    for module in _LOADS if is_ours(compiler) else _LOADS[:2]:
        importlib.import_module(module)


def _told_of(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that reports and logs show."""
    backend, options = keywords["backend"], keywords["options"] or {}
    return {
        "backend": backend if isinstance(backend, str) else shown(backend),
        "mode": keywords["mode"] or "default",
        "options": {str(key): shown(value) for key, value in options.items()},
        "dynamic": keywords["dynamic"],
        "fullgraph": keywords["fullgraph"],
    }


def _backend_maker(
    backend: str | Backend, mode: str | None, options: Mapping[str, Any] | None
) -> tuple[Callable[[], Backend], Options | None]:
    """What makes the backend with its options, and these; None for those of a backend that is not torchjit's own.

    Raises:
        UserError: an unknown name, or a wrong value.
    """
    compiler = lookup_backend(backend)
    if backend != "inductor" and not is_ours(compiler):
        given = with_arguments(compiler, mode, options)
        return (lambda: given), Options() if given is compiler else None
    chosen = make_options(mode, options)
    if compiler is eager:
        return (lambda: compiler), chosen
    if backend == "inductor":
        return functools.partial(inductor_backend, chosen), chosen
    return (functools.partial(aot_eager_backend, chosen) if compiler is aot_eager else lambda: compiler), chosen


def _of_type(text: str, *types: type) -> Kind:
    def take(value: Any) -> Any:
        if not isinstance(value, types):
            raise ValueError
        return value

    return Kind(text, take, types=types)


_KINDS = {
    "fullgraph": LENIENT_SWITCH,
    "disable": LENIENT_SWITCH,
    "isolate_recompiles": LENIENT_SWITCH,
    "dynamic": attrs.evolve(LENIENT_SWITCH, text="True, False or None"),
    "backend": _of_type("a name or a callable", str, Callable),  # type: ignore[arg-type]  # isinstance takes it
    "mode": _of_type("a str, the name of a mode", str),
    "options": _of_type("a dict of options", Mapping),
    "name": _of_type("a str", str),
    "recompile_limit": COUNT,
    "on_error": attrs.evolve(choice("raise", "eager"), text="'raise', 'eager' or None"),
}


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments as they are kept: 1 and 0 become True and False. None is what is not said, but of the first three."""
    needed = ("fullgraph", "disable", "isolate_recompiles")
    return {
        name: value
        if name not in _KINDS or (value is None and name not in needed)
        else _KINDS[name].check(name, value, BAD_ARGUMENT)
        for name, value in given.items()
    }


def reset() -> None:
    """Forget everything that was compiled and counted in this process; compiled callables compile anew."""
    for compilation in all_compilations():
        compilation.reset()
    recorded = sys.modules.get("torchjit_cudagraphs.record")
    if recorded is not None:
        recorded.reset()
    counters.clear()


@final
class replace_torch_compile:
    """Make `torch.compile` torchjit's, at once; in a `with` block until its end.

        torchjit.replace_torch_compile()             # from now on, in the whole process

        with torchjit.replace_torch_compile():       # in the block
            model.compile()

    `nn.Module.compile`, and libraries that call `torch.compile(...)`, use it too. A library that took the function itself
    (`from torch import compile`) before this call keeps what it took. What the program compiled before stays as it is.
    """

    def __init__(self) -> None:
        self._before: Any = torch.compile
        ours: Any = compile
        torch.compile = ours

    def __enter__(self) -> None:
        """Already replaced."""

    def __exit__(self, *error: object) -> None:
        """What stood there before is back, unless somebody else has put another function there meanwhile: that one stays, with a warning."""
        now: Any = torch.compile
        if now is compile:
            torch.compile = self._before
        elif now is not self._before and getattr(now, "__module__", None) != "torch":
            name = f"{getattr(now, '__module__', '?')}.{getattr(now, '__qualname__', told(now))}"
            warn_user(str(UserError(REPLACED_TWICE, name)))


upstream.watch(reset, stance.tell)
profiling.follow()
