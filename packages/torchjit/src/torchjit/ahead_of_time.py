"""Compile now, save into a file, and load that in processes that compile nothing: `aot_compile`, `AotCompiled.save`, `load_compiled`.

The file is a bundle of stored entries and kernels (`torchjit_store.bundles`) that says what it was made of. A process that loads it reads
entries from the file alone (`torchjit_store.carried`), verified as those in a folder are; what nothing fits is an error.
"""

from __future__ import annotations

import json
import os
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, final

import torch

from torchjit.backends import lookup_backend
from torchjit.compiler import compile_with
from torchjit.config import bundle_secret, config
from torchjit.exc import UserError
from torchjit_backends.later import LaterBackend
from torchjit_core.reasons import reason
from torchjit_core.storing import NotStorable, compiling_ahead
from torchjit_frame import FrontDoor
from torchjit_session.backend_calls import Backend
from torchjit_session.callables import compilation_of, compile_any
from torchjit_session.compilation import Compilation
from torchjit_session.modules import passed_on
from torchjit_session.settings import Host
from torchjit_session.site_keys import identity_parts, region_parts
from torchjit_session.specialization import Specialization
from torchjit_session.storing import Unstored
from torchjit_store import bundles
from torchjit_store.bundles import UNTRUSTED, BadBundle, CacheInfo, Untrusted
from torchjit_store.carried import CarriedEntries
from torchjit_store.key import process_parts
from torchjit_store.settings import StoreSettings

__all__ = ["AotCompiled", "aot_compile", "load_compiled"]

NOT_SAVED = reason(
    "TJ-STORE-063",
    "what was compiled ahead cannot be saved",
    "A part of it is not stored on disk, for the reason that the message names, or nothing was compiled at all.",
    "TORCHJIT_LOGS=store tells more. torchjit.compile in the other process works without a file.",
)
NOT_LOADED = reason(
    "TJ-STORE-064",
    "a file does not hold a compiled callable for this program",
    "torchjit.load_compiled takes what save() of torchjit.aot_compile has written, for the same function in the same code, with the same versions of Python, torch "
    "and torchjit, and for the same kind of processor.",
    "Make the file anew, in the image that loads it.",
)


