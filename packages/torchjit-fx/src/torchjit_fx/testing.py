"""A small interpreter made of proxies: capture a Python function by running it, without torchjit_vm.

It is meant for tests and experiments. Python's own control flow really runs, so only what reaches a proxy (an operator,
a method, a torch function) is captured; containers of tensors may be nested tuples, lists and dicts.
"""

from __future__ import annotations

import inspect
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, final

import attrs
import torch
from torch.overrides import TorchFunctionMode

from torchjit_core.expr import Condition, Expr, Symbol, negate, symbol
from torchjit_core.guards import Guard, SymbolicCondition, TensorMatches, distinct
from torchjit_core.location import CodeLocation
from torchjit_core.marks import SizeMark
from torchjit_core.paths import AccessPath, Arg, Pinned
from torchjit_core.reasons import GraphBreak
from torchjit_fx.domain import TensorDomain
from torchjit_fx.leaves import Raw, RawArgs
from torchjit_fx.records import is_structseq, key_set_of
from torchjit_fx.settings import FxSettings

__all__ = ["Captured", "NewObject", "Proxy", "SimpleSizes", "StaticSizes", "capture_by_proxy"]


@attrs.frozen
class NewObject:
    """An instance of a tuple or list subclass over raw items."""

    type: type
    items: tuple[Any, ...]


class SimpleSizes:
    """The sizes at the paths that `dynamic` accepts are symbols s0, s1 ... ; equal sizes are not merged.

    Args:
        dynamic: which paths.
    """

    dynamic: bool | None = None

    def __init__(self, dynamic: Callable[[AccessPath], bool] = lambda path: True) -> None:
        self._dynamic = dynamic
        self._found: dict[AccessPath, Expr] = {}
        self.values: dict[Symbol, int] = {}
        self._sources: dict[Symbol, AccessPath] = {}
        self._conditions: list[tuple[Condition, CodeLocation | None]] = []
        self._numbers: list[SymbolicCondition] = []

    def varies(self, value: float, path: AccessPath) -> bool:
        return self._dynamic(path)

    def guard_numbers(
        self, expression: str, names: tuple[tuple[str, AccessPath], ...], location: CodeLocation | None
    ) -> None:
        self._numbers.append(SymbolicCondition(expression, names, location))

    def size(
        self, value: int, path: AccessPath, *, dynamic: bool | None = None, mark: SizeMark | None = None
    ) -> int | Expr:
        if dynamic is None:
            dynamic = self._dynamic(path)
        if not dynamic or value < 2:
            return value
        if path not in self._found:
            expr = self._found[path] = symbol(f"s{len(self._found)}")
            (name,) = expr.symbols
            self.values[name] = value
            self._sources[name] = path
        return self._found[path]

    def hint(self, expr: Expr) -> int:
        return expr.evaluate(self.values)

    example = hint

    def guard(self, condition: Condition, location: CodeLocation | None) -> bool:
        known = condition.known()
        if known is not None:
            return known
        truth = condition.evaluate(self.values)
        self._conditions.append((condition, location) if truth else (negate(condition), location))
        return truth

    def guards(self) -> tuple[Guard, ...]:
        made = [
            SymbolicCondition(str(c), tuple((s.name, self._sources[s]) for s in c.symbols), where)
            for c, where in self._conditions
        ]
        own = [SymbolicCondition(f"{s.name} >= 2", ((s.name, path),)) for s, path in self._sources.items()]
        return (*made, *self._numbers, *own)

    def sources(self) -> dict[Symbol, AccessPath]:
        return self._sources

    def laid_out(self, condition: Condition, location: CodeLocation | None) -> None:
        self.guard(condition, location)

    def known(self, condition: Condition) -> bool | None:
        return condition.known()

    def oblivious(self, condition: Condition) -> bool | None:
        return None

    def unbacked(self, name_hint: str, lower: int | None, upper: int | None) -> Expr:
        raise NotImplementedError  # nothing that only the run knows

    def bound(self, expr: Expr, lower: int | None, upper: int | None) -> None:
        raise NotImplementedError  # nor are there bounds of it

    def assume(self, condition: Condition, location: CodeLocation | None) -> None:
        raise NotImplementedError  # nor facts about it


