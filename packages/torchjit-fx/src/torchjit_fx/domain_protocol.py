"""What the handlers of calls see of the tensor domain. `TensorDomain` provides it; mypy proves that where it passes itself on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from torchjit_core.paths import AccessPath
from torchjit_core.reasons import GraphBreak
from torchjit_fx.assigned_data import AssignedData
from torchjit_fx.fakes import FakeFactory
from torchjit_fx.inference import Place
from torchjit_fx.input_memory import InputMemory
from torchjit_fx.known_numbers import KnownNumbers
from torchjit_fx.leaves import Function, Raw, RawArgs, RawKwargs, Step, StepScope, Storage, SymLeaf, Target, TensorLeaf
from torchjit_fx.metas import MetaService
from torchjit_fx.modes import TorchModes
from torchjit_fx.protocols import CaptureContext, SymbolicSizes
from torchjit_fx.selections import Selections
from torchjit_fx.settings import FxSettings
from torchjit_fx.symbols.numbers import SymbolicNumbers

__all__ = ["CallDomain", "StepRecorder"]

_State = TypeVar("_State")


class StepRecorder(Protocol):
    """The steps of one region; see `tracing.Recorder`."""

    steps: list[Step]
    writes: list[Storage]
    scope: StepScope | None
    several_views: dict[int, int]

    @property
    def modes(self) -> TorchModes: ...
    @property
    def place(self) -> Place: ...
    @property
    def data(self) -> AssignedData: ...
    @property
    def selections(self) -> Selections: ...
    @property
    def checkpointed(self) -> bool: ...

    def call(self, fn: Function, args: RawArgs, kwargs: RawKwargs, capture: CaptureContext) -> Raw:
        """Record one call and give its raw result."""

    def record(self, target: Target, args: RawArgs, capture: CaptureContext) -> Raw:
        """Record a call of a callable that belongs to this capture alone."""

    def remembered(self, asked: Sequence[Raw]) -> tuple[bool, tuple[int, GraphBreak] | None]:
        """Would a backward pass after the region read what autograd remembers of a tensor with other memory since?"""

    def enter_checkpoint(self, policy: Callable[..., Any] | None = None) -> None:
        """A checkpointed region begins."""

    def leave_checkpoint(self) -> None:
        """It ends."""

    def add_leaf(self, leaf: TensorLeaf, capture: CaptureContext) -> None:
        """Record that a tensor becomes a leaf of autograd."""

    def add_check(self, leaf: SymLeaf, text: str, capture: CaptureContext) -> None:
        """Record a test of a condition that only the run knows."""

    def add_test(self, fn: Function, args: RawArgs, capture: CaptureContext) -> None:
        """Record an operation without results, which stays."""

    def add_differentiation(self, fn: Function, args: RawArgs, capture: CaptureContext) -> None:
        """Record a call of `autograd.grad` that gives no tensor."""

    def add_mode_change(self, fn: Function, args: RawArgs, mode: tuple[Any, Any], capture: CaptureContext) -> None:
        """Record a call that sets ambient state."""


class CallDomain(Protocol):
    """The tensor domain of one capture, as handlers of calls use it.

    Attributes:
        needs_history: operations must run one by one, as autograd's history of them is asked for: no compiled graph can be.
    """

    needs_history: bool

    @property
    def settings(self) -> FxSettings: ...
    @property
    def sizes(self) -> SymbolicSizes: ...
    @property
    def modes(self) -> TorchModes: ...
    @property
    def numbers(self) -> SymbolicNumbers: ...
    @property
    def fakes(self) -> FakeFactory: ...
    @property
    def metas(self) -> MetaService: ...
    @property
    def memory(self) -> InputMemory: ...
    @property
    def recorder(self) -> StepRecorder: ...
    @property
    def known(self) -> KnownNumbers: ...

    def of(self, feature: Callable[[CallDomain], _State]) -> _State:
        """The state of one feature in this capture: made by its class, which is given the domain, when first asked for."""

    def input(self, obj: object, path: AccessPath | None, capture: CaptureContext) -> Raw:
        """The leaf of a real object."""

    def call(self, fn: Function, args: RawArgs, kwargs: RawKwargs, capture: CaptureContext) -> Raw:
        """Do a call on raw arguments."""

    def call_plainly(self, fn: Function, args: RawArgs, kwargs: RawKwargs, capture: CaptureContext) -> Raw:
        """Do a call whose errors the program does not catch."""

    def dimension(self, leaf: TensorLeaf, dim: int, capture: CaptureContext) -> int | SymLeaf:
        """The size of one dimension."""

    def arithmetic(self, fn: Function, args: RawArgs, capture: CaptureContext) -> Raw:
        """Python arithmetic on numbers of which one is a float that varies."""

    def concrete(self, leaf: SymLeaf, capture: CaptureContext) -> Raw:
        """The value of a symbolic number at capture; the specialisation then holds for this value only."""

    def truth(self, leaf: object, capture: CaptureContext) -> bool:
        """`bool(leaf)`."""
