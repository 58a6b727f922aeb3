"""A torch-free leaf kind for the tests: numbers whose operations are recorded, and a small JIT around `capture`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from torchjit_core.guards import Guard, Predicate
from torchjit_core.paths import AccessPath
from torchjit_core.reasons import GraphBreak, reason
from torchjit_core.region import RegionCode
from torchjit_vm import CaptureContext, Captured, CapturePolicy, Region, capture
from torchjit_vm.binding import bind

TRUTH = reason("TJ-TST-001", "truth of a lazy number", "Only the value decides.")


class Num:
    """A mutable number: the tests' tensor."""

    def __init__(self, value: float) -> None:
        self.value = value

    def _binary(self, other: Any, function: Callable[[Any, Any], Any]) -> Num:
        return Num(function(self.value, other.value if isinstance(other, Num) else other))

    def __add__(self, other: Any) -> Num:
        return self._binary(other, operator.add)

    def __radd__(self, other: Any) -> Num:
        return self._binary(other, lambda a, b: b + a)

    def __sub__(self, other: Any) -> Num:
        return self._binary(other, operator.sub)

    def __rsub__(self, other: Any) -> Num:
        return self._binary(other, lambda a, b: b - a)

    def __mul__(self, other: Any) -> Num:
        return self._binary(other, operator.mul)

    def __rmul__(self, other: Any) -> Num:
        return self._binary(other, lambda a, b: b * a)

    def __truediv__(self, other: Any) -> Num:
        return self._binary(other, operator.truediv)

    def __neg__(self) -> Num:
        return Num(-self.value)

    def __lt__(self, other: Any) -> Num:
        return self._binary(other, operator.lt)

    def __gt__(self, other: Any) -> Num:
        return self._binary(other, operator.gt)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        return f"Num({self.value})"

    def double(self) -> Num:
        return Num(self.value * 2)

    def add_(self, other: Any) -> Num:
        self.value += other.value if isinstance(other, Num) else other
        return self

    @property
    def half(self) -> Num:
        return Num(self.value / 2)

    @property
    def kind(self) -> str:
        return type(self.value).__name__


def total(*numbers: Any) -> Num:
    """A function that the handler takes as a whole."""
    result = Num(0)
    for n in numbers:
        result = result + n
    return result


class Sym:
    """The payload: the number of the node."""

    def __init__(self, index: int) -> None:
        self.index = index


_HANDLED = {total, *(v for v in vars(Num).values() if isinstance(v, FunctionType))}
_OPERATORS = {
    operator.add, operator.sub, operator.mul, operator.truediv, operator.neg, operator.lt, operator.gt,
    operator.iadd, operator.isub, operator.imul, operator.itruediv,
}  # fmt: skip


