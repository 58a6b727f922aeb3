"""Methods of list and deque."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from torchjit_vm.capture import collecting, comparisons, construct, elements, iteration
from torchjit_vm.capture.builtin_functions import sort
from torchjit_vm.capture.builtin_table import method_of
from torchjit_vm.capture.values import Const, ListValue, Value
from torchjit_vm.frame import Raised

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

_Args = list[Value]
_Kwargs = dict[str, Value]


@method_of(ListValue, "__init__", deque)
def _init_deque(domain: CaptureDomain, own: ListValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    return Const(None) if construct.fill_deque(domain, own, args, kwargs) else None


@method_of(ListValue, "append", list, deque)
def _append(domain: CaptureDomain, own: ListValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    elements.append(domain, own, [args[0]])
    return Const(None)


@method_of(ListValue, "appendleft", deque)
def _appendleft(domain: CaptureDomain, own: ListValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    elements.change(domain, own).insert(0, args[0])
    elements.trim(domain, own, left=False)
    return Const(None)


@method_of(ListValue, "extendleft", deque)
def _extendleft(domain: CaptureDomain, own: ListValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    for item in iteration.items_of(domain, args[0]) if args[0] is own else collecting.each(domain, args[0]):
        elements.change(domain, own).insert(0, item)
        elements.trim(domain, own, left=False)
    return Const(None)


@method_of(ListValue, "rotate", deque)
def _rotate(domain: CaptureDomain, own: ListValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    by = domain.index(args[0]) if args else 1
    items = elements.change(domain, own)
    if items:
        by %= len(items)
        items[:] = items[-by:] + items[:-by] if by else items
    return Const(None)


@method_of(ListValue, "extend", list, deque)
def _extend(domain: CaptureDomain, own: ListValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    collecting.extend(domain, own, args[0])
    return Const(None)


@method_of(ListValue, "insert", list, deque)
def _insert(domain: CaptureDomain, own: ListValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    index = domain.index(args[0])
    if elements.maximum(own) is not None:
        return None
    elements.change(domain, own).insert(index, args[1])
    return Const(None)


@method_of(ListValue, "pop", list, deque)
def _pop(domain: CaptureDomain, own: ListValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    index = domain.index(args[0]) if args else -1
    items = elements.items(domain, own)
    if not items:
        text = "pop from an empty deque" if issubclass(own.cls, deque) else "pop from empty list"
        raise domain.error(IndexError, text)
    if not -len(items) <= index < len(items):
        raise domain.error(IndexError, "pop index out of range")
    return elements.change(domain, own).pop(index)


@method_of(ListValue, "popleft", deque)
def _popleft(domain: CaptureDomain, own: ListValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    if not elements.items(domain, own):
        raise domain.error(IndexError, "pop from an empty deque")
    return elements.change(domain, own).pop(0)


@method_of(ListValue, "remove", list, deque)
def _remove(domain: CaptureDomain, own: ListValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    for i, item in enumerate(elements.items(domain, own)):
        if comparisons.same_or_equal(domain, item, args[0]):
            del elements.change(domain, own)[i]
            return Const(None)
    if issubclass(own.cls, deque):
        return None  # the message names the item's repr
    raise domain.error(ValueError, "list.remove(x): x not in list")


@method_of(ListValue, "clear", list, deque)
def _clear(domain: CaptureDomain, own: ListValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    elements.change(domain, own).clear()
    return Const(None)


@method_of(ListValue, "__copy__", deque)
@method_of(ListValue, "copy", list, deque)
def _copy(domain: CaptureDomain, own: ListValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    if args:
        return None
    if issubclass(own.cls, deque):
        return elements.copy_deque(domain, own)
    return ListValue(list(elements.items(domain, own)))


@method_of(ListValue, "reverse", list, deque)
def _reverse(domain: CaptureDomain, own: ListValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    elements.change(domain, own).reverse()
    return Const(None)


@method_of(ListValue, "sort", list)
def _sort(domain: CaptureDomain, own: ListValue, args: _Args, kwargs: _Kwargs) -> Value | None:
    before = list(elements.items(domain, own))
    elements.change(domain, own).clear()  # as it looks to the keys and comparisons
    try:
        after = sort(domain, list(before), kwargs)
    except Raised:
        elements.change(domain, own)[:] = before
        raise
    modified = bool(elements.items(domain, own))
    elements.change(domain, own)[:] = after
    if modified:
        raise domain.error(ValueError, "list modified during sort")
    return Const(None)
