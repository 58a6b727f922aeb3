"""Raising, matching and handling exceptions; with blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchjit_vm.frame import Frame, Raised, V
from torchjit_vm.instructions.registry import Handler, of_top, opcode, pushed

if TYPE_CHECKING:
    from torchjit_vm.interpreter import Interpreter


@opcode("RAISE_VARARGS", "parts[oparg] --")
def raise_varargs(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    if arg == 0:
        if vm.current is None:
            raise vm.domain.error(RuntimeError, "No active exception to reraise")
        raise Raised(vm.current, again=True)
    exception = frame.stack[-arg]
    cause = frame.stack[-1] if arg == 2 else None
    value = vm.domain.make_raise(exception, cause)
    vm.domain.chain(value, vm.current)
    raise Raised(value)


@opcode("RERAISE", "exception --")
def reraise(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    raise Raised(frame.stack[-1], again=True)


@opcode("PUSH_EXC_INFO", "exception -- handled, exception")
def push_exc_info(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    exception = frame.stack[-1]
    frame.stack[-1] = vm.domain.constant(None) if vm.handled is None else vm.handled
    frame.stack.append(exception)
    vm.handled = exception


@opcode("POP_EXCEPT", "handled --")
def pop_except(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    previous = frame.stack.pop()
    vm.handled = None if vm.domain.is_(previous, vm.domain.constant(None)) else previous


@opcode("CHECK_EXC_MATCH", "exception, type -- exception, bool")
def check_exc_match(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    stack = frame.stack
    stack[-1] = vm.domain.constant(vm.domain.exception_matches(stack[-2], stack[-1]))


@opcode("LOAD_ASSERTION_ERROR", "-- type")
def load_assertion_error(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.stack.append(vm.domain.assertion_error())


opcode("STOPITERATION_ERROR", "exception -- exception")(of_top("stop_iteration_error"))


def _before(enter_name: str, leave_name: str) -> Handler:
    def run(vm: Interpreter[V], frame: Frame[V], arg: int) -> Frame[V] | None:
        stack = frame.stack
        enter = vm.domain.load_special(stack[-1], enter_name)
        leave = vm.domain.load_special(stack[-1], leave_name)
        result = vm.domain.call(enter, [], {})
        stack[-1] = leave
        return pushed(frame, result)

    return run


opcode("BEFORE_WITH", "manager -- exit, entered")(_before("__enter__", "__exit__"))
opcode("BEFORE_ASYNC_WITH", "manager -- exit, entered")(_before("__aenter__", "__aexit__"))


@opcode("WITH_EXCEPT_START", "exit, lasti, handled, exception -- exit, lasti, handled, exception, result")
def with_except_start(vm: Interpreter[V], frame: Frame[V], arg: int) -> Frame[V] | None:
    stack = frame.stack
    result = vm.domain.call(stack[-4], vm.domain.exception_triple(stack[-1]), {})
    return pushed(frame, result)