@final
class AotCompiled:
    """What `aot_compile` returns. Calls of it compile what they need, backwards at once, until it is saved.

    Attributes:
        function: what is called: as what `torchjit.compile` returns.
    """

    def __init__(self, function: Any, compilation: Compilation) -> None:
        self.function = function
        self._compilation = compilation

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, with a backward for what needs gradients compiled at once."""
        with compiling_ahead():
            return self.function(*args, **kwargs)

    def save(self, path: str | os.PathLike[str], *, key: str | bytes | None = None) -> CacheInfo:
        """Write all that was compiled so far into a file, with the kernels.

        Args:
            path: replaced as a whole if it is there.
            key: a secret to sign it with. None is TORCHJIT_BUNDLE_KEY, if it is set.

        Returns:
            What is in it.

        Raises:
            UserError: a part of it cannot be stored.
            OSError: the file cannot be written.
        """
        parts = list(self._stored())
        paths = {unstored.path for unstored in parts if unstored.path is not None}
        root = self._compilation.root
        mine = [unstored for unstored in parts if unstored.parts["region"] == region_parts(root.region)]
        if not mine:
            raise UserError(NOT_SAVED, f"{root.name}: {root.given_up or 'nothing was compiled'}")
        about = {
            "process": process_parts(),
            "backend": mine[0].parts["backend"],
            "asked": {name: self._compilation.asked.get(name) for name in _ASKED},
            "root": {name: mine[0].parts[name] for name in ("region", "code")},
            "sites": {unstored.key: unstored.parts for unstored in parts},
            "eager": [region_parts(site.region) for site in self._compilation.sites if site.given_up is not None],
        }
        data, info = bundles.pack(paths, (), bundle_secret(key), about)
        if info.entries != len(paths):
            raise UserError(NOT_SAVED, "files of it have been removed from the cache folder; compile it anew")
        _replace(Path(path), data)
        return info

    def _stored(self) -> Iterator[Unstored]:
        for site in self._compilation.sites:
            for made in site.specializations:
                if made.used_up or made.forced is not None:
                    continue
                if not isinstance(made.unstored, Unstored) or made.unstored.path is None:
                    raise UserError(NOT_SAVED, f"{site.name}: {_why(made)}", site.location)
                yield made.unstored


_ASKED = ("fullgraph", "dynamic", "recompile_limit", "on_error", "name")
"""Keywords of `compile` that the process which loads needs."""


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
    made = AotCompiled(function, compilation)
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
    carried = _carried(Path(path), bundle_secret(key), trust=trust)
    _hold(carried, path)
    asked = carried.about["asked"]
    backend: Backend = LaterBackend(_never, carried.about["backend"])

    def start(
        function: types.FunctionType,
        label: str | None = None,
        forwarded: tuple[str, ...] | None = None,
        *,
        of_object: bool = False,
    ) -> FrontDoor:
        compilation = Compilation(
            function, backend, _host(StoreSettings("read", carried=carried)), fullgraph=bool(asked["fullgraph"]), dynamic=asked["dynamic"],
            recompile_limit=asked["recompile_limit"], on_error=asked["on_error"], name=asked["name"] or label, forwarded=forwarded or passed_on(function),
        )  # fmt: skip
        compilation.asked = {name: value for name, value in asked.items() if value}
        compilation.told = {"backend": "loaded from a file"}
        # An attribute for people: `f.compiled`.
        setattr(compilation.root.door, "compiled", compilation)  # noqa: B010
        return compilation.root.door

    loaded = compile_any(f, start, {})
    compilation = compilation_of(loaded)
    if compilation is not None:
        _compare(path, compilation, f, carried)
    return loaded


_KEYWORDS: dict[str, Any] = {
    "fullgraph": False, "dynamic": None, "backend": None, "mode": None, "options": None, "disable": False, "name": None, "recompile_limit": None,
    "isolate_recompiles": False, "dynamic_shapes": None, "on_error": None,
}  # fmt: skip
"""Of `compile`, as they are where nothing is said."""


def _host(store: StoreSettings) -> Host:
    return Host(config.snapshot, config.is_off, lookup_backend, lambda: store)


def _never() -> Backend:
    raise AssertionError("nothing is compiled for what was loaded from a file")


def _why(made: Specialization) -> str:
    return made.storage or "it was not stored"


def _replace(path: Path, data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.absolute().parent, prefix=f".{path.name}-", delete=False) as out:
        try:
            out.write(data)
            out.flush()
            os.chmod(out.name, 0o644)
            os.replace(out.name, path)
        except BaseException:
            os.unlink(out.name)
            raise


def _carried(path: Path, secret: bytes | None, *, trust: bool) -> CarriedEntries:
    """What a file holds, if it was made for processes like this one."""
    try:
        about, files = bundles.opened(path.read_bytes(), secret, trust=trust)
        if not isinstance(about, dict):
            raise BadBundle("it is a bundle of a cache folder: `torchjit cache import` takes it")
        carried = CarriedEntries(about, files)
    except Untrusted as error:
        raise UserError(UNTRUSTED, f"{path}: {error}") from None
    except BadBundle as error:
        raise UserError(NOT_LOADED, f"{path}: {error}") from None
    misfit = carried.misfit()
    if misfit:
        raise UserError(NOT_LOADED, f"{path}: {misfit}")
    return carried


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


def _compare(
    path: str | os.PathLike[str], compilation: Compilation, f: Callable[..., Any], carried: CarriedEntries
) -> None:
    """Is it the function that was compiled?

    Raises:
        UserError: it is another one, or was edited.
    """
    module = getattr(f, "_torchjit_original", f)
    slots = (module,) if isinstance(module, torch.nn.Module) else ()
    now: Any = json.loads(json.dumps(identity_parts(compilation.root, slots)))  # tuples are lists in a file
    was = carried.about["root"]
    here, there = _named(now), _named(was)
    if here != there:
        raise UserError(NOT_LOADED, f"{path} holds {there}, and not {here}")
    if (now["region"], now["code"]) != (was["region"], was["code"]):
        raise UserError(NOT_LOADED, f"{path}: {here} was edited since")


def _named(parts: Any) -> str:
    return ".".join(map(str, (parts["code"] or parts["region"])[:2]))
