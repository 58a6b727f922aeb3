"""What an object of another process must be: digests of what its identity vouches for.

Within one process a guard `f is that function` says all about it; in another process it says nothing. So what an entry refers to
is described here: the text of the object itself, and its *parts* (a property's getter, a default that is no atom), which are
objects with descriptions of their own. What can change during a process (cells, lists, dicts, instances) has no content here:
the guards read it through access paths, in every process anew.

Nothing here runs code of the user: exact types, raw `__dict__`s, no descriptor of a Python class.
"""

from __future__ import annotations

import datetime
import enum
import functools
import hashlib
import inspect
import operator
import re
import struct
import types
import weakref
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any, TypeAlias, cast, final

import attrs

from torchjit_core.reasons import reason
from torchjit_core.storing import NotStorable

__all__ = [
    "Description",
    "Step",
    "atom_text",
    "class_name",
    "code_digest",
    "describe",
    "fingerprint",
    "is_static",
    "module_name",
    "mro",
    "namespace",
    "wrapped_by",
]

OPAQUE = reason(
    "TJ-STORE-020",
    "an entry relies on an object whose content cannot be told",
    "A compiled entry is kept on disk with a description of each object that it relies on, so that a changed one is noticed. "
    "Objects of this type keep their content in C, and torchjit does not know how to read it.",
    "Pass the object as an argument, or keep it out of the compiled code.",
)

Step: TypeAlias = "tuple[str, Any]"
"""How to go from an object to one that it holds: a name in `steps.STEPS`, and a key."""


@final
@attrs.frozen(repr=False)
class Description:
    """What an object is.

    Attributes:
        text: of the object without its parts.
        parts: other objects that it holds for ever, and how to get at them.
    """

    text: str
    parts: tuple[tuple[Step, Any], ...] = ()

    def digest(self) -> str:
        return hashlib.blake2b(self.text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def fingerprint(obj: object) -> str:
    """The digest of an object's own description: parts that are no atoms count by their place only.

    Raises:
        NotStorable: the object's content cannot be told.
    """
    return describe(obj).digest()


def describe(obj: object) -> Description:
    """What an object is.

    Raises:
        NotStorable: the object's content cannot be told.
    """
    exact = type(obj)
    rule = _RULES.get(exact) if type(exact) is type else None
    if rule is not None:
        return rule(obj)
    text = atom_text(obj)
    if text is not None:
        return Description(text)
    if issubclass(exact, type):
        return _of_class(cast(type, obj))
    return _of_instance(obj)


_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented)})
_TORCH_ATOMS = frozenset({"dtype", "device", "layout", "memory_format", "Size", "iinfo", "finfo", "qscheme"})
"""Classes of C whose `repr` is all that there is to a value."""
_LONG = 1 << 64


def atom_text(obj: object) -> str | None:
    """The text of a value whose type and value are all there is to it; None for other objects."""
    exact = type(obj)
    if type(exact) is not type:  # another metaclass, which may hash and compare in its own way
        return None
    if exact in _ATOMS:
        if exact is int and not -_LONG < obj < _LONG:  # type: ignore[operator]  # an int, whose `repr` may be refused
            return f"int:{obj:x}"
        return f"{exact.__name__}:{obj!r}"
    if is_static(exact) and exact.__module__ == "torch" and exact.__name__ in _TORCH_ATOMS:
        return f"{exact.__name__}:{obj!r}"
    return None


# --- reading past what classes define ------------------------------------------------------------------------------------

_HEAP = 1 << 9
"""Of `Py_TPFLAGS`: the class was made by a `class` statement, or by C in the same manner."""
_class_flags: Callable[[type], int] = type.__dict__["__flags__"].__get__
_class_dict: Callable[[type], Mapping[str, Any]] = type.__dict__["__dict__"].__get__
_class_mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_class_module: Callable[[type], Any] = type.__dict__["__module__"].__get__
_class_qualname: Callable[[type], str] = type.__dict__["__qualname__"].__get__
_class_base: Callable[[type], type] = type.__dict__["__base__"].__get__
_class_basicsize: Callable[[type], int] = type.__dict__["__basicsize__"].__get__
_class_bases: Callable[[type], tuple[type, ...]] = type.__dict__["__bases__"].__get__
_module_dict: Callable[[Any], dict[str, Any]] = type.__dict__["__dict__"].__get__(types.ModuleType)["__dict__"].__get__


