"""Interrupt captures, compilations and runs of small programs at random times, and look for what is left behind.

    uv run python tools/interrupts.py --count 2000 --seed 0 --backend eager aot_eager inductor

Each round takes a program that nothing has compiled yet, or one that is warm, and interrupts one call of it: a timer's signal whose
handler raises an exception of the program's, or KeyboardInterrupt through the interpreter's own flag (`PyErr_SetInterruptEx`, from
another thread). Then it asks: did the exception come out; is a mode, a flag, a lock, a signal's handler or the collector not as it was;
did each `finally` run once; is the next call right, with its gradients. The first round that finds something says so, and the exit
status is 1. An abort of the process is one as well.

What plain Python leaves behind is counted apart: a program that is interrupted inside of `no_grad.__enter__` or
`autocast.__exit__`, which are Python functions of torch's, has lost that mode without any compiler.
"""

from __future__ import annotations

import _thread
import argparse
import gc
import os
import random
import signal
import sys
import tempfile
import textwrap
import threading
import time
import traceback
import types
import warnings
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("TORCHJIT_CACHE_DIR", tempfile.mkdtemp(prefix="interrupts-"))

import torch

import torchjit
import torchjit_frame

os.environ.setdefault("TORCHJIT_STORE", "off")  # what this is about is compiled, not found on disk


class Stop(Exception):
    """What the program's own handler raises: an ordinary exception, which code that catches errors of operations would catch."""


PROGRAMS = {
    "no_break": """
        def f(x, w):
            for k in range(3):
                x = torch.tanh(x @ w) + x * {n}
            return x.softmax(-1).sum(0)
    """,
    "try_finally": """
        def f(x, w):
            y = x + {n}
            try:
                log.append("in")
                torchjit.graph_break()
                for _ in range(4):
                    y = torch.tanh(y @ w)
            finally:
                log.append("out")
            return y
    """,
    "lock": """
        def f(x, w):
            y = x + {n}
            with lock:
                torchjit.graph_break()
                for _ in range(4):
                    y = torch.sin(y @ w)
            return y * 2
    """,
    "no_grad": """
        def f(x, w):
            y = x * {n}
            with torch.no_grad():
                torchjit.graph_break()
                y = torch.tanh(y @ w) @ w
                torchjit.graph_break()
                y = y.relu() @ w
            return y + x
    """,
    "modes_in_one_graph": """
        def f(x, w):
            with torch.no_grad():
                y = (x @ w).sin()
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    z = (y @ w).float()
            return x * {n} + z
    """,
    "autocast": """
        def f(x, w):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = x @ w
                torchjit.graph_break()
                y = (y @ w).relu()
            return y.float() * {n}
    """,
    "inlined_breaks": """
        def inner(y, w):
            try:
                log.append("in")
                y = y @ w
                torchjit.graph_break()
                return torch.tanh(y @ w)
            finally:
                log.append("out")

        def f(x, w):
            try:
                log.append("in")
                y = inner(x * {n}, w)
                return inner(y, w) + 1
            finally:
                log.append("out")
    """,
    "data_dependent": """
        def f(x, w):
            y = (x @ w) * {n}
            if y.sum() > 1e9:
                y = y - 1
            return y.cos()
    """,
    "training": """
        def f(x, w):
            y = torch.nn.functional.gelu(x @ w)
            y = torch.nn.functional.layer_norm(y, (y.shape[-1],))
            return (y @ w).mean(0) * {n}
    """,
}
TRAINED = {"training", "no_break", "try_finally"}


