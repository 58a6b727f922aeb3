"""What a site's entries on disk are found by: all that they depend on and that no guard of theirs checks."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs
import torch

from torchjit_core.reasons import reason
from torchjit_core.storing import NotStorable
from torchjit_session.function_marks import marks_of_nameless
from torchjit_session.settings import Settings
from torchjit_session.stance import current_stance, forced_backend
from torchjit_store.fingerprints import code_digest
from torchjit_torch.replicas import active_buckets

if TYPE_CHECKING:
    import torchjit_vm
    from torchjit_session.site import Site

__all__ = ["identity_parts", "key_parts", "region_parts"]

NO_IDENTITY = reason(
    "TJ-STORE-030",
    "a backend whose results are not stored",
    "Compiled entries are kept on disk for the backends `inductor` and `aot_eager`, without options that make graphs for the objects "
    "that they have seen, or that write folders of what they compile. What another backend does, nobody can tell in the next process.",
)
UNUSUAL = reason(
    "TJ-STORE-031",
    "compiled in an unusual way",
    "Compiled entries are kept on disk for calls of torchjit.compile in the default stance, without dynamic_shapes=.",
)
_SAYS_NOTHING = frozenset(
    {
        "recompile_limit", "accumulated_recompile_limit", "large_capture_nodes", "large_capture_seconds", "on_error", "caches",
        "store", "never_slower", "disable", "suppress_errors",
    }
)  # fmt: skip
"""Settings that no compiled code depends on."""


def key_parts(site: Site, slots: tuple[Any, ...]) -> dict[str, object]:
    """What tells this site's entries for such calls from others; JSON-able.

    Raises:
        NotStorable: nothing of it is stored.
    """
    terms = site.terms
    identity = getattr(terms.backend, "stored_as", None)
    if identity is None:
        raise NotStorable(NO_IDENTITY, _name_of(terms.backend))
    if current_stance() != "default" or forced_backend() is not None or site.owner.shapes is not None:
        raise NotStorable(UNUSUAL, site.name)
    return {
        "backend": identity,
        "fullgraph": terms.fullgraph,
        "dynamic": terms.dynamic,
        "settings": _settings(terms.settings),
        "marks": marks_of_nameless(),
        "flags": _flags(),
        **identity_parts(site, slots),
        "only_with_tensors": site.only_with_tensors,
        "buckets": active_buckets(),
    }


def _settings(settings: Settings) -> dict[str, object]:
    values = attrs.asdict(settings, recurse=False)
    return {
        name: sorted(map(_name_of, value)) if isinstance(value, set) else value
        for name, value in values.items()
        if name not in _SAYS_NOTHING
    }


def identity_parts(site: Site, slots: tuple[Any, ...]) -> dict[str, object]:
    """What a site is of. Of the slots only the first one is looked at, and only for modules: it is the module."""
    return {"region": region_parts(site.region), "code": _code_of_call(site, slots)}


def region_parts(region: torchjit_vm.Region) -> list[object]:
    """A region: module, qualified name, digest of its code, offset, and what it is entered with."""
    layout = [region.stack, region.locals, region.cells, region.handled, region.throwing, region.forwarded]
    name = region.globals.get("__name__")
    return [str(name), region.code.co_qualname, code_digest(region.code).hex(), region.offset, *layout]


def _code_of_call(site: Site, slots: tuple[Any, ...]) -> list[str]:
    """All modules start in the same method of torch: the class of this one, and the code of its `forward`."""
    code = site.code_of(slots)
    if code is site.region.code:
        return []
    cls = type(slots[0])
    return [cls.__module__, cls.__qualname__, code_digest(code).hex()]


def _name_of(obj: Any) -> str:
    """For a function of Python's with its code: two of them may have one name."""
    code = getattr(obj, "__code__", None)
    digest = code_digest(code).hex() if isinstance(code, types.CodeType) else ""
    return f"{getattr(obj, '__module__', None)}.{getattr(obj, '__qualname__', None) or type(obj).__qualname__} {digest}"


def _flags() -> dict[str, object]:
    """Of torch, beyond those that guards are about."""
    cudnn: Any = torch.backends.cudnn
    matmul: Any = torch.backends.cuda.matmul
    return {
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "deterministic warns": torch.is_deterministic_algorithms_warn_only_enabled(),
        "fills memory": _read(torch.utils.deterministic, "fill_uninitialized_memory"),
        "products": [_read(torch, "get_float32_matmul_precision", call=True), _read(matmul, "allow_tf32")],
        "cudnn": [_read(cudnn, name) for name in ("enabled", "benchmark", "deterministic", "allow_tf32")],
        "reduced": [
            str(_read(matmul, name))
            for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction", "allow_fp16_accumulation")
        ],
        "mkldnn": _read(torch.backends.mkldnn, "enabled"),
        "cpu": [_read(torch.backends.mkldnn, "deterministic"), _read(torch.backends.mkldnn, "allow_tf32")],
        "nnpack": _read(torch._C, "_get_nnpack_enabled", call=True),
    }  # fmt: skip


def _read(owner: Any, name: str, *, call: bool = False) -> object:
    """A flag; None where this torch has none, or refuses (old and new names of one setting have been mixed)."""
    try:
        value = getattr(owner, name)
        return value() if call else value
    except (AttributeError, RuntimeError):
        return None


def described(parts: Mapping[str, Any]) -> str:
    """For people: of which region."""
    return f"{parts['region'][0]}.{parts['region'][1]}"
