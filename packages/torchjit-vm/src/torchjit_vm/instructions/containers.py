"""Building, filling and unpacking containers; strings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchjit_vm.frame import NULL
from torchjit_vm.instructions.registry import opcode

if TYPE_CHECKING:
    from torchjit_vm.frame import Frame, V
    from torchjit_vm.interpreter import Interpreter


def _take(frame: Frame[V], count: int) -> list[V]:
    """The top `count` values, left on the stack."""
    return frame.stack[len(frame.stack) - count :]


def _replace(frame: Frame[V], count: int, value: V) -> None:
    stack = frame.stack
    del stack[len(stack) - count :]
    stack.append(value)


@opcode("BUILD_LIST", "values[oparg] -- list")
def build_list(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    _replace(frame, arg, vm.domain.build_list(_take(frame, arg)))


@opcode("BUILD_TUPLE", "values[oparg] -- tuple")
def build_tuple(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    _replace(frame, arg, vm.domain.build_tuple(_take(frame, arg)))


@opcode("BUILD_SET", "values[oparg] -- set")
def build_set(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    _replace(frame, arg, vm.domain.build_set(_take(frame, arg)))


@opcode("BUILD_MAP", "pairs[2 * oparg] -- dict")
def build_map(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    flat = _take(frame, 2 * arg)
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    _replace(frame, 2 * arg, vm.domain.build_map(pairs))


@opcode("BUILD_CONST_KEY_MAP", "values[oparg], keys -- dict")
def build_const_key_map(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    *values, keys = _take(frame, arg + 1)
    pairs = list(zip(vm.domain.unpack(keys, arg), values, strict=True))
    _replace(frame, arg + 1, vm.domain.build_map(pairs))


@opcode("BUILD_SLICE", "parts[oparg] -- slice")
def build_slice(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    _replace(frame, arg, vm.domain.build_slice(_take(frame, arg)))


@opcode("BUILD_STRING", "parts[oparg] -- string")
def build_string(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    _replace(frame, arg, vm.domain.build_string(_take(frame, arg)))


@opcode("LIST_APPEND", "item --")
def list_append(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    vm.domain.list_append(frame.stack[-1 - arg], frame.stack[-1])
    del frame.stack[-1]


@opcode("SET_ADD", "item --")
def set_add(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    vm.domain.set_add(frame.stack[-1 - arg], frame.stack[-1])
    del frame.stack[-1]


@opcode("MAP_ADD", "key, value --")
def map_add(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    vm.domain.map_add(frame.stack[-2 - arg], frame.stack[-2], frame.stack[-1])
    del frame.stack[-2:]


@opcode("LIST_EXTEND", "iterable --")
def list_extend(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    vm.domain.list_extend(frame.stack[-1 - arg], frame.stack[-1])
    del frame.stack[-1]


@opcode("SET_UPDATE", "iterable --")
def set_update(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    vm.domain.set_update(frame.stack[-1 - arg], frame.stack[-1])
    del frame.stack[-1]


@opcode("DICT_UPDATE", "mapping --")
def dict_update(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    vm.domain.dict_update(frame.stack[-1 - arg], frame.stack[-1])
    del frame.stack[-1]


@opcode("DICT_MERGE", "mapping --")
def dict_merge(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    # The callable lies below the positional arguments, for the error message.
    stack = frame.stack
    below = [v for v in stack[-4 - arg : -2 - arg] if v is not None]
    vm.domain.dict_merge(stack[-1 - arg], stack[-1], below[-1] if below else NULL)
    del stack[-1]


@opcode("LIST_TO_TUPLE", "list -- tuple")
def list_to_tuple(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.stack[-1] = vm.domain.list_to_tuple(frame.stack[-1])


@opcode("UNPACK_SEQUENCE", "sequence -- items[oparg]")
def unpack_sequence(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    items = vm.domain.unpack(frame.stack[-1], arg)
    frame.stack[-1:] = items[::-1]


@opcode("UNPACK_EX", "sequence -- items[(oparg & 255) + 1 + (oparg >> 8)]")
def unpack_ex(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    items = vm.domain.unpack_ex(frame.stack[-1], arg & 255, arg >> 8)
    frame.stack[-1:] = items[::-1]


@opcode("CONVERT_VALUE", "value -- string")
def convert_value(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.stack[-1] = vm.domain.format(frame.stack[-1], arg, None)


@opcode("FORMAT_SIMPLE", "value -- string")
def format_simple(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.stack[-1] = vm.domain.format(frame.stack[-1], 0, None)


@opcode("FORMAT_WITH_SPEC", "value, spec -- string")
def format_with_spec(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    stack = frame.stack
    result = vm.domain.format(stack[-2], arg, stack[-1])
    del stack[-1]
    stack[-1] = result
