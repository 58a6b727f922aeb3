"""Candidates for a product are tried in a process of their own: one that crashes or hangs the device takes only that along.

The parent compiles; the process makes operands, runs each candidate, compares it with the float32 product, times the good
ones beside the library's kernel, and says what it is at, so that the parent knows which candidate it died of.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import attrs
import torch

from torchjit_core.forks import new_lock
from torchjit_inductor.assembly.assemble import Whole, read_message, readable, write_message
from torchjit_inductor.assembly.workers import end_process
from torchjit_inductor.lowering.contractions import MatrixProduct
from torchjit_inductor.triton.compile import MachineCode
from torchjit_inductor.triton.cuda import CudaDriver, KernelDriver
from torchjit_inductor.triton.product_kernel import layouts_of
from torchjit_inductor.triton.timing import device_seconds, spread_ends

__all__ = [
    "Candidate",
    "Crashed",
    "Launch",
    "Trial",
    "TrialProcess",
    "exact_product",
    "library_product",
    "operands_of",
    "runner",
    "serve",
    "try_candidates",
]

TOLERANCE = 2e-2
"""Largest distance from the float32 product, relative to its norm: 16-bit results are at 2e-3 to 4e-3."""
PATIENCE = 120.0
"""Seconds after which a candidate that has not answered counts as hung, and a process that is not ready as broken."""


@final
@attrs.frozen
class Launch:
    """One kernel of a candidate.

    Attributes:
        code: of the kernel.
        programs: size of its grid.
        buffers: names of what its addresses are, in order.
    """

    code: MachineCode
    programs: int
    buffers: tuple[str, ...]


@final
@attrs.frozen
class Candidate:
    """A way to compute a product into `out` from `left` and `right`.

    Attributes:
        words: what it is called in reports.
        launches: its kernels, in order.
        scratch: name, number of elements and dtype of the memory between them.
    """

    words: str
    launches: tuple[Launch, ...]
    scratch: tuple[tuple[str, int, torch.dtype], ...] = ()


@final
@attrs.frozen
class Trial:
    """What became of candidates.

    Attributes:
        library: seconds of aten's kernel.
        seconds: of those that are right, by position.
        rejected: why others are of no use, by position.
    """

    library: float
    seconds: dict[int, float]
    rejected: dict[int, str]


class Crashed(Exception):
    """The process ended, or had to be ended, before it had tried all candidates.

    Attributes:
        position: of the candidate that it was at; None: it got to none.
    """

    def __init__(self, position: int | None, how: str) -> None:
        super().__init__(how)
        self.position = position


def runner(
    candidate: Candidate, driver: KernelDriver, device: torch.device, memory: Mapping[str, torch.Tensor]
) -> Callable[[], None]:
    """A function that enqueues the candidate's kernels on operands in `memory`."""
    held = dict(memory)
    for name, count, dtype in candidate.scratch:
        held[name] = torch.empty(count, dtype=dtype, device=device)
    index = device.index or 0
    calls = [
        (driver.load(each.code, index), each.programs, [held[n].data_ptr() for n in each.buffers])
        for each in candidate.launches
    ]

    def run() -> None:
        stream = driver.stream(index)
        for kernel, programs, addresses in calls:
            kernel(programs, stream, *addresses)

    run.memory = held  # type: ignore[attr-defined]  # alive as long as the function
    return run


def try_candidates(
    product: MatrixProduct, candidates: Sequence[Candidate], driver: KernelDriver, at: Callable[[int], None]
) -> Trial:
    """Compare candidates with the float32 product and time the right ones, in turns with the library's kernel.

    Args:
        at: called with the position of each candidate before it runs.

    Raises:
        torch.OutOfMemoryError: there is no room for the operands.
        RuntimeError: a candidate broke the device, the one that `at` named last.
    """
    memory = operands_of(product)
    out = memory["out"]
    exact = exact_product(product, memory)
    library = library_product(product, memory)
    rejected: dict[int, str] = {}
    runs: dict[int, Callable[[], None]] = {}
    for position, candidate in enumerate(candidates):
        at(position)
        try:
            run = runner(candidate, driver, product.device, memory)
            out.fill_(float("nan") if out.dtype.is_floating_point else -1)
            run()
            wrong = float((out.float() - exact).norm() / exact.norm().clamp(min=1e-30))
        except RuntimeError as error:  # more registers, shared memory or scratch memory than there are
            torch.cuda.synchronize(product.device)  # raises again where the device itself is lost
            rejected[position] = str(error)
            continue
        if wrong <= TOLERANCE:
            runs[position] = run
        else:
            rejected[position] = f"wrong result: relative distance {wrong:.3g}"
    took, *times = device_seconds([library, *runs.values()], cold=True, device=product.device)
    return Trial(took, dict(zip(runs, times, strict=True)), rejected)


def operands_of(p: MatrixProduct) -> dict[str, torch.Tensor]:
    """Random operands that lie in memory as the product's do, and room for the result, called as in `product_kernel`."""
    # A generator of its own: the user's random numbers do not depend on what is measured.
    generator = torch.Generator(p.device).manual_seed(0)
    made: dict[str, torch.Tensor] = {}
    for name, (dtype, sizes, strides) in layouts_of(p).items():
        made[name] = torch.empty_strided(sizes, strides, dtype=dtype, device=p.device)
        if name == "ends":
            made[name].copy_(spread_ends(sizes[0], p.divided))
        elif name != "out":
            # Scales are positive.
            numbers = torch.randn(sizes, generator=generator, device=p.device, dtype=torch.float32)
            numbers = numbers.abs() + 0.5 if name.endswith("scale") else numbers
            made[name].copy_(numbers if dtype.is_floating_point else (numbers * 40).clamp(-127, 127))
    return made


