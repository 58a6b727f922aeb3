"""What user code that runs during a compilation can reach: it leaves no guards, so all that it may read counts.

Fake kernels and gradients of custom operators, policies of selective checkpoints and functions that a program allows in graphs run
while a region is compiled. Their digest covers their code and what it can reach through global names, cells, defaults and classes of
the program, down to the standard library, torch and torchjit, which the key of an entry has by version.
"""

from __future__ import annotations

import hashlib
import sys
import types
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType
from typing import Any, final

from torchjit_core.reasons import reason
from torchjit_core.storing import NotStorable
from torchjit_store.fingerprints import atom_text, class_name, code_digest, describe, module_name, mro, namespace

__all__ = ["reach_digest"]

TOO_FAR = reason(
    "TJ-STORE-022",
    "code that runs during the compilation reaches objects that cannot be compared",
    "A fake kernel, a checkpoint policy or the like decides how a region is compiled, and leaves no guard. It and all that it can read "
    "are compared when the compiled code is loaded in another process, but this one reads something without a comparable content.",
    "Let such functions depend on their arguments, on functions and on plain constants only.",
)
_LIMIT = 4_000
_LIBRARIES = frozenset({"torch", "numpy", "triton", *sys.stdlib_module_names})


def reach_digest(function: Callable[..., Any]) -> str:
    """The digest of a callable and of all that it can reach.

    Raises:
        NotStorable: it reaches something that cannot be compared, or too much.
    """
    reach = _Reach()
    reach.visit(function, ())
    return reach.digest.hexdigest()


@final
class _Reach:
    """One walk. What is met again counts by its number."""

    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=16)
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []

    def visit(self, obj: Any, names: Iterable[str]) -> None:
        """Add an object. `names` are those that the code which reads it has: of a module only these can matter."""
        text = atom_text(obj)
        if text is not None:
            self._say(text)
            return
        number = self._numbers.setdefault(id(obj), len(self._numbers))
        self._say(f"#{number}")
        if number < len(self._kept) and not issubclass(type(obj), types.ModuleType):
            return
        if number == len(self._kept):
            self._kept.append(obj)
        if number > _LIMIT:
            raise NotStorable(TOO_FAR, "too many objects")
        self._look_into(obj, type(obj), names)

    def _say(self, text: str) -> None:
        raw = text.encode("utf-8", "surrogatepass")
        self.digest.update(len(raw).to_bytes(4, "little") + raw)

    def _look_into(self, obj: Any, exact: type, names: Iterable[str]) -> None:
        if exact is FunctionType:
            self._function(obj)
        elif issubclass(exact, types.ModuleType):
            self._module(obj, names)
        elif issubclass(exact, type):
            self._class(obj)
        elif exact is types.CellType:
            self._cell(obj, names)
        elif issubclass(exact, dict):
            self._say(class_name(exact))
            for key, value in dict.items(obj):
                self._all((key, value))
        elif issubclass(exact, (list, tuple)):
            self._say(f"{class_name(exact)} {len(obj)}")
            self._all((list if issubclass(exact, list) else tuple).__iter__(obj))
        elif issubclass(exact, (set, frozenset)):
            texts = [atom_text(v) for v in (set if issubclass(exact, set) else frozenset).__iter__(obj)]
            if None in texts:
                raise NotStorable(TOO_FAR, f"a {class_name(exact)} of objects")
            self._say(f"{class_name(exact)} {sorted(map(str, texts))}")
        else:
            self._other(obj, exact)

    def _all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.visit(value, ())

    def _function(self, function: FunctionType) -> None:
        module = module_name(function.__globals__)
        self._say(f"function {module} {function.__qualname__}")
        if _is_library(module):
            return
        self._say(code_digest(function.__code__).hex())
        names = _names(function.__code__)
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.visit(value, names)
        for cell in function.__closure__ or ():
            self.visit(cell, names)
        for name in names:
            if name in function.__globals__:
                self._say(name)
                self.visit(function.__globals__[name], names)

    def _cell(self, cell: types.CellType, names: Iterable[str]) -> None:
        try:
            content = cell.cell_contents
        except ValueError:
            self._say("empty")
        else:
            self.visit(content, names)

    def _module(self, module: types.ModuleType, names: Iterable[str]) -> None:
        space = namespace(module)
        name = str(space.get("__name__"))
        self._say(f"module {name}")
        if _is_library(name):
            return
        for read in names:
            if read in space:
                self._say(read)
                self.visit(space[read], names if issubclass(type(space[read]), types.ModuleType) else ())

    def _class(self, cls: type) -> None:
        self._say(f"class {class_name(cls)}")
        for owner in mro(cls):
            if _is_library(class_name(owner)):
                continue
            self._say(class_name(owner))
            for name, value in namespace(owner).items():
                if type(name) is str and name not in _NOT_CONTENT:
                    self._say(name)
                    self.visit(value, ())

    def _operator(self, obj: Any, fields: tuple[str, ...]) -> None:
        own = namespace(obj)
        for name in fields:
            self._say(name)
            self.visit(own.get(name), ())
        if "fake_impl" in own:
            self._say(" ".join(_kernels(own["qualname"])))

    def _other(self, obj: Any, exact: type) -> None:
        fields = _OPERATORS.get(class_name(exact))
        if fields is not None:
            self._operator(obj, fields)
            return
        if _is_tensor(exact):
            raise NotStorable(TOO_FAR, "a tensor")
        try:
            description = describe(obj)
        except NotStorable:
            if not _is_library(class_name(exact)):
                raise
            self._say(class_name(exact))  # a lock, a logger ...
            return
        self._say(description.text)
        self._all(part for _, part in description.parts)
        if exact is types.BuiltinFunctionType or _is_library(class_name(exact)):
            return
        self.visit(exact, ())
        own = namespace(obj)
        for name in own:
            self._say(name)
            self.visit(own[name], ())


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


def _is_library(module: str) -> bool:
    top = module.partition(".")[0]
    return top in _LIBRARIES or top.startswith("torchjit")


def _is_tensor(cls: type) -> bool:
    return any(class_name(base) in ("torch._C.TensorBase", "torch._C._TensorBase") for base in mro(cls))


def _names(code: CodeType) -> list[str]:
    """The names that code, and the code in it, reads of globals and attributes, sorted."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if type(constant) is CodeType:
            found.update(_names(constant))
    return sorted(found)
