"""What user code that runs during a compilation can reach: it leaves no guards, so all that it may read counts.

Fake kernels and gradients of custom operators, policies of selective checkpoints and functions that a program allows in graphs run
while a region is compiled. Their digest covers their code and what it can reach through global names, cells, defaults and classes of
the program, down to the standard library, torch and torchjit, which the key of an entry has by version.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType
from typing import Any, final

from torchjit_core.reasons import reason
from torchjit_core.storing import NotStorable
from torchjit_store.fingerprints import atom_text, class_name, code_digest, describe, module_name, mro, namespace

__all__ = ["is_library", "reach_digest"]

TOO_FAR = reason(
    "TJ-STORE-022",
    "code that runs during the compilation reaches objects that cannot be compared",
    "A fake kernel, a checkpoint policy or the like decides how a region is compiled, and leaves no guard. It and all that it can read "
    "are compared when the compiled code is loaded in another process, but this one reads something without a comparable content.",
    "Let such functions depend on their arguments, on functions and on plain constants only.",
)
_LIMIT = 4_000
_LIBRARIES = frozenset({"builtins", "torch", "numpy", "triton", *sys.stdlib_module_names})


def reach_digest(function: Callable[..., Any]) -> str:
    """The digest of a callable and of all that it can reach.

    Raises:
        NotStorable: it reaches something that cannot be compared, or too much.
    """
    reach = _Reach()
    reach.visit(function)
    reach.visit_modules()
    return reach.digest.hexdigest()


@final
class _Reach:
    """One walk. What is met again counts by its number. Of modules, all that any code met has a name for counts."""

    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=16)
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []
        self._names: set[str] = set()
        self._modules: list[types.ModuleType] = []

    def visit(self, obj: Any) -> None:
        """Add an object."""
        text = atom_text(obj)
        if text is not None:
            self._say(text)
            return
        number = self._numbers.setdefault(id(obj), len(self._numbers))
        self._say(f"#{number}")
        if number < len(self._kept):
            return
        self._kept.append(obj)
        if number > _LIMIT:
            raise NotStorable(TOO_FAR, "too many objects")
        self._look_into(obj, type(obj))

    def visit_modules(self) -> None:
        """Add what the modules hold under names that code has: any code may have been handed any module."""
        done: set[tuple[int, str]] = set()
        while True:
            wanted = [(m, name) for m in self._modules for name in sorted(self._names) if (id(m), name) not in done]
            if not wanted:
                return
            for module, name in wanted:
                done.add((id(module), name))
                self._entry(module, name)

    def _entry(self, module: types.ModuleType, name: str) -> None:
        """One name of a module; of a library only what a program has put there."""
        space = namespace(module)
        if name not in space:
            return
        value = space[name]
        if is_library(str(space.get("__name__"))) and not (_is_module(value) or _is_of_program(value)):
            return
        self._say(name)
        self.visit(value)

    def _say(self, text: str) -> None:
        raw = text.encode("utf-8", "surrogatepass")
        self.digest.update(len(raw).to_bytes(4, "little") + raw)

    def _look_into(self, obj: Any, exact: type) -> None:
        if exact is FunctionType:
            self._function(obj)
        elif issubclass(exact, types.ModuleType):
            self._say(f"module {namespace(obj).get('__name__')}")
            self._modules.append(obj)
        elif issubclass(exact, type):
            self._class(obj)
        elif exact is types.CellType:
            self._cell(obj)
        elif issubclass(exact, (dict, list, tuple, set, frozenset, deque)):
            self._container(obj, exact)
        else:
            self._other(obj, exact)

    def _container(self, obj: Any, exact: type) -> None:
        self._say(f"{class_name(exact)} {len(obj)}")
        if issubclass(exact, dict):
            for key, value in dict.items(obj):
                self._all((key, value))
        elif issubclass(exact, (set, frozenset)):
            texts = [_element(v) for v in (set if issubclass(exact, set) else frozenset).__iter__(obj)]
            self._say(f"{sorted(texts)}")
        else:
            base = next(cls for cls in (list, tuple, deque) if issubclass(exact, cls))
            self._all(base.__iter__(obj))
        if not is_library(class_name(exact)):
            self._instance(obj, exact)

    def _all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.visit(value)

    def _function(self, function: FunctionType) -> None:
        """A function; of a library's own only what it holds, such as the function that a decorator wraps."""
        module = module_name(function.__globals__)
        self._say(f"function {module} {function.__qualname__}")
        held = (
            *(function.__defaults__ or ()),
            *(function.__kwdefaults__ or {}).values(),
            *(function.__closure__ or ()),
        )
        if is_library(module):
            self._all(held)
            return
        self._say(code_digest(function.__code__).hex())
        self._all(held)
        names = _names(function.__code__)
        if not _READS_BY_TEXT.isdisjoint(names):
            raise NotStorable(TOO_FAR, f"names that {function.__qualname__} makes up")
        self._names.update(names)
        for name in names:
            if name in function.__globals__:
                self._say(name)
                self.visit(function.__globals__[name])
            elif _is_of_program(vars(builtins).get(name)):
                self._say(name)
                self.visit(vars(builtins)[name])
        self._imports(function, names)

    def _imports(self, function: FunctionType, names: Iterable[str]) -> None:
        """Modules that its code imports itself."""
        package = function.__globals__.get("__package__") or module_name(function.__globals__).rpartition(".")[0]
        parents = [package] if type(package) is str else []
        while parents and "." in parents[-1]:
            parents.append(parents[-1].rpartition(".")[0])
        for name in names:
            for full in (name, *(f"{parent}.{name}" for parent in parents)):
                module = sys.modules.get(full)
                if _is_module(module) and full not in _LIBRARIES:
                    self._say(f"import {full}")
                    self.visit(module)

    def _cell(self, cell: types.CellType) -> None:
        try:
            content = cell.cell_contents
        except ValueError:
            self._say("empty")
        else:
            self.visit(content)

    def _class(self, cls: type) -> None:
        self._say(f"class {class_name(cls)}")
        if not is_library(class_name(type(cls))):
            self.visit(type(cls))
        for owner in mro(cls):
            if is_library(class_name(owner)):
                continue
            self._say(class_name(owner))
            for name, value in namespace(owner).items():
                if type(name) is str and name not in _NOT_CONTENT and type(value) is not types.MemberDescriptorType:
                    self._say(name)
                    self.visit(value)

    def _instance(self, obj: Any, exact: type) -> None:
        """What an instance holds, and its class."""
        self.visit(exact)
        own = namespace(obj)
        for name in own:
            self._say(str(name))
            self.visit(own[name])
        for cls in mro(exact):
            for name, member in namespace(cls).items():
                if type(member) is types.MemberDescriptorType and not is_library(class_name(cls)):
                    self._say(name)
                    self.visit(_slot(member, obj))

    def _operator(self, obj: Any, fields: tuple[str, ...]) -> None:
        own = namespace(obj)
        for name in fields:
            self._say(name)
            self.visit(own.get(name))
        if "fake_impl" in own:
            self._say(" ".join(_kernels(own["qualname"])))

    def _other(self, obj: Any, exact: type) -> None:
        name = class_name(exact)
        fields = _OPERATORS.get(name)
        if fields is not None:
            self._operator(obj, fields)
            return
        if name in _NAMED or name.startswith("torch._higher_order_ops."):
            self._say(f"{name} {_named(obj)}")
            return
        if _is_tensor(exact):
            raise NotStorable(TOO_FAR, "a tensor")
        if name.partition(".")[0] in _WITHOUT_CONTENT:
            self._say(name)
            return
        try:
            description = describe(obj)
        except NotStorable:
            if not is_library(name):
                raise
            self._say(name)
            self._all(namespace(obj).values())
            return
        self._say(description.text)
        self._all(part for _, part in description.parts)
        if exact is types.BuiltinFunctionType:
            return
        if not is_library(name):
            self._instance(obj, exact)
        elif type(obj) not in _DESCRIBED:
            self._all((*namespace(obj), *namespace(obj).values()))


