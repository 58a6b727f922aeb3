"""The expression of each kind of value, in emitted code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

from torchjit_core.reasons import GraphBreak
from torchjit_vm.capture import iteration, made_later, rebuild_classes, rebuild_containers
from torchjit_vm.capture.reasons import REBUILD
from torchjit_vm.capture.rebuild import Rebuilder
from torchjit_vm.capture.rebuild_containers import (
    byte_array_expr,
    dict_expr,
    list_expr,
    set_expr,
    slice_expr,
    tuple_expr,
    view_expr,
)
from torchjit_vm.capture.rebuild_functions import cell_expr, function_expr, method_expr
from torchjit_vm.capture.rebuild_generators import generator_expr
from torchjit_vm.capture.rebuild_iterators import iterator_expr
from torchjit_vm.capture.rebuild_objects import (
    id_expr,
    instance_dict_expr,
    object_expr,
    random_state_expr,
    super_expr,
    traceback_expr,
)
from torchjit_vm.capture.values import (
    AtomObject,
    BoundMethod,
    ByteArray,
    CellValue,
    Const,
    DictValue,
    DictView,
    FunctionValue,
    GeneratorValue,
    IdValue,
    InstanceDict,
    ListValue,
    Obj,
    RandomState,
    SetValue,
    SliceValue,
    SuperValue,
    TracebackValue,
    TupleValue,
    Value,
)

if TYPE_CHECKING:
    from torchjit_core.paths import AccessPath

__all__ = ["KindRebuilder"]


@final
class KindRebuilder(Rebuilder):
    """Asks the modules of the kinds."""

    def kind_expr(self, value: Value) -> str:
        write = _REBUILD.get(type(value))
        if write is not None:
            return write(self, value)
        if isinstance(value, iteration.IteratorValue):
            return self.assign(iterator_expr(self, value))
        if isinstance(value, Obj):
            return object_expr(self, value)
        raise GraphBreak(REBUILD, type(value).__name__, self.domain.location())

    def made_class_expr(self, obj: object) -> str | None:
        return rebuild_classes.known_expr(self, obj)

    def pinned_expr(self, path: AccessPath) -> str | None:
        return rebuild_classes.pinned_expr(self, path)

    def check_constant(self, obj: object) -> None:
        rebuild_classes.check_constant(self, obj)

    def text_expr(self, value: Const) -> str:
        return made_later.expr(self, value)

    def can_be_early(self, value: Value) -> bool:
        return rebuild_containers.can_be_early(value)


_REBUILD: dict[type, Callable[[Rebuilder, Any], str]] = {
    ListValue: list_expr,
    TupleValue: tuple_expr,
    DictValue: dict_expr,
    SetValue: set_expr,
    Obj: object_expr,
    AtomObject: object_expr,
    ByteArray: byte_array_expr,
    CellValue: cell_expr,
    FunctionValue: function_expr,
    BoundMethod: method_expr,
    SliceValue: slice_expr,
    SuperValue: super_expr,
    DictView: view_expr,
    IdValue: id_expr,
    TracebackValue: traceback_expr,
    RandomState: random_state_expr,
    InstanceDict: instance_dict_expr,
    GeneratorValue: generator_expr,
}
