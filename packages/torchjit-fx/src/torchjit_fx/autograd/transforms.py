"""Function transforms (`torch.vmap`, `torch.func`) in a graph: a node that applies the real one to a captured body."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import attrs
import torch
from torch import fx

from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.calls.intrinsics import intrinsic_rule
from torchjit_fx.domain_protocol import CallDomain, Feature
from torchjit_fx.intrinsics import derive, enter_transform, follow_under_transforms, keep_function, leave_transform
from torchjit_fx.leaves import Function, Raw, RawArgs, RawKwargs, TensorLeaf
from torchjit_fx.protocols import CaptureContext
from torchjit_fx.records import TensorRecord
from torchjit_fx.scopes import Scope, scope_graph
from torchjit_torch.graph_calls import GraphCall

__all__ = ["TransformCapture", "Transformed"]


@final
@attrs.frozen(eq=False, slots=False)
class Transformed:
    """What stands in a graph for one call of a transformed function.

    The real transform runs on the captured body, so batching rules, randomness, errors and gradients through it are torch's own,
    in every backend; whoever traces the graph sees through it.

    Attributes:
        kind: which transform.
        body: takes tensors, and gives a flat tuple of tensors.
        options: of the transform.
    """

    kind: str
    body: fx.GraphModule | GraphCall
    options: dict[str, Any]

    def __attrs_post_init__(self) -> None:
        vars(self).update(__name__=self.kind, __qualname__=self.kind)  # torch.fx prints a node by these

    def __stored_state__(self) -> Mapping[str, object]:
        body = self.body if isinstance(self.body, GraphCall) else GraphCall(self.body)
        return {"kind": self.kind, "body": body, "options": self.options}

    def __restore_state__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self.__attrs_post_init__()

    def __call__(self, *tensors: Raw) -> RawArgs:
        return _APPLY[self.kind](self.body, tensors, **self.options)


def _vmap(body: Raw, tensors: Raw, dims: Raw, out_dims: Raw, options: Raw) -> RawArgs:
    in_dims = (*dims, *[None] * (len(tensors) - len(dims)))
    result: tuple[Any, ...] = torch.vmap(body, in_dims, out_dims, **options)(*tensors)
    return result


def _first_and_rest(body: Raw) -> Function:
    def run(*tensors: Raw) -> tuple[Any, tuple[Any, ...]]:
        first, *rest = body(*tensors)
        return first, tuple(rest)

    return run


def _grad(body: Raw, tensors: Raw, argnums: tuple[int, ...]) -> RawArgs:
    found: Raw = torch.func.grad_and_value(_first_and_rest(body), argnums, has_aux=True)(*tensors)
    gradients, (value, rest) = found
    return (*gradients, value, *rest)


def _jvp(body: Raw, tensors: Raw, count: int) -> RawArgs:
    primals, tangents, lifted = tensors[:count], tensors[count : 2 * count], tensors[2 * count :]
    found: Raw = torch.func.jvp(lambda *given: body(*given, *lifted), primals, tangents)
    results, pushed = found
    return (*results, *pushed)


def _vjp(body: Raw, tensors: Raw, count: int, outputs: int, cotangents: int) -> RawArgs:
    """The function's results, or with `cotangents` its vector-Jacobian product with those."""
    end = count + cotangents
    primals, given_cotangents, lifted = tensors[:count], tensors[count:end], tensors[end:]

    def split(*given: Raw) -> tuple[Any, Any]:
        results = body(*given, *lifted)
        return tuple(results[:outputs]), tuple(results[outputs:])

    found: Raw = torch.func.vjp(split, *primals, has_aux=True)
    results, pull, rest = found
    return tuple(pull(tuple(given_cotangents))) if cotangents else (*results, *rest)


def _jacobian(transform: Raw) -> Callable[..., tuple[Any, ...]]:
    def run(body: Raw, tensors: Raw, argnums: tuple[int, ...], outputs: int, options: Raw) -> RawArgs:
        def split(*given: Raw) -> tuple[Any, Any]:
            results = body(*given)
            return tuple(results[:outputs]), tuple(results[outputs:])

        rows, rest = transform(split, argnums, has_aux=True, **options)(*tensors)
        return (*[block for row in rows for block in row], *rest)

    return run