class StaticSizes(SimpleSizes):
    """Every size is a constant."""

    def __init__(self) -> None:
        super().__init__(lambda path: False)


@final
class _Context:
    """The `CaptureContext` of the proxies."""

    def __init__(self) -> None:
        self.guards: list[Guard] = []

    def guard(self, guard: Guard) -> None:
        self.guards.append(guard)

    def location(self) -> CodeLocation:
        return self.stack()[-1]

    def stack(self) -> tuple[CodeLocation, ...]:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in (
            "torchjit_fx",
            "torch",
        ):
            frame = frame.f_back
        return (CodeLocation(frame.f_code.co_filename, frame.f_code.co_qualname, frame.f_lineno),)

    def receivers(self) -> tuple[tuple[type, AccessPath], ...]:
        """Proxies have no paths of their callers."""
        return ()

    def new_object(self, type: type, items: Sequence[object], /) -> NewObject:
        return NewObject(type, tuple(items))

    def mark(self) -> int:
        return 0

    call_mark = mark

    def may_catch(self, anything: bool = False) -> bool:
        """Proxies run Python for real: nobody knows what is around a call."""
        return False

    def has_stores(self, leaf: object) -> bool:
        """See `CaptureContext`."""
        return False

    def names_used(self) -> frozenset[str]:
        """None."""
        return frozenset()

    def runs_again(self) -> bool:
        """There is no emitted code here."""
        return False

    def in_block(self) -> bool:
        """Proxies run Python for real: nobody knows what is around a call."""
        return False

    def break_at_mark(self, mark: int, why: GraphBreak) -> NoReturn:
        raise why

    def set_state(self, key: str, value: object) -> None:
        raise NotImplementedError(f"a tracer has no {key}")

    def state(self, key: str) -> object:
        """Proxies run Python for real: modes are torch's own."""
        return None

    def prepare(self, function: Callable[..., object], args: RawArgs) -> AccessPath:
        """There is no emitted code here."""
        raise NotImplementedError

    def forbid_effects(self, forbid: bool) -> None:
        """Proxies run Python for real; nobody looks."""


class Proxy:
    """A leaf in the hands of ordinary Python."""

    def __init__(self, leaf: Raw, tracer: _Tracer) -> None:
        self.leaf = leaf
        self.tracer = tracer

    @classmethod
    def __torch_function__(cls, func: Raw, types: Raw, args: Raw = (), kwargs: Raw = None) -> Raw:
        raise TypeError("a proxy is used outside of its capture")

    def __getattr__(self, name: str) -> Raw:
        leaf, tracer = self.__dict__["leaf"], self.__dict__["tracer"]
        method = inspect.getattr_static(tracer.domain.type_of(leaf), name, None)
        if callable(method) and tracer.domain.handles(method):
            return lambda *args, **kwargs: tracer.call(method, (self, *args), kwargs)
        with torch._C.DisableTorchFunction():
            return tracer.wrap(tracer.domain.getattr(leaf, name, tracer.context))

    def __setattr__(self, name: str, value: Raw) -> None:
        if name in ("leaf", "tracer"):
            self.__dict__[name] = value
        else:
            self.tracer.domain.setattr(self.leaf, name, self.tracer.unwrap(value), self.tracer.context)

    def __bool__(self) -> bool:
        return bool(self.tracer.domain.truth(self.leaf, self.tracer.context))

    def __iter__(self) -> Raw:
        with torch._C.DisableTorchFunction():
            return iter([self.tracer.wrap(x) for x in self.tracer.domain.iterate(self.leaf, self.tracer.context)])

    def __len__(self) -> int:
        return int(self._settled(self.tracer.call(len, (self,), {})))

    def __index__(self) -> int:
        return int(self.tracer.call(operator.index, (self,), {}))

    def _settled(self, number: Raw) -> Raw:
        """Python wants a real number here."""
        return operator.index(number) if isinstance(number, Proxy) else number

    def __int__(self) -> int:
        return int(self._settled(self.tracer.call(int, (self,), {})))

    def __float__(self) -> float:
        number = self.tracer.call(float, (self,), {})
        return float(
            self.tracer.domain.concrete(number.leaf, self.tracer.context) if isinstance(number, Proxy) else number
        )

    def __setitem__(self, index: Raw, value: Raw) -> None:
        self.tracer.call(operator.setitem, (self, index, value), {})

    def __hash__(self) -> int:
        return id(self)