_READS_BY_TEXT = frozenset(
    {"globals", "vars", "__dict__", "__globals__", "eval", "exec", "import_module", "__import__"}
)
"""What code reads names by that nobody can tell."""
_WITHOUT_CONTENT = frozenset(
    {"_thread", "logging", "threading", "warnings", "weakref", "_weakref", "_contextvars", "contextvars"}
)
_DESCRIBED = frozenset({functools.partial, types.MethodType, property, staticmethod, classmethod})
_NAMED = frozenset({"torch._ops.OpOverload", "torch._ops.OpOverloadPacket", "torch._ops.HigherOrderOperator"})
"""Operators: their names are all of them that counts; what a program registers is told by itself."""


def _named(obj: Any) -> str:
    own = namespace(obj)
    return " ".join(str(own[name]) for name in ("_qualified_op_name", "_name", "_overloadname") if name in own)


def _element(value: Any) -> str:
    """The text of an element of a set.

    Raises:
        NotStorable: it has none that another process would give.
    """
    text = atom_text(value)
    if text is not None:
        return text
    name = class_name(type(value))
    if name in _NAMED:
        return f"{name} {_named(value)}"
    if type(value) is types.BuiltinFunctionType:
        return describe(value).text
    if type(value) is type and is_library(class_name(value)):
        return class_name(value)
    raise NotStorable(TOO_FAR, f"a set of objects such as a {name}")


