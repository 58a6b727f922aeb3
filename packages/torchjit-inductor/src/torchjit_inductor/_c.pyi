from collections.abc import Callable
from typing import Any

class Launcher:
    def __init__(
        self,
        launch: int,
        stream: Callable[[int], int],
        device: int,
        load: Callable[[bool], tuple[int, int, int, int, Callable[..., Any], int, bytes]],
        arguments: int,
        programs: int,
    ) -> None: ...
    def __call__(self, *arguments: int) -> None: ...
