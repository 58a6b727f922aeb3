"""Lists, deques, tuples, and instances of classes derived from them."""

from __future__ import annotations

import operator
import types
from _collections import _tuplegetter  # type: ignore[import-not-found]
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from torchjit_vm.capture import collecting, construct, elements, iteration, operators, runtime
from torchjit_vm.capture.atoms import is_plain
from torchjit_vm.capture.builtin_functions import sort
from torchjit_vm.capture.comparisons import compare, same_or_equal, search
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.effects import unchanged
from torchjit_vm.capture.elements import copy_deque, plain_base
from torchjit_vm.capture.exceptions import from_real
from torchjit_vm.capture.iteration import sequence_iter
from torchjit_vm.capture.keys import key_of, unhashable
from torchjit_vm.capture.members import DESCRIPTOR, SLOT, Member, find_member
from torchjit_vm.capture.method_tables import UNKNOWN, Method, methods
from torchjit_vm.capture.policy import NewObject
from torchjit_vm.capture.raw import constant_of, has_leaf, is_constant, to_raw
from torchjit_vm.capture.reading import constant_object
from torchjit_vm.capture.reasons import UNKNOWN_OPERATION
from torchjit_vm.capture.rebuild import Rebuilder, made_early, write_attributes
from torchjit_vm.capture.slot_wrappers import slot_methods
from torchjit_vm.capture.special_methods import has_method
from torchjit_vm.capture.subscripts import is_index
from torchjit_vm.capture.texts import guarded, joined_texts
from torchjit_vm.capture.type_slots import Op, Part, Text, TypeSlots, register
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import NEW, Const, Key, Known, ListValue, Obj, SliceValue, TupleValue, Value
from torchjit_vm.frame import Raised
from torchjit_vm.type_labels import type_label

__all__: list[str] = []


def _richcompare(domain: CaptureDomain, function: Op, self: ListValue | TupleValue, other: Value) -> Value | None:
    if not isinstance(other, type(self)) or plain_base(self.cls) is not plain_base(other.cls):
        return None
    a, b = elements.items(domain, self), elements.items(domain, other)
    equality = function in (operator.eq, operator.ne)
    if equality and len(a) != len(b):
        return domain.constant(function is operator.ne)
    for x, y in zip(a, b, strict=False):
        if not same_or_equal(domain, x, y):
            return domain.constant(function is operator.ne) if equality else compare(domain, function, x, y)
    return domain.constant(bool(function(len(a), len(b))))


def _concat_lists(domain: CaptureDomain, self: ListValue, other: Value) -> Value | None:
    if not isinstance(other, ListValue) or plain_base(self.cls) is not plain_base(other.cls):
        return None
    if plain_base(self.cls) is list:
        return ListValue(elements.items(domain, self) + elements.items(domain, other))
    more = list(elements.items(domain, other))
    return _cut(domain, copy_deque(domain, self), lambda items: [*items, *more])


def _repeat_list(domain: CaptureDomain, self: ListValue, count: int) -> Value:
    if plain_base(self.cls) is list:
        return ListValue(elements.items(domain, self) * count)
    return _cut(domain, copy_deque(domain, self), lambda items: items * count)


def _cut(domain: CaptureDomain, made: ListValue, change: Callable[[list[Value]], list[Value]]) -> ListValue:
    """A new deque with other items, as many as it may hold."""
    made.items = change(elements.items(domain, made))
    elements.trim(domain, made, left=True)
    return made


def _change_list(domain: CaptureDomain, function: Op, self: ListValue, other: Value) -> Value | None:
    if function is operator.iadd:
        collecting.extend(domain, self, other)
        return self
    if function is not operator.imul or not has_method(domain, other, "__index__"):
        return None
    count = domain.index(other)
    target = elements.change(domain, self)
    target[:] = target * count
    elements.trim(domain, self, left=True)
    return self


def _concat_tuples(domain: CaptureDomain, self: TupleValue, other: Value) -> Value | None:
    if not isinstance(other, TupleValue):
        return None
    both = elements.items(domain, self) + elements.items(domain, other)
    return TupleValue(both, _tuple_class(operator.add, self.cls, other.cls))


def _repeat_tuple(domain: CaptureDomain, self: TupleValue, count: int) -> Value:
    return TupleValue(elements.items(domain, self) * count, _tuple_class(operator.mul, self.cls, int))


