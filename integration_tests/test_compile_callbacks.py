"""`on_compile_start` and `on_compile_end`: each phase, what they tell, what they raise, and the line on a terminal."""

# mypy: allow-untyped-calls

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch

import torchjit
from torchjit import CompileEvent
from torchjit_core import events
from torchjit_cudagraphs import GraphPool
from torchjit_cudagraphs.simulated import SimulatedDriver
from torchjit_inductor.benchmark_choice import AutotuneCache

recording = sys.modules["torchjit_cudagraphs.record"]  # the function of this name hides it


def wave(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * 2).sum()


@pytest.fixture
def told() -> Iterator[list[tuple[str, CompileEvent]]]:
    """Everything that begins and ends."""
    heard: list[tuple[str, CompileEvent]] = []
    with (
        torchjit.on_compile_start(lambda event: heard.append(("start", event))),
        torchjit.on_compile_end(lambda event: heard.append(("end", event))),
    ):
        yield heard


@pytest.fixture
def recordable(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA graphs of graphs on the CPU, by the device in plain memory."""
    pool = GraphPool(SimulatedDriver())
    monkeypatch.setattr(recording, "_pool_for", lambda compiled: pool)
    monkeypatch.setattr(recording, "refusal", lambda *arguments: None)


def phases(told: list[tuple[str, CompileEvent]]) -> list[tuple[str, str]]:
    return [(when, event.phase) for when, event in told]


def test_a_capture(told: list[tuple[str, CompileEvent]]) -> None:
    f: Any = torchjit.compile(wave, backend="eager")
    for size in (3, 3, 4):
        f(torch.ones(size))
    assert phases(told) == [("start", "capture"), ("end", "capture")] * 2
    (_, start), (_, end), *_ = told
    code = wave.__code__
    assert (start.function, start.filename, start.lineno) == ("wave", code.co_filename, code.co_firstlineno)
    assert start.seconds is None and start.ok is None
    assert end.compile_id == start.compile_id == f.compiled.stats.regions[0].compile_id
    assert end.seconds is not None and 0 < end.seconds < 60 and end.ok is True
    number = str(start.compile_id).partition("/")[0]
    assert [event.compile_id for _, event in told] == [f"{number}/0"] * 2 + [f"{number}/1"] * 2
    assert attrs.asdict(end)["phase"] == "capture"


def test_a_backward_is_compiled_when_it_is_called(told: list[tuple[str, CompileEvent]]) -> None:
    model = torch.nn.PReLU()
    loss = torchjit.compile(model)(torch.ones(2, 3)).sum()
    assert phases(told) == [("start", "capture"), ("end", "capture")]
    loss.backward()
    assert phases(told)[2:] == [("start", "backward"), ("end", "backward")]
    assert {event.function for _, event in told} == {told[0][1].function}
    assert "PReLU" in str(told[2][1].function) and str(told[2][1].filename).endswith("activation.py")
    assert len({event.compile_id for _, event in told}) == 1


def test_autotuning(told: list[tuple[str, CompileEvent]], tmp_path: Path) -> None:
    races = AutotuneCache(str(tmp_path))
    for _ in range(2):  # the second time it is known
        with events.using_compile_id("7/0"):
            races.times(("a",), lambda: (lambda: None, lambda: None))
    assert phases(told) == [("start", "autotuning"), ("end", "autotuning")]
    assert told[0][1].compile_id == "7/0" and told[0][1].function is None


def test_the_recording_of_a_cuda_graph(told: list[tuple[str, CompileEvent]], recordable: None) -> None:
    f = torchjit.compile(wave, backend="cudagraphs")
    x = torch.ones(4)
    for _ in range(5):
        torch.testing.assert_close(f(x), wave(x))
    assert phases(told) == [("start", "capture"), ("end", "capture"), ("start", "cudagraph"), ("end", "cudagraph")]
    assert told[2][1].function == "wave" and told[2][1].compile_id == told[0][1].compile_id
    torchjit.reset()


def test_a_compilation_that_fails_ends_too(told: list[tuple[str, CompileEvent]]) -> None:
    def broken(gm: Any, example_inputs: Any) -> Any:
        raise ValueError("not this one")

    f = torchjit.compile(wave, backend=broken)
    with pytest.raises(torchjit.exc.BackendCompilerFailed):
        f(torch.ones(3))
    assert [event.ok for _, event in told] == [None, False]


def test_decorators_and_handles() -> None:
    seen: list[str] = []

    @torchjit.on_compile_start
    def begins(event: CompileEvent) -> None:
        """Says so."""
        seen.append(f"start {event.phase}")

    @torchjit.on_compile_end
    def ends(event: CompileEvent) -> None:
        seen.append(f"end {event.phase}")

    assert begins.__name__ == "begins" and begins.__doc__ == "Says so."
    torchjit.compile(wave, backend="eager")(torch.ones(3))
    assert seen == ["start capture", "end capture"]
    begins.remove()
    begins.remove()
    torchjit.compile(wave, backend="eager")(torch.ones(3))
    assert seen[2:] == ["end capture"]
    ends.remove()
    torchjit.compile(wave, backend="eager")(torch.ones(3))
    assert len(seen) == 3
    begins(CompileEvent("backward", None))
    assert seen[-1] == "start backward"
    assert not events.listening()  # they make nobody compute what is expensive
    for wrong in (None, 3, "f"):
        with pytest.raises(torchjit.exc.UserError, match="TJ-API-070"):
            torchjit.on_compile_start(wrong)  # type: ignore[arg-type]


class Mine(ValueError):
    pass


def raises(event: CompileEvent) -> None:
    raise Mine(event.phase)


@pytest.mark.parametrize("register", [torchjit.on_compile_start, torchjit.on_compile_end])
def test_what_a_callback_raises_is_the_programs(
    register: Callable[..., Any], recordable: None, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    f: Any = torchjit.compile(wave, backend="cudagraphs", on_error="eager")
    x = torch.ones(4)
    with register(raises), pytest.raises(Mine, match="capture") as raised:
        f(x)
    assert raised.value.__cause__ is None
    assert len(f.compiled.stats.regions) == (register is torchjit.on_compile_end)
    torch.testing.assert_close(f(x), wave(x))
    with register(raises), pytest.raises(Mine, match="cudagraph"):  # up to the recording nothing begins
        for _ in range(6):
            torch.testing.assert_close(f(x), wave(x))
    torch.testing.assert_close(f(x), wave(x))

    w = torch.ones(4, requires_grad=True)
    trained = torchjit.compile(wave, on_error="eager")
    loss = trained(w)
    with register(raises), pytest.raises(Mine, match="backward"):
        loss.backward()
    trained(w).backward()
    torch.testing.assert_close(w.grad, 2 * torch.ones(4).cos())
    races = AutotuneCache(str(tmp_path))
    with register(raises), pytest.raises(Mine, match="autotuning"):
        races.times(("b",), lambda: (lambda: None, lambda: None))
    assert not [w for w in recwarn if "TJ-" in str(w.message)]
    torchjit.reset()


# ------------------------------------------------------------------------------------------ the line on a terminal


SLOW = """
import sys, time
import torch, torchjit

def slow(gm, example_inputs):
    print("compiles", flush=True)
    time.sleep(float(sys.argv[1]))
    return gm.forward

torchjit.compile(lambda x: x + 1, backend=slow)(torch.ones(2))
print("done")
"""


def on_a_terminal(tmp_path: Path, seconds: float) -> str:
    """What the program writes to a terminal that is its standard error."""
    program = tmp_path / "slow.py"
    program.write_text(SLOW)
    mine, theirs = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "TORCHJIT_PROGRESS")}
    environment |= {"TERM": "xterm", "COLUMNS": "200"}
    command = [sys.executable, str(program), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment, text=True) as running:
        os.close(theirs)
        text = b""
        until = time.monotonic() + 300
        while time.monotonic() < until:
            if select.select([mine], [], [], 0.2)[0]:
                try:
                    text += os.read(mine, 4096)
                except OSError:  # the other end is closed
                    break
            elif running.poll() is not None:
                break
        out = running.communicate()[0]
    os.close(mine)
    assert out == "compiles\ndone\n" and running.returncode == 0, text
    return text.decode()


def test_a_line_says_what_is_compiled_and_goes(tmp_path: Path) -> None:
    shown = on_a_terminal(tmp_path, 1.6)
    assert "compiling <lambda> [0/0] (1 s)" in shown
    assert shown.endswith("\r\x1b[K") and "\n" not in shown
