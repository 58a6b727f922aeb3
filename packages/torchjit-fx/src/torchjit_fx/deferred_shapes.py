"""`torch.fx.experimental.symbolic_shapes` and sympy without their import, for sizes that are plain numbers or symbols of ours.

torch's fake tensors import names from that module at most operations, and the module imports sympy: 470 modules, more than
half of a cold first call of a small function, or of one with a second size. With plain numbers, and with the nodes of `symnode`,
the answers are one line each. So the module is put in its place with these answers only and is executed, in the same object, as
soon as anybody wants more of it or asks about a symbol of torch's (like `importlib.util.LazyLoader`, but with names that can be
had before).

`torch._prims_common.elementwise_dtypes` imports sympy itself, to ask whether a number is one of sympy's, and fake tensors do
after each operation, for real tensors that they do not propagate. `_is_non_overlapping_and_dense_or_false`, which `clone` asks, imports torch's
functions over sympy and uses none.

Source: torch/fx/experimental/symbolic_shapes.py and torch/_prims_common/__init__.py, torch/_subclasses/fake_tensor.py, versions 2.11 and 2.15.
"""

from __future__ import annotations

import builtins
import functools
import importlib.util
import operator
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._prims_common
import torch._subclasses.fake_tensor
from torch.fx.experimental import _config
from torch.utils._ordered_set import OrderedSet

from torchjit_core.forks import new_lock
from torchjit_fx.node_base import Node
from torchjit_fx.symbols.floats import Operand

__all__ = ["defer_symbolic_shapes", "defer_sympy", "load_symbolic_shapes"]

NAME = "torch.fx.experimental.symbolic_shapes"
_PACKAGE, _, _OWN_NAME = NAME.rpartition(".")
_loading = new_lock()


class _Deferred(types.ModuleType):
    """The class of the module until it is executed. Names that it does not have yet are a reason to do that."""

    def __getattr__(self, name: str) -> Operand:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)  # `inspect` asks every module for some of these
        _execute(self)
        return types.ModuleType.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Operand) -> None:
        if not name.startswith("__"):
            _execute(self)  # or its own definition would replace the value later
        types.ModuleType.__setattr__(self, name, value)  # `super()` would look for the class that this no longer has

    def __dir__(self) -> list[str]:
        _execute(self)
        return list(vars(self))


def defer_symbolic_shapes() -> None:
    """Put the deferred module in its place. Does nothing where the real one is imported already."""
    with _loading:
        spec = None if NAME in sys.modules else importlib.util.find_spec(NAME)
        if spec is None:
            return
        module = importlib.util.module_from_spec(spec)
        source = spec.loader.get_source(NAME)  # type: ignore[union-attr]  # found by the path finder
        for answer in _ANSWERS:
            answer.__module__ = NAME
            if f"\ndef {answer.__name__}(" in source or f"\nclass {answer.__name__}(" in source:
                vars(module)[answer.__name__] = answer  # a name that this version of torch has
        module.__class__ = _Deferred
        sys.modules[NAME] = module
        setattr(sys.modules[_PACKAGE], _OWN_NAME, module)


def load_symbolic_shapes() -> Operand:
    """The real module, executed if need be."""
    module = importlib.import_module(NAME)
    if isinstance(module, _Deferred):
        _execute(module)
    return module


def _execute(module: types.ModuleType) -> None:
    """Run the module's code in it. Another thread that wants a missing name waits; this one finds what there is so far."""
    with _loading:
        if type(module) is not _Deferred or vars(module).get("__executing__") == threading.get_ident():
            return
        vars(module)["__executing__"] = threading.get_ident()  # a fork may have left the thread that began behind
        taken = vars(module).get("GuardOnDataDependentSymNode")
        try:
            module.__spec__.loader.exec_module(module)  # type: ignore[union-attr]  # found by the path finder
        finally:
            del vars(module)["__executing__"]
        plain: type = types.ModuleType
        module.__class__ = plain
        if taken is not None:  # a version of torch may not have it
            _replace(taken, vars(module)[taken.__name__])


def _replace(old: Operand, new: Operand) -> None:
    """Give all modules that took `old` in their `import` lines `new`: `except` goes by identity, calls by the name taken."""
    for other in list(sys.modules.values()):
        held = getattr(other, "__dict__", None)
        if type(held) is dict and held.get(new.__name__) is old:
            held[new.__name__] = new


class _DeferredSympy:
    """What `import sympy` gives inside those functions of torch, until somebody else imports it or they use more of it."""

    class Basic:
        """Of sympy's numbers there are none yet."""

    def __getattr__(self, name: str) -> Operand:
        return getattr(importlib.import_module("sympy"), name)


