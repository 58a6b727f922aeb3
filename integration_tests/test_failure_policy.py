"""A fault at each stage: with on_error="eager" results and gradients are eager's after one warning, with "raise" an error of ours is raised."""

# mypy: allow-untyped-calls

from __future__ import annotations

import importlib.util
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import torchjit
from torchjit.exc import TorchjitError
from torchjit_core.reasons import UserError
from torchjit_inductor.codegen_protocol import CompilerMissing
from torchjit_inductor.cpp import folders
from torchjit_inductor.lowering.registry import LOWERINGS

STAGES = {
    "capture": "torchjit_session.capture.capture",
    "operators": "torchjit_fx.metas.MetaService.__init__",
    "guards": "torchjit_guards.GuardProgram",
    "backend": "torchjit_aot.entry._Compilation",
    "joint trace": "torchjit_aot.joint_passes.trace_joint",
    "functionalize": "torchjit_aot.joint_passes.functionalize",
    "decompose": "torchjit_aot.joint_passes.decompose",
    "partition": "torchjit_aot.entry.min_cut_partition",
    "forward graph": "torchjit_aot.entry.build_forward",
    "backward graph": "torchjit_aot.entry.build_backward",
    "runtime": "torchjit_aot.entry.make_training",
    "lowering": "torchjit_inductor.compiled.lower_graph",
    "scheduling": "torchjit_inductor.compiled.fuse",
    "autotuning": "torchjit_inductor.compiled.choose_matmuls",
    "code of kernels": "torchjit_inductor.cpp.backend.CBackend.compile",
    "building": "torchjit_inductor.cpp.build._build_into",
    "loading": "torchjit_inductor.cpp.build._try_to_load",
    "host program": "torchjit_inductor.compiled.write_host_program",
}


class Fault(Exception):
    """Of nobody's."""


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x * w).sum(0) + w


def arguments() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.linspace(-1, 1, 12).reshape(3, 4), torch.linspace(0, 1, 4, requires_grad=True)


