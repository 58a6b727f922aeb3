"""What `import torchjit` brings along: nothing that only a compilation needs, and nothing of torch's that `import torch` leaves out."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import textwrap
from typing import Any

_OURS = ("torchjit", "torchjit_core", "torchjit_frame", "torchjit_session")
_LIGHT = {
    "torchjit_aot", "torchjit_aot.ambient", "torchjit_aot.compiler_protocol", "torchjit_aot.passes",
    "torchjit_aot.run_eagerly", "torchjit_aot.settings", "torchjit_torch", "torchjit_torch.operators",
    "torchjit_fx", "torchjit_fx.marks", "torchjit_fx.strictness", "torchjit_backends", "torchjit_backends.later", "torchjit_backends.options",
    "torchjit_backends.others", "torchjit_store", "torchjit_store.settings",
}  # fmt: skip
"""Of AOT autograd, of the tensor domain, of backends and of stored entries: what says how, without doing it."""
_PAGES = {"torchjit_report.diagram", "torchjit_report.html", "torchjit_report.highlight", "torchjit_report.view"}
"""Of the report: what writes pages and pictures. What records events is light."""
_OTHERS = {
    "attr", "attrs", "html", "unicodedata",
}  # fmt: skip
"""Packages and modules beside our own: adding one costs every program that imports torchjit."""


_FORKS = """
import json, os, sys, time, traceback
start = time.process_time()
import torch
torch_seconds = time.process_time() - start
there, told = set(sys.modules), {}
def new():
    return sorted(set(sys.modules) - there)
for name, program in json.loads(sys.argv[1]).items():
    sys.stdout.flush()
    if os.fork():
        assert os.wait()[1] == 0, name
        continue
    try:
        start = time.process_time()
        import torchjit
        told["import over torch"] = (time.process_time() - start) / torch_seconds
        exec(program)
        print(json.dumps([name, told]), flush=True)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
"""
"""What each program does in a fork of a process that has imported torch alone."""
_PROGRAMS = {
    "own backend": """
        told["import"] = new()
        f = torchjit.compile(lambda x: torch.relu(x).sin() + x, backend=lambda gm, inputs: gm.forward)
        f(torch.randn(3, 4))
        torchjit.reset()
        told["first call"] = new()
    """,
    "default backend": """
        import torchjit_aot, torchjit_fx, torchjit_report
        packages = (torchjit, torchjit_aot, torchjit_fx, torchjit_report)
        f = torchjit.compile(lambda x: torch.relu(x).sin() + x)
        told["compile"] = new()
        f(torch.randn(3, 4))
        told["first call"] = new()
        told["missing"] = [f"{p.__name__}.{n}" for p in packages for n in p.__all__ if getattr(p, n, None) is None]
        told["callable"] = callable(torchjit.cudagraph_mark_step_begin) and "cudagraph_mark_step_begin" in dir(torchjit)
        told["errors"] = []
        for package in packages:
            try:
                package.no_such_name
            except AttributeError as error:
                told["errors"].append(str(error))
    """,
}


_PROGRAMS["session"] = """
    import torchjit_session.compilation, torchjit_session.sharing, torchjit_guards.torch_support
    import torchjit_vm.capture.runtime, torchjit.kernels
    told["session"] = new()
    from torchjit_vm import Region, capture, resume_function
    told["function"] = callable(capture) and capture.__module__
    from torchjit_session.late_imports import import_capture
    from torchjit.backends import inductor_backend
    from torchjit.options import Options
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.overrides import TorchFunctionMode
    import signal
    class Forbidden(TorchFunctionMode):
        def __torch_function__(self, *args): raise AssertionError("an import is inside of a mode")
    class Alarm(Exception): pass
    def raises(*_): raise Alarm
    signal.signal(signal.SIGALRM, raises)
    backend = inductor_backend(Options())
    try:
        with Forbidden(), FakeTensorMode():
            signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
            import_capture(backend)
    except Alarm:
        told["interrupted"] = True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    import_capture(backend)
    told["capture"] = new()
    f = torchjit.compile(lambda x: torch.relu(x).sin() + x, backend=backend)
    torch.testing.assert_close(f(torch.ones(3)), torch.ones(3).sin() + 1)
    told["late"] = sorted(set(new()) - set(told["capture"]))
