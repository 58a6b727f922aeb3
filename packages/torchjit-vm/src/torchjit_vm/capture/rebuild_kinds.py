"""The expression of each kind of value, in emitted code."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from torchjit_core.reasons import GraphBreak
from torchjit_vm.capture import made_later, rebuild_classes, rebuild_containers
from torchjit_vm.capture.reasons import REBUILD
from torchjit_vm.capture.rebuild import Rebuilder
from torchjit_vm.capture.type_slots import SLOTS
from torchjit_vm.capture.values import (
    Const,
    Value,
)

if TYPE_CHECKING:
    from torchjit_core.paths import AccessPath

__all__ = ["KindRebuilder"]


@final
class KindRebuilder(Rebuilder):
    """Asks the modules of the kinds."""

    def kind_expr(self, value: Value) -> str:
        write = SLOTS[type(value)].rebuild
        if write is None:
            raise GraphBreak(REBUILD, type(value).__name__, self.domain.location())
        return write(self, value)

    def made_class_expr(self, obj: object) -> str | None:
        return rebuild_classes.known_expr(self, obj)

    def pinned_expr(self, path: AccessPath) -> str | None:
        return rebuild_classes.pinned_expr(self, path)

    def check_constant(self, obj: object) -> None:
        rebuild_classes.check_constant(self, obj)

    def text_expr(self, value: Const) -> str:
        return made_later.expr(self, value)

    def can_be_early(self, value: Value) -> bool:
        return rebuild_containers.can_be_early(value)