def _tuple_class(function: Op, left: type, right: type) -> type:
    """The class of `left + right` or `left * right`; a tuple class of C may give its own, which is asked with empty ones."""
    if any(c is not tuple and issubclass(c, tuple) and _is_c(c, "__add__", "__mul__") for c in (left, right)):
        return type(function(left(), right()))
    return tuple


def _is_c(cls: type, *names: str) -> bool:
    """Has a class operators of its own, written in C?"""
    return any(type(cls.__dict__.get(name)) is types.WrapperDescriptorType for name in names)


def _length(domain: CaptureDomain, self: ListValue | TupleValue) -> int:
    """Of an unread real one only the length is guarded."""
    if self.items is None and self.path is not None and not (isinstance(self, ListValue) and self.added):
        return elements.guarded_length(domain, self.path, self.real)
    return len(elements.items(domain, self))


def _contains(domain: CaptureDomain, self: ListValue | TupleValue, item: Value) -> Value:
    return search(domain, sequence_iter(domain, self), item)  # C code does not ask for `__iter__`


def _sequence_item(domain: CaptureDomain, container: ListValue | TupleValue, key: Value) -> Value:
    """`container[key]` by the rules of the C classes."""
    kind = "deque" if issubclass(container.cls, deque) else "list" if isinstance(container, ListValue) else "tuple"
    if isinstance(key, SliceValue) and kind != "deque":
        return _sliced(domain, container, key)
    if not is_index(domain, key):
        name = type_label(type_of(domain, key))
        if kind == "deque":
            raise domain.error(TypeError, f"sequence index must be integer, not '{name}'")
        raise domain.error(TypeError, f"{kind} indices must be integers or slices, not {name}")
    index = domain.index(key)
    try:
        return elements.items(domain, container)[index]
    except IndexError:
        raise domain.error(IndexError, f"{kind} index out of range") from None


def _sliced(domain: CaptureDomain, container: ListValue | TupleValue, key: SliceValue) -> Value:
    chosen = elements.items(domain, container)[domain.slice(key)]
    if isinstance(container, ListValue):
        return ListValue(chosen)
    # torch.Size keeps its type when it is sliced, as the only tuple subclass that the VM meets with that habit.
    keeps = container.cls is not tuple and getattr(container.cls, "__module__", "") == "torch"
    return TupleValue(chosen, container.cls if keeps and not hasattr(container.cls, "_fields") else tuple)


def _list_index(domain: CaptureDomain, key: Value) -> int:
    if not is_index(domain, key):
        name = type_label(type_of(domain, key))
        if has_method(domain, key, "__index__"):  # a number that only the run knows
            raise domain.graph_break(UNKNOWN_OPERATION, f"{name} as an index")
        raise domain.error(TypeError, f"list indices must be integers or slices, not {name}")
    return domain.index(key)


def _out_of_range(container: ListValue) -> str:
    return f"{'deque' if issubclass(container.cls, deque) else 'list assignment'} index out of range"


def _list_store(domain: CaptureDomain, container: ListValue, key: Value, value: Value) -> None:
    """`container[key] = value` by the list's own rules."""
    if isinstance(key, SliceValue):
        where = domain.slice(key)
        new = _assigned(domain, value, where)
        try:
            elements.change(domain, container)[where] = new
        except ValueError as error:
            raise domain.raised(from_real(domain, error)) from None
        return
    index = _list_index(domain, key)
    target = elements.items(domain, container)
    if not -len(target) <= index < len(target):
        raise domain.error(IndexError, _out_of_range(container))
    elements.change(domain, container)[index] = value


def _assigned(domain: CaptureDomain, value: Value, where: slice) -> list[Value]:
    """The items that are stored to a slice."""
    if not isinstance(value, (ListValue, TupleValue)) or operators.defines(domain, value, "__iter__"):
        try:
            value = iteration.get_iter(domain, value)
        except Raised as raised:
            if issubclass(type_of(domain, raised.value), TypeError):
                operators.compute(domain, operator.setitem, [], where, 0)  # which raises, in the words of this Python
            raise
    return collecting.collected(domain, value)


def _delete_from_list(domain: CaptureDomain, container: ListValue, key: Value) -> None:
    """`del container[key]` by the list's own rules."""
    where = domain.slice(key) if isinstance(key, SliceValue) else _list_index(domain, key)
    target = elements.items(domain, container)
    if not isinstance(where, slice) and not -len(target) <= where < len(target):
        raise domain.error(IndexError, _out_of_range(container))
    del elements.change(domain, container)[where]


