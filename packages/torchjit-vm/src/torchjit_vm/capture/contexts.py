"""Context variables, and attributes of `threading.local`: what a context or a thread holds.

Reading relies on what is there. Stores are made at the end of the region, in order, for a token tells what was there before.
"""

from __future__ import annotations

import _thread
import contextvars
from typing import Any, final

import attrs

from torchjit_core.paths import Pinned
from torchjit_vm.capture.builtin_table import method
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.exceptions import new_exception
from torchjit_vm.capture.members import Member
from torchjit_vm.capture.reading import pinned, wrap
from torchjit_vm.capture.reasons import UNKNOWN_ATTRIBUTE
from torchjit_vm.capture.rebuild import Rebuilder
from torchjit_vm.capture.state import Tentative
from torchjit_vm.capture.values import DELETED, NEW, Const, Known, Obj, Value

__all__ = ["ContextStore", "is_local", "local_attr", "token_attr", "write_context_stores"]

_Args = list[Value]
_Kwargs = dict[str, Value]
_UNSET = object()


@final
@attrs.frozen(eq=False)
class ContextStore:
    """`token = variable.set(content)`, or `variable.reset(token)` if there is no content; `before` is what was there."""

    variable: Obj
    content: Value | None
    token: Obj
    before: Value | None


class ContextVariables(Tentative):
    """What context variables hold in the region (DELETED if nothing), the stores in order, and those whose token can serve."""

    def __init__(self) -> None:
        self.held: dict[Obj, Value | None] = {}
        self.stores: list[ContextStore] = []
        self.tokens: dict[Obj, ContextStore] = {}


def context_value(variable: Any) -> Any:
    """What a context variable holds here and now.

    Raises:
        LookupError: nothing, whatever its default is.
    """
    found = variable.get(_UNSET)
    if found is _UNSET:
        raise LookupError(variable)
    return found


def _variable(domain: CaptureDomain, args: _Args) -> Obj | None:
    found = args[0] if args else None
    if not (isinstance(found, Obj) and found.cls is contextvars.ContextVar) or found.real is NEW or found.path is None:
        return None
    if type(found.path) is not Pinned:
        domain.guard_id(found.path, found.real)
    return found


def _held(domain: CaptureDomain, variable: Obj) -> Any:
    """What the variable holds; DELETED if nothing."""
    found = domain.of(ContextVariables).held.get(variable)
    if found is not None:
        return found
    path = Pinned.of(variable.real, f"<variable {variable.real.name}>")
    try:
        real = context_value(variable.real)
    except LookupError:
        text = f"{path} is not set"
        domain.guard_test(("unset", id(variable.real)), path, lambda v: v.get(_UNSET) is _UNSET, text)
        found = DELETED
    else:
        found = wrap(domain, real, path.computed(context_value))
    domain.of(ContextVariables).held[variable] = found
    return found


@method("get", contextvars.ContextVar)
def _get(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    variable = _variable(domain, args)
    if variable is None or kwargs:
        return None
    found = _held(domain, variable)
    if found is not DELETED:
        result: Value = found
        return result
    if len(args) > 1:
        return args[1]
    try:  # the default never changes, and an empty context shows it
        default = contextvars.Context().run(variable.real.get)
    except LookupError:
        raise domain.raised(new_exception(domain, LookupError, [variable])) from None
    return pinned(domain, default, f"{variable.real.name}.default")


@method("set", contextvars.ContextVar)
def _set(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    variable = _variable(domain, args)
    if variable is None or len(args) != 2:
        return None
    token = Obj(contextvars.Token)
    domain.touch(variable)
    before = _held(domain, variable)
    store = ContextStore(variable, args[1], token, before)
    domain.of(ContextVariables).stores.append(store)
    domain.of(ContextVariables).tokens[token] = store
    domain.of(ContextVariables).held[variable] = args[1]
    return token


@method("reset", contextvars.ContextVar)
def _reset(domain: CaptureDomain, args: _Args, kwargs: _Kwargs) -> Value | None:
    variable = _variable(domain, args)
    token = args[1] if len(args) == 2 else None
    store = domain.of(ContextVariables).tokens.get(token) if isinstance(token, Obj) else None
    if variable is None or store is None or store.variable is not variable:
        return None  # a token of another region or variable: the real call knows
    domain.touch(variable)
    del domain.of(ContextVariables).tokens[store.token]  # it serves once
    domain.of(ContextVariables).stores.append(ContextStore(variable, None, store.token, None))
    domain.of(ContextVariables).held[variable] = store.before
    return Const(None)


def write_context_stores(domain: CaptureDomain, out: Rebuilder) -> None:
    """Write the stores that have not been written yet, in order; each is a call that gives its token a name."""
    while out.context_stores < len(domain.of(ContextVariables).stores):
        store = domain.of(ContextVariables).stores[out.context_stores]
        out.context_stores += 1
        variable = out.expr(store.variable)
        if store.content is None:
            out.write(f"{variable}.reset({out.expr(store.token)})")
        else:
            content = out.expr(store.content)
            out.flush()
            out.name(store.token, out.assign(f"{variable}.set({content})"))


def token_attr(domain: CaptureDomain, token: Obj, member: Member) -> Value | None:
    """`token.var` or `token.old_value`; None for attributes of other objects."""
    name = member.name
    if token.cls is not contextvars.Token or name not in ("var", "old_value"):
        return None
    if token.real is not NEW and token.path is not None:
        return wrap(domain, getattr(token.real, name), token.path.attr(name))
    store = next(s for s in domain.of(ContextVariables).stores if s.token is token)
    if name == "var":
        return store.variable
    return Known(contextvars.Token.MISSING) if store.before is DELETED else store.before


# threading.local.


def is_local(cls: type) -> bool:
    """Is it a class whose instances hold other attributes in each thread?"""
    return issubclass(cls, _thread._local)


def local_attr(domain: CaptureDomain, value: Obj, name: str) -> Value | None:
    """What an instance of `threading.local` holds in this thread; None if nothing."""
    found = value.attrs.get(name)
    if found is not None:
        return None if found is DELETED else found
    if value.real is NEW or value.path is None:
        raise domain.graph_break(UNKNOWN_ATTRIBUTE, f"{value.cls.__name__}.{name}")
    if name in value.real.__dict__:
        found = value.attrs[name] = wrap(domain, value.real.__dict__[name], value.path.attr(name))
        return found
    text = f"{value.path} has no {name} in this thread"
    domain.guard_test(("local", value.path, name), value.path, lambda v: name not in v.__dict__, text)
    value.attrs[name] = DELETED
    return None
