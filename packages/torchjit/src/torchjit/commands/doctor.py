"""Check everything that torchjit needs on this machine; each finding comes with what to do."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import platform
import sys
import types
import warnings
from collections.abc import Callable, Iterator

import torch

import torchjit
from torchjit.commands.console import PARTS, Finding, console, print_findings
from torchjit_core.reasons import TorchjitError

__all__ = ["HELP", "Finding", "findings", "run"]

HELP = "check Python, torch, Triton, the C++ compiler, the GPU, the cache folder and the settings"

OLDEST_TORCH = (2, 11)
PYTHONS = ((3, 11), (3, 13))


def run(options: argparse.Namespace) -> int:
    """Print the findings; exit status 1 where one of them keeps programs from being compiled."""
    failed = print_findings(findings())
    console().print(
        "Programs run, but something above keeps them from being compiled."
        if failed
        else "Everything that is needed is there."
    )
    return int(failed)


def findings() -> list[Finding]:
    """Look at everything; a check that fails in a way nobody foresaw is a finding, too."""
    looked: list[Finding] = []
    for check in _CHECKS:
        try:
            looked += check()
        except TorchjitError as error:
            looked.append(Finding(check.__name__.strip("_"), "fail", error.detail, " ".join(error.reason.hints)))
        except Exception as error:
            looked.append(
                Finding(check.__name__.strip("_"), "fail", f"{type(error).__name__}: {error}", "Report this line.")
            )
    return looked


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    supported = PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1] and platform.python_implementation() == "CPython"
    cure = "" if supported else "Use CPython 3.11, 3.12 or 3.13: the interpreter of bytecode knows these."
    yield Finding("Python", "ok" if supported else "fail", f"{platform.python_implementation()} {version}", cure)


def _torch() -> Iterator[Finding]:
    known = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    old = known < OLDEST_TORCH
    yield Finding("torch", "fail" if old else "ok", torch.__version__, "pip install -U 'torch>=2.11'" if old else "")
    if "torch._dynamo" in sys.modules:
        yield Finding(
            "torch.compile",
            "note",
            "it is loaded in this process",
            "Its settings are read where torchjit's are not set.",
        )


def _packages() -> Iterator[Finding]:
    others: dict[str, str] = {}
    absent: list[str] = []
    for name in ("torchjit", *(f"torchjit-{part}" for part in PARTS)):
        try:
            others[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            absent.append(name)
    own = others.pop("torchjit", "")
    apart = {name: version for name, version in others.items() if own and version != own}
    if absent and not apart:
        yield Finding(
            "packages",
            "note",
            f"not installed as a distribution: {', '.join(absent)}",
            "They are imported from a folder on the path. Install them for entry points and the command `torchjit`.",
        )
    elif apart:
        yield Finding(
            "packages", "fail", f"torchjit {own} with {apart}", f"pip install -U --force-reinstall torchjit=={own}"
        )
    else:
        yield Finding("packages", "ok", f"torchjit {own} and its {len(others)} parts")
    for module in ("torchjit_frame._c", "torchjit_guards._c", "torchjit_inductor._c"):
        try:
            importlib.import_module(module)
        except ImportError as error:
            yield Finding(
                module, "fail", str(error), "Reinstall the package on this machine: its C extension is of another one."
            )


def _bytecode() -> Iterator[Finding]:
    """Imported by this process, all modules have some, if Python may write it."""
    without = [module.__name__ for module in (torch, torchjit) if not _is_kept(module)]
    if without:
        yield Finding(
            "bytecode",
            "note",
            f"none is kept of {' and '.join(without)}: each process compiles their sources, which takes seconds",
            "Unset PYTHONDONTWRITEBYTECODE; for folders that cannot be written set UV_COMPILE_BYTECODE=1 when they are installed (pip compiles by itself).",
        )


def _is_kept(module: types.ModuleType) -> bool:
    spec = module.__spec__
    return spec is not None and os.path.exists(spec.cached or "")


def _kernels_on_cpus() -> Iterator[Finding]:
    cure = "Install a C++ compiler (Debian: apt-get install g++), or name one in the variable CXX."
    x = torch.linspace(0, 1, 7)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            right = torch.allclose(torchjit.compile(_probe, on_error="eager")(x), _probe(x))
        except TorchjitError as error:
            yield Finding("C++ compiler", "fail", str(error).partition("\n")[0], cure)
            return
    texts = [str(w.message) for w in told if str(w.message).startswith("TJ-")]
    missing = [text for text in texts if not text.startswith("TJ-IND-009")]  # the cache folder has a finding of its own
    if missing:
        yield Finding("C++ compiler", "fail", missing[0].partition(". ")[0], cure)
    elif right:
        yield Finding("C++ compiler", "ok", "a kernel was built and run")
    else:
        yield Finding(
            "C++ compiler",
            "fail",
            "a kernel was built and gives wrong values",
            "Report this with the compiler's version.",
        )


def _probe(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2 + 1


def _gpu() -> Iterator[Finding]:
    if torch.version.hip is not None:
        yield Finding(
            "GPU",
            "note",
            f"this torch is built for AMD GPUs (HIP {torch.version.hip})",
            "They are not supported yet: use the CPU, or backend='aot_eager'.",
        )
        return
    if not torch.cuda.is_available():
        built = torch.version.cuda is not None
        detail = "none that CUDA can use" if built else "this torch is built without CUDA"
        yield Finding("GPU", "ok", f"{detail}; programs on the CPU are compiled to C++")
        return
    for index in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(index)
        old = major < 7
        yield Finding(
            f"GPU {index}", "fail" if old else "ok", f"{torch.cuda.get_device_name(index)}, compute capability {major}.{minor}",
            "Triton needs 7.0 or newer." if old else "",
        )  # fmt: skip


def _triton() -> Iterator[Finding]:
    try:
        version = importlib.import_module("triton").__version__
    except ImportError as error:
        needed = torch.cuda.is_available()
        yield Finding(
            "Triton", "fail" if needed else "note", str(error), "pip install triton" if needed else "Only GPUs need it."
        )
        return
    yield Finding("Triton", "ok", version)


def _cache() -> Iterator[Finding]:
    from torchjit.commands.cache import cache_findings  # noqa: PLC0415  the commands of a broken installation import too

    yield from cache_findings()


def _settings() -> Iterator[Finding]:
    names = sorted(
        name for name in os.environ if name.startswith(("TORCHJIT_", "TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"))
    )
    off = torchjit.compile(_identity) is _identity
    if off:
        yield Finding(
            "settings",
            "note",
            f"compilation is switched off by {', '.join(names) or 'a setting'}",
            "Unset the variable.",
        )
    elif names:
        yield Finding("settings", "ok", ", ".join(f"{name}={os.environ[name]}" for name in names))


def _identity(x: torch.Tensor) -> torch.Tensor:
    return x


_CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _python,
    _torch,
    _packages,
    _bytecode,
    _gpu,
    _triton,
    _settings,
    _cache,
    _kernels_on_cpus,
)
