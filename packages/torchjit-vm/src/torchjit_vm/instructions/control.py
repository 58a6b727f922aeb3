"""Jumps, loops, returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchjit_vm.frame import Signal
from torchjit_vm.instructions.registry import Handler, of_top, opcode

if TYPE_CHECKING:
    from torchjit_vm.frame import Frame, V
    from torchjit_vm.interpreter import Interpreter


@opcode("JUMP", "--")
def jump(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.pc = arg


def _pop_jump_if(wanted: bool) -> Handler:
    def run(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
        truth = vm.domain.truth(frame.stack[-1])
        del frame.stack[-1]
        if truth is wanted:
            frame.pc = arg

    return run


def _pop_jump_if_none(wanted: bool) -> Handler:
    def run(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
        none = vm.domain.is_(frame.stack[-1], vm.domain.constant(None))
        del frame.stack[-1]
        if none is wanted:
            frame.pc = arg

    return run


opcode("POP_JUMP_IF_TRUE", "value --")(_pop_jump_if(True))
opcode("POP_JUMP_IF_FALSE", "value --")(_pop_jump_if(False))
opcode("POP_JUMP_IF_NONE", "value --")(_pop_jump_if_none(True))
opcode("POP_JUMP_IF_NOT_NONE", "value --")(_pop_jump_if_none(False))


def _jump_or_pop_if(wanted: bool) -> Handler:
    def run(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
        if vm.domain.truth(frame.stack[-1]) is wanted:
            frame.pc = arg
        else:
            del frame.stack[-1]

    return run


opcode("JUMP_IF_TRUE_OR_POP", "value -- | jump: --")(_jump_or_pop_if(True))
opcode("JUMP_IF_FALSE_OR_POP", "value -- | jump: --")(_jump_or_pop_if(False))
opcode("GET_ITER", "iterable -- iterator")(of_top("iter"))


@opcode("FOR_ITER", "-- item | jump: iterator --")
def for_iter(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    item = vm.domain.next(frame.stack[-1])
    if item is None:
        del frame.stack[-1]
        frame.pc = arg
    else:
        frame.stack.append(item)


@opcode("RETURN_VALUE", "value --")
def return_value(vm: Interpreter[V], frame: Frame[V], arg: int) -> Signal:
    frame.result = frame.stack.pop()
    frame.suspended = False
    return Signal.RETURN
