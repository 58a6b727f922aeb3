"""What a recorded call gives: leaves made after the template of its outcome."""

from __future__ import annotations

from typing import Any, final

import attrs
import torch

from torchjit_fx.fakes import FakeFactory
from torchjit_fx.leaves import Raw, Step, Storage, SymLeaf, TensorLeaf
from torchjit_fx.outcomes import Constant, Made, Nested, Same, Sym, SymOther, Template, follow
from torchjit_fx.protocols import CaptureContext

__all__ = ["NOT_RUN", "ResultBuilder"]

NOT_RUN: Any = object()
"""In the place of a result over fakes when the outcome came from the cache."""


@final
@attrs.define(eq=False)
class ResultBuilder:
    """Makes the raw result of a step from its template.

    With `loose` the fakes of views are stand-ins: they need not share memory with the fakes of their bases.
    """

    step: Step | None
    arguments: list[TensorLeaf]
    fakes: Raw
    capture: CaptureContext
    factory: FakeFactory
    loose: bool = False
    made: dict[int, TensorLeaf] = attrs.field(init=False, factory=dict)

    def build(self, template: Template) -> Raw:
        cls = type(template)
        if cls is Made:
            return self._tensor(template)  # type: ignore[arg-type]
        if cls is Same:
            return self.arguments[template.index]  # type: ignore[union-attr]
        if cls is Constant:
            return template.value  # type: ignore[union-attr]
        if cls is Nested:
            return self._nested(template)  # type: ignore[arg-type]
        return self._number(template)  # type: ignore[arg-type]

    def _tensor(self, template: Made) -> TensorLeaf:
        found = self.made.get(id(template))
        if found is not None:
            return found
        leaf = TensorLeaf(template.record, self.step, template.way)
        if template.record.wrapping is not None:
            leaf.cls = template.record.wrapping.cls
        if template.shares is not None:
            leaf.storage = self._memory(template.shares)
            for other in template.also:
                leaf.storage.take_over(self._memory(other))
            leaf.storage.leaves.append(leaf)
            leaf.alias = True
        self.step.results.append(leaf)  # type: ignore[union-attr]
        if self.fakes is not NOT_RUN:
            fake = follow(self.fakes, template.way)
            if leaf.alias and self.loose:
                leaf.stand_in = leaf.record, fake
            else:
                leaf.fake = fake
        self.made[id(template)] = leaf
        return leaf

    def _memory(self, shares: int) -> Storage:
        results = self.step.results  # type: ignore[union-attr]
        return (self.arguments[shares] if shares >= 0 else results[-1 - shares]).memory()

    def _nested(self, template: Nested) -> Raw:
        items = [self.build(item) for item in template.items]
        if template.keys is not None:
            return dict(zip(template.keys, items, strict=True))
        cls = template.type
        if cls is list:
            return items
        if cls is tuple:
            return tuple(items)
        if cls is torch.Size or hasattr(cls, "_fields"):
            return self.capture.new_object(cls, items)
        return cls(items)

    def _number(self, template: Sym | SymOther) -> SymLeaf:
        if type(template) is Sym:
            return SymLeaf(self.factory.sym_int(template.expr), template.expr, self.step, template.way)
        return SymLeaf(template.value, None, self.step, template.way)
