"""What an operator's schema says: which arguments it writes to, whether results share memory, whether it is random, its functional form."""

from __future__ import annotations

import functools

import torch
from torch._ops import OpOverload, OpOverloadPacket

__all__ = [
    "ONLY_COMPUTE",
    "Argument",
    "aliases_operand",
    "draws",
    "functional_form",
    "has_effect",
    "is_custom_operator",
    "is_mutable",
    "is_random",
    "is_view",
    "names_metadata_write",
    "out_of_place",
    "writes_metadata",
    "writes_to",
    "written_arguments",
]

ONLY_COMPUTE = frozenset(
    {
        "aten", "prims", "prim", "quantized", "torchvision", "mkldnn", "onednn", "mkl", "torchjit_checks",
        "torchjit_recurrent",
    }
)  # fmt: skip
"""Namespaces of operators that do nothing but what their schema says."""
Argument = int | str
"""An argument by position, or by keyword when it is keyword-only."""


def is_custom_operator(target: object) -> bool:
    """Is it an operator of somebody else's library, of which only the library knows what else it does?"""
    if isinstance(target, OpOverloadPacket):
        return target._qualified_op_name.partition("::")[0] not in ONLY_COMPUTE
    return isinstance(target, OpOverload) and target.namespace not in ONLY_COMPUTE


@functools.cache
def written_arguments(func: OpOverload) -> tuple[tuple[int, str], ...]:
    """Positions and names of the arguments that `func` writes to, in schema order."""
    arguments = enumerate(func._schema.arguments)
    return tuple((i, a.name) for i, a in arguments if a.alias_info is not None and a.alias_info.is_write)


@functools.cache
def writes_to(func: object) -> tuple[Argument, ...]:
    """The arguments that `func` writes to, in schema order."""
    if not isinstance(func, OpOverload) or not func._schema.is_mutable:
        return ()
    arguments = func._schema.arguments
    return tuple(name if arguments[i].kwarg_only else i for i, name in written_arguments(func))


def is_mutable(func: object) -> bool:
    """May it write to an operand? Who knows, of what has no schema."""
    return bool(getattr(getattr(func, "_schema", None), "is_mutable", True))


def aliases_operand(func: object) -> bool:
    """May a result be an operand, or a view of one? Who knows, of what has no schema."""
    schema = getattr(func, "_schema", None)
    return schema is None or any(r.alias_info is not None for r in schema.returns)


def draws(func: object) -> bool:
    """Does torch say of it that it draws random numbers? Not of all that do, and of some that do not: see `is_random`."""
    return torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())


@functools.cache
def is_view(func: object) -> bool:
    """Does `func` return a tensor (or tensors) that shares the storage of its first argument, without writing?"""
    if not isinstance(func, OpOverload) or writes_to(func):
        return False
    returns = func._schema.returns
    return bool(returns) and returns[0].alias_info is not None and func not in _FRESH_DESPITE_SCHEMA


_FRESH_DESPITE_SCHEMA = frozenset({torch.ops.aten.lift_fresh.default})
_UNMARKED_RANDOM = frozenset(
    {
        "aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention", "aten::_flash_attention_forward",
        "aten::_efficient_attention_forward", "aten::_fused_dropout", "aten::_cudnn_rnn", "aten::native_dropout",
        "aten::rrelu_with_noise", "aten::rrelu_with_noise_functional",
    }
)  # fmt: skip


@functools.cache
def is_random(func: object) -> bool:
    """May `func` draw random numbers?"""
    if not isinstance(func, OpOverload):
        return False
    if func._schema.name.endswith("_attention_backward"):
        return False  # tagged as random, but they take the seed that the forward drew
    return draws(func) or func._schema.name in _UNMARKED_RANDOM


_WITHOUT_EFFECTS = ("aten", "prims", "torchvision", "torchjit_recurrent")


@functools.cache
def has_effect(func: object) -> bool:
    """Must `func` run although nobody reads its result? Whatever a custom operator does, it does it as often as in eager."""
    if not isinstance(func, OpOverload):
        return False
    if is_random(func):
        return True  # it moves the generator
    return not func._schema.returns or func._schema.is_mutable or func.namespace not in _WITHOUT_EFFECTS


@functools.cache
def writes_metadata(func: object) -> bool:
    """Does `func` change sizes, strides or storage of its argument?"""
    return isinstance(func, OpOverload) and torch.Tag.inplace_view in func.tags


@functools.cache
def names_metadata_write(target: object) -> bool:
    """Is a call's target of a graph (`"t_"`, `torch.Tensor.t_`, an overload) one that changes sizes, strides or storage of its argument?"""
    if isinstance(target, OpOverload):
        return writes_metadata(target)
    packet = getattr(torch.ops.aten, target if isinstance(target, str) else getattr(target, "__name__", ""), None)
    if not isinstance(packet, OpOverloadPacket):
        return False
    return any(writes_metadata(getattr(packet, name)) for name in packet.overloads())  # type: ignore[no-untyped-call]


def _packet(func: OpOverload, name: str) -> OpOverloadPacket | None:
    namespace = getattr(torch.ops, func.namespace)
    found = getattr(namespace, name, None)
    return found if isinstance(found, OpOverloadPacket) else None


def _base_name(func: OpOverload) -> str:
    return func._schema.name.split("::")[-1]


@functools.cache
def out_of_place(func: OpOverload) -> OpOverload | None:
    """`transpose_` to `transpose`: the view operator behind an operator that changes metadata, if there is one."""
    name = _base_name(func)
    if not name.endswith("_") or name in ("resize_", "set_", "resize_as_"):
        return None
    packet = _packet(func, name[:-1])
    if packet is None:
        return None
    wanted = _value_arguments(func)
    for overload_name in packet.overloads():  # type: ignore[no-untyped-call]
        overload: OpOverload = getattr(packet, overload_name)
        if not overload._schema.is_mutable and _value_arguments(overload) == wanted:
            return overload
    return None


_RENAMED = {"normal_": "normal_functional", "fill_": "fill", "zero_": "zero", "bernoulli_": "bernoulli"}


@functools.cache
def functional_form(func: OpOverload) -> OpOverload | None:
    """The operator that computes what `func` writes and returns it instead.

    `add_.Tensor` gives `add.Tensor`; `add.out` gives `add.Tensor`; `_native_batch_norm_legit` gives
    `_native_batch_norm_legit_functional`.
    """
    name = _base_name(func)
    names = [_RENAMED[name]] if name in _RENAMED else []
    names += [
        name.removesuffix("_"),
        name + "_functional",
        name.removesuffix("_") + "_functional",
        name.removesuffix("_") + "_copy",
    ]
    wanted = _value_arguments(func)
    for candidate in names:
        packet = _packet(func, candidate)
        if packet is None:
            continue
        for overload_name in packet.overloads():  # type: ignore[no-untyped-call]
            overload: OpOverload = getattr(packet, overload_name)
            if not overload._schema.is_mutable and _value_arguments(overload) == wanted:
                return overload
    return None


def _value_arguments(func: OpOverload) -> list[tuple[str, str]]:
    """Names and types of the arguments, without `out=` ones."""
    return [
        (argument.name, str(argument.type))
        for argument in func._schema.arguments
        if not (argument.kwarg_only and argument.alias_info is not None and argument.alias_info.is_write)
    ]