class Round:
    """One program, made anew so that nothing has captured it, and what it has done."""

    def __init__(self, name: str, number: int) -> None:
        self.log: list[str] = []
        self.lock = threading.Lock()
        space: dict[str, Any] = {"torch": torch, "torchjit": torchjit, "log": self.log, "lock": self.lock}
        source = textwrap.dedent(PROGRAMS[name]).replace("{n}", str(number % 4 + 1))
        exec(compile(source, f"<{name}>", "exec"), space)
        self.function: types.FunctionType = space["f"]
        self.trains = name in TRAINED

    def call(self, function: Callable[..., Any], inputs: tuple[Any, ...]) -> list[Any]:
        """The result of a call, and the gradients that it gives."""
        given = [t.detach().clone().requires_grad_(self.trains) for t in inputs]
        result = function(*given)
        if self.trains:
            result.sum().backward()
        return [result.detach(), *(t.grad for t in given)]


def state() -> dict[str, Any]:
    """What a program can see of the process, by name."""
    c: Any = torch._C
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": (
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(),
        ),
        "default dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "dispatch modes": c._len_torch_dispatch_stack(),
        "function modes": c._len_torch_function_stack(),
        "function state": str(c._get_torch_function_state()),
        "dispatch keys": (
            c._dispatch_tls_local_include_set().raw_repr(),
            c._dispatch_tls_local_exclude_set().raw_repr(),
        ),
        "layers": c._functorch.get_dynamic_layer_stack_depth(),
        "saved tensor hooks": c._autograd._top_saved_tensors_default_hooks(True),
        "tracing": c._get_tracing_state(),
        "collector": (gc.isenabled(), gc.get_freeze_count() > 10_000),  # Python 3.12 freezes some at its start
        "autocast blocks": (torch.autocast_increment_nesting(), torch.autocast_decrement_nesting()),
        "eager": torchjit_frame.is_eager(),
        "hook": torchjit_frame.hook_counters()["open_scopes"],
        "handlers": [signal.getsignal(n) for n in (signal.SIGALRM, signal.SIGINT)],
        "warnings": list(warnings.filters),
        "random numbers": torch.get_rng_state().sum().item(),
    }


def interrupted(function: Callable[[], Any], how: str, after: float) -> BaseException | None:
    """The exception that a call ends with, if it is interrupted in time."""
    try:
        try:
            if how == "timer":
                signal.setitimer(signal.ITIMER_REAL, max(after, 1e-6))
                function()
            else:
                flag = threading.Timer(after, lambda: _interrupt())
                flag.start()
                try:
                    function()
                finally:
                    flag.cancel()
                    flag.join()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            time.sleep(0)  # what is pending comes here
    except (Stop, KeyboardInterrupt) as error:
        return error
    return None


def _interrupt() -> None:
    _thread.interrupt_main(signal.SIGINT)  # PyErr_SetInterruptEx


def close(got: list[Any], want: list[Any]) -> bool:
    """Are the results equal, up to rounding?"""
    return all(
        (a is None) == (b is None) and (a is None or torch.allclose(a.float(), b.float(), rtol=2e-2, atol=2e-2))
        for a, b in zip(got, want, strict=True)
    )


_OF_TORCH = tuple(
    os.path.join(os.path.dirname(torch.__file__), *path)
    for path in (("autograd", "grad_mode.py"), ("amp", "autocast_mode.py"), ("utils", "_contextlib.py"))
)
_LOST_BY_THEM = {"grad mode", "autocast", "dispatch keys"}


def left_by_plain_python(error: BaseException, lost: set[str], name: str) -> bool:
    """Was the program itself, not something of ours, inside of a context manager of torch's that sets just this state?"""
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    while frames and frames[-1].co_filename == __file__:
        frames.pop()
    inside = len(frames)
    while frames and frames[-1].co_filename in _OF_TORCH:
        frames.pop()
    return len(frames) < inside and frames[-1].co_filename == f"<{name}>" and lost <= _LOST_BY_THEM


def bring_back(before: dict[str, Any]) -> None:
    """Set the modes that a round may have lost, so that the next ones begin alike."""
    torch.set_grad_enabled(before["grad mode"])
    enabled, dtype, cached = before["autocast"]
    torch.set_autocast_enabled("cpu", enabled)
    torch.set_autocast_dtype("cpu", dtype)
    torch.set_autocast_cache_enabled(cached)


