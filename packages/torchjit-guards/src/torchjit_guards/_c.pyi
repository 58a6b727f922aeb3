"""The C part: running guard programs."""

from collections.abc import Callable
from typing import Any

from typing_extensions import CapsuleType

OPS: dict[str, int]
CONDITION_OPS: dict[str, int]

class Program:
    """A compiled list of guards; `torchjit_guards.lowering` makes the arguments."""

    def __new__(
        cls,
        nslots: int,
        pinned: tuple[object, ...],
        ops: tuple[tuple[int, int, int, int, object, object, int], ...],
        gather: tuple[int, ...],
        /,
    ) -> Program: ...
    def __call__(self, *slots: object) -> tuple[Any, ...] | None: ...
    def check(self, slots: tuple[Any, ...] | list[Any], /) -> bool: ...
    @property
    def __torchjit_guard__(self) -> CapsuleType: ...
    @property
    def snapshot(self) -> tuple[int, int, int] | None:
        """(words of memory compared, ops run besides, hits), once the program has been hit some times."""

def set_tensor_layout(*layout: object) -> None: ...
def dict_tag(d: dict[Any, Any], /) -> int: ...
def pass_through(function: Callable[[BaseException], bool], /) -> None: ...
def trust_tags(dicts: bool, instances: bool, /) -> None: ...
def snapshot_after(hits: int, /) -> int: ...
