"""What the region does to the world, as it is noted at capture for emitted code to do."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeAlias, final

import attrs

if TYPE_CHECKING:
    from torchjit_core.location import CodeLocation
    from torchjit_vm.capture.values import Known, Obj, Value
    from torchjit_vm.frame import Frame

__all__ = ["Draw", "MadeClass", "Part", "Prepared", "ReorderedCall", "Settled", "Standin", "Step"]


@final
@attrs.frozen
class Standin:
    """What a frame looks like from outside.

    Attributes:
        code: its code object, for the names of file and function.
        location: of its current instruction.
        globals: its module's dict.
    """

    code: CodeType
    location: CodeLocation
    globals: dict[str, object]

    @classmethod
    def of(cls, frame: Frame[Value], index: int | None = None) -> Standin:
        """At an instruction, by default the current one."""
        index = frame.pc - 1 if index is None else index
        return cls(frame.code.code, frame.code.location(index), frame.globals)


@final
@attrs.frozen
class ReorderedCall:
    """A call that was put off: the real function, its arguments, and the frames that made it, outermost first.

    `early`: no leaf operation came before it, so it is made before the graph, which may raise.
    """

    function: object
    args: tuple[Value, ...]
    kwargs: Mapping[str, Value]
    frames: tuple[Standin, ...]
    early: bool


@final
@attrs.frozen
class Draw:
    """A call of a function of a generator: the function, the generator, constant arguments."""

    function: Callable[..., object]
    generator: Obj
    args: tuple[object, ...] = ()
    kwargs: dict[str, object] = attrs.field(factory=dict)


@final
@attrs.frozen
class Part:
    """An item of the list that another draw gives."""

    draw: int
    index: int


@final
@attrs.frozen(eq=False)
class Settled:
    """The state of a generator that the region seeded: that of the twin at the end, or at the next other step."""

    generator: Obj
    twin: random.Random


@final
@attrs.frozen
class Prepared:
    """What the leaf handler asked for: a new object, in each call, from a function of constants."""

    function: Callable[..., object]
    args: tuple[object, ...]


Step: TypeAlias = "Draw | Part | Prepared | Settled"


@final
@attrs.define(eq=False)
class MadeClass:
    """How the region made a class, so that emitted code can do it again.

    Attributes:
        make: `make_class` or `make_library_class`; None if `before` was changed into this class by the last of its calls.
        meta, name, bases, namespace, keywords: its arguments.
        log: what happened to the class later, in order: ("set", name, value), ("delete", name) and
            ("call", function, further arguments, keywords, the class in its place or None).
        before: the class that a decorator replaced with this one.
        born: the step of the instruction that made it.
    """

    make: Callable[..., type] | None
    meta: Known
    name: str
    bases: list[Known]
    namespace: dict[str, Value]
    keywords: dict[str, Value]
    before: type | None = None
    log: list[tuple[Any, ...]] = attrs.field(factory=list)
    born: int = attrs.field(kw_only=True)
