"""Site keys: everything that an entry depends on and that no guard of it checks, as one digest.

A key says too little when two processes share an entry that is right in one of them only, and too much when nothing is ever found.
What may differ between two processes of one machine without a guard that tells is in it: the machine, Python, torch, torchjit itself.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["FORMAT", "PACKAGES", "code_digest", "process_parts", "site_key"]

FORMAT = 1
"""Of stored entries. A change of it makes every entry on disk a stranger."""

PACKAGES = (
    "torchjit", "torchjit_aot", "torchjit_backends", "torchjit_core", "torchjit_cudagraphs", "torchjit_frame", "torchjit_fx", "torchjit_guards",
    "torchjit_inductor", "torchjit_report", "torchjit_session", "torchjit_store", "torchjit_torch", "torchjit_vm",
)  # fmt: skip
"""Torchjit's own packages: entries name their classes and functions, so that an edit in any of them is another key."""


def site_key(parts: Mapping[str, object]) -> str:
    """The key of a site: 64 hexadecimal digits.

    Args:
        parts: what tells this site from others, and what it was compiled with; JSON-able. The order of keys does not count.

    Raises:
        TypeError: a part is no JSON.
    """
    text = _canonical({"format": FORMAT, "process": process_parts(), "site": dict(parts)})
    return hashlib.sha256(text.encode()).hexdigest()


def process_parts(*, own_code: bool = True) -> dict[str, Any]:
    """What this process depends on: Python, torch and what it runs on, the processor, GPUs, threads, torchjit itself.

    Without `own_code` torchjit counts by its version alone, which takes no look into its files. Threads and GPUs are asked each time (a program sets the first, and starts the second); the rest is found out once.
    """
    torch: Any = sys.modules.get("torch")
    parts: dict[str, Any] = {
        "python": _python(),
        "machine": _machine(),
        "torchjit": code_digest() if own_code else _version("torchjit"),
    }
    if torch is not None:
        gpus = _gpus() if torch.version.cuda is not None and torch.cuda.is_initialized() else None
        parts |= {"torch": _torch(), "threads": torch.get_num_threads(), "gpus": gpus}
        if torch.version.cuda is not None:
            parts["visible"] = _visible_gpus()
    return parts


def _canonical(parts: object) -> str:
    return json.dumps(parts, sort_keys=True, separators=(",", ":"))


@functools.cache
def _python() -> dict[str, Any]:
    return {
        "version": sys.version,
        "tag": sys.implementation.cache_tag,
        "magic": importlib.util.MAGIC_NUMBER.hex(),
        "abi": getattr(sys, "abiflags", ""),
        "optimize": sys.flags.optimize,
    }


@functools.cache
def _torch() -> dict[str, Any]:
    torch: Any = sys.modules["torch"]
    version = torch.version
    return {
        "version": str(torch.__version__),
        "git": str(version.git_version),
        "cuda": version.cuda,
        "hip": getattr(version, "hip", None),
        "debug": bool(version.debug),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "triton": None if version.cuda is None else (_version("triton") or _version("pytorch-triton")),
        "driver": _driver(),
        "numpy": _version("numpy"),
    }


def _version(distribution: str) -> str | None:
    """What is installed, by the name of the folder that says so; of several, what Python's own search finds."""
    module = sys.modules.get(distribution)
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        start = f"{distribution}-"
        found = [
            n for n in _names_in(os.path.dirname(os.path.dirname(file))) if n.startswith(start) and n.endswith(_INFO)
        ]
        if len(found) == 1:
            return found[0][len(start) : -len(_INFO)]
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


_INFO = ".dist-info"


@functools.cache
def _names_in(folder: str) -> tuple[str, ...]:
    """What is in a folder of packages."""
    try:
        return tuple(os.listdir(folder))
    except OSError:
        return ()


def _driver() -> str | None:
    """The version of NVIDIA's driver, or None."""
    found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", _text("/proc/driver/nvidia/version"))
    return found[1] if found else None


@functools.cache
def _gpus() -> list[list[Any]]:
    """Name, capability and number of multiprocessors of each GPU; of one, where they are all equal."""
    cuda: Any = sys.modules["torch"].cuda
    found = [cuda.get_device_properties(k) for k in range(cuda.device_count())]
    facts = [[p.name, p.major, p.minor, p.multi_processor_count] for p in found]
    return facts[:1] if all(fact == facts[0] for fact in facts) else facts


def _visible_gpus() -> list[int | None]:
    """How many GPUs the machine has, and how many of them a variable leaves: programs ask whether there is one."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [_gpu_files(), None if chosen is None else len(list(filter(None, chosen.split(","))))]


@functools.cache
def _gpu_files() -> int:
    try:
        return sum(re.fullmatch(r"nvidia\d+", name) is not None for name in os.listdir("/dev"))
    except OSError:
        return 0


@functools.cache
def _machine() -> list[str]:
    """What -march=native depends on: the processor's kind, model and features."""
    lines = [line.split(":", 1) for line in _text("/proc/cpuinfo").split("\n\n", 1)[0].splitlines() if ":" in line]
    said = {name.strip(): value.strip() for name, value in lines}
    features = sorted((said.get("flags") or said.get("Features") or "").split())
    return [
        sys.platform,
        platform.machine(),
        said.get("model name") or said.get("CPU part") or platform.processor(),
        *features,
    ]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


# ------------------------------------------------------------------------------------------ torchjit itself


@functools.cache
def code_digest() -> str:
    """A digest of torchjit's packages as they are installed.

    Of a wheel's files it holds what the installer wrote down (RECORD) and their sizes, of the sources of an editable install sizes and
    times of last changes.
    """
    digest = hashlib.sha256()
    for package in PACKAGES:
        folder = _folder_of(package)
        record = None if folder is None else _record(folder)
        files = [] if folder is None else _files(str(folder), with_times=record is None)
        digest.update(_canonical([package, record, files]).encode())
    return digest.hexdigest()


def _folder_of(package: str) -> Path | None:
    """Where a package is, found without importing it; None if it is not installed."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # the second: it is half imported
        return None
    places = None if spec is None else spec.submodule_search_locations
    return Path(next(iter(places))) if places else None


def _record(folder: Path) -> list[str] | None:
    """The lines about a package's files that its installer wrote down, with their digests; None for sources in a checkout."""
    lines: list[str] = []
    for name in _names_in(str(folder.parent)):
        if name.startswith(f"{folder.name}-") and name.endswith(_INFO):
            record = _text(str(folder.parent / name / "RECORD"))
            lines += [line for line in record.splitlines() if line.startswith(f"{folder.name}/")]
    return sorted(line for line in lines if ".pyc," not in line) or None


def _files(folder: str, with_times: bool) -> list[str]:
    """Name, size and perhaps time of each file of a package but for compiled ones."""
    found, folders = [], [folder]
    for place in folders:
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.is_dir():
                    if entry.name != "__pycache__":
                        folders.append(entry.path)
                elif not entry.name.endswith(".pyc"):
                    facts = entry.stat()
                    time = facts.st_mtime_ns if with_times else ""
                    found.append(f"{entry.path[len(folder) :]} {facts.st_size} {time}")
    return sorted(found)
