"""What a compilation makes, as files of a folder, for people to read."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

from torchjit_core import events
from torchjit_core.user_errors import wrong_type
from torchjit_core.user_warnings import warn_user
from torchjit_report.trace import rank

__all__ = ["FolderWriter", "debug_folder", "writer_of_this_process"]

_SUFFIXES = {"c": "cpp", "triton": "py"}


@final
class FolderWriter:
    """A listener that writes what it hears of some compilations. Backwards are compiled later, under the id of their forward."""

    def __init__(self, folder: Path, wanted: dict[str | None, tuple[bool, bool]] | None = None) -> None:
        """
        Args:
            wanted: for each compilation, whether its files and its pictures are; None: everything.
        """
        self.folder = folder
        self.wanted = wanted
        self._failed = False

    def __call__(self, kind: str, fields: dict[str, Any]) -> None:
        compile_id = fields.get("compile_id")
        files, diagrams = (True, True) if self.wanted is None else self.wanted.get(compile_id, (False, False))
        if self.wanted is None and kind == "compile_start":
            self._list(fields)
        named = _diagram(kind, fields) if diagrams else None
        if files:
            named = named or _text(kind, fields)
        if named is not None:
            self._write(_safe(compile_id or "graph"), *named)

    def _list(self, fields: dict[str, Any]) -> None:
        where = f"{fields['filename']}:{fields['lineno']}"
        self._write(
            ".", "regions.txt", f"{fields['compile_id']}  {fields['function']}  {where}  {fields['cause']}\n", "a"
        )

    def _write(self, folder: str, name: str, text: str, mode: str = "w") -> None:
        if self._failed:
            return
        place = self.folder / folder
        try:
            place.mkdir(parents=True, exist_ok=True)
            with (place / name).open(mode, encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except OSError as error:
            self._failed = True
            named = "give another one" if self.wanted is None else "name another one in TORCHJIT_DEBUG_DIR"
            warn_user(f"torchjit: the debug folder {self.folder} cannot be written ({error.strerror}); {named}")


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


@functools.cache
def writer_of_this_process(base: Path) -> FolderWriter:
    """A listener with a folder of its own below `base`; which compilations it writes is put into `wanted`."""
    of = rank()
    label = "" if of is None else f"-rank_{of}"
    files = FolderWriter(base / f"run_{time.strftime('%Y_%m_%d_%H_%M_%S')}{label}-pid_{os.getpid()}", {})
    events.start_listening(files)
    return files


def _text(kind: str, fields: dict[str, Any]) -> tuple[str, str] | None:
    """The name of the file that an event becomes, and its text."""
    if kind == "graph":
        return _safe(f"{fields['stage']}_{fields.get('name') or 'graph'}") + ".graph.py", fields["code"]
    if kind == "host_program":
        return _safe(f"{fields['name']}") + ".host.py", fields["source"]
    if kind == "kernel":
        suffix = _SUFFIXES.get(fields["language"], "txt")
        return _safe(f"{fields['graph']}.{fields['name']}") + f".{suffix}", fields["source"]
    if kind == "guards":
        return "guards.txt", "\n".join(g["text"] for g in fields["guards"]) + "\n"
    if kind == "emitted":
        return "rewritten.py", fields["source"]
    if kind == "compile_start" and fields["source"]:
        return "source.py", fields["source"]
    if kind == "bytecode":
        listings = (
            ("original", fields["original"]),
            ("rewritten", fields["rewritten"] or "nothing is left but the graph"),
        )
        return "bytecode.txt", "\n".join(f"== {name}\n{text}" for name, text in listings)
    if kind == "graph_break":
        where = f"{fields['filename']}:{fields['lineno']} in {fields['function']}"
        hints = "".join(f"    {hint}\n" for hint in fields["hints"])
        return (
            "break.txt",
            f"{fields['reason']} {fields['headline']}: {fields['detail']}\n{where}\n    {fields['line'].strip()}\n{hints}",
        )
    return None


def _diagram(kind: str, fields: dict[str, Any]) -> tuple[str, str] | None:
    if kind != "schedule":
        return None
    # Imported here: pictures are rare.
    from torchjit_report.diagram import draw_steps  # noqa: PLC0415

    return _safe(fields["graph"]) + ".svg", draw_steps(fields["graph"], fields["steps"])


def _safe(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name)