def exact_product(p: MatrixProduct, memory: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The product in float32."""
    left, right = memory["left"].float(), memory["right"].float()
    if p.groups is not None:
        return _grouped(p.groups.along, left, right, memory["ends"].tolist())
    exact = left @ right
    return exact if p.scales is None else exact * memory["left_scale"] * memory["right_scale"]


def _grouped(along: str, left: torch.Tensor, right: torch.Tensor, ends: list[int]) -> torch.Tensor:
    """What `lowering.grouped.grouped_dot` means, group by group."""
    parts = list(itertools.pairwise([0, *ends]))
    if along == "rows":
        return torch.cat([left[a:b] @ matrix for (a, b), matrix in zip(parts, right, strict=True)])
    if along == "columns":
        return torch.cat([matrix @ right[:, a:b] for (a, b), matrix in zip(parts, left, strict=True)], 1)
    return torch.stack([left[:, a:b] @ right[a:b] for a, b in parts])


def library_product(p: MatrixProduct, memory: Mapping[str, torch.Tensor]) -> Callable[[], object]:
    """The product by aten."""
    left, right = memory["left"], memory["right"]
    if p.groups is not None:
        return functools.partial(torch._grouped_mm, left, right, offs=memory["ends"])
    if p.scales is not None:
        scales = [memory[n] if p.scales.by_rows else memory[n].view(()) for n in ("left_scale", "right_scale")]
        options: dict[str, Any] = {"out_dtype": p.result, "use_fast_accum": p.scales.fast}
        return functools.partial(torch._scaled_mm, left, right, scales[0], scales[1], **options)
    if p.dtype == torch.int8:
        return functools.partial(torch._int_mm, left, right)
    return functools.partial(torch.matmul, left, right, out=memory["out"])


# ------------------------------------------------------------------------------------------------------ the process
_PROGRAM = "from torchjit_inductor.triton.trial import serve; serve()"


@final
class TrialProcess:
    """The process, started when it is first needed; it ends with this one.

    Args:
        command: for tests.
        patience: for candidates, see `PATIENCE`.
    """

    def __init__(self, command: Sequence[str] | None = None, patience: float = PATIENCE) -> None:
        self._ready = False
        self._command = list(command or (sys.executable, "-c", _PROGRAM))
        self._patience = patience
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = new_lock()

    def start(self) -> None:
        """Start it ahead of use, if it can be started."""
        with self._lock, contextlib.suppress(OSError):
            self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            path = os.pathsep.join(p for p in sys.path if p)
            # Its own session: an interrupt from the keyboard is this process's to handle.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                bufsize=0, start_new_session=True, env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip
        return self._process

    def try_candidates(self, product: MatrixProduct, candidates: Sequence[Candidate]) -> Trial:
        """As the function of that name, over there.

        Raises:
            Crashed: it ended or hung.
            torch.OutOfMemoryError: there is no room for the operands.
            OSError: the process cannot be started.
        """
        with self._lock:
            process, position = self._started(), None
            try:
                if not self._ready:  # it imports torch first
                    self._answer(process, PATIENCE)
                    self._ready = True
                write_message(process.stdin, (product, tuple(candidates)))  # type: ignore[arg-type]
                while True:
                    kind, held = self._answer(process, self._patience)
                    if kind == "done":
                        return held  # type: ignore[no-any-return]
                    if kind == "memory":
                        raise torch.OutOfMemoryError(held)
                    if kind == "failed":
                        raise RuntimeError(held)
                    position = held
            except (EOFError, RuntimeError, OSError) as error:
                if isinstance(error, torch.OutOfMemoryError):
                    raise
                # After an error of the device nothing works in that process.
                status = self._end()
                how = (
                    f"its process ended with status {status}" if isinstance(error, (EOFError, OSError)) else str(error)
                )
                raise Crashed(position, how) from None
            except BaseException:  # an interrupt: its answer would be taken for the next request's
                self._end()
                raise

    def _answer(self, process: subprocess.Popen[bytes], patience: float) -> tuple[str, Any]:
        answers: Any = process.stdout
        if not readable(answers, patience):
            process.kill()
            raise RuntimeError(f"no answer within {patience:.0f} s")
        answer: tuple[str, Any] = read_message(Whole(answers))  # type: ignore[arg-type]
        return answer

    def close(self) -> None:
        """End it."""
        with self._lock:
            self._end()

    def _end(self) -> int | None:
        process, self._process, self._ready = self._process, None, False
        return None if process is None else end_process(process)


def serve() -> None:
    """Answer requests from standard input on standard output until that is closed."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not come between the answers
    driver = CudaDriver()
    write_message(answers, ("ready", None))
    while True:
        try:
            product, candidates = read_message(requests)
        except EOFError:
            return
        try:
            with torch.no_grad(), torch.cuda.device(product.device):
                made = try_candidates(product, candidates, driver, lambda n: write_message(answers, ("at", n)))
                torch.cuda.synchronize()
            answer: tuple[str, Any] = ("done", made)
        except torch.OutOfMemoryError as error:
            answer = ("memory", str(error))
        except RuntimeError as error:
            answer = ("failed", str(error))
        torch.cuda.empty_cache()
        write_message(answers, answer)