_APPLY: dict[str, Callable[..., tuple[Any, ...]]] = {
    "vmap": _vmap,
    "grad": _grad,
    "jvp": _jvp,
    "vjp": _vjp,
    "jacrev": _jacobian(torch.func.jacrev),
    "jacfwd": _jacobian(torch.func.jacfwd),
}


_IN_INFERENCE_MODE = "a derivative in inference mode"
"""Its results are no inference tensors, and tangents may be zeros there (torch 2.11): backends that trace outside of the mode have others."""


@final
class TransformCapture:
    """One call of a transformed function whose body is being captured.

    Args:
        flat: the tensors of the call.
        dims: the dimension that the transform hides from the body, per tensor; None for a tensor that the body sees as it is.
        wrapped: does the transform differentiate with respect to this tensor, in reverse? None if it does not differentiate at all.
    """

    def __init__(
        self,
        domain: CallDomain,
        flat: Sequence[Any],
        dims: Sequence[int | None],
        wrapped: Sequence[bool | None],
        mark: int,
    ) -> None:
        if not all(isinstance(leaf, TensorLeaf) for leaf in flat):
            raise GraphBreak(breaks.UNSUPPORTED_TENSOR, "an argument of a transformed function")
        self.domain = domain
        self.flat = list(flat)
        self.only_batches = all(flag is None for flag in wrapped) and not any(
            leaf.record.requires_grad for leaf in flat
        )
        """Nobody differentiates what the body does, here or outside."""
        if domain.modes.inference and any(flag is not None for flag in wrapped):
            raise GraphBreak(breaks.MODE_OBJECT, _IN_INFERENCE_MODE)
        self.scope = Scope(domain, mark)
        if any(wrapped):  # the transform turns gradients on
            domain.modes.write(("grad",), True)
        self.scope.begin()
        self.given: list[TensorLeaf] = [
            leaf
            if dim is None and flag is None
            else self.scope.parameter(TensorLeaf(self._seen(leaf.record, dim, bool(flag)), None))
            for leaf, dim, flag in zip(flat, dims, wrapped, strict=True)
        ]

    def _seen(self, r: TensorRecord, dim: int | None, differentiate: bool) -> TensorRecord:
        """What the body sees of an argument: at its own level it is a leaf of autograd."""
        sizes, strides = list(r.sizes), list(r.strides)
        if dim is not None:
            if not -len(sizes) <= dim < len(sizes):
                raise GraphBreak(breaks.META_FAILED, f"vmap over dimension {dim} of {len(sizes)}")
            del sizes[dim], strides[dim]
        flags = (differentiate, True, r.conj, r.neg, r.inference)
        records = self.domain.fakes.records
        return records.get(r.dtype, r.device, tuple(sizes), tuple(strides), 0, flags)

    def finish(
        self, kind: str, outputs: list[Raw], options: RawKwargs, more: list[Raw], capture: CaptureContext
    ) -> tuple[list[Any], fx.GraphModule, list[Any]]:
        """The body has returned `outputs`: record the call on the arguments, and on `more` tensors beside them.

        Returns:
            The results, the body's graph, and what it uses from outside.
        """
        self.scope.close()
        if not outputs or not all(isinstance(leaf, TensorLeaf) for leaf in outputs):
            raise GraphBreak(breaks.UNSUPPORTED_RESULT, f"a result of a function under {kind}")
        if self.scope.writes_outside:
            raise GraphBreak(
                breaks.CUSTOM_FUNCTION, f"a function under {kind} writes to a tensor that it was not given"
            )
        parameters = [p for p, leaf in zip(self.given, self.flat, strict=True) if p is not leaf]
        wrapped = [leaf for p, leaf in zip(self.given, self.flat, strict=True) if p is not leaf]
        body, lifted = scope_graph(self.scope, parameters, outputs)
        call = Transformed(kind, body, options)
        found = list(self.domain.recorder.record(call, (*wrapped, *more, *lifted), capture))
        for leaf in found:  # those of a Jacobian may be views that one operator made together, which may not be written
            if isinstance(leaf, TensorLeaf) and leaf.record.requires_grad:
                self.domain.recorder.several_views[id(leaf.memory())] = self.scope.mark
        return found, body, list(lifted)


