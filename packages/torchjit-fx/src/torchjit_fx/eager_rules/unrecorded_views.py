"""Views of inputs made where autograd does not record, in `no_grad` or in inference mode: do they require grad?

Eager asks the tensor at the bottom, of which all are views, where a fake of the input asks the input. The two differ where the input is
itself a view, and the program has called `requires_grad_` on that view (or computed something of it that is a view again).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchjit_core.guards import IdIs, ValueEquals
from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.leaves import InputLeaf, TensorLeaf
from torchjit_fx.outcomes import Made, Template, parts
from torchjit_fx.protocols import CaptureContext

__all__ = ["check_views"]


def check_views(template: Template, leaves: Sequence[TensorLeaf], capture: CaptureContext) -> None:
    """Guard that a call's views of inputs require grad as their record says.

    Args:
        template: the result of a call that is made where autograd does not record.
        leaves: its arguments.

    Raises:
        GraphBreak: eager's do not.
    """
    checked: set[int] = set()
    for made in parts(template):
        if type(made) is not Made or made.shares is None or made.shares < 0 or not made.record.requires_grad:
            continue
        leaf = leaves[made.shares]
        if isinstance(leaf, InputLeaf) and id(leaf) not in checked:
            checked.add(id(leaf))
            _check(leaf, capture)


def _check(leaf: InputLeaf, capture: CaptureContext) -> None:
    if leaf.cls is torch.nn.Parameter or leaf.new or leaf.entry is not leaf.found:
        return  # no views
    path, location, base = leaf.path.attr("_base"), capture.location(), leaf.real._base
    if base is None:
        capture.guard(IdIs(path, None, location))
    elif base.requires_grad:
        capture.guard(ValueEquals(path.attr("requires_grad"), True, location))
    else:
        raise GraphBreak(breaks.TENSOR_ATTRIBUTE, f"requires_grad of a view of {leaf.path}", location)