def _forward(name: str, fn: Callable[..., Any]) -> None:
    setattr(Proxy, f"__{name}__", lambda self, *args: self.tracer.call(fn, (self, *args), {}))


def _reflect(name: str, fn: Callable[..., Any]) -> None:
    setattr(Proxy, f"__r{name}__", lambda self, other: self.tracer.call(fn, (other, self), {}))


_ARITHMETIC = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and", "or", "xor",
)  # fmt: skip
for _name in _ARITHMETIC:
    _fn = getattr(operator, _name + "_" if _name in ("and", "or") else _name)
    _forward(_name, _fn)
    _reflect(_name, _fn)
    _forward("i" + _name, getattr(operator, "i" + _name))
for _name in ("lt", "le", "eq", "ne", "gt", "ge", "neg", "pos", "abs", "invert", "getitem"):
    _forward(_name, getattr(operator, _name))


class _Tracer(TorchFunctionMode):
    """Sends torch functions to the domain."""

    def __init__(self, domain: TensorDomain, context: _Context) -> None:
        super().__init__()
        self.domain = domain
        self.context = context
        self.proxies: dict[int, Proxy] = {}

    def __torch_function__(self, func: Raw, types: Raw, args: Raw = (), kwargs: Raw = None) -> Raw:
        if self.domain.handles(func):
            return self.call(func, args, kwargs or {})
        with torch._C.DisableTorchFunction():
            return func(*args, **(kwargs or {}))

    def call(self, fn: Raw, args: Raw, kwargs: Raw) -> Raw:
        raw_args = tuple(self.unwrap(a) for a in args)
        raw_kwargs = {k: self.unwrap(a) for k, a in kwargs.items()}
        with torch._C.DisableTorchFunction():
            return self.wrap(self.domain.call(fn, raw_args, raw_kwargs, self.context))

    def wrap(self, raw: Raw) -> Raw:
        """Raw to Python; one proxy per leaf, so that identity is kept."""
        if isinstance(raw, self.domain.leaf_types):
            return self.proxies.setdefault(id(raw), Proxy(raw, self))
        if isinstance(raw, NewObject):
            return tuple(self.wrap(x) for x in raw.items)
        if type(raw) in (list, tuple):
            return type(raw)(self.wrap(x) for x in raw)
        if is_structseq(type(raw)):
            return type(raw)([self.wrap(x) for x in raw])
        return raw

    def unwrap(self, value: Raw, path: AccessPath | None = None) -> Raw:
        """Python to raw; real tensors become inputs."""
        if isinstance(value, Proxy):
            return value.leaf
        if isinstance(value, torch.Tensor):
            with torch._C.DisableTorchFunction():
                return self.domain.input(value, path or Pinned.of(value, f"constant{len(self.proxies)}"), self.context)
        item = (lambda _: None) if path is None else path.item
        if type(value) in (list, tuple):
            return type(value)(self.unwrap(x, item(i)) for i, x in enumerate(value))
        if is_structseq(type(value)):
            return type(value)([self.unwrap(x) for x in value])
        if type(value) is dict:
            return {k: self.unwrap(x, item(k)) for k, x in value.items()}
        if type(value) is slice:
            return slice(self.unwrap(value.start), self.unwrap(value.stop), self.unwrap(value.step))
        if path is not None and self.domain.wants(value, path):
            return self.domain.input(value, path, self.context)
        return value

    def wrap_input(self, value: Raw, path: AccessPath) -> Raw:
        raw = self.unwrap(value, path)
        return self.wrap_tree(raw)

    def wrap_tree(self, raw: Raw) -> Raw:
        if type(raw) is dict:
            return {k: self.wrap_tree(x) for k, x in raw.items()}
        return self.wrap(raw)


