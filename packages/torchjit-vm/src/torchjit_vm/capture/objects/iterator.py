"""Iterators and generators; `super` objects and tracebacks, which are only handed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchjit_vm.capture.iteration import IteratorValue, kind_of
from torchjit_vm.capture.rebuild_generators import generator_expr
from torchjit_vm.capture.rebuild_iterators import iterator_expr
from torchjit_vm.capture.rebuild_objects import super_expr, traceback_expr
from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.values import GeneratorValue, SuperValue, TracebackValue, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain

__all__: list[str] = []


def _iter(domain: CaptureDomain, self: GeneratorValue) -> Value:
    if kind_of(self) == "coroutine":
        raise domain.error(TypeError, "'coroutine' object is not iterable")
    return self


register(IteratorValue, TypeSlots(rebuild=lambda out, self: out.assign(iterator_expr(out, self))))
register(GeneratorValue, TypeSlots(iter=_iter, rebuild=generator_expr))
register(SuperValue, TypeSlots(rebuild=super_expr))
register(TracebackValue, TypeSlots(rebuild=traceback_expr))
