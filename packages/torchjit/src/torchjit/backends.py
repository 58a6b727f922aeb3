"""The registry of backends: a backend takes a captured graph and example inputs and returns a callable."""

from __future__ import annotations

import contextlib
import importlib.metadata
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, final

import attrs
import torch
from torch.fx._lazy_graph_module import _LazyGraphModule

import torchjit_aot
from torchjit.exc import UserError, unknown_name
from torchjit_core.forks import new_lock
from torchjit_core.reasons import reason
from torchjit_core.turns import others_may_go_on

__all__ = [
    "Backend",
    "call_backend",
    "describe_backends",
    "is_ours",
    "list_backends",
    "lookup_backend",
    "register_backend",
]

Backend: TypeAlias = Callable[..., Callable[..., Any]]
"""`backend(gm, example_inputs) -> callable`; the callable takes the inputs positionally and returns a sequence."""

ENTRY_POINTS = "torch_dynamo_backends"
MISSING_PACKAGE = reason(
    "TJ-API-005",
    "the package of this backend is not installed",
    "The backend hands the graph to another compiler, which is a package of its own.",
    "Install the package that the message names, or choose one of torchjit.list_backends().",
)
RETIRED = reason(
    "TJ-API-006",
    "this backend is retired upstream",
    "Its makers stopped it; PyTorch itself took over what it did.",
    "Use backend='inductor'.",
)
NO_ADAPTER = reason(
    "TJ-API-007",
    "this backend registers itself with another package",
    "The package that holds the backend must register it under the entry-point group torch_dynamo_backends.",
    "Update the package, or pass its compiler function as backend=.",
)
RETURNS_NO_CALLABLE = reason(
    "TJ-API-008",
    "the backend returned nothing that can be called",
    "A backend is given a captured graph and example inputs, and returns what computes the graph.",
    "Return gm.forward to run the graph as it is, or a function of its inputs that returns a sequence of its outputs.",
)


@final
@attrs.frozen
class _Known:
    """A backend that another package brings."""

    package: str
    module: str
    retired: bool = False


_EXTERNAL = {
    "onnxrt": _Known("onnxruntime-training", "onnxruntime"),
    "openvino": _Known("openvino", "openvino"),
    "tensorrt": _Known("torch-tensorrt", "torch_tensorrt"),
    "tvm": _Known("apache-tvm", "tvm"),
    "ipex": _Known("intel-extension-for-pytorch", "intel_extension_for_pytorch", retired=True),
}
_TAGS: dict[str, tuple[str, ...]] = {}
_registered: dict[str, Backend] = {}


def register_backend(compiler: Backend | None = None, name: str | None = None, tags: Sequence[str] = ()) -> Any:
    """Register a backend under `name` (default: the function's name). Also a decorator."""
    if compiler is None:
        return lambda fn: register_backend(fn, name, tags)
    chosen = name or compiler.__name__
    _registered[chosen] = compiler
    _TAGS[chosen] = tuple(tags)
    return compiler


def list_backends(exclude_tags: Sequence[str] | None = ("debug", "experimental")) -> list[str]:
    """The names of the backends that can be used now, without those that carry one of `exclude_tags`."""
    names = {*_registered, *_entry_points()}
    excluded = set(exclude_tags or ())
    return sorted(n for n in names if excluded.isdisjoint(_TAGS.get(n, ())))


def describe_backends() -> list[tuple[str, bool, str]]:
    """Every backend: its name, whether it can be used now, and what it is or needs."""
    usable = list_backends(exclude_tags=None)
    rows = [(name, True, _text_of(name)) for name in sorted({*usable, "inductor"})]
    return rows + [
        (name, False, _unavailable(name, known).detail) for name, known in _EXTERNAL.items() if name not in usable
    ]


def _text_of(name: str) -> str:
    compiler = _registered.get(name)
    if compiler is None:
        point = _entry_points().get(name)
        return f"of the package {point.dist.name}" if point is not None and point.dist is not None else ""
    return (compiler.__doc__ or "").strip().partition("\n")[0]


def lookup_backend(backend: str | Backend) -> Backend:
    """The compiler function of a backend.

    Raises:
        UserError: the name is unknown (the nearest names are told), or its package is missing.
    """
    if not isinstance(backend, str):
        return backend
    if backend in _registered:
        return _registered[backend]
    points = _entry_points()
    if backend in points:
        loaded: Backend = points[backend].load()
        _registered[backend] = loaded
        return loaded
    if backend in _EXTERNAL:
        raise _unavailable(backend, _EXTERNAL[backend])
    raise unknown_name("backend", backend, [*_registered, *points, *_EXTERNAL])


def is_ours(compiler: Backend) -> bool:
    """Is it a backend of this package, and not one that somebody registered or passed?"""
    return getattr(compiler, "__module__", None) in ("torchjit.backends", "torchjit.pipeline")


def call_backend(compiler: Backend, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """What the backend makes of a graph. While one of somebody else works, other threads may capture; it is called once at a time.

    Raises:
        UserError: it returned nothing that can be called.
        Exception: whatever it raises.
    """
    if is_ours(compiler):
        return compiler(gm, example_inputs)
    with others_may_go_on(), _alone(compiler):
        made = compiler(gm, example_inputs)
    if not callable(made):
        name = getattr(compiler, "__qualname__", None) or type(compiler).__qualname__
        raise UserError(RETURNS_NO_CALLABLE, f"backend {name} returned {repr(made)[:200]}")
    return made


_locks: weakref.WeakKeyDictionary[Backend, Any] = weakref.WeakKeyDictionary()
_lock = new_lock()  # of backends that no dictionary takes
_inside = threading.local()


@contextlib.contextmanager
def _alone(compiler: Backend) -> Iterator[None]:
    """No other thread is in this backend. A thread that is in another one waits for nobody, who might be waiting for it."""
    if getattr(_inside, "any", False):
        yield
        return
    try:
        lock = _locks.setdefault(compiler, new_lock())
    except TypeError:  # it cannot be hashed or referred to weakly
        lock = _lock
    _inside.any = True
    try:
        with lock:
            yield
    finally:
        _inside.any = False


def _unavailable(name: str, known: _Known) -> UserError:
    if known.retired:
        return UserError(RETIRED, f"{name!r} (package {known.package})")
    try:
        importlib.metadata.distribution(known.package)
    except importlib.metadata.PackageNotFoundError:
        return UserError(MISSING_PACKAGE, f"backend {name!r} needs: pip install {known.package}")
    return UserError(NO_ADAPTER, f"{known.package} is installed but registers no backend {name!r}")


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


def aot_eager(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """AOT autograd, its graphs run by eager ops."""
    return torchjit_aot.compile(gm, example_inputs, compiler=torchjit_aot.run_eagerly)


register_backend(eager, tags=("debug",))
register_backend(aot_eager, tags=("debug",))