def _slot(member: types.MemberDescriptorType, obj: Any) -> Any:
    try:
        return member.__get__(obj)
    except AttributeError:
        return None


_OPERATORS = {
    "torch._library.custom_ops.CustomOpDef": (
        "_schema", "_abstract_fn", "_setup_context_fn", "_backward_fn", "_torch_dispatch_fns", "_vmap_fn", "_autocast_dtype",
    ),
    "torch._library.simple_registry.SimpleOperatorEntry": ("fake_impl", "torch_dispatch_rules"),
    "torch._library.simple_registry.GenericTorchDispatchRuleHolder": ("_data",),
    "torch._library.fake_impl.FakeImplHolder": ("kernels",),
    "torch._library.utils.Kernel": ("func",),
}  # fmt: skip
"""Where torch keeps what a program registers for an operator: the fields that matter while a graph is made."""


def _kernels(operator: str) -> list[str]:
    """For which keys of the dispatcher Python has registered kernels of an operator."""
    begin = operator.replace("::", "/") + "/"
    return sorted(name for name in sys.modules["torch.library"]._impls if name.startswith(begin))


_NOT_CONTENT = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__qualname__", "__firstlineno__", "__static_attributes__", "_abc_impl"}
)  # fmt: skip


def _is_module(obj: object) -> bool:
    return issubclass(type(obj), types.ModuleType)


def _is_of_program(obj: object) -> bool:
    """Is it a function or class of the program's, which may have taken the place of a library's?"""
    if type(obj) is FunctionType:
        return not is_library(module_name(obj.__globals__))
    return issubclass(type(obj), type) and not is_library(class_name(obj))  # type: ignore[arg-type]


def is_library(module: str) -> bool:
    """Is a module one that the key of an entry has by version?"""
    top = module.partition(".")[0]
    return top in _LIBRARIES or top.startswith("torchjit")


def _is_tensor(cls: type) -> bool:
    return any(class_name(base) in ("torch._C.TensorBase", "torch._C._TensorBase") for base in mro(cls))


def _names(code: CodeType) -> list[str]:
    """The names that code, and the code in it, may read of globals and attributes, sorted: texts in it are among them."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if type(constant) is CodeType:
            found.update(_names(constant))
        elif type(constant) is str and constant.isidentifier():
            found.add(constant)
    return sorted(found)