"""
_PROGRAMS["modes"] = """
    from torch._subclasses.fake_tensor import FakeTensorMode
    def f(x):
        return torch.relu(x).sin() + x.sum()
    torch.set_default_dtype(torch.float64)
    with torch.device("meta"), torch.inference_mode(), FakeTensorMode():
        compiled = torchjit.compile(f)
    torch.set_default_dtype(torch.float32)
    x = torch.randn(4, requires_grad=True)
    for n in (4, 3):
        torch.testing.assert_close(compiled(x[:n]), f(x[:n]))
        torch.testing.assert_close(*(torch.autograd.grad(g(x[:n]).sum(), x)[0] for g in (compiled, f)))
"""


@functools.cache
def _told_by_all() -> dict[str, Any]:
    programs = json.dumps({name: textwrap.dedent(program) for name, program in _PROGRAMS.items()})
    done = subprocess.run([sys.executable, "-c", _FORKS, programs], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


def _told(program: str) -> Any:
    """The modules that each step has added, and what else the program tells."""
    return _told_by_all()[program]


def _is_expected(module: str) -> bool:
    top = module.partition(".")[0]
    if top.startswith("torchjit"):
        return top in _OURS or module in _LIGHT or (top == "torchjit_report" and module not in _PAGES)
    parts = module.split(".")
    return top.startswith("_cython") or any(".".join(parts[:n]) in _OTHERS for n in range(1, len(parts) + 1))


def test_an_import_loads_no_compiler() -> None:
    added = _told("own backend")["import"]
    assert [m for m in added if not _is_expected(m)] == []
    # The VM and what captures graphs are a few hundred small modules: they come with the first `compile()`.
    assert len([m for m in added if m.startswith("torchjit")]) < 64


def test_an_import_takes_little_of_what_torchs_own_takes() -> None:
    """The less of two, in processor time: the first of them may compile modules to bytecode."""
    assert (
        min(_told(program)["import over torch"] for program in ("own backend", "default backend")) < 0.08
    )  # 0.03 is usual; 0.12 would be 0.15 s


def test_a_backend_of_ones_own_loads_none_either() -> None:
    added = _told("own backend")["first call"]
    assert [m for m in added if m.startswith(("torchjit_inductor", "torchjit_cudagraphs"))] == []
    assert [m for m in added if m.startswith("torchjit_aot")] == sorted(m for m in _LIGHT if "aot" in m)


def test_the_compiler_comes_with_compile_and_not_with_the_first_call() -> None:
    """A first call may be inside of modes, handlers of signals and locks of the program's."""
    told = _told("default backend")
    expected = {
        "torchjit_vm.capture.api",
        "torchjit_fx.domain",
        "torchjit_inductor.compiled",
        "torchjit_cudagraphs.record",
        "torchjit_aot.entry",
    }
    assert expected <= set(told["compile"])
    late = [m for m in set(told["first call"]) - set(told["compile"]) if m.startswith("torchjit")]
    assert len(late) < 12, late


def test_what_loads_entries_needs_nothing_that_captures() -> None:
    """And what captures is imported whole, past the modes of the program and whatever its handlers of signals raise."""
    told = _told("session")
    heavy = (
        "torchjit_vm.interpreter",
        "torchjit_vm.capture.domain",
        "torchjit_fx.domain",
        "torchjit_fx.tracing",
        "torchjit_aot.entry",
        "torchjit_inductor.compiled",
    )
    assert [m for m in told["session"] if m.startswith(heavy)] == []
    assert len([m for m in told["session"] if m.startswith("torchjit")]) < 130
    assert told["function"] == "torchjit_vm.capture.api"
    assert told.get("interrupted") and set(heavy) <= set(told["capture"])
    assert [m for m in told["late"] if m.startswith(heavy)] == []


def test_names_that_are_loaded_later_are_the_packages_own() -> None:
    told = _told("default backend")
    assert told["missing"] == []
    assert told["callable"]
    packages = ("torchjit", "torchjit_aot", "torchjit_fx", "torchjit_report")
    assert told["errors"] == [f"module '{p}' has no attribute 'no_such_name'" for p in packages]


def test_the_compiler_may_be_loaded_under_modes_of_the_program() -> None:
    """`compile()` is where it loads: no constant of a module may take the device or the type that holds there."""
    _told("modes")