def one_round(
    number: int, name: str, backend: str, chance: random.Random, durations: dict[Any, float]
) -> tuple[bool, list[str], bool]:
    """Was the call interrupted, what is wrong, and is that what plain Python leaves as well?"""
    warm = chance.random() < 0.4
    made = Round(name, number)
    inputs = (torch.randn(24, 24), torch.randn(24, 24) * 0.2)
    want = made.call(made.function, inputs)
    made.log.clear()
    compiled = torchjit.compile(made.function, backend=backend)
    if warm:
        made.call(compiled, inputs)
        made.log.clear()
    kind = (name, backend, warm)
    before = state()
    start = time.perf_counter()
    how = "timer" if chance.random() < 0.6 else "flag"
    error = interrupted(lambda: made.call(compiled, inputs), how, chance.uniform(0, durations.get(kind, 0.2)))
    if error is None:
        durations[kind] = (time.perf_counter() - start) * 1.05
    now = state()
    lost = {key for key, value in now.items() if value != before[key]}
    wrong = [f"{key}: {now[key]!r}, was {before[key]!r}" for key in sorted(lost)]
    plain = bool(wrong) and error is not None and left_by_plain_python(error, lost, name)
    if made.log.count("in") != made.log.count("out"):
        wrong.append(f"finally: {made.log}")
    if made.lock.locked():
        wrong.append("the lock is held")
        made.lock.release()
    bring_back(before)
    modes = len(wrong)
    try:
        if not close(made.call(compiled, inputs), want):
            wrong.append("the next call is wrong")
    except BaseException as next_error:
        wrong.append(f"the next call raises {type(next_error).__name__}: {next_error}")
    given_up = [f"{site.name}: {site.given_up}" for site in compiled.compiled.sites if site.given_up is not None]
    if given_up:
        wrong.append(f"eager for ever: {given_up}")
    plain = plain and len(wrong) == modes and made.log.count("in") == made.log.count("out")
    if wrong and error is not None:
        wrong.append("came out of " + " < ".join(reversed(_frames(error)[-6:])))
    return error is not None, wrong, plain


def _frames(error: BaseException) -> list[str]:
    """Where an exception was raised and what it came through, outermost first."""
    trace = traceback.extract_tb(error.__traceback__)
    return [f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}" for frame in trace]


def main() -> int:
    """Run the rounds; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="interrupts that have come out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", nargs="+", default=["eager", "aot_eager", "inductor"])
    parser.add_argument("--program", nargs="+", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--go-on", action="store_true", help="do not end at the first round that finds something")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")

    def handler(number: int, frame: types.FrameType | None) -> None:
        raise Stop("the program's own alarm")

    signal.signal(signal.SIGALRM, handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chance = random.Random(options.seed)
    torch.manual_seed(options.seed)
    durations: dict[Any, float] = {}
    come = bad = rounds = by_python = 0
    per_backend = dict.fromkeys(options.backend, 0)
    while come < options.count:
        backend, name = options.backend[rounds % len(options.backend)], chance.choice(options.program)
        hit, wrong, plain = one_round(rounds, name, backend, chance, durations)
        rounds += 1
        come += hit
        per_backend[backend] += hit
        if hit and come % 100 == 0:
            print(f"{come} interrupts in {rounds} rounds", flush=True)
        if plain:
            by_python += 1
        elif wrong:
            bad += 1
            print(f"round {rounds}, {name}, {backend}, interrupted {hit}: {'; '.join(wrong)}", flush=True)
            if not options.go_on:
                break
    told = ", ".join(f"{n} {b}" for b, n in per_backend.items())
    print(
        f"{come} interrupts in {rounds} rounds ({told}): {bad} left something behind; {by_python} came inside of `__enter__` "
        "or `__exit__` of torch's own modes, which lose them in plain Python too",
        flush=True,
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
