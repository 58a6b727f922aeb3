"""Building, filling and unpacking containers; strings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchjit_vm.frame import NULL
from torchjit_vm.instructions.registry import Handler, of_top, opcode

if TYPE_CHECKING:
    from torchjit_vm.frame import Frame, V
    from torchjit_vm.interpreter import Interpreter


def _building(operation: str) -> Handler:
    """Of the top `arg` values."""

    def run(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
        stack = frame.stack
        base = len(stack) - arg
        stack[base:] = [getattr(vm.domain, operation)(stack[base:])]

    return run


opcode("BUILD_LIST", "values[oparg] -- list")(_building("build_list"))
opcode("BUILD_TUPLE", "values[oparg] -- tuple")(_building("build_tuple"))
opcode("BUILD_SET", "values[oparg] -- set")(_building("build_set"))
opcode("BUILD_SLICE", "parts[oparg] -- slice")(_building("build_slice"))
opcode("BUILD_STRING", "parts[oparg] -- string")(_building("build_string"))


@opcode("BUILD_MAP", "pairs[2 * oparg] -- dict")
def build_map(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    stack = frame.stack
    base = len(stack) - 2 * arg
    stack[base:] = [vm.domain.build_map(list(zip(stack[base::2], stack[base + 1 :: 2], strict=True)))]


@opcode("BUILD_CONST_KEY_MAP", "values[oparg], keys -- dict")
def build_const_key_map(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    stack = frame.stack
    base = len(stack) - arg - 1
    pairs = list(zip(vm.domain.unpack(stack[-1], arg), stack[base:-1], strict=True))
    stack[base:] = [vm.domain.build_map(pairs)]


def _filling(operation: str) -> Handler:
    """The container that lies `arg` entries deep."""

    def run(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
        getattr(vm.domain, operation)(frame.stack[-1 - arg], frame.stack[-1])
        del frame.stack[-1]

    return run


opcode("LIST_APPEND", "item --")(_filling("list_append"))
opcode("SET_ADD", "item --")(_filling("set_add"))
opcode("LIST_EXTEND", "iterable --")(_filling("list_extend"))
opcode("SET_UPDATE", "iterable --")(_filling("set_update"))
opcode("DICT_UPDATE", "mapping --")(_filling("dict_update"))


@opcode("MAP_ADD", "key, value --")
def map_add(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    vm.domain.map_add(frame.stack[-2 - arg], frame.stack[-2], frame.stack[-1])
    del frame.stack[-2:]


@opcode("DICT_MERGE", "mapping --")
def dict_merge(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    # The callable lies below the positional arguments, for the error message.
    stack = frame.stack
    below = [v for v in stack[-4 - arg : -2 - arg] if v is not None]
    vm.domain.dict_merge(stack[-1 - arg], stack[-1], below[-1] if below else NULL)
    del stack[-1]


opcode("LIST_TO_TUPLE", "list -- tuple")(of_top("list_to_tuple"))


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


opcode("FORMAT_SIMPLE", "value -- string")(convert_value)  # without an argument, which is 0


@opcode("FORMAT_WITH_SPEC", "value, spec -- string")
def format_with_spec(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    stack = frame.stack
    result = vm.domain.format(stack[-2], arg, stack[-1])
    del stack[-1]
    stack[-1] = result
