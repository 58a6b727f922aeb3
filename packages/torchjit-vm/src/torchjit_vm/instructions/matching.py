"""The match statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchjit_vm.instructions.registry import Handler, opcode

if TYPE_CHECKING:
    from torchjit_vm.frame import Frame, V
    from torchjit_vm.interpreter import Interpreter


@opcode("GET_LEN", "value -- value, length")
def get_len(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.stack.append(vm.domain.length(frame.stack[-1]))


def _testing(operation: str) -> Handler:
    def run(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
        frame.stack.append(vm.domain.constant(getattr(vm.domain, operation)(frame.stack[-1])))

    return run


opcode("MATCH_SEQUENCE", "value -- value, bool")(_testing("match_sequence"))
opcode("MATCH_MAPPING", "value -- value, bool")(_testing("match_mapping"))


@opcode("MATCH_KEYS", "value, keys -- value, keys, values")
def match_keys(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    stack = frame.stack
    found = vm.domain.match_keys(stack[-2], stack[-1])
    stack.append(vm.domain.constant(None) if found is None else found)


@opcode("MATCH_CLASS", "value, class, names -- attributes")
def match_class(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    stack = frame.stack
    found = vm.domain.match_class(stack[-3], stack[-2], arg, stack[-1])
    stack[-3:] = [vm.domain.constant(None) if found is None else found]