def _list_attr(domain: CaptureDomain, self: ListValue, member: Member) -> Value | None:
    if member.raw is not deque.__dict__["maxlen"]:
        return None
    elements.items(domain, self)  # which guards the limit of a real one
    return Const(elements.maximum(self))


def _tuple_attr(domain: CaptureDomain, self: TupleValue, member: Member) -> Value | None:
    if type(member.raw) is _tuplegetter:
        return elements.items(domain, self)[int(member.raw.__reduce__()[1][0])]
    fields: tuple[str, ...] = getattr(self.cls, "__match_args__", ())
    if self.real is NEW and member.kind == SLOT and member.name in fields and self.items is not None:
        return self.items[fields.index(member.name)]
    if member.kind in (SLOT, DESCRIPTOR) or self.real is NEW:
        return None
    return constant_object(domain, getattr(self.real, member.name))


def _hash(domain: CaptureDomain, self: TupleValue) -> Key:
    return tuple(key_of(domain, v) for v in elements.items(domain, self))


def _list_text(domain: CaptureDomain, value: ListValue) -> str:
    return f"[{joined_texts(domain, elements.items(domain, value))}]"


def _tuple_text(domain: CaptureDomain, value: TupleValue) -> str:
    items = elements.items(domain, value)
    return f"({joined_texts(domain, items)},)" if len(items) == 1 else f"({joined_texts(domain, items)})"


def _deque_text(domain: CaptureDomain, value: ListValue) -> str:
    limit = elements.maximum(value)
    more = "" if limit is None else f", maxlen={limit}"
    return f"{value.cls.__name__}({_list_text(domain, value)}{more})"


_TEXTS: dict[object, tuple[str, Callable[[CaptureDomain, Any], str]]] = {
    list.__repr__: ("[...]", _list_text),
    tuple.__repr__: ("(...)", _tuple_text),
    deque.__repr__: ("[...]", _deque_text),
}
"""What a sequence shows for itself, and its text. Source: the `*_repr` functions of CPython's Objects and Modules."""


def _text(domain: CaptureDomain, self: ListValue | TupleValue, function: Text) -> str | None:
    found = _TEXTS.get(find_member(domain, self.cls, "__repr__").raw)
    if found is not None and found[1] is _deque_text and iteration.direct_items(domain, self) is None:
        return None  # that of a deque asks its iterator
    return None if found is None else guarded(domain, self, found[0], lambda: found[1](domain, self))


def _copy_list(domain: CaptureDomain, self: ListValue, part: Part, remember: Callable[[Value], None]) -> Obj:
    made = ListValue([], self.cls)
    made.limit = elements.maximum(self)
    remember(made)
    made.items = [part(v) for v in elements.items(domain, self)]
    return made


def _copy_tuple(domain: CaptureDomain, self: TupleValue, part: Part, remember: Callable[[Value], None]) -> Obj:
    return TupleValue([part(v) for v in elements.items(domain, self)], self.cls)


def _items_of_tuple(of: Callable[[CaptureDomain, Value], Any]) -> Callable[[CaptureDomain, TupleValue], Any]:
    return lambda domain, self: _tuple_of(self.cls, tuple(of(domain, v) for v in elements.items(domain, self)))


def _tuple_of(cls: type, items: tuple[Any, ...]) -> Any:
    if cls is tuple:
        return items
    try:
        return tuple.__new__(cls, items)
    except TypeError:  # a tuple of C makes its own instances
        pass
    try:
        return cls.__new__(cls, items)
    except TypeError:  # such as a torch.Size over leaves: the class may decide what a call does
        return NewObject(cls, items)


def _constant_list(domain: CaptureDomain, self: ListValue) -> Any:
    items = [constant_of(domain, v) for v in elements.items(domain, self)]
    if issubclass(self.cls, deque):
        made: deque[Any] = deque.__new__(self.cls)
        limit = self.limit if self.real is NEW else deque.maxlen.__get__(self.real)
        deque.__init__(made, items, limit)
        return made
    if self.cls is list:
        return items
    made_list: list[Any] = list.__new__(cast(Any, self.cls))
    list.extend(made_list, items)
    return made_list


