"""The C code generator as a `KernelBackend`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import final

import attrs
import torch

from torchjit_core.events import phase
from torchjit_core.expr import Symbol
from torchjit_inductor.codegen_protocol import CompiledKernel, KernelBackend
from torchjit_inductor.cpp.build import build, default_vector_bytes, find_compiler
from torchjit_inductor.cpp.channel_groups import split_groups
from torchjit_inductor.cpp.kernel import can_fail, computed_again, generate, heading
from torchjit_inductor.cpp.plan import Plan
from torchjit_inductor.cpp.stored_kernels import load_storable
from torchjit_inductor.cpp.text import STORAGE
from torchjit_inductor.cpp.vector_math import declaration
from torchjit_inductor.ir.kernel import Buffer, LoopKernel, rename_buffers
from torchjit_inductor.passes import Pass
from torchjit_inductor.schedule.pieces import chooses_piece
from torchjit_inductor.settings import InductorSettings

__all__ = ["CBackend", "whole_file"]

TEXTS = 1000
"""Texts of kernels that a backend remembers."""
FEW_AGAIN = 2
"""So many evaluations of a costly function take about as long as writing the result of one element and reading it again."""
LINES_PER_FILE = 700
"""A graph's kernels are spread over files of about this length, which compile in parallel."""


