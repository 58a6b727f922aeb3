"""What the capture is told from outside: the policy, and the protocols of leaf handler and region compiler."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any, NoReturn, Protocol, final

import attrs

from torchjit_core.guards import Guard
from torchjit_core.location import CodeLocation
from torchjit_core.paths import AccessPath
from torchjit_core.reasons import GraphBreak, Reason
from torchjit_core.region import RegionCode

__all__ = [
    "AtomicPolyfill",
    "BreakForbidden",
    "CaptureContext",
    "CapturePolicy",
    "DeferredHandle",
    "DictChainGetattr",
    "Foldable",
    "Interception",
    "IsKnownNumber",
    "LeafHandler",
    "LeftAlone",
    "NewObject",
    "PassThrough",
    "RegionCompiler",
    "ReturnConstant",
]


@final
class BreakForbidden(Exception):
    """A graph break where the program said that breaks are errors; `why` is the break."""

    def __init__(self, why: GraphBreak) -> None:
        super().__init__(str(why))
        self.why = why


@final
@attrs.frozen
class LeftAlone:
    """Why calls of a callable are breaks.

    Attributes:
        reason: the registered reason.
        said: what the program says about it, for people.
        says_argument: an argument of a call, if it is a text, is for people too.
        names_argument: the first argument of a call, not the callable, is what people look for: a class, or an object of one.
        forbidden: a call is an error of the program, not a break.
    """

    reason: Reason
    said: str = ""
    says_argument: bool = False
    names_argument: bool = False
    forbidden: bool = False


@final
@attrs.frozen
class NewObject:
    """Raw marker: an instance of `type`, a tuple or list subclass, over raw items."""

    type: type
    items: tuple[object, ...]


@final
@attrs.frozen
class ReturnConstant:
    """A substitute: calls give this constant, whatever the arguments.

    Attributes:
        value: the constant.
        pretended: plain Python would be told something else. An exception that leaves a region which was told so is not
            trusted: the region runs in plain Python instead.
        unpretended: code that is told `plain` instead: what it does under a compiler would show.
        plain: what plain Python is told.
    """

    value: object
    pretended: bool = False
    unpretended: frozenset[CodeType] = frozenset()
    plain: object = None


@final
@attrs.frozen
class DeferredHandle:
    """A substitute: a call gives a number that no other call gives, which `take` draws at the end of the region.

    Until then it can be kept, compared and be a key; a decision about its value breaks.
    """

    take: Callable[[object], int]


@final
@attrs.frozen
class IsKnownNumber:
    """A substitute: is the call's argument a constant of the capture, or does it come from a `DeferredHandle` in this region?

    Numbers that vary from call to call are neither.
    """


@final
@attrs.frozen
class AtomicPolyfill:
    """A substitute: `function` is interpreted instead, in a loop of its own.

    A break or an exception anywhere below it becomes a break at the call itself, which then runs the original.
    """

    function: Callable[..., object]


@final
@attrs.frozen
class Foldable:
    """A substitute: `function` is interpreted instead, but where all arguments are constants `original` is called for real, at capture."""

    original: Callable[..., object]
    function: Callable[..., object]


@final
@attrs.frozen
class DictChainGetattr:
    """A substitute for a `__getattr__` that looks the name up in dicts of the instance (as nn.Module's does).

    Attributes:
        dicts: names of instance attributes that hold dicts, in the order of the search.
    """

    dicts: tuple[str, ...]


@final
@attrs.frozen
class PassThrough:
    """A substitute for a method that only passes its arguments on to another method of the same object, unless something
    is in the way; then the original is interpreted.

    Attributes:
        code: of the function that this describes; with another one it is interpreted.
        method: what gets the arguments.
        none: attributes of the object that must be None.
        empty: attributes that must be empty dicts.
        empty_globals: globals of the function that must be empty dicts.
        told_no: dotted names, from a global on, of functions that must answer no; asked once per capture.
    """

    code: CodeType
    method: str
    none: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    empty_globals: tuple[str, ...] = ()
    told_no: tuple[tuple[str, ...], ...] = ()


@final
@attrs.frozen
class Interception:
    """A stack of the program's objects whose method answers calls that would go to the leaf handler.

    Attributes:
        push, pop: the C functions that change the stack.
        method: the name of the method.
        seen_as: given the leaf handler, a callable and its raw arguments: the raw arguments of the method, or None for a call that
            is not intercepted.
        overriding: given the leaf handler and raw arguments: the classes of leaves whose method gets to see the call, in order. It is
            asked while the state `subclasses` is set and `dispatch_off` is not.
    """

    push: Callable[..., object]
    pop: Callable[..., object]
    method: str
    seen_as: Callable[[Any, Callable[..., object], tuple[object, ...], dict[str, object]], tuple[object, ...] | None]
    overriding: Callable[[Any, tuple[object, ...], dict[str, object]], tuple[type, ...]] | None = None


class CaptureContext(Protocol):
    """What a leaf handler may ask of the capture."""

    def guard(self, guard: Guard) -> None: ...
    def location(self) -> CodeLocation: ...
    def stack(self) -> tuple[CodeLocation, ...]: ...
    def receivers(self) -> tuple[tuple[type, AccessPath], ...]: ...
    def new_object(self, type: type, items: Sequence[object]) -> object: ...
    def state(self, key: str) -> object: ...
    def set_state(self, key: str, value: object) -> None: ...
    def prepare(self, function: Callable[..., object], args: tuple[object, ...]) -> AccessPath: ...
    def forbid_effects(self, forbid: bool) -> None: ...
    def mark(self) -> int: ...
    def call_mark(self) -> int: ...
    def may_catch(self, anything: bool = False) -> bool: ...
    def runs_again(self) -> bool: ...
    def in_block(self) -> bool: ...
    def has_stores(self, leaf: object) -> bool: ...
    def names_used(self) -> frozenset[str]: ...
    def break_at_mark(self, mark: int, why: GraphBreak) -> NoReturn: ...


class LeafHandler(Protocol):
    """Gives meaning to leaves. See docs/design/0001-interfaces.md for each method."""

    @property
    def leaf_types(self) -> tuple[type, ...]: ...

    def wants(self, obj: object, path: AccessPath | None) -> bool: ...
    def input(self, obj: object, path: AccessPath | None, capture: CaptureContext) -> object: ...
    def type_of(self, leaf: object) -> type: ...
    def handles(self, fn: object) -> bool: ...
    def call(
        self, fn: object, args: tuple[object, ...], kwargs: dict[str, object], capture: CaptureContext
    ) -> object: ...
    def owns_attribute(self, leaf: object, name: str) -> bool: ...
    def getattr(self, leaf: object, name: str, capture: CaptureContext) -> object: ...
    def setattr(self, leaf: object, name: str, value: object, capture: CaptureContext) -> bool: ...
    def truth(self, leaf: object, capture: CaptureContext) -> bool: ...
    def number(self, leaf: object) -> int | float | None: ...
    def assume(
        self, leaf: object, truth: bool, message: str | None, capture: CaptureContext, *, in_place: bool = False
    ) -> bool: ...
    def iterate(self, leaf: object, capture: CaptureContext) -> Sequence[object]: ...


class RegionCompiler(Protocol):
    """Turns what the leaf handler recorded into a callable."""

    def compile_region(self, leaves: Sequence[object], capture: CaptureContext) -> RegionCode: ...


@final
@attrs.frozen
class CapturePolicy:
    """How to capture.

    Attributes:
        fullgraph: a break is an error, raised from `capture`.
        breaks_are_errors: the same, as `BreakForbidden`; a leaf handler changes it under way with
            `CaptureContext.set_state("breaks_are_errors", flag)`.
        inline: may this Python function be interpreted? If not, its call is a break.
        disabled: why calls of this callable are breaks, or None.
        disabling_marks: names of attributes to reasons: calls of a function that the region itself makes, and gives such an attribute, are
            breaks, too. Its text is what the program says about it.
        allow_in_graph: functions whose calls go to the leaf handler unseen.
        substitutes: real function to what is called instead: a callable, `ReturnConstant`, `AtomicPolyfill`,
            `Foldable`, `PassThrough` or `DictChainGetattr`. A class method may be given by its descriptor: then it holds for every subclass.
        assume_constant: functions called for real at capture; their result is a constant.
        pure: more C functions, and classes of values, that are called for real when all arguments are constants.
        reorderable: functions that only report (`print`), whose calls may be made at the end of the region, in order.
            What they are given is kept as it is then; a leaf shows its value at the end.
        remade: of classes whose instances stand for others in a region, as they are interpreted, the class of those, and which attributes
            its constructor is given.
        value_types: types whose instances are immutable values with a trustworthy `==` (torch.dtype, torch.device):
            guarded by value, attributes and methods evaluated at capture.
        plain_number: given a callable of the leaf handler or a conversion (`int`, `float` ...), one of `value_types` and the types of
            the leaves among the arguments: what makes of such a value the Python number that the call may be given in its place
            without any difference; None if there is one.
        number_limits: the smallest and the largest number that a type among `value_types` holds, where it computes sums, differences
            and products as Python does up to there; None for other types.
        may_import: may a module be imported at capture, by its full name, since nothing comes of it that a graph could miss? Then `capture`
            raises `ModuleImported`.
        class_makers: metaclasses of a library that may run as a whole at capture, for a class that the program makes.
        order_free: code of functions of a library that go through sets and give the same in whatever order.
        whole_calls: reasons for which the outermost inlined call that holds no leaf runs for real, as a whole: what
            breaks there would break again and again.
        whole_callers: of a reason the code of functions of a library. Where such functions, one called by the other, lead to
            what breaks, the call of the outermost one runs for real, as a whole.
        interception: the program's stack of interceptors, if there is such a thing. While it is not empty,
            `CaptureContext.state("intercepted")` says how many there are.
        is_user_code: does this code belong to the user (for source locations)?
        step_limit: instructions per region.
        tail_call: makes, of a callable and its arguments, what the emitted code returns for the front door to call once the
            emitted frame has ended; so the rest of a function runs at the depth of the stack that it has in plain Python. Of an
            exception alone: raises it, and adds nothing to its traceback. None: the emitted code does both itself.
        graph_raised: makes, of an exception of the graph call, the one that emitted code raises instead, where nothing outside has
            changed yet: whoever called the emitted code then runs the region's own code in its place. None: nobody does.
    """

    fullgraph: bool = False
    breaks_are_errors: bool = False
    inline: Callable[[FunctionType], bool] = lambda function: True
    disabled: Callable[[object], LeftAlone | None] = lambda function: None
    disabling_marks: Mapping[str, Reason] = attrs.field(factory=dict)
    allow_in_graph: Container[object] = ()
    substitutes: Mapping[Any, object] = attrs.field(factory=dict)
    assume_constant: Container[object] = ()
    pure: Collection[object] = ()
    reorderable: Collection[object] = ()
    remade: Mapping[type, tuple[type, tuple[str, ...]]] = attrs.field(factory=dict)
    value_types: tuple[type, ...] = ()
    plain_number: Callable[[object, type, Sequence[type]], Callable[[Any], int | float] | None] = (
        lambda function, cls, kinds: None
    )
    number_limits: Callable[[type], tuple[float, float] | None] = lambda cls: None
    may_import: Callable[[str], bool] = lambda name: False
    class_makers: Collection[type] = ()
    order_free: Container[CodeType] = ()
    whole_calls: Collection[Reason] = ()
    whole_callers: Mapping[Reason, Container[CodeType]] = attrs.field(factory=dict)
    interception: Interception | None = None
    is_user_code: Callable[[CodeType], bool] = lambda code: True
    step_limit: int = 2_000_000
    tail_call: Callable[..., Any] | None = None
    graph_raised: Callable[[Exception], Exception] | None = None
