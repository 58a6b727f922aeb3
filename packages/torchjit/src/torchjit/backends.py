"""The registry of backends: a backend takes a captured graph and example inputs and returns a callable."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

import torch
from torch.fx._lazy_graph_module import _LazyGraphModule

from torchjit.environment import read_environment
from torchjit.exc import UserError, unknown_name, wrong_type
from torchjit_backends import later
from torchjit_backends.options import Options
from torchjit_backends.others import EXTERNAL
from torchjit_core import events
from torchjit_core.reasons import reason
from torchjit_session import upstream
from torchjit_session.backend_calls import Backend, aot_eager

__all__ = [
    "Backend",
    "describe_backends",
    "get_default_backend",
    "list_backends",
    "lookup_backend",
    "register_backend",
    "set_default_backend",
]

_B = TypeVar("_B", bound=Backend)

ENTRY_POINTS = "torch_dynamo_backends"
OTHER_NAME = reason(
    "TJ-API-042",
    "a backend of upstream's that has another name here",
    "It is for the development of upstream's compiler; what it does is covered by a backend of another name.",
    "Use the one that the message names.",
)
_INSTEAD = {
    "aot_eager_decomp_partition": "use 'aot_eager', which cuts the joint graph in the same way, without decompositions",
    "aot_eager_default_partitioner": "use 'aot_eager'",
    "aot_ts": "TorchScript is retired; use 'inductor'",
    "eager_debug": "use 'eager'",
    "eager_noexcept": "use 'eager' with on_error='raise'",
    "pre_dispatch_eager": "use 'eager'",
    "torch_tensorrt": "use 'tensorrt'",
}
_TAGS: dict[str, tuple[str, ...]] = {}
_registered: dict[str, Backend] = {}


@overload
def register_backend(compiler_fn: _B, name: str | None = None, tags: Sequence[str] = ()) -> _B: ...
@overload
def register_backend(
    compiler_fn: None = None, name: str | None = None, tags: Sequence[str] = ()
) -> Callable[[_B], _B]: ...
def register_backend(compiler_fn: Backend | None = None, name: str | None = None, tags: Sequence[str] = ()) -> Any:
    """Register a backend under `name` (default: the function's name). Also a decorator."""
    if compiler_fn is None:
        return lambda fn: register_backend(fn, name, tags)
    if not callable(compiler_fn):
        raise wrong_type("compiler_fn", compiler_fn, "a function; a name goes into name=")
    if name is not None and not isinstance(name, str):
        raise wrong_type("name", name, "a str")
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise wrong_type("tags", tags, "a list of strings")
    chosen = name or str(getattr(compiler_fn, "__name__", type(compiler_fn).__name__))
    _registered[chosen] = compiler_fn
    _TAGS[chosen] = tuple(tags)
    return compiler_fn


def list_backends(exclude_tags: Sequence[str] | None = ("debug", "experimental")) -> list[str]:
    """The names of the backends that can be used now, without those that carry one of `exclude_tags`."""
    if exclude_tags is not None and (isinstance(exclude_tags, str) or not isinstance(exclude_tags, Iterable)):
        raise wrong_type("exclude_tags", exclude_tags, "a list of tags")
    tags = {**dict.fromkeys(_entry_points(), ()), **{n: t for n, (_, t) in upstream.backends().items()}}
    tags.update({name: _TAGS.get(name, ()) for name in _registered})
    tags.update({name: () for name, known in EXTERNAL.items() if name not in tags and known.is_there()})
    excluded = set(exclude_tags or ())
    return sorted(n for n, carried in tags.items() if excluded.isdisjoint(carried))


def describe_backends() -> list[tuple[str, bool, str]]:
    """Every backend: its name, whether it can be used now, and what it is or needs."""
    usable = list_backends(exclude_tags=None)
    rows = [(name, True, _text_of(name)) for name in sorted({*usable, "inductor"})]
    return rows + [(name, False, known.refusal(name).detail) for name, known in EXTERNAL.items() if name not in usable]


def _text_of(name: str) -> str:
    compiler = _registered.get(name)
    if compiler is None and name in EXTERNAL and EXTERNAL[name].is_there():
        return f"of the package {EXTERNAL[name].package.partition(' ')[0]}"
    if compiler is None:
        point = _entry_points().get(name)
        return f"of the package {point.dist.name}" if point is not None and point.dist is not None else ""
    return (compiler.__doc__ or "").strip().partition("\n")[0]


def lookup_backend(compiler_fn: str | Backend) -> Backend:
    """The compiler function of a backend.

    Raises:
        UserError: the name is unknown (the nearest names are told), or its package is missing.
    """
    if not isinstance(compiler_fn, str):
        if not callable(compiler_fn):
            raise wrong_type("backend", compiler_fn, "a name or a callable")
        return compiler_fn
    if compiler_fn in _registered:
        return _registered[compiler_fn]
    known = EXTERNAL.get(compiler_fn)
    if known is not None and known.is_there():
        _registered[compiler_fn] = known.load(compiler_fn)
        return _registered[compiler_fn]
    theirs = upstream.backends()
    if compiler_fn in theirs:
        return theirs[compiler_fn][0]
    points = _entry_points()
    if compiler_fn in points:
        _registered[compiler_fn] = points[compiler_fn].load()
        return _registered[compiler_fn]
    if known is not None:
        raise known.refusal(compiler_fn)
    if compiler_fn in _INSTEAD:
        raise UserError(OTHER_NAME, f"{compiler_fn!r}: {_INSTEAD[compiler_fn]}")
    raise unknown_name("backend", compiler_fn, [*_registered, *theirs, *points, *EXTERNAL])


def set_default_backend(backend: str | Backend | None) -> None:
    """What `compile` uses where no backend is given; None: upstream's default if one is set there, else `inductor`.

    Raises:
        UserError: it is no backend; the nearest names are told.
    """
    global _default
    if backend is not None and not isinstance(backend, str) and not callable(backend):
        raise wrong_type("backend", backend, "a name or a callable")
    if backend is not None:
        lookup_backend(backend)
    _default = backend


def get_default_backend() -> str | Backend:
    """What `compile` uses where no backend is given: `inductor`, if nothing else was set."""
    return _default or upstream.default_backend() or "inductor"


_default: str | Backend | None = None


def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    # A backend that torch ships under this group is one of those that torchjit replaces.
    return {
        p.name: p
        for p in importlib.metadata.entry_points(group=ENTRY_POINTS)
        if not p.value.startswith("torch.") and p.name not in _registered
    }


def eager(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Run the captured graph as it is."""
    _LazyGraphModule.force_recompile(gm)  # now, not in the first call
    return gm.forward


def inductor(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The default backend with default options."""
    return inductor_backend(Options())(gm, example_inputs)


def inductor_backend(options: Options) -> Backend:
    """The backend `inductor` under these options. Where kernels go is decided now."""
    # Imported here: an import of torchjit needs no kernels.
    from torchjit.kernels import kernel_settings  # noqa: PLC0415

    backend = later.inductor_backend(options, kernel_settings())
    return _traced(backend, options) if options.trace or options.graph_diagram else backend


def _traced(backend: Backend, options: Options) -> Backend:
    """The backend, with a debug folder for each compilation."""
    from torchjit_report.folder import writer_of_this_process  # noqa: PLC0415  for those who ask

    @functools.wraps(backend)
    def traced(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        files = writer_of_this_process(read_environment().debug_dir or Path("torchjit_debug"))
        assert files.wanted is not None  # for the type checker: this one is told
        files.wanted[events.current_compile_id()] = (options.trace, options.graph_diagram)
        return backend(gm, example_inputs)

    vars(traced)["stored_as"] = None  # what is loaded from disk is not compiled, and would leave no folder
    return traced


def cudagraphs(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """AOT autograd with eager ops, its graphs recorded as CUDA graphs."""
    # Imported here for the same reason.
    from torchjit_backends import pipeline  # noqa: PLC0415

    return pipeline.cudagraphs(gm, example_inputs)


register_backend(eager, tags=("debug",))
register_backend(aot_eager, tags=("debug",))
register_backend(inductor)
register_backend(cudagraphs)
