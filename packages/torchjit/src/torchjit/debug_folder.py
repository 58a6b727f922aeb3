"""`debug_folder`, `trace.enabled` and `trace.graph_diagram`: what a compilation makes, as files of a folder."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from torchjit.backends import Backend
from torchjit.environment import read_environment
from torchjit.exc import wrong_type
from torchjit.options import Options
from torchjit_core import events
from torchjit_report.folder import FolderWriter

__all__ = ["debug_folder", "tracing"]


def tracing(backend: Backend, options: Options) -> Backend:
    """The backend; where the options ask for it, with a debug folder for each compilation."""
    if not options.trace and not options.graph_diagram:
        return backend

    @functools.wraps(backend)
    def traced(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        _folder(events.current_compile_id(), options)
        return backend(gm, example_inputs)

    return traced


@contextlib.contextmanager
def debug_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write all that is compiled inside of the block into a folder, for people to read.

    `regions.txt` lists the compilations. Each has a folder, such as `0_1`, with the function's source, its bytecode beside that which
    replaces it (`bytecode.txt`) and the latter decompiled (`rewritten.py`), its guards, its graphs at each stage, and the kernels.

    Yields:
        The folder. It is made if it does not exist.

    Raises:
        UserError: it is no path.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise wrong_type("path", path, "a folder: a str or a Path")
    folder = Path(path)
    files = FolderWriter(folder)
    events.bytecode_wanted_by.add(str(id(files)))
    try:
        with events.listen(files):
            yield folder
    finally:
        events.bytecode_wanted_by.discard(str(id(files)))


def _folder(compile_id: str | None, options: Options) -> None:
    files = _of_this_process()
    assert files.wanted is not None  # for the type checker: this one is told
    files.wanted[compile_id] = (options.trace, options.graph_diagram)


@functools.cache
def _of_this_process() -> FolderWriter:
    base = read_environment().debug_dir or Path("torchjit_debug")
    files = FolderWriter(base / f"run_{time.strftime('%Y_%m_%d_%H_%M_%S')}-pid_{os.getpid()}", {})
    events.start_listening(files)
    return files
