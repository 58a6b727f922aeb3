"""The settings of this package: one frozen object, passed in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any, TypeAlias, final

import attrs
from torch import fx
from torch._ops import OpOverload

from torchjit_aot.passes import GraphPass

__all__ = ["AotSettings", "CompilerPass", "Later", "verify_by_default"]

Later: TypeAlias = Callable[[Callable[[], Any]], Any]
"""Calls a function that compiles, and returns its result."""
CompilerPass: TypeAlias = Callable[[fx.Graph, Set[fx.Node]], None]


_VERIFIES = [False]


def verify_by_default(verifies: bool) -> None:
    """What `AotSettings.verify` is where it is not said: for tests."""
    _VERIFIES[:] = [verifies]


def _at_once(build: Callable[[], Any]) -> Any:
    return build()


@final
@attrs.frozen
class AotSettings:
    """How graphs are prepared for the compiler.

    Attributes:
        decompositions: from an operator to a Python function in terms of simpler operators, applied to the joint graph.
            Empty: the graph keeps the operators that autograd and eager PyTorch use. See `default_decompositions`.
        keep_ops: operators that stay, although `decompositions` has them.
        simplify: compute equal values once and drop operators that do nothing.
        fuse: let operators do the work of others where that rounds otherwise than eager PyTorch does: hand-written
            attention, a product and its bias, the result of a norm had again from its statistics.
        compiler_passes: the compiler's own, run in order on the functional joint graph before it is split. Each gets the `fx.Graph` and the set
            of nodes whose strides are promised (results, gradients, new values of inputs); it must leave those nodes in
            the graph, and may change other nodes and their `meta["val"]`.
        eager_backward: compile the backward graph together with the forward graph, not at the first backward call.
        recompute_materialized: also recompute in the backward what a matmul or convolution of the backward reads: saves
            memory and costs a kernel.
        recompute_time: the share of the step's modelled time that the backward may spend on computing again cheap values
            which a matrix product wants in memory.
        memory_budget: below 1, the backward computes more again until only this share of the bytes that could go is
            saved; 0 saves next to nothing but inputs.
        pre_grad_passes, joint_passes, post_grad_passes: changes of the captured graph, of the joint graph, and of each
            final graph; see `torchjit_aot.passes`.
        functional_random: random numbers are computed from seeds that each call draws, so that the backward computes them
            again instead of keeping them. They are then not those that eager PyTorch draws.
        repeated_blocks: trace a few of a graph's equal blocks, and copy what became of one; see `torchjit_aot.joint_blocks`.
        gradient_buckets: where the graph says how large the buckets are in which gradients are exchanged, hand them to autograd bucket by bucket.
        later: calls a function that compiles, and returns its result: for a backward that is compiled at its first call, whose state
            and interrupts the caller may want to see to.
        verify: check the joint graph after each pass; see `verify_by_default`.
        fallback: run a graph that cannot be compiled by eager PyTorch (an event tells the reason). False: raise.
        name: prefix of the graphs' names.
    """

    decompositions: Mapping[OpOverload, Callable[..., Any]] = attrs.field(factory=dict, repr=False)
    keep_ops: frozenset[object] = frozenset()
    simplify: bool = True
    fuse: bool = False
    compiler_passes: tuple[CompilerPass, ...] = attrs.field(default=(), repr=False)
    eager_backward: bool = False
    recompute_materialized: bool = False
    recompute_time: float = 0.02
    memory_budget: float = 1.0
    pre_grad_passes: tuple[GraphPass, ...] = ()
    joint_passes: tuple[GraphPass, ...] = ()
    post_grad_passes: tuple[GraphPass, ...] = ()
    functional_random: bool = False
    repeated_blocks: bool = False
    gradient_buckets: bool = True
    later: Later = attrs.field(default=_at_once, repr=False)
    verify: bool = attrs.field(factory=lambda: _VERIFIES[-1])
    fallback: bool = True
    name: str = "graph"
