"""Processes that compile kernels: the same machine code, errors, crashes, idleness, forks."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

import triton

from torchjit_inductor.assembly import assemble as assemble_module
from torchjit_inductor.assembly import workers as workers_module
from torchjit_inductor.assembly.assemble import assemble, files_key, read_message, write_message
from torchjit_inductor.assembly.workers import MANY, CompilerDied, Workers, default_processes
from torchjit_inductor.triton.occupancy import registers_of
from torchjit_inductor.triton.source import HEADER

KERNEL = """

@triton.jit
def doubled(in0, out0):
    x = tl.program_id(0) * 128 + tl.arange(0, 128)
    tl.store(out0 + x, tj.maximum(tl.load(in0 + x) * NUMBER, 0.0))
"""


def request(number: float = 2.0, broken: str = "") -> tuple[object, ...]:
    text = HEADER + KERNEL.replace("NUMBER", str(number)) + broken
    return text, "doubled", {"in0": "*fp32", "out0": "*fp32"}, frozenset({"in0", "out0"}), 90, 4, 2


def ready(workers: Workers) -> None:
    deadline = time.monotonic() + 120
    while len(workers._idle) < workers.count and time.monotonic() < deadline:
        time.sleep(0.02)
    assert workers._idle


def test_a_process_compiles_what_this_one_does_and_its_errors_are_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(1)
    workers.start()
    ready(workers)
    (process,) = workers._idle
    made = workers.assemble(*request(3.25))
    name, binary, text, shared, _ = assemble(*request(3.25))  # type: ignore[arg-type]
    # The binaries hold names of temporary files.
    assert (made[0], len(made[1]), made[3]) == (name, len(binary), shared)
    assert registers_of(made[1]) == registers_of(binary) is not None
    instructions = [re.findall(r"^\s+[a-z@%].*;$", t, re.MULTILINE) for t in (made[2], text)]
    assert instructions[0] == instructions[1] and len(instructions[0]) > 10
    with pytest.raises(Exception, match="oops"):
        workers.assemble(*request(4.5, "    oops(x)\n"))
    assert workers._idle == [process] and process.poll() is None

    process.send_signal(signal.SIGSTOP)  # busy, as far as this process can tell
    outcome: list[object] = []
    asked = threading.Event()

    def noted(*message: Any) -> None:
        write_message(*message)
        asked.set()

    monkeypatch.setattr(workers_module, "write_message", noted)

    def run() -> None:
        try:
            outcome.append(workers.assemble(*request(5.5)))
        except CompilerDied as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert asked.wait(60)  # one that ends before it is asked has only run out of work
    assert workers.assemble(*request(6.5))[0] == "doubled"  # meanwhile here
    process.kill()
    thread.join(60)
    assert isinstance(outcome[0], CompilerDied) and "doubled" in str(outcome[0])
    assert workers._alive == 0
    assert workers.assemble(*request(7.5))[0] == "doubled"  # by nobody else
    workers.close()


def test_a_process_that_waited_too_long_ends_and_nobody_notices() -> None:
    workers = Workers(1, idle_seconds=0.2)
    workers.start()
    ready(workers)
    process = workers._idle[0]
    assert process.wait(60) == 0
    assert workers.assemble(*request(8.5))[0] == "doubled"
    assert workers._alive == 0
    workers.start()
    ready(workers)
    workers.close()


def test_where_no_process_can_be_started_threads_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nothing/here")
    workers = Workers(2)
    workers.start()
    deadline = time.monotonic() + 30
    while workers._alive and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (workers.count, workers._alive) == (0, 0)
    assert workers.assemble(*request(9.5))[0] == "doubled"
    monkeypatch.setattr(sys, "executable", "")
    assert default_processes() == 0


def test_the_program_imports_no_torch() -> None:
    message = io.BytesIO()
    write_message(message, (sys.path, 60.0))
    done = subprocess.run(
        [sys.executable, assemble_module.__file__], input=message.getvalue(), stdout=subprocess.PIPE, check=True
    )
    names = read_message(io.BytesIO(done.stdout))
    assert {"torchjit_inductor.triton.prelude", "triton.compiler.code_generator"} <= set(names) and "torch" not in names


def test_a_process_knows_triton_by_the_sizes_and_times_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    files = [tmp_path / "a.py", tmp_path / "inner" / "b.so"]
    keys = set()
    for file in (*files, *files):
        file.write_text(file.read_text() + "more" if file.exists() else "")
        keys.add(files_key(str(tmp_path), "3"))
    os.utime(files[1], ns=(1, 1))
    keys |= {files_key(str(tmp_path), "3"), files_key(str(tmp_path), "4")}
    assert len(keys) == 6
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("")
    assert files_key(str(tmp_path), "4") in keys


def test_with_many_processes_nothing_is_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def here(*request: object) -> None:
        raise AssertionError("here")

    monkeypatch.setattr(workers_module, "assemble", here)
    workers = Workers(MANY)
    workers.start(1)
    assert (workers._alive, workers.assemble(*request(13.5))[0]) == (1, "doubled")
    (process,) = workers._idle
    workers.start(1)
    assert workers._idle == [process] and workers._alive == 1
    workers.close()


def test_a_process_that_takes_too_long_is_ended() -> None:
    workers = Workers(1, limit_seconds=0.5)
    workers.start()
    ready(workers)
    workers._idle[0].send_signal(signal.SIGSTOP)
    with pytest.raises(CompilerDied, match="doubled"):
        workers.assemble(*request(10.5))
    assert workers._alive == 0
    workers.close()


def test_a_process_that_died_while_it_waited_is_not_missed() -> None:
    """Whatever ended it was not this kernel."""
    workers = Workers(1)
    workers.start()
    ready(workers)
    workers._idle[0].kill()
    workers._idle[0].wait()
    assert workers.assemble(*request(14.5))[0] == "doubled"
    assert workers._alive == 0


def test_an_interrupt_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Workers(MANY)
    workers.start(1)
    while not workers._idle:
        time.sleep(0.01)
    (process,) = workers._idle
    asked, interrupted = threading.Event(), threading.Event()

    def interrupt(stream: object) -> None:
        asked.set()
        interrupted.wait(60)
        raise KeyboardInterrupt

    def ask() -> None:
        with pytest.raises(KeyboardInterrupt):
            workers.assemble(*request(15.5))

    monkeypatch.setattr(workers_module, "read_message", interrupt)
    names: list[str] = []
    threads = [threading.Thread(target=ask)]
    threads[0].start()
    asked.wait(60)
    threads.append(threading.Thread(target=lambda: names.append(workers.assemble(*request(16.5))[0]), daemon=True))
    threads[1].start()
    while not workers._state._waiters:  # type: ignore[attr-defined]
        time.sleep(0.01)
    interrupted.set()
    for thread in threads:
        thread.join(60)
    assert names == ["doubled"] and process.returncode is not None


def test_descriptors_may_have_any_number() -> None:
    """`select` takes none above 1023."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] != resource.RLIM_INFINITY and limits[1] < 1200:
        pytest.skip("so many may not be open")
    held: list[int] = []
    workers = Workers(1)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(1200, limits[0]), limits[1]))
        while not held or held[-1] < 1024:
            held.append(os.open(os.devnull, os.O_RDONLY))
        workers.start()
        ready(workers)
        assert workers.assemble(*request(17.5))[0] == "doubled"
    finally:
        workers.close()
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


