"""What a package of one's own can add to captures: kinds of values, and handlers of instructions.

* `mirrored(cls, freeze=..., thaw=..., restore=...)`: a class of C whose objects hold constants, whole, in one call.
* `register(kind, TypeSlots(...))`: a kind with a class of values of its own (a subclass of `Obj`), whose parts may be any values; with
  `builtin` for its constructor, `method` for its methods, and `reads` for objects that come from outside.
* `override_opcode(name, handler)`: another handler for an instruction.

All of it holds for every capture of the process from then on: register when your package is imported. The tutorial has an example of each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from torchjit_vm.capture.builtin_table import builtin, method
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.mirrors import mirrored
from torchjit_vm.capture.reading import reads, wrap
from torchjit_vm.capture.rebuild import Rebuilder
from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.values import NEW, Const, Known, Leaf, ListValue, Obj, TupleValue, Value
from torchjit_vm.decode import forget_decoded
from torchjit_vm.instructions.registry import INSTRUCTIONS, Handler

if TYPE_CHECKING:
    from torchjit_vm.frame import Frame, Signal
    from torchjit_vm.interpreter import Interpreter

__all__ = [
    "NEW",
    "CaptureDomain",
    "Const",
    "Known",
    "Leaf",
    "ListValue",
    "Obj",
    "Rebuilder",
    "TupleValue",
    "TypeSlots",
    "Value",
    "builtin",
    "method",
    "mirrored",
    "override_opcode",
    "reads",
    "register",
    "wrap",
]

Override: TypeAlias = "Callable[[Handler, Interpreter[Any], Frame[Any], Any], Frame[Any] | Signal | None]"


def override_opcode(name: str, handler: Override) -> Callable[[], None]:
    """Run a handler of one's own in the place of an instruction's, in every domain.

    Args:
        name: of a canonical instruction, as `render_code` shows it.
        handler: takes the handler that was there, the interpreter, the frame and the instruction's argument. It has the same effect
            on the stack, and changes the stack only when nothing can raise any more.

    Returns:
        What puts the former handler back.

    Raises:
        KeyError: there is no such instruction.
    """
    former = INSTRUCTIONS[name]
    INSTRUCTIONS[name] = attrs.evolve(former, handler=functools.partial(handler, former.handler))
    forget_decoded()

    def put_back() -> None:
        INSTRUCTIONS[name] = former
        forget_decoded()

    return put_back