def wrapped_by(obj: object) -> Any:
    """The `__wrapped__` of a wrapper, also of one that has it in a slot.

    Raises:
        LookupError: it is none.
    """
    own = namespace(obj)
    if "__wrapped__" in own:
        return own["__wrapped__"]
    member = namespace(type(obj)).get("__wrapped__")
    if type(member) is not types.MemberDescriptorType:
        raise LookupError("__wrapped__")
    return member.__get__(obj)


def is_static(cls: type) -> bool:
    """Is it a class of C of which there is one in each process, and which nothing changes?"""
    return not _class_flags(cls) & _HEAP


def mro(cls: type) -> tuple[type, ...]:
    """`cls.__mro__`, past the metaclass."""
    return _class_mro(cls)


def class_name(cls: type) -> str:
    """Module and qualified name, past the metaclass."""
    module = _class_module(cls)
    if type(module) is not str:
        module = "?"
    return f"{'__main__' if module == '__mp_main__' else module}.{_class_qualname(cls)}"


_OF_C = (types.GetSetDescriptorType, types.MemberDescriptorType)


def namespace(obj: Any) -> Mapping[str, Any]:
    """The `__dict__` of a module, class, function or instance, read past all that a class may define; empty if there is none."""
    exact = type(obj)
    if issubclass(exact, type):
        return _class_dict(obj)
    if issubclass(exact, types.ModuleType):
        return _module_dict(obj)
    for cls in _class_mro(exact):
        getter = _class_dict(cls).get("__dict__")
        if getter is not None:
            found: Mapping[str, Any] = getter.__get__(obj) if type(getter) in _OF_C else {}
            return found
    return {}


# --- code ----------------------------------------------------------------------------------------------------------------

_digests: dict[int, tuple[weakref.ref[CodeType], bytes]] = {}


def code_digest(code: CodeType) -> bytes:
    """The digest of a code object: all of it but its file name, and lines counted from its own first line."""
    key = id(code)
    known = _digests.get(key)
    if known is not None and known[0]() is code:
        return known[1]
    digest = hashlib.blake2b(digest_size=16)
    for part in _code_parts(code):
        digest.update(len(part).to_bytes(4, "little"))
        digest.update(part)
    made = digest.digest()
    _digests[key] = weakref.ref(code, lambda _: _digests.pop(key, None)), made
    return made


def _code_parts(code: CodeType) -> Iterator[bytes]:
    yield code.co_code  # as compiled: without caches and specialised instructions
    yield code.co_linetable  # in steps from the first line
    yield code.co_exceptiontable
    numbers = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    names = code.co_qualname, code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars
    yield repr((numbers, names)).encode("utf-8", "surrogatepass")
    for constant in code.co_consts:
        yield _constant(constant, code.co_firstlineno)


def _constant(value: Any, first_line: int) -> bytes:
    exact: type = type(value)
    if exact is CodeType:
        offset: int = value.co_firstlineno - first_line
        return b"code:" + code_digest(value) + offset.to_bytes(4, "little", signed=True)
    if exact is tuple:
        return b"(" + b"".join(map(_sized, (_constant(v, first_line) for v in value))) + b")"
    if exact is frozenset:
        return b"{" + b"".join(map(_sized, sorted(_constant(v, first_line) for v in value))) + b"}"
    text = atom_text(value)
    if text is None:
        raise NotStorable(OPAQUE, f"a constant of {class_name(exact)} in code")  # a program put the code together
    return text.encode("utf-8", "surrogatepass")


def _sized(text: bytes) -> bytes:
    return len(text).to_bytes(4, "little") + text


