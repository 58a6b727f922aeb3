"""What a site's entries on disk are found by: all that they depend on and that no guard of theirs checks.

But for what a program says of functions (`allow_in_graph`, `disallow_in_graph` ...): an entry holds what was said of those that its capture asked
about, so that what is said of others does not count. Objects that have no name of their own are in the key of all entries.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, final

import attrs
import torch

from torchjit_core.reasons import reason
from torchjit_core.storing import NotStorable
from torchjit_session import control, upstream
from torchjit_session.settings import Settings
from torchjit_session.stance import current_stance, forced_backend
from torchjit_store.deferred import Deferred
from torchjit_store.fingerprints import class_name, code_digest, namespace
from torchjit_torch.replicas import active_buckets

if TYPE_CHECKING:
    import torchjit_vm
    from torchjit_session.site_facts import SiteFacts

__all__ = ["Marks", "differing", "identity_parts", "key_parts", "name_of", "region_parts", "said_now", "short_name"]

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


def key_parts(site: SiteFacts, slots: tuple[Any, ...]) -> dict[str, object]:
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
        "marks": _marks_of_nameless(),
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


def identity_parts(site: SiteFacts, slots: tuple[Any, ...]) -> dict[str, object]:
    """What a site is of. Of the slots only the first one is looked at, and only for modules: it is the module."""
    return {"region": region_parts(site.region), "code": _code_of_call(site, slots)}


def region_parts(region: torchjit_vm.Region) -> list[object]:
    """A region: module, qualified name, digest of its code, offset, and what it is entered with."""
    layout = [region.stack, region.locals, region.cells, region.handled, region.throwing, region.forwarded]
    name = region.globals.get("__name__")
    return [str(name), region.code.co_qualname, code_digest(region.code).hex(), region.offset, *layout]


def _code_of_call(site: SiteFacts, slots: tuple[Any, ...]) -> list[str]:
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


# ------------------------------------------------------------------------------------------ what is said of functions


@final
@attrs.frozen(eq=False, repr=False)
class Marks:
    """Of an entry.

    Attributes:
        said: what the program said of functions that the capture asked about, by name.
        others: digests of the names of those of which it said nothing.
    """

    said: Mapping[str, tuple[str, ...]]
    others: Deferred[tuple[str, ...]]


def differing(marks: Marks) -> str | None:
    """Of which function this process says something else than the one of an entry; None: of none.

    Raises:
        Exception: the entry is damaged.
    """
    said = said_now()
    for name, was in marks.said.items():
        if said.get(name) != was:
            return f"{name.partition(' ')[0]} was marked ({', '.join(was)}), and is not, or otherwise"
    new = said.keys() - marks.said.keys()
    others = frozenset(marks.others.get()) if new else frozenset()
    found = next((name for name in sorted(new) if short_name(name) in others), None)
    return None if found is None else f"{found.partition(' ')[0]} is marked ({', '.join(said[found])}), and was not"


def _marks_of_nameless() -> list[str]:
    """What is said of objects that no name tells from others of their class, and how many functions upstream's `allow_in_graph` was given."""
    found = [f"{kind} {_class_of(fn)}" for kind, fn in _each() if name_of(fn) is None]
    return [*sorted(found), str(upstream.marked_count())]


def said_now() -> dict[str, tuple[str, ...]]:
    """By name, for what has one."""
    found: dict[str, set[str]] = {}
    for kind, function in _each():
        name = name_of(function)
        if name is not None:
            found.setdefault(name, set()).add(kind)
    return {name: tuple(sorted(kinds)) for name, kinds in found.items()}


def _each() -> Iterator[tuple[str, object]]:
    """What was said, and of what."""
    kinds = {
        "in graph": control.ALLOWED_IN_GRAPH,
        "constant": control.CONSTANT_RESULTS - control.OWN_CONSTANTS,
        "disallowed": control.DISALLOWED,
        "forbidden": control.FORBIDDEN,
    }
    for kind, functions in kinds.items():
        for function in tuple(functions):
            yield kind, function
    for function, substitute in {**control.SUBSTITUTED, **upstream.substitutes()}.items():
        meant = getattr(substitute, "function", substitute)
        yield f"{_class_of(substitute)} {name_of(meant) or _class_of(meant)}", function


def name_of(obj: Any) -> str | None:
    """Module and qualified name, of a function of Python's with its code: two of them may have one name. None for what has no name of its own.

    No code of the program runs.
    """
    exact = type(obj)
    if exact is types.FunctionType:
        return f"{obj.__module__}.{obj.__qualname__} {code_digest(obj.__code__).hex()}"
    if issubclass(exact, type):
        return class_name(obj)
    if exact in _OF_C:
        return f"{class_name(exact)} {getattr(obj, '__module__', None)}.{obj.__qualname__}"
    name = namespace(obj).get("__qualname__")  # of an operator of torch's
    return f"{class_name(exact)} {name}" if type(name) is str else None


_OF_C = frozenset(
    {
        types.BuiltinFunctionType,
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.ClassMethodDescriptorType,
        types.GetSetDescriptorType,
    }
)
"""Types of C whose objects have a name that no code of a program gives."""


def _class_of(obj: object) -> str:
    return class_name(type(obj))


def short_name(name: str) -> str:
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
