"""Global names, cells, class and module namespaces, imports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchjit_vm.frame import NULL
from torchjit_vm.instructions.registry import Handler, opcode
from torchjit_vm.instructions.stack import unbound

if TYPE_CHECKING:
    from torchjit_vm.frame import Frame, V
    from torchjit_vm.interpreter import Interpreter


@opcode("LOAD_GLOBAL", "-- value")
def load_global(vm: Interpreter[V], frame: Frame[V], arg: str) -> None:
    frame.stack.append(vm.domain.load_global(frame, arg))


def _storing(operation: str) -> Handler:
    def run(vm: Interpreter[V], frame: Frame[V], arg: str) -> None:
        getattr(vm.domain, operation)(frame, arg, frame.stack[-1])
        frame.stack.pop()

    return run


def _deleting(operation: str) -> Handler:
    def run(vm: Interpreter[V], frame: Frame[V], arg: str) -> None:
        getattr(vm.domain, operation)(frame, arg)

    return run


opcode("STORE_GLOBAL", "value --")(_storing("store_global"))
opcode("STORE_NAME", "value --")(_storing("store_name"))
opcode("DELETE_GLOBAL", "--")(_deleting("delete_global"))
opcode("DELETE_NAME", "--")(_deleting("delete_name"))


@opcode("LOAD_NAME", "-- value")
def load_name(vm: Interpreter[V], frame: Frame[V], arg: str) -> None:
    frame.stack.append(vm.domain.load_name(frame, arg, NULL if frame.namespace is None else frame.namespace))


@opcode("SETUP_ANNOTATIONS", "--")
def setup_annotations(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    vm.domain.setup_annotations(frame)


@opcode("LOAD_LOCALS", "-- namespace")
def load_locals(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    if frame.namespace is None:
        raise vm.domain.error(SystemError, "no locals")
    frame.stack.append(frame.namespace)


@opcode("LOAD_FROM_DICT_OR_GLOBALS", "namespace -- value")
def load_from_dict_or_globals(vm: Interpreter[V], frame: Frame[V], arg: str) -> None:
    frame.stack[-1] = vm.domain.load_name(frame, arg, frame.stack[-1])


@opcode("MAKE_CELL", "--")
def make_cell(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.fast[arg] = vm.domain.make_cell(frame.fast[arg])


@opcode("LOAD_DEREF", "-- value")
def load_deref(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.stack.append(_contents(vm, frame, arg))


@opcode("STORE_DEREF", "value --")
def store_deref(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    vm.domain.cell_set(_cell(vm, frame, arg), frame.stack[-1])
    frame.stack.pop()


@opcode("DELETE_DEREF", "--")
def delete_deref(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    _contents(vm, frame, arg)
    vm.domain.cell_set(_cell(vm, frame, arg), None)


@opcode("LOAD_CLASSDEREF", "-- value")
def load_classderef(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.stack.append(_namespace_or_cell(vm, frame, frame.namespace, arg))


@opcode("LOAD_FROM_DICT_OR_DEREF", "namespace -- value")
def load_from_dict_or_deref(vm: Interpreter[V], frame: Frame[V], arg: int) -> None:
    frame.stack[-1] = _namespace_or_cell(vm, frame, frame.stack[-1], arg)


@opcode("IMPORT_NAME", "level, fromlist -- module")
def import_name(vm: Interpreter[V], frame: Frame[V], arg: str) -> None:
    stack = frame.stack
    module = vm.domain.import_name(frame, arg, stack[-1], stack[-2])
    del stack[-1]
    stack[-1] = module


@opcode("IMPORT_FROM", "module -- module, value")
def import_from(vm: Interpreter[V], frame: Frame[V], arg: str) -> None:
    frame.stack.append(vm.domain.import_from(frame.stack[-1], arg))


def _cell(vm: Interpreter[V], frame: Frame[V], arg: int) -> V:
    cell = frame.fast[arg]
    if cell is None:
        raise unbound(vm, frame, arg)
    return cell


def _contents(vm: Interpreter[V], frame: Frame[V], arg: int) -> V:
    value = vm.domain.cell_get(_cell(vm, frame, arg))
    if value is None:
        if arg < len(frame.code.locals) - frame.code.nfree:
            raise unbound(vm, frame, arg)
        name = frame.code.locals[arg]
        raise vm.domain.error(
            NameError,
            f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope",
            name,
        )
    return value


def _namespace_or_cell(vm: Interpreter[V], frame: Frame[V], namespace: Any, arg: int) -> Any:
    name = vm.domain.constant(frame.code.locals[arg])
    if vm.domain.truth(vm.domain.contains(namespace, name)):
        return vm.domain.load_name(frame, frame.code.locals[arg], namespace)
    return _contents(vm, frame, arg)
