"""Imports in the capture domain.

A module that is loaded is what the table of modules holds, which is guarded. One that is not is imported for real: behind a graph break,
or, where the policy says that nothing but the module comes of it, at capture, which then starts again (`ModuleImported`).
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from torchjit_core.paths import Pinned
from torchjit_core.storing import never_stored
from torchjit_vm.binding import import_from_real
from torchjit_vm.capture import exceptions
from torchjit_vm.capture.builtin_table import builtin
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.reading import pinned
from torchjit_vm.capture.reasons import NO_SUBMODULE, UNKNOWN_OPERATION
from torchjit_vm.capture.restart import ModuleImported
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import DELETED, Args, Const, Known, Kwargs, Value
from torchjit_vm.frame import Frame, Raised


def import_name(domain: CaptureDomain, frame: Frame[Value], name: str, fromlist: Value, level: Value) -> Value:
    """What the statement gives: the module, or the package that its dotted name begins with."""
    names, depth = domain.use(fromlist), domain.use(level)
    full = name
    if depth:
        package = frame.globals.get("__package__") or frame.globals.get("__name__", "").rpartition(".")[0]
        parts = package.split(".")
        full = ".".join(parts[: len(parts) - depth + 1] + ([name] if name else []))
    _loaded(domain, full)
    wanted = full if names or depth else name.partition(".")[0]
    module = _loaded(domain, wanted)
    for wished in names or ():
        _need_submodule(domain, module, wished)
    return _module(domain, wanted, module)


def _need_submodule(domain: CaptureDomain, module: Any, name: str) -> None:
    """`from package import name` imports a submodule that is not loaded yet; whether there is one, its folder says."""
    space = getattr(module, "__dict__", {})
    full = f"{space.get('__name__')}.{name}"
    if "__path__" not in space or name in space or name == "*" or "__getattr__" in space or full in sys.modules:
        return
    if importlib.util.find_spec(full) is not None:
        _loaded(domain, full)
    never_stored(NO_SUBMODULE, full)


def _loaded(domain: CaptureDomain, name: str) -> Any:
    """A module by its full name.

    Raises:
        ModuleImported: it was imported just now.
        GraphBreak: it is for the program to import it. So it is where the import raised.
    """
    module = sys.modules.get(name)
    if module is not None:
        return module
    if domain.policy.may_import(name):
        try:
            importlib.import_module(name)
        except Exception:  # the program's own import, behind the break, raises it
            pass
        else:
            if sys.modules.get(name) is not None:
                raise ModuleImported(name)
    raise domain.graph_break(UNKNOWN_OPERATION, f"first import of {name}")


@builtin(importlib.import_module)
def _import_module(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    """Of a module that is there, or may be imported at capture; another one is imported for real, as a whole."""
    given = [*args, *kwargs.values()]
    if not 1 <= len(given) <= 2 or not set(kwargs) <= {"package"} or not all(type(v) is Const for v in given):
        return None
    name, package = (*map(domain.use, given), None)[:2]
    if not isinstance(name, str) or (name.startswith(".") and not isinstance(package, str)):
        return None
    try:
        full = importlib.util.resolve_name(name, package)
    except ImportError:
        return None
    if full not in sys.modules and not domain.policy.may_import(full):
        return None
    return _module(domain, full, _loaded(domain, full))


_TABLE = Pinned.of(sys.modules, "sys.modules")


def _module(domain: CaptureDomain, name: str, module: object) -> Value:
    domain.guard_id(_TABLE.item(name), module)
    return pinned(domain, module, name)


def import_from(domain: CaptureDomain, module: Value, name: str) -> Value:
    if isinstance(module, Known):
        found = vars(module.obj).get(name, DELETED)
        if found is DELETED and module.obj.__name__ + "." + name in sys.modules:
            submodule = module.obj.__name__ + "." + name
            return _module(domain, submodule, sys.modules[submodule])
    try:
        return domain.vm.finish(domain.load_attr(module, name))
    except Raised as raised:
        cls = type_of(domain, raised.value)
        if not (issubclass(cls, AttributeError) and isinstance(module, Known)):
            raise
        raise _import_error(domain, module.obj, name) from None


def _import_error(domain: CaptureDomain, module: Any, name: str) -> Raised:
    try:
        import_from_real(module, name)
    except ImportError as error:
        return domain.raised(exceptions.from_real(domain, error))
    raise AssertionError(f"{module.__name__} has {name}")
