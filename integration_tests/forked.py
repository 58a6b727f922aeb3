"""`run`: a Python program in a process of its own, as `subprocess.run` does, without the seconds that importing torch takes.

A template process, one for each process of the suite, has imported torch and torchjit and nothing else; each program is a fork of it that reads
its own arguments, environment and folder. What concerns imports themselves, flags of the interpreter, or variables that torch reads
when it is imported takes `subprocess.run`.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import pickle
import runpy
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from pathlib import Path
from typing import NamedTuple


class _Program(NamedTuple):
    arguments: list[str]  # of the interpreter
    folder: str
    environment: dict[str, str]
    outputs: tuple[str, str]
    seconds: float


_template: list[subprocess.Popen[bytes]] = []
also_imported: list[str] = []
"""Further modules that the template imports, if it has not started."""


def _started() -> subprocess.Popen[bytes]:
    if not _template:
        process = subprocess.Popen(
            [sys.executable, __file__, *also_imported], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        _template.append(process)
        atexit.register(_end, process, os.getpid())
    return _template[0]


def _end(process: subprocess.Popen[bytes], starter: int) -> None:
    if os.getpid() == starter and process.stdin is not None and process.stdout is not None:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def run(
    command: list[str],
    *,
    cwd: str | Path | None = None,
    env: dict[str, str] | None = None,
    timeout: float = 300.0,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run `[sys.executable, ...]`, `...` being `-c code`, `-m module` or a file, and arguments; what it writes is captured.

    Raises:
        CalledProcessError: `check`, and its status is not 0.
        TimeoutExpired: it was killed.
    """
    assert command[0] == sys.executable
    process = _started()
    assert process.stdin is not None and process.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        outputs = (os.path.join(folder, "out"), os.path.join(folder, "err"))
        environment = dict(os.environ if env is None else env)
        pickle.dump(_Program(command[1:], os.fspath(cwd or os.getcwd()), environment, outputs, timeout), process.stdin)
        process.stdin.flush()
        status = pickle.load(process.stdout)
        out, err = (Path(output).read_text() for output in outputs)
    if status is None:
        raise subprocess.TimeoutExpired(command, timeout, out, err)
    done = subprocess.CompletedProcess(command, status, out, err)
    if check and status:
        print(err, file=sys.stderr)
        done.check_returncode()
    return done


def _ended(child: int, seconds: float) -> int | None:
    """Its status; None when it was killed after its time."""
    for n in range(int(seconds / 0.02)):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002 if n < 50 else 0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


def _next_program() -> list[str]:
    """In a fork, what it has to run; the template ends when there is no more."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever imports print is no answer
    while True:
        try:
            program = _Program(*pickle.load(requests))
        except EOFError:
            os._exit(0)
        child = os.fork()
        if not child:
            break
        pickle.dump(_ended(child, program.seconds), answers)
        answers.flush()
    answers.close()
    os.environ.clear()
    os.environ.update(program.environment)
    os.chdir(program.folder)
    for number, output in enumerate((os.devnull, *program.outputs)):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY), number)
    sys.stdout.reconfigure(line_buffering=False)  # type: ignore[union-attr]
    return program.arguments


def _run_as_main(arguments: list[str]) -> None:
    kind, *rest = arguments
    if kind == "-c":
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    elif kind == "-m":
        sys.argv, sys.path[0] = rest, os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = arguments, os.path.dirname(os.path.abspath(kind))
        runpy.run_path(kind, run_name="__main__")


def _status_of(arguments: list[str]) -> int:
    """Run it, and what it has left for the end; an interpreter then frees every object of torch, which takes a second."""
    status = 0
    try:
        _run_as_main(arguments)
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        kind, error, trace = sys.exc_info()
        traceback.print_exception(
            kind, error, trace and trace.tb_next and trace.tb_next.tb_next
        )  # the frames of the program
        status = 1
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


if __name__ == "__main__":
    import torch  # noqa: F401  only the template does

    import torchjit_backends.pipeline  # noqa: F401
    import torchjit_inductor.compiled  # noqa: F401
    import torchjit_inductor.cpp.backend  # noqa: F401
    import torchjit_inductor.cpp.cache  # noqa: F401
    import torchjit_session.capture  # noqa: F401
    import torchjit_session.compilation  # noqa: F401
    import torchjit_session.storing  # noqa: F401  what is imported when it is asked for

    for name in sys.argv[1:]:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a fork would lack the other threads"
    gc.collect()  # not frozen: a capture asks how many objects are, and counting a million of them takes as long as it does
    os._exit(_status_of(_next_program()))
