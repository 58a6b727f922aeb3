"""What was compiled ahead of time: a file with all of it, and callables of another process over what such a file holds.

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

from torchjit_core.reasons import UserError, reason
from torchjit_core.storing import compiling_ahead
from torchjit_session.backend_calls import Backend
from torchjit_session.callables import compilation_of, compile_any, doors
from torchjit_session.compilation import Compilation
from torchjit_session.settings import Host
from torchjit_session.site_keys import identity_parts, region_parts
from torchjit_session.specialization import Specialization
from torchjit_session.storing import Unstored
from torchjit_store import bundles
from torchjit_store.bundles import UNTRUSTED, BadBundle, CacheInfo, Untrusted
from torchjit_store.carried import CarriedEntries
from torchjit_store.key import process_parts

__all__ = ["NOT_LOADED", "NOT_SAVED", "AotCompiled", "carried_by", "start_carried"]

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

    def __init__(
        self, function: Any, compilation: Compilation, secret: Callable[[str | bytes | None], bytes | None]
    ) -> None:
        """
        Args:
            function: see above.
            compilation: behind it.
            secret: what signs a file, of what `save` is given as `key`.
        """
        self.function = function
        self._compilation, self._secret = compilation, secret

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
        data, info = bundles.pack(paths, (), self._secret(key), about)
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


def carried_by(path: Path, secret: bytes | None, *, trust: bool) -> CarriedEntries:
    """What a file holds.

    Raises:
        UserError: it is damaged or something else, nobody vouches for it, or it was made for other processes than this one.
        OSError: it cannot be read.
    """
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


def start_carried(
    path: str | os.PathLike[str], f: Callable[..., Any], carried: CarriedEntries, backend: Backend, host: Host
) -> Any:
    """A callable over entries of a file.

    Args:
        path: of the file, for errors.
        f: what was compiled.
        carried: what `carried_by` gave, with its kernels loaded.
        backend: never called.
        host: whose store reads `carried` alone.

    Raises:
        UserError: the file is not for this function.
    """
    asked = carried.about["asked"]

    def make(
        function: types.FunctionType, label: str | None, forwarded: tuple[str, ...] | None, _: bool
    ) -> Compilation:
        return Compilation(
            function, backend, host, fullgraph=bool(asked["fullgraph"]), dynamic=asked["dynamic"], recompile_limit=asked["recompile_limit"],
            on_error=asked["on_error"], name=asked["name"] or label, forwarded=forwarded,
        )  # fmt: skip

    given = {name: value for name, value in asked.items() if value}
    loaded = compile_any(f, doors(make, given, {"backend": "loaded from a file"}), {})
    compilation = compilation_of(loaded)
    if compilation is not None:
        _compare(path, compilation, f, carried)
    return loaded


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
