"""The payloads that the interpreter carries: tensors and numbers that only the graph knows, and the graph's steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, final

import attrs
import torch

from torchjit_core.expr import Expr
from torchjit_core.guards import TensorMatches
from torchjit_core.location import CodeLocation
from torchjit_core.paths import AccessPath
from torchjit_core.reasons import Reason
from torchjit_fx.records import TensorRecord
from torchjit_fx.symbols.floats import FloatExpr

__all__ = [
    "Checkpoint", "Function", "InputLeaf", "OpaqueLeaf", "Raw", "RawArgs", "RawKwargs", "Step", "StepScope",
    "Storage", "SymLeaf", "Target", "TensorLeaf", "Way",
]  # fmt: skip

Raw: TypeAlias = Any
"""A value as the interpreter hands it over: a leaf, a plain value, or containers of these."""
RawArgs: TypeAlias = "tuple[Raw, ...]"
RawKwargs: TypeAlias = "dict[str, Raw]"
Function: TypeAlias = "Callable[..., Any]"
"""Something that a program calls."""
Target: TypeAlias = "Callable[..., Any] | str"
"""Of a graph node: a callable, or the name of a method."""
Way: TypeAlias = "tuple[Any, ...]"
"""The indices and keys into a result that lead to one of its items."""


@final
@attrs.frozen
class Checkpoint:
    """A checkpointed region.

    Attributes:
        number: tells the regions of a graph apart.
        policy: for a selective checkpoint, the program's function that says for each operator what to do with its result.
    """

    number: int
    policy: Callable[..., Any] | None = None


class StepScope:
    """Steps that become a graph of their own, see `scopes.Scope`.

    Attributes:
        parent: the scope around it, None for the region itself.
        sees: a closed scope whose leaves may be used here (the forward that belongs to a backward).
        mark: where the capture breaks if it turns out that the scope cannot be.
        closed: its leaves are out of reach for everybody else.
        foreign: memory from outside that was written, whether it had been before, and the records before of what lies in it.
    """

    def __init__(self, parent: StepScope | None, mark: int, sees: StepScope | None) -> None:
        self.parent = parent
        self.sees = sees
        self.mark = mark
        self.closed = False
        self.foreign: dict[int, tuple[Storage, bool, list[tuple[TensorLeaf, TensorRecord]]]] = {}

    @property
    def writes_outside(self) -> bool:
        """Was memory written that a tensor from outside lies in?"""
        return any(records for _, _, records in self.foreign.values())

    def note_write(self, storage: Storage) -> None:
        """A step is about to write this memory."""
        if id(storage) not in self.foreign:
            records = [(leaf, leaf.record) for leaf in storage.leaves if self.is_foreign(leaf)]
            self.foreign[id(storage)] = (storage, storage.written, records)

    def is_foreign(self, leaf: TensorLeaf | SymLeaf) -> bool:
        """Was this leaf made outside?"""
        return leaf.step is None or leaf.step.scope is not self

    def may_use(self, leaf: TensorLeaf | SymLeaf) -> bool:
        """May a step of this scope use the leaf?"""
        made_in = None if leaf.step is None else leaf.step.scope
        if made_in is None or not made_in.closed:
            return True
        scope: StepScope | None = self
        while scope is not None:
            if made_in is scope or made_in is scope.sees:
                return True
            scope = scope.parent
        return False


@final
@attrs.define(eq=False, repr=False)
class Step:
    """One recorded call.

    Attributes:
        op: `call_function` or `call_method`, as in torch.fx.
        target: a callable, or the method's name.
        args, kwargs: raw values that may hold leaves.
        token: the ambient modes (grad mode, autocast ...) it ran under, see `TorchModes.token`.
        results: the tensor leaves it made, with the way to each inside the result.
        written: storages that it writes.
        effect: it must stay even when nobody uses its result (random numbers, modes, assertions).
        mode: for a change of ambient state, (what it sets, to which value); else None.
        scope: the scope that it was recorded in, None for the region itself.
        modules: class and path of each object whose method runs, outermost first.
        checkpoint: the checkpointed region that it belongs to, or None.
        kept: where the capture breaks if it cannot be that the call runs, whose results a cache of the program keeps; None outside of such calls.
    """

    op: str
    target: Target
    args: RawArgs
    kwargs: RawKwargs
    token: tuple[Any, ...]
    location: CodeLocation | None
    stack: tuple[CodeLocation, ...]
    results: list[TensorLeaf] = attrs.field(init=False, factory=list)
    written: tuple[Storage, ...] = ()
    effect: bool = False
    random: bool = False
    mode: tuple[Any, Any] | None = None
    scope: StepScope | None = None
    checkpoint: Checkpoint | None = None
    modules: tuple[tuple[type, AccessPath], ...] = ()
    kept: int | None = None


@final
class Storage:
    """Memory that several leaves may share; a leaf without one is alone on its memory.

    Attributes:
        leaves: everything that lies in it, in order of appearance.
        written: some step wrote to it.
    """

    __slots__ = ("leaves", "written")

    def __init__(self, first: TensorLeaf) -> None:
        self.leaves: list[TensorLeaf] = [first]
        self.written = False

    def take_over(self, other: Storage) -> None:
        """What lies in the other one, which nothing has written, lies here from now on: a tensor consists of both."""
        if other is not self:
            for leaf in other.leaves:
                leaf.storage = self
            self.leaves += other.leaves


class TensorLeaf:
    """A tensor that a step makes.

    Attributes:
        record: its metadata now.
        step, way: which step made it, and the indices into that step's result.
        storage: None while it is alone on its memory.
        cls: what `type(x)` gives.
        alias: it was made as a view of another leaf.
        fake: a fake tensor in the state of `record`, when one was needed.
        stand_in: of a view, a fake that shares no memory with its base, and the record that it was made for: enough where
            nothing is written.
    """

    __slots__ = ("alias", "cls", "fake", "record", "stand_in", "step", "storage", "way")

    def __init__(self, record: TensorRecord, step: Step | None, way: tuple[Any, ...] = ()) -> None:
        self.record = record
        self.step = step
        self.way = way
        self.storage: Storage | None = None
        self.alias = False
        self.cls: Any = torch.Tensor
        self.fake: torch.Tensor | None = None
        self.stand_in: tuple[TensorRecord, torch.Tensor] | None = None

    def memory(self) -> Storage:
        """Its storage, made on demand."""
        if self.storage is None:
            self.storage = Storage(self)
        return self.storage

    def is_alone(self) -> bool:
        """Is no other leaf on the same memory?"""
        return self.storage is None or len(self.storage.leaves) == 1

    def __repr__(self) -> str:
        r = self.record
        return f"<{type(self).__name__} {r.dtype} {list(map(str, r.sizes))} {r.device}>"


@final
class InputLeaf(TensorLeaf):
    """A real tensor of the caller: a graph input.

    Attributes:
        real: the tensor at capture; of a subclass that sees calls, it as a plain tensor.
        path: where the guards find it.
        entry: the record at the start of the graph.
        found: the record at the start of the region: another one where a gradient is switched on in between.
        static: a parameter or buffer of a module.
        address_stays: the program promised that its memory stays where it is.
        object: the very tensor.
        new: emitted code makes it, before the graph runs.
    """

    __slots__ = ("address_stays", "entry", "found", "new", "object", "path", "real", "static")

    def __init__(self, record: TensorRecord, real: torch.Tensor, path: AccessPath, static: bool) -> None:
        super().__init__(record, None)
        self.real = self.object = real
        self.cls = type(real)
        self.path = path
        self.entry = self.found = record
        self.static = static
        self.address_stays = False
        self.new = False

    def leafness(self, location: CodeLocation | None) -> TensorMatches:
        """A guard for what depends on whether autograd made this tensor."""
        return self._also(location, is_leaf=self.found.is_leaf)

    def begins_at(self, location: CodeLocation | None) -> TensorMatches:
        """A guard for what depends on where this tensor begins in its storage."""
        return self._also(location, offset=int(self.real.storage_offset()))

    def _also(self, location: CodeLocation | None, **more: Any) -> TensorMatches:
        r = self.found
        free = (None,) * len(r.sizes)
        return TensorMatches(
            self.path, self.cls, r.dtype, r.device, r.requires_grad, free, None, location=location, **more
        )


@final
@attrs.define(eq=False)
class OpaqueLeaf:
    """A tensor that cannot be captured: it may pass through, every use of it breaks the graph."""

    real: torch.Tensor
    path: AccessPath
    reason: Reason


@final
@attrs.define(eq=False, repr=False)
class SymLeaf:
    """A number that only the graph knows: `value` is a torch.SymInt, SymBool or SymFloat.

    Attributes:
        expr: of an int, its expression; of a float that is an input, too.
        step: the step that computes it in the graph; None for a plain symbol, which is a graph input.
    """

    value: Any
    expr: Expr | FloatExpr | None
    step: Step | None
    way: Way = ()

    @property
    def key(self) -> Any:
        """What it is, hashable, or None."""
        if self.expr is not None:
            return self.expr
        node = self.value.node
        return getattr(node, "expression", None) or getattr(node, "condition", None)

    def __repr__(self) -> str:
        return f"<SymLeaf {self.value}>"
