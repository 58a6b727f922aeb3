"""Methods of list and deque."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, cast

from torchjit_vm.capture import collecting, comparisons, construct, elements, iteration
from torchjit_vm.capture.builtin_functions import sort
from torchjit_vm.capture.builtin_table import method
from torchjit_vm.capture.objects.sequence import delete_from_list, list_store
from torchjit_vm.capture.values import Const, ListValue, Value
from torchjit_vm.frame import Raised

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

_Args = list[Value]
_Kwargs = dict[str, Value]


@method("__init__", deque)
def _init_deque(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    return Const(None) if construct.fill_deque(domain, cast(ListValue, args[0]), args[1:], kwargs) else None


@method("append", list, deque)
def _append(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    elements.append(domain, cast(ListValue, args[0]), [args[1]])
    return Const(None)


@method("appendleft", deque)
def _appendleft(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    target = cast(ListValue, args[0])
    elements.change(domain, target).insert(0, args[1])
    elements.trim(domain, target, left=False)
    return Const(None)


@method("extendleft", deque)
def _extendleft(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    target = cast(ListValue, args[0])
    for item in iteration.items_of(domain, args[1]) if args[1] is target else collecting.each(domain, args[1]):
        elements.change(domain, target).insert(0, item)
        elements.trim(domain, target, left=False)
    return Const(None)


@method("rotate", deque)
def _rotate(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    by = domain.index(args[1]) if len(args) > 1 else 1
    items = elements.change(domain, cast(ListValue, args[0]))
    if items:
        by %= len(items)
        items[:] = items[-by:] + items[:-by] if by else items
    return Const(None)


@method("extend", list, deque)
def _extend(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    target = cast(ListValue, args[0])
    collecting.extend(domain, target, args[1])
    return Const(None)


@method("insert", list, deque)
def _insert(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    index = domain.index(args[1])
    if elements.maximum(cast(ListValue, args[0])) is not None:
        return None
    elements.change(domain, cast(ListValue, args[0])).insert(index, args[2])
    return Const(None)


@method("pop", list, deque)
def _pop(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    target = cast(ListValue, args[0])
    index = domain.index(args[1]) if len(args) > 1 else -1
    items = elements.items(domain, target)
    if not items:
        text = "pop from an empty deque" if issubclass(target.cls, deque) else "pop from empty list"
        raise domain.error(IndexError, text)
    if not -len(items) <= index < len(items):
        raise domain.error(IndexError, "pop index out of range")
    return elements.change(domain, target).pop(index)


@method("popleft", deque)
def _popleft(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    target = cast(ListValue, args[0])
    if not elements.items(domain, target):
        raise domain.error(IndexError, "pop from an empty deque")
    return elements.change(domain, target).pop(0)


@method("remove", list, deque)
def _remove(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    target = cast(ListValue, args[0])
    for i, item in enumerate(elements.items(domain, target)):
        if comparisons.same_or_equal(domain, item, args[1]):
            del elements.change(domain, target)[i]
            return Const(None)
    if issubclass(target.cls, deque):
        return None  # the message names the item's repr
    raise domain.error(ValueError, "list.remove(x): x not in list")


@method("clear", list, deque)
def _clear(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    elements.change(domain, cast(ListValue, args[0])).clear()
    return Const(None)


@method("__copy__", deque)
@method("copy", list, deque)
def _copy(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    if len(args) != 1:
        return None
    target = cast(ListValue, args[0])
    if issubclass(target.cls, deque):
        return elements.copy_deque(domain, target)
    return ListValue(list(elements.items(domain, cast(ListValue, args[0]))))


@method("reverse", list, deque)
def _reverse(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    elements.change(domain, cast(ListValue, args[0])).reverse()
    return Const(None)


@method("sort", list)
def _sort(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    target = cast(ListValue, args[0])
    before = list(elements.items(domain, target))
    elements.change(domain, target).clear()  # as it looks to the keys and comparisons
    try:
        after = sort(domain, list(before), kwargs)
    except Raised:
        elements.change(domain, target)[:] = before
        raise
    modified = bool(elements.items(domain, target))
    elements.change(domain, target)[:] = after
    if modified:
        raise domain.error(ValueError, "list modified during sort")
    return Const(None)


@method("__setitem__", list)
def _setitem(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    list_store(domain, cast(ListValue, args[0]), args[1], args[2])
    return Const(None)


@method("__iadd__", list)
def _iadd(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    collecting.extend(domain, cast(ListValue, args[0]), args[1])
    return args[0]


@method("__delitem__", list)
def _delitem(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    delete_from_list(domain, cast(ListValue, args[0]), args[1])
    return Const(None)