def _is_constant(domain: CaptureDomain, self: ListValue | TupleValue) -> bool:
    return all(is_constant(domain, v) for v in elements.items(domain, self))


def _has_leaf(self: ListValue | TupleValue) -> bool:
    loaded = self.added if isinstance(self, ListValue) and self.items is None else self.items or ()
    return any(map(has_leaf, loaded))


def _rebuild_list(out: Rebuilder, self: ListValue) -> str:
    items = self.items or []
    if self.cls is deque:
        bound = "" if self.limit is None else f", {self.limit}"
        made = out.runtime(deque)
        early = made_early(
            out, self, f"{made}([]{bound})", lambda name: out.write(f"{name}.extend([{out.join(items)}])")
        )
        return early or out.assign(f"{made}([{out.join(items)}]{bound})")
    if self.cls is not list:
        base = out.runtime(deque) if issubclass(self.cls, deque) else "list"
        name = out.assign(f"{out.runtime(runtime.new)}({base}, {out.expr(Known(self.cls))})")
        out.name(self, name)
        if self.limit is not None:
            out.write(f"{base}.__init__({name}, maxlen={self.limit})")
        out.write(f"{base}.extend({name}, [{out.join(items)}])")
        write_attributes(out, self, name)
        return name
    early = made_early(out, self, "[]", lambda name: out.write(f"{name}.extend([{out.join(items)}])"))
    return early or out.assign(f"[{out.join(items)}]")


def _rebuild_tuple(out: Rebuilder, self: TupleValue) -> str:
    items = self.items or []
    text = f"({out.join(items)}{',' if len(items) == 1 else ''})"
    if self.cls is tuple:
        return text if not items else out.assign(text)
    cls = out.expr(Known(self.cls))
    if isinstance(self.cls.__new__, types.BuiltinFunctionType) and self.cls.__new__ is not tuple.__new__:
        return out.assign(f"{cls}({text})")
    name = out.assign(f"tuple.__new__({cls}, {text})")
    write_attributes(out, self, name)
    return name


def _write_back(out: Rebuilder, self: ListValue) -> None:
    before, items = self.before, self.items
    if items is None:
        before, items = [], self.added
    if before is None:
        return
    target = out.expr(self)
    same = 0
    while same < min(len(items), len(before)) and unchanged(items[same], before[same]):
        same += 1
    if same == len(before) == len(items):
        return
    base = out.runtime(deque) if issubclass(self.cls, deque) else "list"
    if same == len(before):
        if len(items) == same + 1:
            out.write(f"{base}.append({target}, {out.expr(items[-1])})")
        else:
            out.write(f"{base}.extend({target}, [{', '.join(out.expr(v) for v in items[same:])}])")
    elif issubclass(self.cls, deque):
        out.write(f"{base}.clear({target})")
        out.write(f"{base}.extend({target}, [{', '.join(out.expr(v) for v in items)}])")
    else:
        everything = ", ".join(out.expr(v) for v in items)
        out.write(f"list.__setitem__({target}, slice(None), [{everything}])")


# Methods of lists and deques.

_NONE, _FALSE, _ONE, _LAST = Const(None), Const(False), Const(1), Const(-1)


def _init_deque(domain: CaptureDomain, self: ListValue, /, *args: Value, **kwargs: Value) -> Value | None:
    return None if construct.fill_deque(domain, self, list(args), kwargs) else UNKNOWN


def _append(domain: CaptureDomain, self: ListValue, item: Value) -> None:
    elements.append(domain, self, [item])


def _extend(domain: CaptureDomain, self: ListValue, iterable: Value) -> None:
    collecting.extend(domain, self, iterable)


def _append_left(domain: CaptureDomain, self: ListValue, item: Value) -> None:
    elements.change(domain, self).insert(0, item)
    elements.trim(domain, self, left=False)


def _extend_left(domain: CaptureDomain, self: ListValue, iterable: Value) -> None:
    for item in list(elements.items(domain, self)) if iterable is self else collecting.each(domain, iterable):
        _append_left(domain, self, item)


def _rotate(domain: CaptureDomain, self: ListValue, steps: Value = _ONE) -> None:
    by = domain.index(steps)
    items = elements.change(domain, self)
    if items:
        by %= len(items)
        items[:] = items[-by:] + items[:-by] if by else items


