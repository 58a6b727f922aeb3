"""Around fusion: what is stored is rounded or need not be, stores that nobody reads go away, kernels get telling names."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import attrs
import torch

from torchjit_inductor.ir.kernel import LoopKernel, Store
from torchjit_inductor.ir.values import IN_ORDER, PASSES, Value, round_to, where
from torchjit_inductor.steps import KernelStep, Program, Step, TensorRef

VIEWS = frozenset(
    {"view", "unsafe_view", "permute", "transpose", "t", "expand", "unsqueeze", "squeeze", "alias", "detach", "clone"}
)
"""Ops that say little about a kernel."""

__all__ = ["drop_roundings", "remove_dead_stores", "rename_kernels", "round_stores"]


def remove_dead_stores(program: Program) -> Program:
    """Drop stores to buffers that no later step and no output reads; drop kernels without stores."""
    needed = {o.buffer for o in program.outputs if isinstance(o, TensorRef)}
    inputs = {name for name in program.inputs if isinstance(name, str)}
    kept: list[Step] = []
    for step in reversed(program.steps):
        if isinstance(step, KernelStep):
            stores = tuple(s for s in step.kernel.stores if s.buffer in needed or s.buffer in inputs)
            if not stores:
                continue
            if len(stores) < len(step.kernel.stores):
                step = KernelStep(_without_reductions(attrs.evolve(step.kernel, stores=stores)))
        needed.update(step.reads)
        kept.append(step)
    kept.reverse()
    used = inputs | {n for s in kept for n in (*s.reads, *s.writes)} | needed
    buffers = {name: b for name, b in program.buffers.items() if name in used}
    return attrs.evolve(program, steps=tuple(kept), buffers=buffers)


def _without_reductions(kernel: LoopKernel) -> LoopKernel:
    """A kernel whose reductions all died is pointwise over all its loops."""
    if not kernel.inner or any(v.op in PASSES | IN_ORDER for v in kernel.values) or any(s.outer for s in kernel.stores):
        return kernel
    return attrs.evolve(kernel, outer=(*kernel.outer, *kernel.inner), inner=())


def round_stores(program: Program) -> Program:
    """Round what goes to buffers of 16-bit types as their memory does. Before fusion, which hands values on past the memory."""
    return _with_stores(program, _as_in_memory)


def _as_in_memory(store: Store, program: Program) -> Store:
    dtype = program.buffers[store.buffer].dtype
    if dtype not in (torch.float16, torch.bfloat16) or store.mode != "set" or store.value.dtype != torch.float32:
        return store
    return attrs.evolve(store, value=round_to(store.value, dtype))


def drop_roundings(program: Program) -> Program:
    """Do not round a value to the type that its store rounds to anyway. After fusion: readers wanted it rounded."""
    return _with_stores(program, _rounded_once)


def _with_stores(program: Program, change: Callable[[Store, Program], Store]) -> Program:
    def changed(step: Step) -> list[Step]:
        if not isinstance(step, KernelStep):
            return [step]
        return [KernelStep(attrs.evolve(step.kernel, stores=tuple(change(s, program) for s in step.kernel.stores)))]

    return program.mapped(changed)


def _rounded_once(store: Store, program: Program) -> Store:
    if store.mode != "set":
        return store  # the sum is rounded, the value on its own was before
    value = _unrounded(store.value, program.buffers[store.buffer].dtype)
    return store if value is store.value else attrs.evolve(store, value=value)


def _unrounded(value: Value, dtype: torch.dtype) -> Value:
    if value.op == "round_to" and value.data == dtype:
        return _unrounded(value.args[0], dtype)
    if value.op == "where":
        condition, yes, no = value.args
        bare = _unrounded(yes, dtype), _unrounded(no, dtype)
        return value if bare == (yes, no) else where(condition, *bare)
    return value


def rename_kernels(program: Program) -> Program:
    """Name each kernel by the ops in it and its position."""
    numbers = itertools.count()

    def renamed(step: Step) -> list[Step]:
        if not isinstance(step, KernelStep):
            return [step]
        ops = dict.fromkeys(o.op.split(".")[0].strip("_") for o in step.kernel.origins)
        telling = [o for o in ops if o not in VIEWS] or ["copy"]
        name = "_".join(["fused", *telling[:4], *(["etc"] if len(telling) > 4 else []), str(next(numbers))])
        return [KernelStep(attrs.evolve(step.kernel, name="".join(c if c.isalnum() else "_" for c in name)))]

    return program.mapped(renamed)