class _OpenTransforms(Feature, list[TransformCapture]):
    """The functions under transforms that are being captured, innermost last."""


@intrinsic_rule(follow_under_transforms)
def _follow(domain: CallDomain, plain: bool, capture: CaptureContext) -> None:
    transforms = domain.of(_OpenTransforms)
    if transforms and not (plain and all(t.only_batches for t in transforms)):
        raise GraphBreak(breaks.CUSTOM_FUNCTION, "under a transform, for which its class may have a rule")


@intrinsic_rule(enter_transform)
def _enter(domain: CallDomain, flat: Raw, dims: Raw, wrapped: Raw, capture: CaptureContext) -> list[Raw]:
    made = TransformCapture(domain, flat, dims, wrapped, capture.mark())
    domain.of(_OpenTransforms).append(made)
    return list(made.given)


@intrinsic_rule(leave_transform)
def _leave(domain: CallDomain, kind: str, outputs: Raw, options: Raw, more: Raw, capture: CaptureContext) -> list[Raw]:
    return domain.of(_OpenTransforms).pop().finish(kind, outputs, options, more, capture)[0]


@final
@attrs.frozen(eq=False)
class KeptFunction:
    """A function that was captured once, and whose derivatives the program may ask for later.

    Attributes:
        body: its graph.
        inputs: the tensors that it was called with.
        lifted: what it uses from outside.
        outputs: how many of its results count; the rest came beside them.
        writes: how many writes there had been then.
        mark: where to break if it cannot be used.
    """

    body: fx.GraphModule
    inputs: tuple[TensorLeaf, ...]
    lifted: tuple[Any, ...]
    outputs: int
    writes: int
    mark: int


class _KeptFunctions(Feature, dict[int, KeptFunction]):
    """By the identity of the leaf that stands for each."""


@intrinsic_rule(keep_function)
def _keep(domain: CallDomain, results: list[Raw], rest: list[Raw], capture: CaptureContext) -> Raw:
    capturing = domain.of(_OpenTransforms).pop()
    scope = capturing.scope
    options = {"count": len(capturing.flat), "outputs": len(results), "cotangents": 0}
    found, body, lifted = capturing.finish("vjp", [*results, *rest], options, [], capture)
    if any(step.effect and step.mode is None for step in scope.steps):
        raise GraphBreak(breaks.CUSTOM_FUNCTION, "a function under vjp draws random numbers")
    inputs, kept = tuple(capturing.flat), capturing.given[0]
    # This leaf belongs to the closed scope: where the program keeps it beyond the region, the capture breaks at the mark.
    domain.of(_KeptFunctions)[id(kept)] = KeptFunction(
        body, inputs, tuple(lifted), len(results), len(domain.recorder.writes), scope.mark
    )
    return found, kept


@intrinsic_rule(derive)
def _derive(domain: CallDomain, token: Raw, directions: list[Raw], capture: CaptureContext) -> list[Raw]:
    kept = domain.of(_KeptFunctions)[id(token)]
    if domain.modes.inference:
        why = GraphBreak(breaks.MODE_OBJECT, _IN_INFERENCE_MODE, capture.location())
        capture.break_at_mark(kept.mark, why)
    read = {id(leaf.storage) for leaf in (*kept.inputs, *kept.lifted) if getattr(leaf, "storage", None) is not None}
    if any(id(storage) in read for storage in domain.recorder.writes[kept.writes :]):
        why = GraphBreak(breaks.CUSTOM_FUNCTION, "what a function under vjp read was written since", capture.location())
        capture.break_at_mark(kept.mark, why)
    options = {"count": len(kept.inputs), "outputs": kept.outputs, "cotangents": len(directions)}
    call = Transformed("vjp", kept.body, options)
    return list(domain.recorder.record(call, (*kept.inputs, *directions, *kept.lifted), capture))