def step(run: Callable[..., torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    x, w = arguments()
    result = run(x, w)
    (gradient,) = torch.autograd.grad(result.sum(), w)
    return result.detach(), gradient


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels are built anew, and what a test finds out about folders is forgotten."""
    monkeypatch.setenv("TORCHJIT_CACHE_DIR", str(tmp_path / "cache"))
    before = set(folders._unusable)
    yield
    folders._unusable.clear()
    folders._unusable.update(before)


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def break_stage(monkeypatch: pytest.MonkeyPatch, name: str, error: Callable[[], Exception]) -> list[int]:
    """Make a function raise; the result counts its calls."""
    owner, _, attribute = name.rpartition(".")
    parts = owner.split(".")
    while not _is_module(".".join(parts)):
        parts.pop()
    found: Any = importlib.import_module(".".join(parts))
    for part in owner.split(".")[len(parts) :]:
        found = getattr(found, part)
    calls: list[int] = []

    def broken(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        raise error()

    monkeypatch.setattr(found, attribute, broken)
    return calls


def told_by(run: Callable[[], Any]) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = run()
    return result, [str(w.message) for w in seen if "TJ-" in str(w.message)]


def frames_of(error: BaseException) -> list[str]:
    """Files of ours in the error's own traceback."""
    return [
        f.filename
        for f in traceback.extract_tb(error.__traceback__)
        if "/torchjit" in f.filename and "/src/" in f.filename
    ]


@pytest.mark.parametrize("stage", STAGES)
def test_eager_takes_over(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = step(program)
    calls = break_stage(monkeypatch, STAGES[stage], lambda: Fault(stage))
    compiled = torchjit.compile(program, on_error="eager")
    for turn in range(3):
        got, told = told_by(lambda: step(compiled))
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)
        assert len(told) == (turn == 0), told
        if told:
            assert "Fault" in told[0] and stage in told[0]
    assert len(calls) == 1


@pytest.mark.parametrize("stage", STAGES)
def test_the_failure_is_raised(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = break_stage(monkeypatch, STAGES[stage], lambda: Fault(stage))
    compiled = torchjit.compile(program, on_error="raise")
    with pytest.raises(TorchjitError, match=r"TJ-\w+-\d+") as raised:
        step(compiled)
    assert calls and isinstance(raised.value.__cause__, Fault) and "Fault" in str(raised.value)
    assert not frames_of(raised.value)
    monkeypatch.undo()
    with torchjit.config.patch(on_error="raise"):
        torch.testing.assert_close(step(compiled), step(program))


class Layers(torch.nn.Module):
    """The same operator in several places, of several graphs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(x + 1) * 2
        torchjit.graph_break()
        return torch.tanh(torch.tanh(x).cos())


def break_lowering(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise error

    monkeypatch.setitem(LOWERINGS, torch.ops.aten.tanh.default, broken)


def test_a_lowering_of_one_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = Layers(), torch.linspace(-1, 1, 6)
    break_lowering(monkeypatch, Fault("of tanh"))
    compiled: Any = torchjit.compile(module, on_error="eager")
    for turn in range(2):
        got, told = told_by(lambda: compiled(x))
        torch.testing.assert_close(got, module(x))
        assert len(told) == (turn == 0), told
        assert all("TJ-IND-006" in text and "tanh" in text and "of tanh" in text and "hint:" in text for text in told)
    assert [len(site.specializations) for site in compiled.compiled.sites] == [1, 1]  # the rest is compiled
    _, told = told_by(lambda: torchjit.compile(module, on_error="eager", isolate_recompiles=True)(x))
    assert len(told) == 1  # another compiled callable says it, too

    compiled = torchjit.compile(module, on_error="raise")
    for _ in range(2):
        with pytest.raises(TorchjitError, match="TJ-IND-006.*of tanh") as raised:
            compiled(x)
        assert isinstance(raised.value.__cause__, Fault) and not frames_of(raised.value)
    monkeypatch.undo()
    torch.testing.assert_close(compiled(x), module(x))


@pytest.mark.parametrize("error", [MemoryError, torch.OutOfMemoryError])
def test_no_memory_in_a_lowering(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """A later call has enough: the operator is not called through aten for ever."""
    x = torch.linspace(-1, 1, 6)
    compiled: Any = torchjit.compile(lambda x: torch.tanh(x), on_error="eager")
    with monkeypatch.context() as patched:
        break_lowering(patched, error("none left"))
        got, told = told_by(lambda: compiled(x))
        assert torch.equal(got, x.tanh()) and not told
        with pytest.raises(error, match="none left"):
            torchjit.compile(lambda x: torch.tanh(x), on_error="raise")(x)
    torch.testing.assert_close(compiled(x), x.tanh())
    assert "tanh" in str([kernel for region in compiled.compiled.stats.regions for kernel in region.kernels])


def break_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchjit_inductor import compiled  # noqa: PLC0415  the module, not the function

    lower = compiled.lower_graph

    def broken(gm: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if "backward" in name:
            raise Fault("backward")
        return lower(gm, name, *args, **kwargs)

    monkeypatch.setattr(compiled, "lower_graph", broken)


def test_a_backward_that_is_compiled_later(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = step(program)
    break_backward(monkeypatch)
    compiled = torchjit.compile(program, on_error="eager")
    for turn in range(3):
        got, told = told_by(lambda: step(compiled))
        torch.testing.assert_close(got, wanted)
        assert len(told) == (turn == 0) and all("TJ-AOT-012" in text and "Fault: backward" in text for text in told)

    compiled = torchjit.compile(program, on_error="raise")
    for _ in range(2):
        with pytest.raises(TorchjitError, match="TJ-AOT-012.*Fault: backward") as raised:
            step(compiled)
        assert isinstance(raised.value.__cause__, Fault)
    monkeypatch.undo()
    torch.testing.assert_close(step(compiled), wanted)


class Loss(torch.autograd.Function):
    """Its backward fails in the compiler, with more than one cause on the way."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


def line_of_call(error: BaseException) -> list[str]:
    return [frame.line or "" for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__]


@pytest.mark.parametrize("how", ["backward()", "grad", "some tangents", "own function", "module"])
def test_an_error_of_a_later_backward_points_at_the_users_line(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_backward(monkeypatch)
    x = torch.linspace(-1, 1, 6, requires_grad=True)
    function: Any = {
        "own function": lambda x: Loss.apply(x).sin(),
        "some tangents": lambda x: (x.sin(), x.cos()),
        "module": torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.ReLU()),
    }.get(how, lambda x: x.sin())
    result = torchjit.compile(function, on_error="raise")(x)
    loss = (result[0] if how == "some tangents" else result).sum()
    with pytest.raises(TorchjitError, match="TJ-AOT-012.*Fault: backward") as raised:
        if how == "grad":
            torch.autograd.grad(loss, x)  # here
        else:
            loss.backward()  # here
    assert line_of_call(raised.value)[-1].endswith("# here") and not frames_of(raised.value)


def test_a_missing_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = step(program)
    break_stage(monkeypatch, "torchjit_inductor.cpp.build.build", lambda: CompilerMissing("there is none"))
    break_stage(monkeypatch, "torchjit_inductor.cpp.backend.CBackend.compile", lambda: CompilerMissing("there is none"))
    got, _ = told_by(lambda: step(torchjit.compile(program, on_error="eager")))
    torch.testing.assert_close(got, wanted)
    with pytest.raises(UserError, match="TJ-IND-003.*there is none") as raised:
        step(torchjit.compile(program, on_error="raise"))
    assert isinstance(raised.value.__cause__, CompilerMissing) and not frames_of(raised.value)


def test_a_cache_folder_of_no_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCHJIT_CACHE_DIR", str(tmp_path / "file"))
    for _ in range(2):
        with pytest.raises(UserError, match="TJ-IND-009.*TORCHJIT_CACHE_DIR|TJ-IND-009"):
            step(torchjit.compile(program, on_error="raise"))
    got, told = told_by(lambda: step(torchjit.compile(program, on_error="eager")))
    torch.testing.assert_close(got, step(program))
    assert len([text for text in told if "TJ-IND-009" in text]) == 1


@pytest.mark.parametrize("error", [MemoryError, torch.OutOfMemoryError])
def test_no_memory_while_compiling(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = step(program)
    with monkeypatch.context() as patched:
        break_stage(patched, STAGES["lowering"], lambda: error("none left"))
        compiled: Any = torchjit.compile(program, on_error="eager")
        got, told = told_by(lambda: step(compiled))
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)
        assert not told
        with pytest.raises(error, match="none left"):
            step(torchjit.compile(program, on_error="raise"))
    torch.testing.assert_close(step(compiled), wanted)  # another call has enough
    assert compiled.compiled.stats.regions


def test_one_report_for_one_cause_in_several_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_parts(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = x.sin()
            torchjit.graph_break()
        return x + 1

    calls = break_stage(monkeypatch, "torchjit_aot.entry._Compilation", lambda: Fault("each"))
    compiled = torchjit.compile(in_parts, on_error="eager")
    x = torch.ones(3)
    got, told = told_by(lambda: compiled(x))
    assert torch.equal(got, in_parts(x)) and len(told) == 1 and calls


def test_the_policy_is_read_at_each_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    break_stage(monkeypatch, STAGES["lowering"], lambda: Fault("now"))
    compiled = torchjit.compile(program)
    with torchjit.config.patch(on_error="raise"), pytest.raises(TorchjitError, match="TJ-API-0"):
        step(compiled)
    with torchjit.config.patch(on_error="eager"):
        _, told = told_by(lambda: step(compiled))
    assert len(told) == 1
