"""Compile now, save into a file, and load that in processes that compile nothing: see `torchjit_session.ahead`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchjit.backends import lookup_backend
from torchjit.compiler import compile_with
from torchjit.config import bundle_secret, config
from torchjit.exc import UserError
from torchjit_backends.later import LaterBackend
from torchjit_core.storing import NotStorable
from torchjit_session.ahead import NOT_LOADED, NOT_SAVED, AotCompiled, carried_by, start_carried
from torchjit_session.backend_calls import Backend
from torchjit_session.callables import compilation_of
from torchjit_session.settings import Host
from torchjit_store.carried import CarriedEntries
from torchjit_store.settings import StoreSettings

__all__ = ["AotCompiled", "aot_compile", "load_compiled"]


def aot_compile(f: Callable[..., Any], /, *args: Any, **kwargs: Any) -> AotCompiled:
    """Compile a function, method or module for such arguments: the forward, and at once the backward where gradients are needed.

    It is called once, as every first call does: what it writes is written, and its result is dropped. Call what this returns with
    arguments of other kinds to compile for these too, then `save` it.

    Args:
        f: as for `torchjit.compile`. What `torchjit.compile(f, ...)` returned is compiled with the same keywords.
        args, kwargs: of the call.

    Raises:
        UserError: nothing is compiled: torchjit is disabled, or for `f` at least.
    """
    # Imported here: what loads a file compiles no kernels.
    from torchjit.kernels import kernel_settings  # noqa: PLC0415

    known = compilation_of(f)
    keywords = {**_KEYWORDS, **({} if known is None else known.asked), "isolate_recompiles": True}
    store = StoreSettings("on", kernel_settings().cache_dir, anew=True)
    function = compile_with(_host(store), f, keywords)
    compilation = compilation_of(function)
    if compilation is None:
        raise UserError(NOT_SAVED, "torchjit is disabled here, or for this function")
    made = AotCompiled(function, compilation, bundle_secret)
    made(*args, **kwargs)
    return made


def load_compiled(
    path: str | os.PathLike[str], f: Callable[..., Any], *, key: str | bytes | None = None, trust: bool = False
) -> Any:
    """A callable that `AotCompiled.save` has written, for the same `f` in this process.

    Nothing is captured or compiled for it, here or in its calls, and nothing is written to disk. A call that nothing in the file fits
    raises `torchjit.exc.NotCompiledAhead`, which says why. The file is code that this process will run.

    Args:
        path: of the file.
        f: what was compiled: the function, method or module, whose parameters are used. What was edited since is refused.
        key: the secret that the file was signed with. None is TORCHJIT_BUNDLE_KEY.
        trust: take it without a signature: only what you would run.

    Returns:
        As `torchjit.compile(f)`: a callable with the same signature, or a module that shares everything with `f`.

    Raises:
        UserError: the file is damaged or something else, nobody vouches for it, or it is not for this function or process.
        OSError: it cannot be read.
    """
    carried = carried_by(Path(path), bundle_secret(key), trust=trust)
    _hold(carried, path)
    backend = LaterBackend(_never, carried.about["backend"])
    return start_carried(path, f, carried, backend, _host(StoreSettings("read", carried=carried)))


_KEYWORDS: dict[str, Any] = {
    "fullgraph": False, "dynamic": None, "backend": None, "mode": None, "options": None, "disable": False, "name": None, "recompile_limit": None,
    "isolate_recompiles": False, "dynamic_shapes": None, "on_error": None,
}  # fmt: skip
"""Of `compile`, as they are where nothing is said."""


def _host(store: StoreSettings) -> Host:
    return Host(config.snapshot, config.is_off, lookup_backend, lambda: store)


def _never() -> Backend:
    raise AssertionError("nothing is compiled for what was loaded from a file")


def _hold(carried: CarriedEntries, path: str | os.PathLike[str]) -> None:
    """Load the kernels."""
    if not carried.libraries:
        return
    # Imported here: what has no kernels needs nothing that loads them.
    from torchjit_inductor.cpp.stored_kernels import hold_library  # noqa: PLC0415

    try:
        for name, (library, noted) in carried.libraries.items():
            hold_library(name, library, noted)
    except NotStorable as error:
        raise UserError(NOT_LOADED, f"{path}: {error.detail}") from None