@final
@attrs.frozen
class Captured:
    """A captured function.

    Attributes:
        gm: the graph, or None when none was needed.
        guards: what it relies on.
        domain: the tensor domain, used up.
    """

    gm: torch.fx.GraphModule | None
    guards: tuple[Guard, ...]
    domain: TensorDomain
    _code: Raw
    _rebuild: Callable[[list[Any]], Any]

    def check(self, *args: Raw) -> bool:
        """Do the guards hold for these arguments?"""
        return all(_holds(guard, args) for guard in self.guards)

    def __call__(self, *args: Raw) -> Raw:
        """Run the graph, as emitted code would."""
        inputs = [path.resolve(args) for path in self._code.inputs]
        results: Sequence[Any] = () if self._code.target is None else self._code.target(*inputs)
        values = [results[o] if isinstance(o, int) else o.resolve(args) for o in self._code.outputs]
        for fn, arguments in self._code.epilogue:
            fn(*arguments)
        return self._rebuild(values)


def _holds(guard: Guard, args: RawArgs) -> bool:
    try:
        same_kind = not isinstance(guard, TensorMatches) or guard.key_set in (
            None,
            key_set_of(guard.path.resolve(args)),
        )
        return same_kind and guard.check(args)
    except (AttributeError, KeyError, IndexError, TypeError):
        return False  # what it looks at is not there


def capture_by_proxy(
    fn: Callable[..., Any],
    *args: Raw,
    sizes: Raw = None,
    backend: Callable[[torch.fx.GraphModule, list[Any]], Callable[..., Any]] | None = None,
    settings: FxSettings | None = None,
) -> Captured:
    """Capture `fn(*args)`; the tensors in `args` are inputs.

    Raises:
        GraphBreak: an operation cannot be in a graph.
    """
    seen: list[torch.fx.GraphModule] = []

    def compile_graph(gm: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
        seen.append(gm)
        return gm if backend is None else backend(gm, examples)

    context = _Context()
    sizes = sizes if sizes is not None else StaticSizes()
    domain = TensorDomain(compile_graph, sizes, settings or FxSettings())
    tracer = _Tracer(domain, context)
    names = list(inspect.signature(fn).parameters)
    proxies = [tracer.wrap_input(arg, Arg.of(i, names[i] if i < len(names) else f"a{i}")) for i, arg in enumerate(args)]
    grad = torch.is_grad_enabled()
    try:
        with tracer:
            result = fn(*proxies)
    finally:
        torch._C._set_grad_enabled(grad)
    raw = tracer.unwrap(result)
    leaves: list[Any] = []
    rebuild = _plan(raw, leaves, domain.leaf_types)
    code = domain.compile_region(leaves, context)
    guards = tuple(distinct([*context.guards, *sizes.guards()]))
    return Captured(seen[0] if seen else None, guards, domain, code, rebuild)


def _plan(raw: Raw, leaves: list[Any], leaf_types: tuple[type, ...]) -> Callable[[list[Any]], Any]:
    """Collect the leaves of a raw result and say how to rebuild it from their values."""
    if isinstance(raw, leaf_types):
        leaves.append(raw)
        place = len(leaves) - 1
        return lambda values: values[place]
    if type(raw) is dict:
        plans = {k: _plan(x, leaves, leaf_types) for k, x in raw.items()}
        return lambda values: {k: plan(values) for k, plan in plans.items()}
    if isinstance(raw, list | tuple) and type(raw) is not torch.Size:
        parts = [_plan(x, leaves, leaf_types) for x in raw]
        made = type(raw) if type(raw) in (list, tuple) or is_structseq(type(raw)) else tuple
        return lambda values: made([part(values) for part in parts])
    return lambda values: raw