@final
class CBackend(KernelBackend):
    """Vectorised C++ for the CPU; see the package's `cpp` folder. Products are raced between two libraries instead, see `matmul`."""

    language = "c"

    def __init__(self, settings: InductorSettings) -> None:
        self._settings = settings
        self._vector_bytes = settings.vector_bytes or default_vector_bytes()
        self._texts: dict[tuple[object, ...], str] = {}

    def unwanted(self, kernel: LoopKernel, buffers: Mapping[str, Buffer], hints: Mapping[Symbol, int]) -> str | None:
        """Pieces of a concatenation along the vectors of a reduction, or costly functions that its passes compute again and again."""
        if not kernel.inner:
            return None  # pointwise kernels have a loop for each piece (`Plan.segments`), and one pass
        if self._by_lanes(kernel):
            return "the reduction would read the pieces of a row lane by lane"
        if computed_again(kernel, self._vector_bytes) > FEW_AGAIN:
            return "the reduction's passes would compute costly functions again and again"
        return None

    def _by_lanes(self, kernel: LoopKernel) -> bool:
        """Does a concatenation or padding change from piece to piece along its vectors?"""
        if not any(chooses_piece(v) for v in kernel.values):
            return False
        plan = Plan(kernel, self._vector_bytes, 1)
        return plan.vector is not None and any(
            chooses_piece(v) and plan.vector.symbol in v.args[0].data.index.symbols for v in plan.kernel.values
        )

    def passes(self, hints: Mapping[Symbol, int]) -> tuple[Pass, ...]:
        """Reductions over few neighbouring channels first go channel by channel."""
        return (split_groups,)

    def compile(
        self, kernels: Sequence[LoopKernel], buffers: Mapping[str, Buffer], *, graph: str, hints: Mapping[Symbol, int]
    ) -> Sequence[CompiledKernel]:
        """Generate, compile and load. Kernels with equal text are compiled once.

        Raises:
            CompilerMissing: no compiler works here.
        """
        if not kernels:
            return []
        compiler = find_compiler(self._settings.compiler, self._vector_bytes, self._settings.compiler_named_by)
        with phase("c codegen"):
            texts = [self.source(k, buffers) for k in kernels]
            bodies = [_anonymous(t, k.name) for t, k in zip(texts, kernels, strict=True)]
            first: dict[str, int] = {}
            for position, body in enumerate(bodies):
                first.setdefault(body, position)
            files = _into_files([(kernels[p].name, bodies[p]) for p in first.values()])
        with phase("c compile"):
            settings = self._settings
            libraries = build(
                [f[1] for f in files],
                compiler,
                settings.cache_dir,
                settings.compile_jobs,
                settings.cache_bytes,
                settings.compiler_seconds,
            )
        functions: dict[str, Callable[..., None]] = {}
        for (names, _), library in zip(files, libraries, strict=True):
            # Inside a file kernels are numbered.
            numbered = load_storable(library, [f"k{n}" for n in range(len(names))], settings.cache_dir)
            functions |= dict(zip(names, numbered, strict=True))
        return [
            CompiledKernel(k.name, t, functions[kernels[first[body]].name])
            for k, t, body in zip(kernels, texts, bodies, strict=True)
        ]

    def source(self, kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> str:
        """The C text of one kernel and its entry, without the prelude.

        The layers of a model have kernels that differ only in the names of their buffers: their text is written once.
        """
        names = {f"b{k}": name for k, name in enumerate(kernel.buffers)}
        twin = _renamed(kernel, {name: new for new, name in names.items()})
        held = {new: buffers[name] for new, name in names.items()}
        threads = torch.get_num_threads()
        key = (twin.outer, twin.inner, twin.stores, tuple(b.dtype for b in held.values()), threads)
        text = self._texts.get(key)
        if text is None:
            text = generate(twin, held, self._vector_bytes, threads) + "\n" + _entry(twin, held)
            if len(self._texts) >= TEXTS:
                self._texts.clear()
            self._texts[key] = text
        named = _BUFFER.sub(lambda found: found[1] + names[found[2]], text.replace(_TWIN, kernel.name))
        return "\n".join([*heading(kernel), named])


_TWIN = "KERNEL_WITHOUT_NAME"
_BUFFER = re.compile(r"(?m)( = args\.p\d+;  // )(b\d+)$")


def _renamed(kernel: LoopKernel, names: Mapping[str, str]) -> LoopKernel:
    """The kernel over buffers of other names, and itself without one. Of two that differ in nothing else it makes equal ones."""
    return attrs.evolve(kernel, name=_TWIN, origins=(), stores=rename_buffers(kernel.stores, names))


def _entry(kernel: LoopKernel, buffers: Mapping[str, Buffer]) -> str:
    """The function that Python calls with addresses and sizes."""
    count = len(kernel.buffers)
    reads = [f"({STORAGE[buffers[n].dtype]}*)py_int(args[{k}])" for k, n in enumerate(kernel.buffers)]
    reads += [f"py_int(args[{count + k}])" for k in range(len(kernel.symbols))]
    fails = can_fail(kernel)
    if fails:
        reads.append("fault")
    return "\n".join(
        [
            f'extern "C" void* py_{kernel.name}(void*, void* const* args, i64) {{',
            *(["  i64 fault[4] = {0, 0, 0, 0};"] if fails else []),
            f"  {kernel.name}::Args a = {{{', '.join(reads)}}};",
            f"  void* thread = py_save(); {kernel.name}::run(a); py_restore(thread);",
            *(["  if (fault[0]) return raise_fault(fault);"] if fails else []),
            "  py_incref(py_none); return py_none;",
            "}",
        ]
    )


def _anonymous(text: str, name: str) -> str:
    """The text without comments and with a neutral name, to find kernels that are the same."""
    lines = [re.sub(r"\s*//.*$", "", line) for line in text.splitlines()]
    return "\n".join(line for line in lines if line.strip()).replace(name, "@KERNEL@")


def _into_files(kernels: Sequence[tuple[str, str]]) -> list[tuple[list[str], str]]:
    """Files of kernels: names in order, and the text."""
    files: list[tuple[list[str], list[str], int]] = []
    for name, body in kernels:
        lines = body.count("\n")
        if not files or files[-1][2] + lines > LINES_PER_FILE:
            files.append(([], [], 0))
        names, bodies, length = files[-1]
        bodies.append(body.replace("@KERNEL@", f"k{len(names)}"))
        names.append(name)
        files[-1] = (names, bodies, length + lines)
    return [(names, whole_file(*bodies)) for names, bodies, _ in files]


def whole_file(*kernels: str) -> str:
    """What the compiler gets, for kernels with their entries."""
    return "\n".join([_prelude(any("sort_row" in k for k in kernels)), *kernels, _INIT])


@functools.cache
def _prelude(sorts: bool) -> str:
    """What a file of kernels begins with.

    Args:
        sorts: do some of them sort?
    """
    folder = resources.files("torchjit_inductor.cpp")
    parts = [folder.joinpath("prelude.h").read_text(), declaration(), folder.joinpath("vector_math.h").read_text()]
    return "\n".join([*parts, *([folder.joinpath("sort.h").read_text()] if sorts else [])])


_INIT = """
extern "C" void tj_init(void* const* table) {
  tj_parallel = table[0] ? (void (*)(i64, i64, i64, void (*)(i64, i64, void*), void*))table[0] : run_serially;
  py_int = (i64 (*)(void*))table[1]; py_save = (void* (*)(void))table[2]; py_restore = (void (*)(void*))table[3];
  py_incref = (void (*)(void*))table[4]; py_none = table[5];
  py_format = (void* (*)(void*, const char*, ...))table[6]; py_index_error = table[7]; py_runtime_error = table[8];
  tj_math = (void* const*)table[9];
  tj_malloc = (void* (*)(u64))table[10]; tj_free = (void (*)(void*))table[11];
}
"""
