"""From a captured graph to the functional joint graph: traced once, then the passes, in order."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import attrs
import torch
from torch import fx

from torchjit_aot.attention import fuse_attention, may_fuse_attention
from torchjit_aot.autograd_nodes.components import trace_dependence
from torchjit_aot.canonicalize import canonicalize
from torchjit_aot.decompositions import decompose
from torchjit_aot.functional_random import draw_from_seeds
from torchjit_aot.functionalize import functionalize
from torchjit_aot.joint import JointGraph, trace_joint
from torchjit_aot.joint_blocks import NotRepeated, blocks_of, marked, with_all_blocks
from torchjit_aot.passes import run_on_graph, run_on_joint
from torchjit_aot.pooling import slim_max_pools
from torchjit_aot.rewrites import EXACT, rewrite_joint, tell_rewrites
from torchjit_aot.settings import AotSettings
from torchjit_aot.shared_inputs import synthetic_bases
from torchjit_aot.simplify import merge_equal, remove_no_ops
from torchjit_aot.split import tell_joint
from torchjit_aot.synthetic_bases import SyntheticBase
from torchjit_aot.verify import verify
from torchjit_core.events import emit, phase
from torchjit_core.reasons import GraphBreak

__all__ = ["PASSES", "JointPass", "prepare_joint"]

_Counts = Counter[str]
"""How often each rewrite was made, for a `rewrites` event."""


@final
@attrs.frozen
class JointPass:
    """A change of the functional joint graph.

    Attributes:
        run: gives the changed joint graph, whose `fx.Graph` it may change in place.
        wanted: by these settings?
        phase: the stretch of compile time that it is counted to.
        on_fakes: it runs on fakes, without gradients.
        sees_all: it is somebody else's and may look at the whole graph: of equal blocks it gets all.
    """

    run: Callable[[JointGraph, AotSettings, _Counts], JointGraph]
    wanted: Callable[[AotSettings], object] = lambda settings: True
    phase: str | None = None
    on_fakes: bool = False
    sees_all: bool = False


def _decompose(joint: JointGraph, settings: AotSettings, counts: _Counts) -> JointGraph:
    if joint.has_backward:
        with joint.fake_mode, torch.no_grad():
            slim_max_pools(joint)
    return decompose(joint, settings.decompositions, settings.keep_ops)


def _simplify(joint: JointGraph, settings: AotSettings, counts: _Counts) -> JointGraph:
    joint, rewritten = rewrite_joint(joint, EXACT)
    joint, dropped = remove_no_ops(joint)
    joint, merged = merge_equal(joint)
    counts.update(rewritten)
    counts["no-op"] += dropped
    counts["common subexpression"] += merged
    return joint


def _run_compiler_passes(joint: JointGraph, settings: AotSettings, counts: _Counts) -> JointGraph:
    promised = _promised(joint)
    for change in settings.compiler_passes:
        change(joint.graph, promised)
    return joint


def _promised(joint: JointGraph) -> frozenset[fx.Node]:
    """The nodes whose strides somebody outside relies on."""
    grads = [g for g in joint.grads if g is not None]
    slots = [s for s in joint.slots if isinstance(s, fx.Node)]
    return frozenset((*slots, *grads, *joint.mutated.values()))


PASSES: tuple[JointPass, ...] = (
    JointPass(lambda joint, settings, counts: canonicalize(joint)),
    JointPass(lambda joint, settings, counts: draw_from_seeds(joint), lambda s: s.functional_random, on_fakes=True),
    JointPass(_decompose, lambda s: s.decompositions, "decompose"),
    JointPass(_simplify, lambda s: s.simplify, "simplify"),
    JointPass(
        lambda joint, settings, counts: run_on_joint(joint, settings.joint_passes),
        lambda s: s.joint_passes,
        sees_all=True,
    ),
    JointPass(_run_compiler_passes, lambda s: s.compiler_passes, "compiler passes", on_fakes=True, sees_all=True),
)
"""What happens to every joint graph, in order."""


def prepare_joint(gm: fx.GraphModule, example_inputs: Sequence[Any], settings: AotSettings) -> JointGraph:
    """Trace, functionalize and decompose: the functional joint graph.

    Raises:
        GraphBreak: the graph cannot be compiled.
        InvalidIR: a pass has left what no joint graph is (with `AotSettings.verify`).
    """
    counts: _Counts = Counter()
    joint = _of_equal_blocks(gm, example_inputs, settings, counts) if settings.repeated_blocks else None
    if joint is None:
        traced = _traced(_before_differentiation(gm, settings, counts), example_inputs)
        joint = _after(_of_each_node(), traced, settings, counts)
    joint = _after([each for each in PASSES if each.sees_all], joint, settings, counts)
    tell_rewrites(settings.name, +counts)
    tell_joint(settings.name, joint)
    return joint


def _of_each_node() -> list[JointPass]:
    """Those that look at a node and what is around it."""
    return [each for each in PASSES if not each.sees_all]


def _after(passes: Sequence[JointPass], joint: JointGraph, settings: AotSettings, counts: _Counts) -> JointGraph:
    """The joint graph after these passes."""
    for each in passes:
        if each.wanted(settings):
            with _surroundings(joint, each):
                joint = each.run(joint, settings, counts)
            if settings.verify:
                verify(joint)
    return joint


def _of_equal_blocks(
    gm: fx.GraphModule, example_inputs: Sequence[Any], settings: AotSettings, counts: _Counts
) -> JointGraph | None:
    """The joint graph of a graph of many equal blocks, made from that of a few; None where that does not do."""
    with phase("equal blocks"):
        found = None if settings.pre_grad_passes else blocks_of(gm, example_inputs)
    if found is None:
        return None
    blocks, reduced = found
    why, few = "", Counter[str]()
    try:
        small = _before_differentiation(marked(reduced), settings, few)
        joint = _traced(small, [example_inputs[k] for k in reduced.kept])
        joint = _after(_of_each_node(), joint, settings, few)
        with phase("equal blocks"):
            joint = with_all_blocks(joint, reduced, gm, example_inputs)
    except (NotRepeated, GraphBreak) as refusal:  # the whole graph meets what this one has met, and has the last word
        why = str(refusal)
    emit(
        "repeated_blocks", name=f"{settings.name}_joint", blocks=blocks.run.count, nodes=blocks.run.period,
        kept=blocks.run.count if why else blocks.run.count - reduced.skipped, expanded=not why, detail=why,
    )  # fmt: skip
    if why:
        return None
    if settings.verify:
        verify(joint)
    counts.update(few)
    return joint


@contextlib.contextmanager
def _surroundings(joint: JointGraph, each: JointPass) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if each.phase is not None:
            stack.enter_context(phase(each.phase))
        if each.on_fakes:
            stack.enter_context(joint.fake_mode)
            stack.enter_context(torch.no_grad())
        yield


def _before_differentiation(gm: fx.GraphModule, settings: AotSettings, counts: _Counts) -> fx.GraphModule:
    """What is changed of the captured graph; the caller's own stays as it is."""
    if not settings.pre_grad_passes and not (settings.fuse and may_fuse_attention(gm.graph)):
        return gm
    gm = _copy_of(gm)
    run_on_graph(gm.graph, settings.pre_grad_passes, None)
    if settings.fuse:
        fuse_attention(gm.graph, counts)
    return gm


def _copy_of(gm: fx.GraphModule) -> fx.GraphModule:
    """The same calls, for passes to change; parameters and submodules are shared, fallbacks keep the original."""
    graph = fx.Graph()
    output = graph.graph_copy(gm.graph, {})
    graph.output(output)
    made = fx.GraphModule(gm, graph)
    made.meta = dict(gm.meta)
    return made


def _traced(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> JointGraph:
    joint = _functional(gm, example_inputs, ())
    bases = synthetic_bases(joint, len(example_inputs))
    if bases:  # what is written is known now: once more, on shared memory
        joint = _functional(gm, example_inputs, bases)
    return attrs.evolve(joint, dependence=trace_dependence(joint))


def _functional(gm: fx.GraphModule, example_inputs: Sequence[Any], bases: tuple[SyntheticBase, ...]) -> JointGraph:
    with phase("joint trace"):
        joint = trace_joint(gm, example_inputs, bases)
    with phase("functionalize"):
        return functionalize(joint)
