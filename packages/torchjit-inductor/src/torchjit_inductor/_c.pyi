from collections.abc import Callable
from typing import Any

class Launcher:
    def __init__(
        self,
        launch: int,
        stream: Callable[[int], int],
        device: int,
        load: Callable[[int], tuple[int, int, int, int, Callable[..., Any], int, bytes]],
        arguments: int,
        programs: int,
        sizes: int = 0,
        divisible: int = 0,
    ) -> None: ...
    def __call__(self, *arguments: int) -> None: ...
