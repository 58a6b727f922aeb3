"""The Python code of operators that a program defines, which torch runs while a graph is made: fake kernels and gradients."""

from __future__ import annotations

import types
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch._library.simple_registry import singleton
from torch._ops import OpOverload, OpOverloadPacket

from torchjit_core.reasons import reason
from torchjit_core.storing import never_stored, relied_on

__all__ = ["rely_on_code"]

UNKNOWN_KERNEL = reason(
    "TJ-STORE-023",
    "an operator has a kernel in Python that nobody can look at",
    "What torch.library.Library.impl is given for gradients, for tensors without data or as a composition runs while a graph is "
    "compiled, and torch does not tell which function it is, so a changed one would not be noticed by compiled code on disk.",
    "Define the operator with torch.library.custom_op, and its fake kernel and gradient with register_fake and register_autograd.",
)
_RUN_WHILE_COMPILING = ("Autograd", "Meta", "CompositeImplicitAutograd", "Functionalize", "AutogradCPU", "AutogradCUDA")


def rely_on_code(target: OpOverload[..., Any] | OpOverloadPacket[..., Any]) -> None:
    """Note the functions of the program that torch runs for a custom operator while a graph is made."""
    if isinstance(target, OpOverloadPacket):
        for name in target.overloads():  # type: ignore[no-untyped-call]  # torch's
            rely_on_code(getattr(target, name))
        return
    name = target._schema.name
    definition = OPDEFS.get(name)
    full = f"{name}.{target._schema.overload_name}" if target._schema.overload_name else name
    entry: Any = singleton.find(full) if definition is None else definition
    relied_on(entry)  # with its functions: see `torchjit_store.reached`
    for function in target.py_kernels.values():
        if type(function) is types.FunctionType and not _is_library(function):
            relied_on(function)
    if definition is None:
        _refuse_unknown(full, entry.fake_impl.kernel is not None)


def _refuse_unknown(full: str, has_fake: bool) -> None:
    space, _, name = full.partition("::")
    if space.startswith("torchjit") or space in _TORCHS:
        return
    for key in _RUN_WHILE_COMPILING:
        if f"{space}/{name}/{key}" in torch.library._impls and not (key == "Meta" and has_fake):
            never_stored(UNKNOWN_KERNEL, f"{full} for {key}")


_TORCHS = frozenset(
    {"flex_lib", "_c10d_functional", "_c10d_functional_autograd", "c10d", "fsdp", "symm_mem", "rngprims", "debugprims"}
)


def _is_library(function: types.FunctionType) -> bool:
    return str(function.__globals__.get("__name__")).partition(".")[0].startswith("torch")