class _DeferredFunctions:
    """What `from torch.utils._sympy.functions import Max` finds inside one of them, which then does not use it."""

    def __getattr__(self, name: str) -> Operand:
        def function(*args: Operand) -> Operand:
            return getattr(importlib.import_module(_FUNCTIONS), name)(*args)

        return function


_FUNCTIONS = "torch.utils._sympy.functions"
_deferred = {"sympy": _DeferredSympy(), _FUNCTIONS: _DeferredFunctions()}


def _import(name: str, *args: Operand, **kwargs: Operand) -> Operand:
    stands_in = None if "sympy" in sys.modules else _deferred.get(name)
    return __import__(name, *args, **kwargs) if stands_in is None else stands_in


def defer_sympy() -> None:
    """Three functions of torch that run at many operations no longer import sympy."""
    own_import = {**vars(builtins), "__import__": _import}
    for name, taken in (("elementwise_dtypes", "sympy"), ("_is_non_overlapping_and_dense_or_false", _FUNCTIONS)):
        old: Operand = getattr(torch._prims_common, name, None)  # a version of torch may not have it
        if "sympy" in sys.modules or old is None or taken not in old.__code__.co_names:
            continue
        _with_builtins(old, own_import)
    # The last one is defined inside of a method, anew at each call, and then takes the built-in functions of its module.
    if "sympy" not in sys.modules:
        vars(torch._subclasses.fake_tensor)["__builtins__"] = own_import


def _with_builtins(old: Operand, own_import: dict[str, Any]) -> None:
    """Replace a function of torch by one with other built-in functions."""
    new = types.FunctionType(
        old.__code__, {**old.__globals__, "__builtins__": own_import}, old.__name__, old.__defaults__, old.__closure__
    )
    functools.update_wrapper(new, old)
    new.__kwdefaults__ = old.__kwdefaults__
    del new.__wrapped__  # type: ignore[attr-defined]  # it does not call the old one
    _replace(old, new)


# ------------------------------------------------------------------ the answers


class GuardOnDataDependentSymNode(RuntimeError):
    """For `except` only: nothing raises it before there are symbols, and then the real one is in place."""