# --- what holds other objects for ever -----------------------------------------------------------------------------------


def _holding(kind: str, held: Iterable[tuple[Step, Any]]) -> Description:
    """The description of an object that holds others: atoms among them go into the text."""
    texts, parts = [kind], []
    for step, value in held:
        text = atom_text(value)
        texts.append(f"{step[0]} {step[1]!r} {'.' if text is None else text}")
        if text is None:
            parts.append((step, value))
    return Description("\0".join(texts), tuple(parts))


def _attributes(*names: str) -> Callable[[Any], Description]:
    """The rule for a type of C with these attributes."""

    def rule(obj: Any) -> Description:
        return _holding(class_name(type(obj)), ((("attr", name), getattr(obj, name)) for name in names))

    return rule


def module_name(globals: Mapping[str, Any]) -> str:
    """The name of a module's dict. The main module of a process that `multiprocessing` starts goes by two names."""
    name = globals.get("__name__")
    if type(name) is not str:
        return "?"
    return "__main__" if name == "__mp_main__" else name


def _of_function(function: FunctionType) -> Description:
    kind = f"function in {module_name(function.__globals__)}"
    code = ("code", None), function.__code__
    own = function.__dict__
    if function.__defaults__ is None and function.__kwdefaults__ is None and not own:
        return Description(kind, (code,))
    held: list[tuple[Step, Any]] = [code]
    held += [(("entry", name), own[name]) for name in _WRAPPED if name in own]
    kind += "".join(f" {name} {_mark(own[name])}" for name in _MARKS if name in own)
    held += [(("default", i), v) for i, v in enumerate(function.__defaults__ or ())]
    held += [(("kwdefault", name), v) for name, v in (function.__kwdefaults__ or {}).items()]
    return _holding(kind, held)


_WRAPPED = ("__wrapped__", "__signature__")
"""What `inspect.signature` follows."""
_MARKS = (
    "_torchjit_disabled", "_torchjit_alone", "_torchdynamo_disable", "_torchdynamo_disable_msg", "_torchdynamo_disable_recursive",
    "_torchdynamo_inline", "_dynamo_marked_constant",
)  # fmt: skip
"""How a program says of a function that it is not captured, or in another way."""


def _mark(value: object) -> str:
    return atom_text(value) or class_name(type(value))


def _of_tuple(value: Any) -> Description:
    return _holding(class_name(type(value)), ((("item", i), v) for i, v in enumerate(tuple.__iter__(value))))


def _of_frozenset(value: frozenset[Any]) -> Description:
    texts = sorted(text for text in map(atom_text, value) if text is not None)
    parts = tuple((("member", None), v) for v in value if atom_text(v) is None)
    return Description("\0".join(["frozenset", str(len(value)), *texts]), parts)


def _of_partial(value: functools.partial[Any]) -> Description:
    held: list[tuple[Step, Any]] = [(("attr", "func"), value.func)]
    held += [(("partial_arg", i), v) for i, v in enumerate(value.args)]
    held += [(("partial_keyword", name), v) for name, v in value.keywords.items()]
    return _holding("partial", held)


_CAPSULE = type(datetime.datetime_CAPI)


def _of_builtin(value: types.BuiltinFunctionType) -> Description:
    owner = value.__self__
    if owner is None or issubclass(type(owner), types.ModuleType):
        return Description(f"builtin {value.__module__} {value.__name__}")
    cls = cast(type, owner) if issubclass(type(owner), type) else None  # not what it says of its class
    if type(owner) is _CAPSULE or (cls is not None and is_static(cls)):
        where = class_name(type(owner) if cls is None else cls)
        return Description(f"builtin {where} {value.__module__} {value.__name__}")  # of a C library: nothing changes it
    return _holding(f"builtin {value.__name__}", [(("attr", "__self__"), owner)])


def _of_descriptor(value: Any) -> Description:
    return Description(f"{class_name(type(value))} {class_name(value.__objclass__)} {value.__name__}")


