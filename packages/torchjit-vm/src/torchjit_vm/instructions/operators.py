"""Unary and binary operators, comparisons, subscripts, attributes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchjit_vm.frame import NULL, Completion, Frame, V
from torchjit_vm.instructions.registry import Handler, of_top, opcode, pushed

if TYPE_CHECKING:
    from torchjit_vm.interpreter import Interpreter

_Function = Callable[..., Any]


@opcode("UNARY_OP", "value -- result")
def unary_op(vm: Interpreter[V], frame: Frame[V], arg: _Function) -> None:
    frame.stack[-1] = vm.domain.unary(arg, frame.stack[-1])


opcode("UNARY_NOT", "value -- result")(of_top("not_"))


@opcode("TO_BOOL", "value -- bool")
def to_bool(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.stack[-1] = vm.domain.constant(vm.domain.truth(frame.stack[-1]))


@opcode("BINARY_OP", "left, right -- result")
def binary_op(vm: Interpreter[V], frame: Frame[V], arg: _Function) -> None:
    stack = frame.stack
    result = vm.domain.binary(arg, stack[-2], stack[-1])
    del stack[-1]
    stack[-1] = result


@opcode("COMPARE_OP", "left, right -- result")
def compare_op(vm: Interpreter[V], frame: Frame[V], arg: _Function) -> None:
    stack = frame.stack
    result = vm.domain.compare(arg, stack[-2], stack[-1])
    del stack[-1]
    stack[-1] = result


# A comparison whose result is only tested: the jump that follows asks for its truth.
opcode("COMPARE_OP_BOOL", "left, right -- result")(compare_op)


@opcode("IS_OP", "left, right -- bool")
def is_op(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    stack = frame.stack
    result = vm.domain.constant(vm.domain.is_(stack[-2], stack[-1]) is not bool(arg))
    del stack[-1]
    stack[-1] = result


@opcode("CONTAINS_OP", "item, container -- bool")
def contains_op(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    stack = frame.stack
    result = vm.domain.contains(stack[-1], stack[-2])
    if arg:
        result = vm.domain.not_(result)
    del stack[-1]
    stack[-1] = result


@opcode("BINARY_SUBSCR", "container, key -- value")
def binary_subscr(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    stack = frame.stack
    result = vm.domain.binary(operator.getitem, stack[-2], stack[-1])
    del stack[-1]
    stack[-1] = result


@opcode("STORE_SUBSCR", "value, container, key --")
def store_subscr(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    stack = frame.stack
    vm.domain.setitem(stack[-2], stack[-1], stack[-3])
    del stack[-3:]


@opcode("DELETE_SUBSCR", "container, key --")
def delete_subscr(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    stack = frame.stack
    vm.domain.delitem(stack[-2], stack[-1])
    del stack[-2:]


@opcode("BINARY_SLICE", "container, start, stop -- value")
def binary_slice(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    stack = frame.stack
    result = vm.domain.binary(operator.getitem, stack[-3], vm.domain.build_slice(stack[-2:]))
    del stack[-2:]
    stack[-1] = result


@opcode("STORE_SLICE", "value, container, start, stop --")
def store_slice(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    stack = frame.stack
    vm.domain.setitem(stack[-3], vm.domain.build_slice(stack[-2:]), stack[-4])
    del stack[-4:]


@opcode("LOAD_ATTR", "object -- value")
def load_attr(vm: Interpreter[V], frame: Frame[V], arg: str) -> Frame[V] | None:
    result = vm.domain.load_attr(frame.stack[-1], arg)
    if type(result) is Frame:
        del frame.stack[-1]
        return result
    frame.stack[-1] = result
    return None


@opcode("LOAD_METHOD", "object -- null, method")
def load_method(vm: Interpreter[V], frame: Frame[V], arg: str) -> Frame[V] | None:
    stack = frame.stack
    result = vm.domain.load_attr(stack[-1], arg)
    stack[-1] = NULL
    if type(result) is Frame:
        return result
    stack.append(result)
    return None


@opcode("LOAD_METHOD_NULL_LAST", "object -- method, null")
def load_method_null_last(vm: Interpreter[V], frame: Frame[V], arg: str) -> Frame[V] | None:
    stack = frame.stack
    result = vm.domain.load_attr(stack[-1], arg)
    if type(result) is Frame:
        del stack[-1]
        result.completion = Completion.PUSH_THEN_NULL
        return result
    stack[-1] = result
    stack.append(NULL)
    return None


def _loading_super(method: bool) -> Handler:
    def run(vm: Interpreter[V], frame: Frame[V], arg: str) -> Frame[V] | None:
        stack = frame.stack
        result = vm.domain.load_super_attr(stack[-3], stack[-2], stack[-1], arg)
        del stack[-3:]
        if method:
            stack.append(NULL)
        return pushed(frame, result)

    return run


opcode("LOAD_SUPER_ATTR", "super, class, self -- value")(_loading_super(method=False))
opcode("LOAD_SUPER_METHOD", "super, class, self -- null, method")(_loading_super(method=True))


@opcode("LOAD_SUPER_METHOD_NULL_LAST", "super, class, self -- method, null")
def load_super_method_null_last(vm: Interpreter[V], frame: Frame[V], arg: str) -> Frame[V] | None:
    stack = frame.stack
    result = vm.domain.load_super_attr(stack[-3], stack[-2], stack[-1], arg)
    del stack[-3:]
    if type(result) is Frame:
        result.completion = Completion.PUSH_THEN_NULL
        return result
    stack.append(result)
    stack.append(NULL)
    return None


@opcode("STORE_ATTR", "value, object --")
def store_attr(vm: Interpreter[V], frame: Frame[V], arg: str) -> Frame[V] | None:
    stack = frame.stack
    result = vm.domain.store_attr(stack[-1], arg, stack[-2])
    del stack[-2:]
    return _discarding(result)


@opcode("DELETE_ATTR", "object --")
def delete_attr(vm: Interpreter[V], frame: Frame[V], arg: str) -> Frame[V] | None:
    result = vm.domain.delete_attr(frame.stack[-1], arg)
    del frame.stack[-1]
    return _discarding(result)


def _discarding(frame: Frame[V] | None) -> Frame[V] | None:
    if frame is not None:
        frame.completion = Completion.DISCARD
    return frame
