"""Jumps, loops, returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchjit_vm.frame import Signal
from torchjit_vm.instructions.registry import Handler, opcode

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


@opcode("JUMP_IF_TRUE_OR_POP", "value -- | jump: --")
def jump_if_true_or_pop(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    if vm.domain.truth(frame.stack[-1]):
        frame.pc = arg
    else:
        del frame.stack[-1]


@opcode("JUMP_IF_FALSE_OR_POP", "value -- | jump: --")
def jump_if_false_or_pop(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    if vm.domain.truth(frame.stack[-1]):
        del frame.stack[-1]
    else:
        frame.pc = arg


@opcode("GET_ITER", "iterable -- iterator")
def get_iter(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.stack[-1] = vm.domain.iter(frame.stack[-1])


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