def _without_content(value: object) -> Description:
    """Guards read the content through paths."""
    return Description(f"a {class_name(type(value))}")


def _of_signature(value: inspect.Signature) -> Description:
    return _holding("signature", ((("parameter", n), p) for n, p in value.parameters.items()))


def _of_parameter(value: inspect.Parameter) -> Description:
    return _holding(f"parameter {value.name} {int(value.kind)}", [(("attr", "default"), value.default)])


def _of_reduced(value: Any) -> Description:
    """`operator.itemgetter` and its like: `__reduce__` tells all of their content."""
    held = value.__reduce__()[1]
    return _holding(class_name(type(value)), ((("reduced", i), v) for i, v in enumerate(held)))


def _of_own_dict(value: Any) -> Description:
    """Descriptors written in Python whose instances never change."""
    own = namespace(value)
    return _holding(class_name(type(value)), ((("entry", n), v) for n, v in own.items() if n not in _NO_CONTENT))


_NO_CONTENT = frozenset({"lock", "__doc__", "__annotations__", "__type_params__"})


def _of_alias(value: Any) -> Description:
    return _holding("alias", ((("alias_arg", i), v) for i, v in enumerate(value.__args__)))


def _of_generic_alias(value: Any) -> Description:
    held: list[tuple[Step, Any]] = [(("attr", "__origin__"), value.__origin__)]
    return _holding("generic alias", held + [(("alias_arg", i), v) for i, v in enumerate(value.__args__)])


def _of_repr(value: Any) -> Description:
    return Description(f"{class_name(type(value))}:{value!r}")


_FIELD: type = type(vars(namedtuple("_Pair", "first"))["first"])
"""Of what a named tuple's class has for a field."""

_RULES: dict[type, Callable[[Any], Description]] = {
    FunctionType: _of_function,
    CodeType: lambda code: Description(code_digest(code).hex()),
    tuple: _of_tuple,
    frozenset: _of_frozenset,
    slice: _attributes("start", "stop", "step"),
    range: _of_repr,
    property: _attributes("fget", "fset", "fdel"),
    staticmethod: _attributes("__func__"),
    classmethod: _attributes("__func__"),
    types.MethodType: _attributes("__func__", "__self__"),
    types.MethodWrapperType: _attributes("__name__", "__self__"),
    functools.partial: _of_partial,
    types.BuiltinFunctionType: _of_builtin,
    types.MethodDescriptorType: _of_descriptor,
    types.WrapperDescriptorType: _of_descriptor,
    types.ClassMethodDescriptorType: _of_descriptor,
    types.GetSetDescriptorType: _of_descriptor,
    types.MemberDescriptorType: _of_descriptor,
    types.CellType: _without_content,
    types.MappingProxyType: _without_content,
    inspect.Signature: _of_signature,
    inspect.Parameter: _of_parameter,
    _FIELD: _of_reduced,
    operator.itemgetter: _of_reduced,
    operator.attrgetter: _of_reduced,
    operator.methodcaller: _of_reduced,
    functools._lru_cache_wrapper: _of_own_dict,
    functools.cached_property: _of_own_dict,
    functools.partialmethod: _of_own_dict,
    types.GenericAlias: _of_generic_alias,
    types.UnionType: _of_alias,
    re.Pattern: _attributes("pattern", "flags"),
}


# --- classes and instances -----------------------------------------------------------------------------------------------

_STABLE_FLAGS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 9, 10, 14, 17, 23, *range(24, 32)))
"""Of `Py_TPFLAGS`: managed dict and weak references, sequence, mapping, no instances, immutable, heap type, base, collected,
method descriptor, items at the end, and those of fast subclass checks. Others change while a program runs."""

_LAYOUT = [type.__dict__[f"__{name}__"].__get__ for name in ("basicsize", "itemsize", "dictoffset", "weakrefoffset")]

