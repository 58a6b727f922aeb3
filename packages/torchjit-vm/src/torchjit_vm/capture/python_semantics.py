"""Python's operations over the values of a capture: the domain that the interpreter runs over."""

from __future__ import annotations

import operator
from typing import Any, final

from torchjit_vm.capture import (
    attributes,
    calls,
    comparisons,
    coroutines,
    dicts,
    exceptions,
    formatting,
    functions,
    imports,
    iteration,
    lengths,
    made_later,
    names,
    operators,
    packing,
    sets,
    stores,
    subscripts,
)
from torchjit_vm.capture.atoms import base_of
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.prelude import prepare
from torchjit_vm.capture.reading import pinned, wrap
from torchjit_vm.capture.special_methods import checked
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import AtomObject, Const, Known, Leaf, SliceValue, Value
from torchjit_vm.frame import Raised
from torchjit_vm.type_labels import type_label

__all__ = ["PythonSemantics"]


@final
class PythonSemantics(CaptureDomain):
    """`Domain[Value]`: each operation is a function of the module that is named like its family."""

    def check_init(self, result: Value) -> None:
        if not (type(result) is Const and result.value is None):
            kind = type_label(type_of(self, result))
            raise self.error(TypeError, f"__init__() should return None, not '{kind}'")

    def error(self, type: type[BaseException], message: str, name: str | None = None) -> Raised:
        """An exception that CPython raises here; `name`: the attribute or variable that is missing."""
        made = exceptions.new_exception(self, type, [Const(message)])
        if name is not None:
            made.attrs["name"] = Const(name)
        return self.raised(made)

    def raised(self, exception: Value) -> Raised:
        """A new exception that is raised here."""
        exceptions.chain(self, exception, self.vm.current)
        return Raised(exception)

    def use(self, value: Value) -> Any:
        if type(value) is not Const:
            if type(value) is not AtomObject:
                raise TypeError(f"{value!r} is no constant")
            value = base_of(value)
        if not value.used:
            value.used = True
            if value.path is not None:
                self.guard_value(value.path, value.value)
            if value.made is not None:
                made_later.settle(self, value)
        return value.value

    def index(self, value: Value) -> int:
        """`operator.index(value)` as a constant."""
        if type(value) is AtomObject and issubclass(value.cls, int):
            value = base_of(value)  # C code asks no int for its `__index__`
        if type(value) is Const:
            real = self.use(value)
            if hasattr(type(real), "__index__"):
                return operator.index(real)
            raise self.error(TypeError, f"'{type_label(type(real))}' object cannot be interpreted as an integer")
        if type(value) is Known and isinstance(value.obj, int):
            return int.__index__(value.obj)  # C code asks no int for its `__index__`
        if type(value) is Leaf:
            cls = self.leaves.type_of(value.payload)
            if cls is float or cls is complex:
                raise self.error(TypeError, f"'{type_label(cls)}' object cannot be interpreted as an integer")
            return int(self.leaf_constant(value))
        found = operators.special_call(self, value, "__index__", [])
        if found is None:
            name = type_label(type_of(self, value))
            raise self.error(TypeError, f"'{name}' object cannot be interpreted as an integer")
        found = checked(self, value, "__index__", found, int, operator.index)
        return int(self.use(found)) if type(found) is Const else self.index(found)

    def slice(self, value: SliceValue) -> slice:
        """A slice of constant bounds."""
        step, start, stop = (self._bound(v) for v in (value.step, value.start, value.stop))  # asked in C's order
        if step == 0:
            raise self.error(ValueError, "slice step cannot be zero")
        return slice(start, stop, step)

    def _bound(self, value: Value) -> int | None:
        if type(value) is Const and value.value is None:
            self.use(value)
            return None
        if type(value) in (Const, Leaf) and not hasattr(type_of(self, value), "__index__"):
            raise self.error(TypeError, "slice indices must be integers or None or have an __index__ method")
        return self.index(value)

    unpack_all = iteration.items_of
    prepare = prepare

    # Names and cells.

    load_global = names.load_global
    store_global = names.store_global
    delete_global = names.delete_global
    load_name = names.load_name
    store_name = names.store_name
    delete_name = names.delete_name
    setup_annotations = names.setup_annotations
    import_name = imports.import_name
    import_from = imports.import_from
    cell_get = names.cell_get
    cell_set = names.cell_set

    # Operators and attributes.

    unary = operators.unary
    binary = operators.binary
    leaf_call = operators.leaf_call
    compare = comparisons.compare
    same_or_equal = comparisons.same_or_equal
    is_ = comparisons.is_
    contains = comparisons.contains
    truth = lengths.truth
    setitem = subscripts.setitem
    delitem = subscripts.delitem
    format = formatting.format_value
    length = lengths.length
    load_attr = attributes.load_attr
    store_attr = stores.store_attr
    delete_attr = stores.delete_attr
    pinned = pinned
    wrap = wrap
    load_special = attributes.load_special
    load_super_attr = attributes.load_super_attr

    def not_(self, value: Value) -> Value:
        return self.constant(not lengths.truth(self, value))

    # Containers.

    pairs = dicts.dict_pairs
    build_list = packing.build_list
    build_tuple = packing.build_tuple
    build_set = sets.new_set
    build_map = packing.build_map
    build_slice = packing.build_slice
    build_string = packing.build_string
    list_append = packing.list_append
    list_extend = packing.list_extend
    list_to_tuple = packing.list_to_tuple
    set_add = packing.set_add
    set_update = packing.set_update
    map_add = packing.map_add
    dict_update = packing.dict_update
    dict_merge = packing.dict_merge
    unpack = packing.unpack
    unpack_ex = packing.unpack_ex
    match_sequence = packing.match_sequence
    match_mapping = packing.match_mapping
    match_keys = packing.match_keys
    match_class = packing.match_class

    # Iteration, calls, functions, exceptions.

    iter = iteration.get_iter
    next = iteration.advance
    send = iteration.send
    make_generator = iteration.make_generator
    get_awaitable = coroutines.get_awaitable
    aiter = coroutines.aiter
    anext = coroutines.anext
    ends_async_for = coroutines.ends_async_for
    call = calls.call
    call_ex = calls.call_ex
    keywords = calls.keywords
    make_function = functions.make_function
    set_function_attribute = functions.set_function_attribute
    make_raise = exceptions.make_raise
    chain = exceptions.chain
    exception_matches = exceptions.exception_matches
    exception_triple = exceptions.exception_triple
    stop_iteration_error = exceptions.stop_iteration_error

    def build_class(self) -> Value:
        return Known(__build_class__)

    def assertion_error(self) -> Value:
        return Known(AssertionError)
