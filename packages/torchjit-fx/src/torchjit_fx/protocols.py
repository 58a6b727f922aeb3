"""What the tensor domain needs from the interpreter that drives it, and from the owner of symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from torchjit_core.expr import Condition, Expr, Symbol
from torchjit_core.guards import Guard
from torchjit_core.location import CodeLocation
from torchjit_core.marks import SizeMark
from torchjit_core.paths import AccessPath
from torchjit_core.reasons import GraphBreak

__all__ = ["CaptureContext", "SymbolicSizes"]


class CaptureContext(Protocol):
    """The interpreter, as far as the tensor domain uses it."""

    def guard(self, guard: Guard) -> None:
        """Record what the specialisation relies on."""

    def location(self) -> CodeLocation:
        """The user's current instruction, in the innermost user frame."""

    def stack(self) -> tuple[CodeLocation, ...]:
        """The user's frames, outermost first."""

    def receivers(self) -> tuple[tuple[type, AccessPath], ...]:
        """Class and path of the `self` of each active method that has one from outside, outermost first."""

    def new_object(self, type: type, items: Sequence[object], /) -> object:
        """A raw marker for an instance of a tuple or list subclass over raw items."""

    def state(self, key: str, /) -> object:
        """Ambient state of the capture; `intercepted`: how many torch function modes the region has entered."""

    def set_state(self, key: str, value: object, /) -> None:
        """Change it."""

    def prepare(self, function: Callable[..., object], args: tuple[Any, ...]) -> AccessPath:
        """Where the graph finds what `function(*args)` gives, a new object in each call, made before the graph runs."""

    def forbid_effects(self, forbid: bool) -> None:
        """From now on the program may not change what was there before (or may again): the code runs later."""

    def mark(self) -> int:
        """The instruction of the outermost frame that is being interpreted, for `break_at_mark`."""

    def call_mark(self) -> int:
        """The instruction that called the function that is being interpreted, for `break_at_mark`."""

    def may_catch(self, anything: bool = False) -> bool:
        """Could the program see an exception of the current instruction before it leaves the region? `anything`: one of any class,
        not only those that computations on tensors raise."""

    def runs_again(self) -> bool:
        """Does the program's own code run in place of a region whose graph raises? Not where the region, before its graph, has
        changed something that was there before."""

    def in_block(self) -> bool:
        """Is the current instruction in a `try` or `with`, of whatever code?"""

    def has_stores(self, leaf: object) -> bool:
        """Has the program stored attributes on this leaf, which its object gets at the region's end?"""

    def names_used(self) -> frozenset[str]:
        """The names of attributes and globals in the code of the frames that have not ended."""

    def break_at_mark(self, mark: int, why: GraphBreak) -> NoReturn:
        """What was captured at `mark` cannot stay: the capture starts again and breaks there."""


class SymbolicSizes(Protocol):
    """Decides which integers are symbols, and decides conditions over them.

    `dynamic`: True where sizes are symbols from the first call on, None where those are that changed, False for none.
    """

    dynamic: bool | None

    def size(
        self, value: int, path: AccessPath, *, dynamic: bool | None = None, mark: SizeMark | None = None
    ) -> int | Expr:
        """`value` itself where it is static, or the expression that stands for it."""

    def varies(self, value: float, path: AccessPath) -> bool:
        """Is the float at this path an input of the graph rather than a constant?"""

    def guard_numbers(
        self, expression: str, names: tuple[tuple[str, AccessPath], ...], location: CodeLocation | None
    ) -> None:
        """Record a condition over floats and ints that holds at capture, see `SymbolicCondition`."""

    def hint(self, expr: Expr) -> int:
        """The value at capture, for a decision."""

    def example(self, expr: Expr) -> int:
        """The value at capture, also where no decision may look at it."""

    def laid_out(self, condition: Condition, location: CodeLocation | None) -> None:
        """An input lies in memory so, see `guard`."""

    def guard(self, condition: Condition, location: CodeLocation | None) -> bool:
        """Decide with the values at capture, and record."""

    def known(self, condition: Condition) -> bool | None:
        """Decide for all values, without recording."""

    def unbacked(self, name_hint: str, lower: int | None, upper: int | None) -> Expr:
        """A symbol whose value only the run knows."""

    def bound(self, expr: Expr, lower: int | None, upper: int | None) -> None:
        """A number that only the run knows lies in this range by what makes it."""

    def oblivious(self, condition: Condition) -> bool | None:
        """The truth if sizes that only the run knows are neither 0 nor 1; None where even that does not decide it."""

    def assume(self, condition: Condition, location: CodeLocation | None) -> None:
        """Take for true what the program tests when it runs."""

    def guards(self) -> tuple[Guard, ...]:
        """What was assumed so far."""

    def sources(self) -> Mapping[Symbol, AccessPath]:
        """Where the value of each backed symbol is found."""