_CONTAINERS = frozenset(
    {
        object,
        list,
        dict,
        set,
        bytearray,
        OrderedDict,
        defaultdict,
        deque,
        types.ModuleType,
        types.SimpleNamespace,
        weakref.ReferenceType,
    }
)
"""Classes of C whose instances' content guards read through paths, as they do for instances of Python classes above them."""


def _of_class(cls: type) -> Description:
    """Metaclass, bases and layout. What its namespace holds is guarded name by name."""
    layout = [getter(cls) for getter in _LAYOUT], _class_flags(cls) & _STABLE_FLAGS
    bases = ",".join(map(class_name, _class_bases(cls)))
    return Description(f"class\0{class_name(type(cls))}\0{class_name(cls)}\0{bases}\0{layout}")


def _of_instance(obj: Any) -> Description:
    exact = type(obj)
    chain = _class_mro(exact)
    if issubclass(type(exact), enum.EnumMeta):
        own = namespace(obj)
        return _holding(class_name(exact), ((("entry", n), own.get(n)) for n in ("_name_", "_value_")))
    if issubclass(exact, tuple):
        return _of_tuple(obj)
    if issubclass(exact, property):
        return _of_property(obj)
    solid: Any = _solid(exact)
    if solid in _ATOMS:
        return Description(f"{class_name(exact)}\0{solid.__repr__(obj)}")
    if solid in _CONTAINERS or issubclass(exact, BaseException):
        return _without_content(obj)
    if class_name(exact) == _DOOR:
        return _holding(_DOOR, ((("wrapped", None), wrapped_by(obj)),))
    found = _of_library(obj, {class_name(cls) for cls in chain})
    if found is None:
        raise NotStorable(OPAQUE, f"an instance of {class_name(exact)}")
    return found


_DOOR = "torchjit_frame.FrontDoor"
"""A compiled function: for whoever captures a call of it, the function that it stands for."""


def _of_property(obj: Any) -> Description:
    """A property of a class of its own: what it calls, and what it has of its own."""
    called = ((("attr", name), property.__dict__[name].__get__(obj)) for name in ("fget", "fset", "fdel"))
    own = ((("entry", name), value) for name, value in list(namespace(obj).items()) if name != "__doc__")
    return _holding(class_name(type(obj)), ((("type", None), type(obj)), *called, *own))


def _solid(cls: type) -> type:
    """The nearest class of C that adds fields of its own to its instances."""
    while True:
        base = _class_base(cls)
        if base is None:
            return cls
        space = _class_dict(cls)
        slots = sum(type(v) is types.MemberDescriptorType for v in space.values())
        room = sum(name in space for name in ("__dict__", "__weakref__"))
        if _class_basicsize(cls) - _class_basicsize(base) > _POINTER * (slots + room):
            return cls
        cls = base


_POINTER = struct.calcsize("P")


def _of_library(obj: Any, bases: set[str]) -> Description | None:
    """Objects of torch, NumPy and the standard library whose content is told here, or is none of ours."""
    if bases & _GUARDED_ELSEWHERE:
        return _without_content(obj)
    if bases & _NAMED:
        return Description(f"{class_name(type(obj))}\0{obj.__name__}")
    if bases & _TELLING_REPR:
        return _of_repr(obj)
    if "numpy.generic" in bases and "numpy.object_" not in bases:
        return Description(f"{class_name(type(obj))}\0{obj.tobytes().hex()}")
    if "numpy._ArrayFunctionDispatcher" in bases:
        return _of_own_dict(obj)
    return None


_GUARDED_ELSEWHERE = frozenset({"torch._C.TensorBase", "torch._C._TensorBase", "numpy.ndarray", "torch._C.Generator"})
"""Guards and the graph's inputs see to what is in them."""
_NAMED = frozenset({"numpy.ufunc"})
_TELLING_REPR = frozenset(
    {
        "numpy.dtype", "decimal.Decimal", "fractions.Fraction", "datetime.date", "datetime.time", "datetime.timedelta",
        "datetime.timezone", "torch._C.DispatchKey", "torch.DispatchKey", "torch._C.DispatchKeySet",
    }
)  # fmt: skip
