"""Settings of the tensor domain."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import attrs

from torchjit_core.marks import SizeMark
from torchjit_core.paths import AccessPath

__all__ = ["FxSettings"]


@final
@attrs.frozen
class FxSettings:
    """What a capture may do.

    Attributes:
        node_values: put `meta["val"]` on every tensor node, not only on placeholders. Costs about 50 us a node.
        symbolic_ints: let ints that changed between calls become graph inputs (decided by `SymbolicSizes`).
        symbolic_floats: the same for floats.
        capture_scalar_outputs: `item()` and its kind become numbers of the graph rather than breaks.
        capture_dynamic_output_shape_ops: the same for `nonzero` and other operations whose result's size depends on data.
        writes_to_shared_inputs: a written input may share memory with another one, if no gradients are involved; the backend must
            then look at its example inputs. Else the capture breaks there.
        errors_in_tries: operations whose errors the program may catch are captured, where a region whose graph raises runs again as plain
            Python. Else the capture breaks there.
        size_marks: what is said of the size or number at a path, beside the marks that tensors carry, which win.
        large_nodes, large_seconds: a capture that reaches one of these says so once, and which loop it unrolls.
        tell_large: who shows that to the user.
        max_cached_metas: entries after which the process-wide metadata cache starts again from empty.
    """

    node_values: bool = False
    symbolic_ints: bool = True
    symbolic_floats: bool = True
    capture_scalar_outputs: bool = False
    capture_dynamic_output_shape_ops: bool = False
    writes_to_shared_inputs: bool = False
    errors_in_tries: bool = True
    size_marks: Callable[[AccessPath], SizeMark | None] | None = None
    large_nodes: int = 10_000
    large_seconds: float = 30.0
    tell_large: Callable[[str], None] | None = None
    max_cached_metas: int = 50_000
