"""Generators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchjit_core.reasons import GraphBreak
from torchjit_vm.frame import Frame, Raised, Signal, V
from torchjit_vm.instructions.registry import Handler, of_top, opcode
from torchjit_vm.instructions.stack import UNSUPPORTED_INSTRUCTION

if TYPE_CHECKING:
    from torchjit_vm.interpreter import Interpreter


@opcode("RETURN_GENERATOR", "-- sent")
def return_generator(vm: Interpreter[V], frame: Frame[V], arg: int) -> Signal:
    frame.result = vm.domain.make_generator(frame)
    return Signal.GENERATOR


@opcode("YIELD_VALUE", "value -- sent")
def yield_value(vm: Interpreter[V], frame: Frame[V], arg: int) -> Signal:
    frame.result = frame.stack.pop()
    frame.suspended = True
    return Signal.YIELD


opcode("GET_YIELD_FROM_ITER", "iterable -- iterator")(of_top("iter"))
opcode("GET_AITER", "iterable -- iterator")(of_top("aiter"))


def _sending(keeps: bool) -> Handler:
    """To the iterator below; with `keeps` that stays there when it has ended."""

    def run(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
        stack = frame.stack
        done, value = vm.domain.send(stack[-2], stack[-1])
        stack[-1] = value
        if done:
            frame.pc = arg
            if not keeps:
                del stack[-2]

    return run


opcode("SEND", "-- | jump: receiver --")(_sending(keeps=False))
opcode("SEND_KEEPING", "-- | jump: --")(_sending(keeps=True))


@opcode("GET_AWAITABLE", "awaitable -- iterator")
def get_awaitable(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.stack[-1] = vm.domain.get_awaitable(frame.stack[-1], _AWAITED_BY.get(arg))


_AWAITED_BY = {1: "__aenter__", 2: "__aexit__"}


@opcode("GET_ANEXT", "iterator -- iterator, awaitable")
def get_anext(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.stack.append(vm.domain.anext(frame.stack[-1]))


@opcode("END_ASYNC_FOR", "iterator, exception --")
def end_async_for(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    exception = frame.stack[-1]
    if not vm.domain.ends_async_for(exception):
        raise Raised(exception, again=True)
    del frame.stack[-2:]


@opcode("END_SEND", "receiver, value -- value")
def end_send(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    del frame.stack[-2]


@opcode("CLEANUP_THROW", "receiver, sent, exception -- none, value")
def cleanup_throw(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    # What the receiver of a throw returns goes on behind the `yield from` (`finish_delegation`); the rest comes here.
    exception = frame.stack[-1]
    if vm.domain.stop_iteration_error(exception) is not exception:
        raise GraphBreak(UNSUPPORTED_INSTRUCTION, "CLEANUP_THROW of StopIteration", frame.code.location(frame.pc - 1))
    raise Raised(exception)