class LazyHandler:
    """Leaf handler and region compiler in one."""

    leaf_types = (Sym,)

    def __init__(self) -> None:
        self.nodes: list[tuple[Any, tuple[Any, ...]]] = []
        self.inputs: list[tuple[AccessPath | None, Any]] = []
        self.count = 0
        self.input_of: dict[int, AccessPath] = {}

    def _new(self) -> Sym:
        self.count += 1
        return Sym(self.count - 1)

    def wants(self, obj: object, path: AccessPath | None) -> bool:
        return type(obj) is Num

    def input(self, obj: object, path: AccessPath | None, capture: CaptureContext) -> object:
        made = self._new()
        self.inputs.append((path, obj))
        self.nodes.append(("input", (made.index, len(self.inputs) - 1)))
        if path is not None:
            self.input_of[made.index] = path
            capture.guard(Predicate(path, lambda v: type(v) is Num, f"type({path}) is Num"))
        return made

    def type_of(self, leaf: object) -> type:
        return Num

    def handles(self, fn: object) -> bool:
        try:
            return fn in _HANDLED
        except TypeError:
            return False

    def call(self, fn: object, args: tuple[object, ...], kwargs: dict[str, object], capture: CaptureContext) -> object:
        if fn not in _OPERATORS and not self.handles(fn) or fn is Num.__float__ or fn is Num.__bool__ or kwargs:
            raise GraphBreak(TRUTH, getattr(fn, "__name__", repr(fn)), capture.location())
        if fn in _OPERATORS and not all(isinstance(a, (Sym, int, float)) for a in args):
            raise GraphBreak(TRUTH, "an operation that may raise", capture.location())
        if fn is Num.add_:
            self.nodes.append((fn, (None, args)))
            return args[0]
        made = self._new()
        self.nodes.append((fn, (made.index, args)))
        return made

    def getattr(self, leaf: object, name: str, capture: CaptureContext) -> object:
        if name == "half":
            return self.call(operator.truediv, (leaf, 2), {}, capture)
        if not hasattr(Num(0), name):
            raise AttributeError(f"'Num' object has no attribute '{name}'")
        raise GraphBreak(TRUTH, name, capture.location())

    def owns_attribute(self, leaf: object, name: str) -> bool:
        return True

    def setattr(self, leaf: object, name: str, value: object, capture: CaptureContext) -> bool:
        raise GraphBreak(TRUTH, name, capture.location())

    def truth(self, leaf: object, capture: CaptureContext) -> bool:
        raise GraphBreak(TRUTH, "", capture.location())

    def number(self, leaf: object) -> int | float | None:
        return None

    def assume(
        self, leaf: object, truth: bool, message: str | None, capture: CaptureContext, *, in_place: bool = False
    ) -> bool:
        return False

    def iterate(self, leaf: object, capture: CaptureContext) -> Sequence[object]:
        raise GraphBreak(TRUTH, "iteration", capture.location())

    def compile_region(self, leaves: Sequence[object], capture: CaptureContext) -> RegionCode:
        paths = tuple(p for p, _ in self.inputs if p is not None)
        nodes, inputs, count = list(self.nodes), list(self.inputs), self.count
        if not nodes:
            return RegionCode(None, (), ())
        wanted: list[int] = []
        outputs: list[int | AccessPath] = []
        for leaf in leaves:
            assert isinstance(leaf, Sym)
            if leaf.index in self.input_of:
                outputs.append(self.input_of[leaf.index])
            else:
                outputs.append(len(wanted))
                wanted.append(leaf.index)

        def target(*given: Any) -> list[Any]:
            values: list[Any] = [None] * count
            rest = iter(given)
            real = [obj if path is None else next(rest) for path, obj in inputs]

            def load(arg: Any) -> Any:
                if isinstance(arg, Sym):
                    return values[arg.index]
                if type(arg) in (list, tuple):
                    return type(arg)(map(load, arg))
                return arg

            for fn, (out, args) in nodes:
                if fn == "input":
                    values[out] = real[args]
                    continue
                result = fn(*map(load, args))
                if out is not None:
                    values[out] = result
            return [values[i] for i in wanted]

        return RegionCode(target, paths, tuple(outputs))


class Door:
    """A front door in plain Python: guards by their definition, entries in order."""

    limit = 40

    def __init__(self, jit: Jit, region: Region) -> None:
        self.jit, self.region = jit, region
        self.entries: list[Captured] = []

    def __call__(self, *slots: Any) -> Any:
        for entry in self.entries:
            if all(_holds(g, slots) for g in entry.guards):
                return self._run(entry, slots)
        if len(self.entries) >= self.limit:
            raise AssertionError(f"too many specialisations of {self.region}")
        entry = self.jit.capture(self.region, slots)
        assert all(_holds(g, slots) for g in entry.guards), [str(g) for g in entry.guards if not _holds(g, slots)]
        self.entries.append(entry)
        return self._run(entry, slots)

    def _run(self, entry: Captured, slots: tuple[Any, ...]) -> Any:
        gathered = [p.resolve(slots) for p in entry.gather]
        self.jit.log.append(entry)
        result = entry.target(*gathered)
        return result if entry.unwrap < 0 else result[entry.unwrap]


def _holds(guard: Guard, slots: tuple[Any, ...]) -> bool:
    try:
        return guard.check(slots)
    except (AttributeError, KeyError, IndexError, ValueError, TypeError):
        return False


class Jit:
    """Compiles a function; keeps its doors and what was captured."""

    def __init__(self, function: Callable[..., Any], **policy: Any) -> None:
        assert isinstance(function, FunctionType)
        self.function = function
        self.policy = CapturePolicy(**policy)
        self.doors: dict[tuple[Any, ...], Door] = {}
        self.captured: list[Captured] = []
        self.log: list[Captured] = []
        self.entry = self.door(Region(function.__code__, function.__globals__, function))

    def door(self, region: Region) -> Door:
        return self.doors.setdefault(region.key, Door(self, region))

    def capture(self, region: Region, slots: Sequence[Any]) -> Captured:
        handler = LazyHandler()

        def restart() -> tuple[LazyHandler, LazyHandler]:
            fresh = LazyHandler()
            return fresh, fresh

        made = capture(
            region,
            slots,
            leaves=handler,
            compiler=handler,
            continuations=self.door,
            policy=self.policy,
            restart=restart,
        )
        self.captured.append(made)
        return made

    def __call__(self, *slots: Any) -> Any:
        """Call as the function is called, without keywords."""
        try:
            return self.entry(*bind(self.function, slots, {}))
        except GraphBreak as why:
            if why.detail != "except*":
                raise
        return self.function(*slots)  # a frame that no capture starts in is left to CPython

    @property
    def breaks(self) -> list[str]:
        return [b.reason.id for c in self.captured for b in c.breaks]
