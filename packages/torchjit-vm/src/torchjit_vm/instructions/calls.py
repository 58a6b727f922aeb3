"""Calls, functions, classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchjit_vm.frame import Frame, V
from torchjit_vm.instructions.registry import opcode, pushed

if TYPE_CHECKING:
    from torchjit_vm.interpreter import Interpreter


@opcode("CALL", "callable, null, arguments[oparg[0]] -- result")
def call(vm: Interpreter[V], frame: Frame[V], arg: tuple[int, tuple[str, ...]]) -> Frame[V] | None:
    count, keywords = arg
    stack = frame.stack
    base = len(stack) - count
    return _call(vm, frame, base, stack[base:], keywords)


@opcode("CALL_KW", "callable, null, arguments[oparg], names -- result")
def call_kw(vm: Interpreter[V], frame: Frame[V], arg: int) -> Frame[V] | None:
    stack = frame.stack
    keywords = vm.domain.keywords(stack[-1])
    base = len(stack) - 1 - arg
    return _call(vm, frame, base, stack[base:-1], keywords)


def _call(
    vm: Interpreter[V], frame: Frame[V], base: int, args: list[Any], keywords: tuple[str, ...]
) -> Frame[V] | None:
    stack = frame.stack
    function, bound = callee(stack, base)
    if bound is not None:
        args.insert(0, bound)
    kwargs: dict[str, Any] = {}
    if keywords:
        first = len(args) - len(keywords)
        kwargs = dict(zip(keywords, args[first:], strict=True))
        del args[first:]
    result = vm.domain.call(function, args, kwargs)
    del stack[base - 2 :]
    if type(result) is Frame:
        return result
    stack.append(result)
    return None


def callee(stack: list[Any], base: int) -> tuple[Any, Any]:
    """The callable and its bound first argument (or None) below the arguments, for either place of the NULL."""
    first, second = stack[base - 2], stack[base - 1]
    if first is None:
        return second, None
    return first, second


@opcode("CALL_FUNCTION_EX", "callable, null, args, kwargs[oparg & 1] -- result")
def call_function_ex(vm: Interpreter[V], frame: Frame[V], arg: int) -> Frame[V] | None:
    stack = frame.stack
    base = len(stack) - 1 - (arg & 1)
    function, _ = callee(stack, base)
    result = vm.domain.call_ex(function, stack[base], stack[-1] if arg & 1 else None)
    del stack[base - 2 :]
    return pushed(frame, result)


@opcode("MAKE_FUNCTION", "attributes[oparg.bit_count()], code -- function")
def make_function(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    stack = frame.stack
    function = vm.domain.make_function(frame, stack[-1])
    below = -2
    for flag in (8, 4, 2, 1):
        if arg & flag:
            vm.domain.set_function_attribute(function, flag, stack[below])
            below -= 1
    stack[below + 1 :] = [function]


@opcode("SET_FUNCTION_ATTRIBUTE", "value, function -- function")
def set_function_attribute(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    stack = frame.stack
    vm.domain.set_function_attribute(stack[-1], arg, stack[-2])
    del stack[-2]


@opcode("LOAD_BUILD_CLASS", "-- builder")
def load_build_class(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.stack.append(vm.domain.build_class())
