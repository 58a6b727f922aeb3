"""Moving values between the stack, the constants and the local variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchjit_core.reasons import GraphBreak, reason
from torchjit_vm.frame import NULL
from torchjit_vm.instructions.registry import opcode

if TYPE_CHECKING:
    from torchjit_vm.frame import Frame, V
    from torchjit_vm.interpreter import Interpreter

UNSUPPORTED_INSTRUCTION = reason(
    "TJ-VM-001",
    "an instruction that the interpreter does not run",
    "The bytecode of this Python version has an instruction that the symbolic interpreter refuses.",
)


@opcode("UNSUPPORTED", "--")
def unsupported(vm: Interpreter[V], frame: Frame[V], arg: str) -> None:
    raise GraphBreak(UNSUPPORTED_INSTRUCTION, arg, frame.code.location(frame.pc - 1))


@opcode("POP_TOP", "value --")
def pop_top(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.stack.pop()


@opcode("PUSH_NULL", "-- null")
def push_null(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.stack.append(NULL)


@opcode("SWAP", "--")
def swap(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    stack = frame.stack
    stack[-1], stack[-arg] = stack[-arg], stack[-1]


@opcode("COPY", "-- value")
def copy(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.stack.append(frame.stack[-arg])


@opcode("LOAD_CONST", "-- constant")
def load_const(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.stack.append(frame.consts[arg])


@opcode("LOAD_FAST", "-- value")
def load_fast(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    value = frame.fast[arg]
    if value is None:
        raise unbound(vm, frame, arg)
    frame.stack.append(value)


@opcode("LOAD_FAST_AND_CLEAR", "-- value")
def load_fast_and_clear(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    value = frame.fast[arg]
    frame.stack.append(NULL if value is None else value)
    frame.fast[arg] = None


@opcode("STORE_FAST", "value --")
def store_fast(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.fast[arg] = frame.stack.pop()


@opcode("DELETE_FAST", "--")
def delete_fast(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    if frame.fast[arg] is None:
        raise unbound(vm, frame, arg)
    frame.fast[arg] = None


def unbound(vm: Interpreter[V], frame: Frame[V], arg: int) -> Exception:
    """The error for a local variable without a value."""
    name = frame.code.locals[arg]
    return vm.domain.error(
        UnboundLocalError, f"cannot access local variable '{name}' where it is not associated with a value"
    )
