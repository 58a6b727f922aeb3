"""Batches of every size through recordings of a few sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import attrs
import torch
import torch.fx

from torchjit_core.events import emit_fallback
from torchjit_cudagraphs.partition import lies_in_input
from torchjit_cudagraphs.recordable import LARGER_THAN_ALL, ROWS_MIX, Recordable, run_compiled
from torchjit_torch.operators import draws

__all__ = ["Batch", "Padded", "find_batch"]


def _has_inputs(_: object, attribute: attrs.Attribute[Any], value: Mapping[int, int]) -> None:
    if not value:
        raise ValueError(f"{attribute.name} must name at least one input")


@final
@attrs.frozen
class Batch:
    """Where the batch is. No row of a result may depend on another row: rows of zeros are added to fill a recording.

    Attributes:
        inputs: by position, the dimension of each input that runs along the batch.
        outputs: likewise for results.
        counts: positions of inputs that are the number of rows.
    """

    inputs: Mapping[int, int] = attrs.field(validator=_has_inputs)
    outputs: Mapping[int, int]
    counts: tuple[int, ...] = ()


def find_batch(gm: torch.fx.GraphModule) -> Batch | str:
    """Where the batch of a functional inference graph is: the one symbol that is the first size of inputs.

    Returns:
        The batch; or why there is none that rows could be added to.
    """
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    calls = [n for n in gm.graph.nodes if n.op == "call_function"]
    vals = [n.meta.get("val") for n in placeholders]
    firsts = {_symbol(v.shape[0]) for v in vals if isinstance(v, torch.Tensor) and v.dim() > 0} - {None}
    if len(firsts) != 1:
        return f"{len(firsts)} dynamic first dimensions of inputs"
    (batch,) = firsts
    if any(draws(n.target) for n in calls):
        return "random numbers, which would be drawn for added rows too"
    try:
        inputs, counts = _batched_inputs(placeholders, batch, [n.args[0] for n in calls if n.target is _COPY])
        return Batch(inputs, _batched_outputs(gm.graph.output_node().args[0], batch), counts)
    except _NoBatch as why:
        return str(why)


_COPY = torch.ops.aten.copy_.default


class _NoBatch(Exception):
    """Why rows cannot be added."""


def _batched_inputs(
    placeholders: Sequence[torch.fx.Node], batch: Any, written: Sequence[Any]
) -> tuple[dict[int, int], tuple[int, ...]]:
    """`Batch.inputs` and `Batch.counts`."""
    inputs: dict[int, int] = {}
    counts = []
    for position, node in enumerate(placeholders):
        dims = _dims(node, batch)
        if dims is None:
            raise _NoBatch(f"the size of {node.name} is computed from the batch")
        if not isinstance(node.meta.get("val"), torch.Tensor):
            counts += [position] * bool(dims)
        elif dims:
            inputs[position] = dims[0]
        elif node in written:
            raise _NoBatch(f"{node.name} is written and has no batch")
    return inputs, tuple(counts)


def _batched_outputs(result: Any, batch: Any) -> dict[int, int]:
    """`Batch.outputs`."""
    outputs: dict[int, int] = {}
    for position, node in enumerate(result if isinstance(result, (tuple, list)) else (result,)):
        if not isinstance(node, torch.fx.Node):
            continue
        dims = _dims(node, batch)
        if not dims or not isinstance(node.meta.get("val"), torch.Tensor):
            raise _NoBatch(f"result {position} ({node.name}) has no dimension that is the batch")
        if lies_in_input(node):
            raise _NoBatch(f"result {position} ({node.name}) is memory of an input, of which a filled batch is a copy")
        outputs[position] = dims[0]
    return outputs


def _symbol(size: Any) -> Any:
    """The symbol that a size is, or None."""
    expression = size.node.expr if isinstance(size, torch.SymInt) else None
    return expression if getattr(expression, "is_Symbol", False) else None


def _dims(node: torch.fx.Node, batch: Any) -> list[int] | None:
    """The one dimension (0 for a number) of a node's value that is the batch, if any; None where it is more than that."""
    val = node.meta.get("val")
    sizes = val.shape if isinstance(val, torch.Tensor) else (val,)
    dims = [k for k, n in enumerate(sizes) if isinstance(n, torch.SymInt) and batch in n.node.expr.free_symbols]
    if len(dims) > 1 or any(_symbol(sizes[k]) != batch for k in dims):
        return None
    return dims


