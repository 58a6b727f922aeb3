from collections.abc import Callable
from typing import Protocol

class Fallback(Protocol):
    """What launches a kernel where the driver refuses."""

    def __call__(self, programs: int, stream: int, /, *arguments: int) -> None: ...

class Launcher:
    def __init__(
        self,
        launch: int,
        stream: Callable[[int], int],
        device: int,
        load: Callable[[int], tuple[int, int, int, int, Fallback, int, bytes]],
        arguments: int,
        programs: int,
        sizes: int = 0,
        divisible: int = 0,
        early: int = 0,
    ) -> None: ...
    def __call__(self, *arguments: int) -> None: ...
