"""Methods that only pass their arguments on, unless something is in the way: done without interpreting them.

`nn.Module.__call__` was half of the instructions of a capture: two functions that look for hooks and call `forward`. What
they read is read here, with the same guards; where anything is in the way the original is interpreted.
"""

from __future__ import annotations

from collections import OrderedDict
from types import FunctionType

from torchjit_vm.capture import attributes, comparisons, functions, lengths, members, names
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.policy import PassThrough
from torchjit_vm.capture.values import BoundMethod, Const, DictValue, Known, Obj, Value
from torchjit_vm.frame import Frame

__all__ = ["pass_through"]

_NOTHING = Const(None)


def pass_through(
    domain: CaptureDomain, rule: PassThrough, function: Known, args: list[Value], kwargs: dict[str, Value]
) -> Value | Frame[Value]:
    """Call `function`, which `rule` describes."""
    target = _target(domain, rule, function, args)
    if target is None:
        return functions.enter_known(domain, function, function.obj, args, kwargs)
    return domain.call(target, args[1:], kwargs)


def _target(domain: CaptureDomain, rule: PassThrough, function: Known, args: list[Value]) -> Value | None:
    """The method that gets the arguments, or None if something is in the way, or is not plain to see."""
    self_ = args[0] if args else None
    if not isinstance(self_, Obj) or not _is_plain(domain, rule, function):
        return None
    if members.find_member(domain, self_.cls, "__getattribute__").kind == members.FUNCTION:
        return None
    for name in rule.none:
        found = attributes.generic_attr(domain, self_, name)
        if type(found) is not Const or not comparisons.is_(domain, found, _NOTHING):
            return None
    # Before the dicts, as the originals do it.
    target = attributes.generic_attr(domain, self_, rule.method)
    if type(target) not in (BoundMethod, Known):
        return None
    for name in rule.empty:
        if not _is_empty(domain, attributes.generic_attr(domain, self_, name)):
            return None
    for name in rule.empty_globals:
        if not _is_empty(domain, names.global_value(domain, function.obj.__globals__, name)):
            return None
    return target  # type: ignore[return-value]  # no Frame: see above


def _is_empty(domain: CaptureDomain, found: Value | Frame[Value] | None) -> bool:
    return type(found) is DictValue and found.cls in (dict, OrderedDict) and not lengths.truth(domain, found)


class PassedMethods(dict[FunctionType, bool]):
    """Is a method what its rule describes, and nothing in the way of all calls?"""


def _is_plain(domain: CaptureDomain, rule: PassThrough, function: Known) -> bool:
    """Is the function what it was, and do the functions that it asks say no? Once per capture."""
    known = domain.of(PassedMethods).get(function.obj)
    if known is None:
        functions.facts_of(domain, function.obj)
        same = function.obj.__code__ is rule.code
        known = domain.of(PassedMethods)[function.obj] = same and all(
            _says_no(domain, function, path) for path in rule.told_no
        )
    return known


def _says_no(domain: CaptureDomain, function: Known, path: tuple[str, ...]) -> bool:
    found: Value | Frame[Value] = names.global_value(domain, function.obj.__globals__, path[0])
    for name in path[1:]:
        if type(found) is not Known:
            return False
        found = attributes.load_attr(domain, found, name)
    if type(found) is not Known:
        return False
    answer = domain.call(found, [], {})
    return type(answer) is Const and not lengths.truth(domain, answer)