@final
class Padded:
    """A recorded callable that is called with batches of the given sizes only.

    The first filled batch is computed a second time as it is: where the results differ, rows depend on one another, and
    batches of other sizes run without a recording from then on. That is not done for callables that write to inputs.

    Args:
        recorded: the callable with its recordings.
        compiled: what runs larger batches.
        sizes: in ascending order.
        batch: where the batch is.
    """

    def __init__(self, recorded: Any, compiled: Recordable, sizes: Sequence[int], batch: Batch) -> None:
        clash = sorted(set(batch.inputs) & compiled.static_inputs)
        if clash:
            raise ValueError(f"inputs {clash} are static: they cannot run along the batch")
        self.recorded, self.compiled, self.sizes, self.batch = recorded, compiled, tuple(sizes), batch
        self._written = tuple(sorted(set(batch.inputs) & compiled.mutated_inputs))
        self._told = False
        self._checked = bool(compiled.mutated_inputs)
        self._mixes = False

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        return self.boxed(list(inputs))

    def boxed(self, inputs: list[Any]) -> Sequence[Any]:
        """Call with the inputs in a list, which is emptied."""
        found = {int(inputs[p].shape[dim]) for p, dim in self.batch.inputs.items()}
        if len(found) != 1:
            raise ValueError(f"the inputs {sorted(self.batch.inputs)} have batches of different sizes: {sorted(found)}")
        (count,) = found
        size = next((s for s in self.sizes if s >= count), None)
        if size is None and not self._told:
            self._told = True
            detail = f"{count} rows, the largest size is {self.sizes[-1]}"
            emit_fallback(LARGER_THAN_ALL, detail)
        if size == count:
            exact: Sequence[Any] = self.recorded.boxed(inputs)
            return exact
        if size is None or self._mixes or self.recorded.inside_capture():
            return run_compiled(self.compiled, inputs)
        given = None if self._checked else list(inputs)
        grad = torch.is_grad_enabled()
        try:
            torch._C._set_grad_enabled(False)  # the C function, in the block: no handler of a signal comes between
            results = self._fill_and_call(inputs, count, size)
        finally:
            torch._C._set_grad_enabled(grad)
        return results if given is None else self._check(results, given, count, size)

    def _fill_and_call(self, inputs: list[Any], count: int, size: int) -> list[Any]:
        written = []
        for position in self.batch.counts:
            inputs[position] = size
        for position, dim in self.batch.inputs.items():
            given = inputs[position]
            inputs[position] = _filled(given, dim, size)
            if position in self._written:
                written.append((given, inputs[position].narrow(dim, 0, count)))
        results = list(self.recorded.boxed(inputs))
        for given, changed in written:
            given.copy_(changed)
        for position, dim in self.batch.outputs.items():
            results[position] = results[position].narrow(dim, 0, count)
        return results

    def _check(self, results: list[Any], inputs: list[Any], count: int, size: int) -> Sequence[Any]:
        """The results, or those of the callable where filling the batch changed them."""
        self._checked = True
        want = run_compiled(self.compiled, inputs)
        if all(map(_alike, results, want)):
            return results
        self._mixes = True
        detail = f"{count} rows filled up to {size} gave other results than {count} rows"
        emit_fallback(ROWS_MIX, detail)
        return want


def _alike(got: Any, want: Any) -> bool:
    """Equal but for the rounding of sums in another order."""
    if not isinstance(got, torch.Tensor) or not isinstance(want, torch.Tensor):
        return bool(got == want)
    if not want.is_floating_point():
        return torch.equal(got, want)
    tolerance = torch.finfo(want.dtype).eps ** 0.5
    if want.dtype.itemsize == 1:
        got, want = got.float(), want.float()
    scale = float(want.detach().abs().nan_to_num(0, 0, 0).max()) if want.numel() else 0.0
    return torch.allclose(got, want, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def _filled(value: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    """A copy with rows of zeros behind, which every operation takes, embeddings too."""
    shape = list(value.shape)
    shape[dim] = size
    made = value.new_zeros(shape)
    made.narrow(dim, 0, value.shape[dim]).copy_(value)
    return made
