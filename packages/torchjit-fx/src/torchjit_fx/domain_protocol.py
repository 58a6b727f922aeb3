"""What the handlers of calls see of the tensor domain. `TensorDomain` provides it; mypy proves that where it passes itself on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch
from torch import fx

from torchjit_core.paths import AccessPath
from torchjit_fx.fakes import FakeFactory
from torchjit_fx.input_memory import InputMemory
from torchjit_fx.known_numbers import KnownNumbers
from torchjit_fx.leaves import Function, Raw, RawArgs, RawKwargs, SymLeaf, TensorLeaf
from torchjit_fx.metas import MetaService
from torchjit_fx.modes import TorchModes
from torchjit_fx.protocols import CaptureContext, SymbolicSizes
from torchjit_fx.settings import FxSettings
from torchjit_fx.symbols.numbers import SymbolicNumbers
from torchjit_fx.tracing import Recorder
from torchjit_fx.versions import CaptureFakeMode

__all__ = ["CallDomain", "Feature"]

_State = TypeVar("_State")


class Feature:
    """State of one feature in a capture that begins empty, see `CallDomain.of`: the first base of a container."""

    def __init__(self, domain: CallDomain) -> None:
        super().__init__()


class CallDomain(Protocol):
    """The tensor domain of one capture, as handlers of calls use it.

    Attributes:
        needs_history: operations must run one by one, as autograd's history of them is asked for: no compiled graph can be.
        writes_outside: set at the end: the region's graph writes to what was there before.
    """

    needs_history: bool
    writes_outside: bool

    @property
    def mode(self) -> CaptureFakeMode: ...
    @property
    def compile_graph(self) -> Callable[[fx.GraphModule, list[Raw]], Function]: ...
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
    def recorder(self) -> Recorder: ...
    @property
    def known(self) -> KnownNumbers: ...

    def of(self, feature: Callable[[CallDomain], _State]) -> _State:
        """The state of one feature in this capture: made by its class, which is given the domain, when first asked for."""

    def input(self, obj: object, path: AccessPath | None, capture: CaptureContext) -> Raw:
        """The leaf of a real object."""

    def fixed_input(self, obj: torch.Tensor, path: AccessPath, capture: CaptureContext) -> Raw:
        """The leaf of a plain tensor whose sizes are constants of the graph."""

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