def _insert(domain: CaptureDomain, self: ListValue, at: Value, item: Value) -> Value | None:
    index = domain.index(at)
    if elements.maximum(self) is not None:
        return UNKNOWN
    elements.change(domain, self).insert(index, item)
    return None


def _pop(domain: CaptureDomain, self: ListValue, at: Value = _LAST) -> Value:
    return _popped(domain, self, domain.index(at), "pop from empty list")


def _popped(domain: CaptureDomain, self: ListValue, index: int, empty: str = "pop from an empty deque") -> Value:
    size = len(elements.items(domain, self))
    if not -size <= index < size:
        raise domain.error(IndexError, "pop index out of range" if size else empty)
    return elements.change(domain, self).pop(index)


def _remove(domain: CaptureDomain, self: ListValue, value: Value) -> Value | None:
    for i, item in enumerate(elements.items(domain, self)):
        if same_or_equal(domain, item, value):
            del elements.change(domain, self)[i]
            return None
    if issubclass(self.cls, deque):
        return UNKNOWN  # the message names the item's repr
    raise domain.error(ValueError, "list.remove(x): x not in list")


def _clear(domain: CaptureDomain, self: ListValue) -> None:
    elements.change(domain, self).clear()


def _reverse(domain: CaptureDomain, self: ListValue) -> None:
    elements.change(domain, self).reverse()


def _sort(domain: CaptureDomain, self: ListValue, *, key: Value = _NONE, reverse: Value = _FALSE) -> None:
    before = list(elements.items(domain, self))
    elements.change(domain, self).clear()  # as it looks to the keys and comparisons
    try:
        after = sort(domain, list(before), {"key": key, "reverse": reverse})
    except Raised:
        elements.change(domain, self)[:] = before
        raise
    modified = bool(elements.items(domain, self))
    elements.change(domain, self)[:] = after
    if modified:
        raise domain.error(ValueError, "list modified during sort")


def _copied_list(domain: CaptureDomain, self: ListValue) -> Value:
    return ListValue(list(elements.items(domain, self)))


def _copied_deque(domain: CaptureDomain, self: ListValue) -> Value:
    return elements.copy_deque(domain, self)


_SHARED: dict[str, Method] = {
    "append": _append, "extend": _extend, "insert": _insert, "remove": _remove, "clear": _clear, "reverse": _reverse,
}  # fmt: skip
methods(ListValue, list, **_SHARED, copy=_copied_list, pop=_pop, sort=_sort)
methods(
    ListValue,
    deque,
    **_SHARED,
    __init__=_init_deque,
    __copy__=_copied_deque,
    copy=_copied_deque,
    appendleft=_append_left,
    extendleft=_extend_left,
    pop=lambda domain, self: _popped(domain, self, -1),
    popleft=lambda domain, self: _popped(domain, self, 0),
    rotate=_rotate,
)
register(
    ListValue,
    TypeSlots(
        richcompare=_richcompare,
        inplace=_change_list,
        concat=_concat_lists,
        repeat=_repeat_list,
        length=_length,
        iter=sequence_iter,
        contains=_contains,
        getitem=_sequence_item,
        setitem=_list_store,
        delitem=_delete_from_list,
        getattr=_list_attr,
        hash=unhashable,
        text=_text,
        copy=_copy_list,
        raw=lambda domain, self: [to_raw(domain, v) for v in elements.items(domain, self)],
        is_constant=lambda domain, self: is_plain(domain, self) and _is_constant(domain, self),
        constant=_constant_list,
        has_leaf=_has_leaf,
        rebuild=_rebuild_list,
        write_back=_write_back,
    ),
)
register(
    TupleValue,
    TypeSlots(
        richcompare=_richcompare,
        concat=_concat_tuples,
        repeat=_repeat_tuple,
        length=_length,
        iter=sequence_iter,
        contains=_contains,
        getitem=_sequence_item,
        getattr=_tuple_attr,
        hash=_hash,
        text=_text,
        copy=_copy_tuple,
        raw=_items_of_tuple(to_raw),
        is_constant=_is_constant,
        constant=_items_of_tuple(constant_of),
        has_leaf=_has_leaf,
        rebuild=_rebuild_tuple,
    ),
)
slot_methods(list, tuple)
slot_methods(deque, without=("__getitem__", "__setitem__", "__delitem__"))  # whose methods say other errors
