"""Events as text that is equal in every process: no addresses, times, paths, counters, orders of sets; and their stages."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import linecache
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

__all__ = ["STAGES", "Normaliser", "read_record", "stage_of", "text_of", "write_record"]

ROOT = Path(__file__).resolve().parent.parent.parent
STAGES = (
    "fx graphs", "guards", "joint graphs", "partitioned graphs", "final graphs", "schedule", "C kernels", "Triton kernels",
    "host programs", "Triton host programs", "emitted code", "breaks", "other events", "outcome",
)  # fmt: skip
_STAGES = {
    "guards": "guards", "symbols": "guards", "recompile": "guards", "joint": "joint graphs", "captured": "fx graphs", "forward": "partitioned graphs",
    "backward": "partitioned graphs", "inference": "partitioned graphs", "saved_tensors": "partitioned graphs", "schedule": "schedule", "not_fused": "schedule",
    "emitted": "emitted code", "bytecode": "emitted code", "graph_break": "breaks", "fallback": "breaks",
}  # fmt: skip
_TIMES = frozenset(("phase", "activity_start", "activity_end", "waiting", "autotune_progress"))
"""Events about time only."""
_DROPPED = frozenset(("time", "seconds", "end", "compile_id", "follows"))
"""Times and ids; and where a continuation comes from, which its breaks say."""


def stage_of(kind: str, fields: Mapping[str, Any], triton: bool) -> str | None:
    """Which of `STAGES` an event belongs to; None: it says how long something took."""
    if kind in _TIMES:
        return None
    if triton and kind in ("host_program", "schedule", "not_fused", "fallback"):
        return "Triton host programs"
    if kind == "kernel":
        return "C kernels" if fields["language"] == "c" else "Triton kernels"
    if kind == "host_program":
        return "host programs"
    return _STAGES.get(fields["stage"] if kind == "graph" else kind, "other events")


def text_of(kind: str, fields: Mapping[str, Any]) -> str:
    """An event: its kind, then its fields; texts of several lines as they are."""
    rest = {k: v for k, v in fields.items() if k not in _DROPPED}
    if kind == "compile_start":
        rest.pop("source", None)  # the program's own
    if kind == "graph":
        values, lines = rest.pop("values", {}), rest.pop("lines", {})
        rest["facts"] = [
            f"{name}: {values.get(name, '')}  {lines.get(name, '')}".rstrip() for name in {**values, **lines}
        ]
    if kind == "guards":
        rest["guards"] = [f"{g['text']}{_where(g)}" for g in rest["guards"]]
    where = _where(rest) if "filename" in rest and "lineno" in rest else ""
    if where:
        del rest["filename"], rest["lineno"]
    shown = [f"[{kind}]{where}"]
    for name, value in rest.items():
        if isinstance(value, str) and "\n" in value:
            shown += [f"{name}:", value.strip("\n")]
        elif isinstance(value, (list, tuple)) and len(value) > 1:
            shown += [f"{name}:", *(f"  {v if isinstance(v, str) else _json(v)}" for v in value)]
        else:
            shown.append(f"{name}: {value if isinstance(value, str) else _json(value)}")
    return "\n".join(line.rstrip() for text in shown for line in text.split("\n"))


def _where(fields: Mapping[str, Any]) -> str:
    return f"  # {fields['filename']}:{fields['lineno']}" if fields.get("filename") else ""


def _json(value: Any) -> str:
    return json.dumps(value, default=str)


@final
class Normaliser:
    """Makes texts of one process equal to those of another, and of another checkout; one for each program.

    A line of a file of this repository is named by its text: lines above it may come and go. Counted names are numbered anew in the
    order of their appearance.
    """

    _ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
    _LINE = re.compile(r"(?P<file>[^\s\"'(),:=<>|]+\.pyi?)(?:\", line |:)(?P<line>\d+)")
    _FIELDS = re.compile(r'"filename": "(?P<file>[^"]*)", "lineno": (?P<line>\d+)')
    _COUNTED = re.compile(r"\b(?P<name>resume_\w+?|graph|__compiled_fn|<eval_with_key>\.?)_?(?P<number>\d+)\b")
    _CONTINUATION = re.compile(r"(?<=continuation at line )\d+")
    _HASH = re.compile(r"\b[0-9a-f]{32,64}\b")

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._next: dict[str, itertools.count[int]] = {}
        prefixes = {str(ROOT): "", tempfile.gettempdir(): "TMP", sys.prefix: "PREFIX", sys.base_prefix: "PYTHON"}
        self._prefixes = sorted(prefixes.items(), key=lambda item: -len(item[0]))

    def __call__(self, text: str) -> str:
        """The text without what differs between processes."""
        text = self._FIELDS.sub(self._field, text)
        text = self._LINE.sub(self._line, text)
        for prefix, name in self._prefixes:
            text = text.replace(prefix + "/", f"{name}/" if name else "")
        text = self._ADDRESS.sub("0x_", text)
        text = self._HASH.sub("HASH", text)
        text = self._CONTINUATION.sub("N", text)
        return self._COUNTED.sub(self._counted, text)

    def _counted(self, found: re.Match[str]) -> str:
        name, number = found["name"], found["number"]
        if (name, number) not in self._numbers:
            self._numbers[name, number] = next(self._next.setdefault(name, itertools.count()))
        return f"{name}_{self._numbers[name, number]}"

    def _field(self, found: re.Match[str]) -> str:
        return f'"at": {_json(self._named(found["file"], int(found["line"])) or found[0])}'

    def _line(self, found: re.Match[str]) -> str:
        return self._named(found["file"], int(found["line"])) or found[0]

    def _named(self, file: str, line: int) -> str | None:
        """The line of one of our files by its text; None: of another file."""
        path = file if file.startswith(f"{ROOT}/") and "/.venv" not in file else _own_files().get(file)
        if path is None:
            return None
        text = linecache.getline(path, line).strip()
        name = "torchjit" if "/packages/" in path and "/src/" in path else Path(path).name  # modules may move
        return f"{name}«{text}»"


@functools.cache
def _own_files() -> dict[str, str]:
    """By base name: the files of this repository, but for names that several have, or one of torch's."""
    torch = importlib.util.find_spec("torch")
    places = torch.submodule_search_locations if torch is not None else None
    theirs = {path.name for place in places or () for path in Path(place).rglob("*.py")}
    found: dict[str, str] = {}
    for pattern in ("packages/*/src/**/*.py", "packages/*/tests/*.py", "integration_tests/*.py", "tools/**/*.py"):
        for path in ROOT.glob(pattern):
            if path.name in found:
                theirs.add(path.name)
            found[path.name] = str(path)
    return {name: path for name, path in found.items() if name not in theirs}


_HEAD = "%%%% "


def write_record(path: Path, stages: Mapping[str, list[str]]) -> None:
    """One program: each stage under a heading."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = [f"{_HEAD}{stage}\n" + "\n\n".join(stages[stage]) + "\n" for stage in STAGES if stages.get(stage)]
    path.write_text("\n".join(parts))


_CUT_SHORT = re.compile(r"((?:from|file) ['\"]|0x)[^ '\"<>]*\.\.\.")
"""Of a long text only the beginning is shown: the end of that is an address, or a path, of any length."""


def read_record(path: Path) -> dict[str, str]:
    """By stage, what `write_record` wrote."""
    parts = re.split(rf"(?m)^{_HEAD}(.*)\n", _CUT_SHORT.sub(r"\1...", path.read_text()))
    return {stage: text.rstrip("\n") + "\n" for stage, text in zip(parts[1::2], parts[2::2], strict=True)}