def _named(name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
    answer.__name__ = answer.__qualname__ = name
    return answer


def _for_plain(name: str, answer: Callable[[Any], Any]) -> Callable[..., Any]:
    """A function of one value, and perhaps of options that matter for symbols only."""

    def ask(value: Operand, *args: Operand, **kwargs: Operand) -> Operand:
        return answer(value) if _plain(value) else getattr(load_symbolic_shapes(), name)(value, *args, **kwargs)

    return _named(name, ask)


def _nothing(value: Operand) -> Iterator[Any]:
    return iter(())


def _forward(name: str) -> Callable[..., Any]:
    """A function that is imported at many operations and called for symbols only."""

    def forward(*args: Operand, **kwargs: Operand) -> Operand:
        return getattr(load_symbolic_shapes(), name)(*args, **kwargs)

    return _named(name, forward)


def _node(value: Operand, kinds: Operand = (torch.SymInt, torch.SymBool, torch.SymFloat)) -> Node | None:
    """The node of a symbolic number of ours."""
    node = value.node if isinstance(value, kinds) else None
    return node if isinstance(node, Node) else None


def _or(name: str, default: bool) -> Callable[..., Any]:
    def ask(a: Operand) -> Operand:
        node = _node(a, torch.SymBool)
        if type(a) is bool:
            return a
        if node is None or getattr(_config, "backed_size_oblivious", False):
            return getattr(load_symbolic_shapes(), name)(a)
        return bool(node.shape_env.evaluate_sym_node(node, size_oblivious=False, fallback_value=default))

    return _named(name, ask)


def _by_node(name: str, kind: type, *args: Operand) -> Callable[[Any], Any]:
    """A function that is a method of the node, and of a plain number the number."""

    def ask(value: Operand) -> Operand:
        node: Operand = _node(value, torch.SymInt if kind is int else torch.SymBool)
        if type(value) is kind:
            return value
        return getattr(load_symbolic_shapes(), name)(value) if node is None else getattr(node, name)(*args)

    return _named(name, ask)


def expect_true(a: Operand, skip: int = 0) -> Operand:
    node: Operand = _node(a, torch.SymBool)
    if type(a) is bool:
        return a
    return load_symbolic_shapes().expect_true(a, skip + 1) if node is None else node.expect_true()


def _advise_is_size(a: Operand) -> None:
    if type(a) is not int and _node(a) is None:  # nothing is noted about ours
        load_symbolic_shapes()._advise_is_size(a)


def _advise_is_bounded(a: Operand, upper_bound: Operand) -> None:
    if type(a) is not int and _node(a) is None:
        load_symbolic_shapes()._advise_is_bounded(a, upper_bound)


def sym_eq(x: Operand, y: Operand) -> Operand:
    if isinstance(x, int | torch.SymInt) and isinstance(y, int | torch.SymInt):
        return x == y
    if isinstance(x, tuple | list) and isinstance(y, tuple | list):
        return len(x) == len(y) and functools.reduce(operator.and_, map(sym_eq, x, y), True)
    return load_symbolic_shapes().sym_eq(x, y)


def _joined(name: str, join: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return _named(name, lambda first, *others: functools.reduce(join, others, first))


def is_nested_int(s: Operand) -> bool:
    return isinstance(s, torch.SymInt) and bool(s.node.is_nested_int())


def is_symbolic(val: Operand) -> Operand:
    return False if isinstance(val, int | float | bool) else val.node.is_symbolic()


def compute_unbacked_bindings(shape_env: Operand, *args: Operand, **kwargs: Operand) -> Operand:
    if shape_env is None or not getattr(shape_env, "pending_fresh_unbacked_symbols", True):
        return None
    return load_symbolic_shapes().compute_unbacked_bindings(shape_env, *args, **kwargs)


def _numbers(value: Operand) -> list[Any] | None:
    """The numbers in this, those of strided tensors too; None if there is something else."""
    if isinstance(value, int | float | bool | torch.SymInt | torch.SymBool | torch.SymFloat):
        return [value]
    if value is None:
        return []
    if isinstance(value, torch.Tensor):
        return [*value.shape, *value.stride(), value.storage_offset()] if value.layout is torch.strided else None
    found = list(map(_numbers, value)) if isinstance(value, tuple | list) else [None]
    return None if None in found else [number for part in found for number in part or ()]


def _plain(value: Operand) -> bool:
    """Are there numbers and strided tensors of plain sizes only?"""
    numbers = _numbers(value)
    return numbers is not None and all(type(n) in (int, float, bool) for n in numbers)


def _nodes(value: Operand) -> list[Any] | None:
    """The nodes of the symbols in this; None if one is not ours, or there is something else than numbers and strided tensors."""
    numbers = _numbers(value)
    if numbers is None:
        return None
    nodes = [_node(n) for n in numbers if type(n) not in (int, float, bool)]
    return None if None in nodes else [n for n in nodes if n is not None and not n.is_constant()]


def _for_ours(name: str, answer: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """A function of what symbols there are; `answer` gives NotImplemented where the real one has to be asked."""

    def ask(value: Operand, *args: Operand, **kwargs: Operand) -> Operand:
        nodes = _nodes(value)
        found = NotImplemented if nodes is None else answer(nodes)
        return getattr(load_symbolic_shapes(), name)(value, *args, **kwargs) if found is NotImplemented else found

    return _named(name, ask)


def _none_fresh(nodes: list[Any]) -> bool:
    """Does none depend on what only the run knows?"""
    return all(node.has_hint() for node in nodes)


_ANSWERS: tuple[Any, ...] = (
    GuardOnDataDependentSymNode,
    _advise_is_bounded,
    _advise_is_size,
    compute_unbacked_bindings,
    expect_true,
    _or("guard_or_false", False),
    _or("guard_or_true", True),
    is_nested_int,
    is_symbolic,
    sym_eq,
    _joined("sym_and", operator.and_),
    _joined("sym_or", operator.or_),
    _by_node("guard_int", int, None, 0),
    _by_node("guard_size_oblivious", bool),
    _by_node("statically_known_true", bool),
    _for_ours("has_free_symbols", bool),
    _for_ours("has_free_unbacked_symbols", lambda nodes: False if _none_fresh(nodes) else NotImplemented),
    _for_ours("free_unbacked_symbols", lambda nodes: OrderedSet() if _none_fresh(nodes) else NotImplemented),
    _for_ours("has_guarding_hint", _none_fresh),
    _for_ours("has_hint", _none_fresh),
    _for_plain("_iterate_exprs", _nothing),
    _for_plain("_iterate_nodes", _nothing),
    *map(
        _forward,
        (
            "_constrain_range_for_size", "constrain_range", "guarding_hint_or_throw", "optimization_hint", "size_hint",
        ),
    ),
)  # fmt: skip