_BUSY = """
import sys, threading, time
sys.path.insert(0, sys.argv[1])
from test_inductor_workers import Workers, ready, request

workers = Workers(1)
workers.start()
ready(workers)
print(workers._idle[0].pid, flush=True)
threading.Thread(target=workers.assemble, args=request(18.5), daemon=True).start()
time.sleep(600)
"""


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="asks Linux whether a process that is no child has ended"
)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_no_process_is_left_behind(how: signal.Signals) -> None:
    command = [sys.executable, "-c", _BUSY, str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout is not None
        place = Path("/proc") / parent.stdout.readline().strip() / "stat"
        parent.send_signal(how)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            if place.read_text().rpartition(") ")[2][0] in "ZX":
                return
        except OSError:
            return
        time.sleep(0.05)
    raise AssertionError("it is still there")


def test_a_cache_that_triton_cannot_write_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = str(tmp_path / "file" / "cache")
    monkeypatch.setattr(triton.knobs.cache, "dir", place)
    monkeypatch.setattr(assemble_module, "_taken", [])
    with pytest.warns(RuntimeWarning, match="TRITON_CACHE_DIR") as told:
        names = [assemble(*request(number))[0] for number in (11.5, 12.5)]  # type: ignore[arg-type]
    assert names == ["doubled"] * 2
    assert len(told) == 1
    assert place in str(told[0].message)
