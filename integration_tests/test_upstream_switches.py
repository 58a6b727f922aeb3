"""Switches, settings, stances, resets and registrations that a program makes through upstream's own names; ours win."""

# mypy: allow-untyped-calls, allow-untyped-decorators

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import forked
import pytest
import torch
import torch._dynamo

import torchjit
from torchjit import exc


class Counting:
    """A backend that runs the graph and counts."""

    def __init__(self) -> None:
        self.compiled = self.ran = 0

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        self.compiled += 1

        def run(*args: Any) -> Any:
            self.ran += 1
            return gm.forward(*args)

        return run

    @property
    def counts(self) -> tuple[int, int]:
        return self.compiled, self.ran


@pytest.fixture
def counting() -> Iterator[Counting]:
    yield Counting()
    torch.compiler.set_stance("default")
    torchjit.set_stance("default")


@contextlib.contextmanager
def on_error_unset() -> Iterator[None]:
    """The setting as in a program that does not set it; the tests do."""
    torchjit.config._set_here.discard("on_error")
    torchjit.config._values["on_error"] = "eager"
    try:
        yield
    finally:
        torchjit.config.on_error = "raise"


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


X = torch.ones(2)


class TestStances:
    def test_force_eager(self, counting: Counting) -> None:
        compiled = torchjit.compile(double, backend=counting)
        with torch.compiler.set_stance("force_eager"):
            compiled(X)
        assert counting.counts == (0, 0)
        compiled(X)
        with torch.compiler.set_stance("force_eager"):
            assert compiled(X).tolist() == [2, 2]
        assert counting.counts == (1, 1)

        @torch.compiler.set_stance("force_eager")
        def evaluate() -> None:
            compiled(X)

        evaluate()
        assert counting.counts == (1, 1)
        compiled(X)
        torch.compiler.set_stance("force_eager")
        compiled(X)
        assert counting.counts == (1, 2)

    def test_of_recompiles(self, counting: Counting) -> None:
        compiled = torchjit.compile(double, backend=counting, dynamic=False)
        compiled(X)
        with torch.compiler.set_stance("eager_on_recompile"):
            compiled(torch.ones(3))
            compiled(X)
        assert counting.counts == (1, 2)
        with torch.compiler.set_stance("fail_on_recompile"):
            compiled(X)
            with pytest.raises(exc.FailOnRecompile):
                compiled(torch.ones(3))

    def test_ours_wins(self, counting: Counting) -> None:
        compiled = torchjit.compile(double, backend=counting)
        with torch.compiler.set_stance("fail_on_recompile"), torchjit.set_stance("force_eager"):
            compiled(X)
        assert counting.counts == (0, 0)

    @pytest.mark.parametrize("setter", [torch.compiler.set_stance, torchjit.set_stance])
    def test_forced_backends(self, counting: Counting, setter: Any) -> None:
        other = Counting()
        compiled = torchjit.compile(double, backend=counting)
        compiled(X)
        for _ in range(2):
            with setter("default", force_backend=other):
                compiled(X)
                compiled(X)
            compiled(X)
        assert (counting.counts, other.counts) == ((1, 3), (1, 4))
        with setter(force_backend="eager"):
            assert compiled(X).tolist() == [2, 2]
        assert counting.counts == (1, 3)

    @pytest.mark.parametrize("setter", [torch.compiler.set_stance, torchjit.set_stance])
    def test_first_calls_by_aot_eager(self, counting: Counting, setter: Any) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            y = x.sin()
            torchjit.graph_break()
            return (y * x.shape[0]).cos()

        compiled = torchjit.compile(f, backend=counting)
        with setter("aot_eager_then_compile"):
            for n in (4, 5, 6, 7):
                x = torch.randn(n, requires_grad=True)
                want = torch.autograd.grad(f(x).sum(), x)
                torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x), want)
                assert counting.compiled == (0 if n == 4 else 2)  # with symbolic sizes at once
        compiled(torch.randn(8, requires_grad=True))
        assert counting.counts == (2, 8)

    def test_wrong_arguments(self) -> None:
        with pytest.raises(exc.UserError, match="TJ-API-041"):
            torchjit.set_stance("force_eager", force_backend="eager")
        with pytest.raises(exc.UserError, match="did you mean 'inductor'"):
            torchjit.set_stance(force_backend="inducter")
        with pytest.raises(exc.UserError, match="did you mean"):
            torchjit.set_stance("aot_eager_then_compil")  # type: ignore[arg-type]
        with torchjit.set_stance("default", skip_guard_eval_unsafe=True):
            compiled = torchjit.compile(lambda x, n: x * n, backend="eager")
            assert [compiled(X, n).tolist() for n in (2, 3)] == [[2, 2], [3, 3]]


class TestSettings:
    def test_disable(self, counting: Counting) -> None:
        compiled = torchjit.compile(double, backend=counting)
        with torch._dynamo.config.patch(disable=True):
            assert compiled(X).tolist() == [2, 2]
            with torchjit.config.patch(disable=False):
                torchjit.compile(double, backend=counting)(X)
        assert counting.counts == (1, 1)
        compiled(X)
        assert counting.counts == (2, 2)
        with torchjit.config.patch(disable=True):
            torchjit.compile(double, backend=counting)(X)
        assert counting.counts == (2, 2)

    def test_suppressed_errors(self) -> None:
        def fails(gm: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
            raise RuntimeError("boom")

        with pytest.raises(exc.BackendCompilerFailed):
            torchjit.compile(double, backend=fails)(X)
        with on_error_unset(), torch._dynamo.config.patch(suppress_errors=True):
            with pytest.warns(RuntimeWarning, match="boom"):
                assert torchjit.compile(double, backend=fails)(X).tolist() == [2, 2]
            with pytest.raises(exc.BackendCompilerFailed):
                torchjit.compile(double, backend=fails, on_error="raise")(X)
            with torchjit.config.patch(suppress_errors=False), pytest.raises(exc.BackendCompilerFailed):
                torchjit.compile(double, backend=fails)(X)

    @pytest.mark.parametrize("name", ["recompile_limit", "cache_size_limit"])
    def test_limits(self, counting: Counting, name: str) -> None:
        def compiles(**options: Any) -> int:
            before = counting.compiled
            compiled = torchjit.compile(double, backend=counting, dynamic=False, **options)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for n in range(2, 8):
                    compiled(torch.ones(n))
            return counting.compiled - before

        with torch._dynamo.config.patch(**{name: 2}):
            assert compiles() == 2
            assert compiles(recompile_limit=3) == 3
            with torchjit.config.patch(recompile_limit=4):
                assert compiles() == 4
        assert compiles() == 6

    @pytest.mark.parametrize("config", [torch._dynamo.config, torchjit.config])
    def test_accumulated_limits(self, counting: Counting, config: Any) -> None:
        compiled = torchjit.compile(double, backend=counting, dynamic=False)
        with config.patch(accumulated_cache_size_limit=2), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for n in range(2, 6):
                compiled(torch.ones(n))
        assert counting.compiled == 2

    def test_of_capture(self) -> None:
        def f(x: torch.Tensor) -> torch.Tensor:
            return x * x.sum().item()

        def breaks() -> int:
            return torchjit.explain(f)(torch.ones(2)).graph_break_count

        with torch._dynamo.config.patch(capture_scalar_outputs=True):
            assert breaks() == 0
            with torchjit.config.patch(capture_scalar_outputs=False):
                assert breaks() == 1
        assert breaks() == 1
        with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
            compiled: Any = torchjit.compile(double, backend="eager")
            for n in (2, 3, 4):
                compiled(torch.ones(n))
            assert len(compiled.compiled.specializations) == 3

    def test_patches_in_every_form(self) -> None:
        for patch in (
            torchjit.config.patch(recompile_limit=2),
            torchjit.config.patch({"recompile_limit": 2}),
            torchjit.config.patch("recompile_limit", 2),
            torchjit.config.patch({"cache_size_limit": 3}, recompile_limit=2),
        ):
            with patch:
                assert torchjit.config.recompile_limit == 2
            assert torchjit.config.recompile_limit == 8
        with pytest.raises(exc.UserError, match="did you mean"), torchjit.config.patch({"recompile_limits": 2}):
            pass


def run(code: str, **variables: str) -> str:
    """What a process of its own prints."""
    return forked.run([sys.executable, "-c", code], env=os.environ | variables, check=True).stdout.strip()


COUNT = """
import sys, torch, torchjit
n = []
def backend(gm, inputs):
    n.append(1)
    return gm.forward
f = torchjit.compile(lambda x: x * 2, backend=backend)
f(torch.ones(2))
"""


@pytest.mark.parametrize("name", ["TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"])
def test_variables(name: str) -> None:
    assert run(COUNT + "print(len(n), 'torch._dynamo' in sys.modules)", **{name: "1"}) == "0 False"


def test_what_is_imported_later_is_followed() -> None:
    code = (
        COUNT
        + """
assert "torch._dynamo" not in sys.modules
torch.compiler.reset()
assert not any(type(f).__module__.startswith("torchjit") for f in sys.meta_path)
f(torch.ones(2))
assert len(n) == 2, n
torch._dynamo.reset()
f(torch.ones(2))
assert len(n) == 3, n
with torch.compiler.set_stance("force_eager"):
    torchjit.compile(lambda x: x * 3, backend=backend)(torch.ones(2))
assert len(n) == 3, n
import torch._dynamo.backends.registry, inspect
print(inspect.signature(torch._dynamo.reset), torch._dynamo.reset.__name__)
"""
    )
    assert run(code) == "() -> None reset"


def test_resets(counting: Counting) -> None:
    compiled = torchjit.compile(double, backend=counting)
    for reset in (torch._dynamo.reset, torch.compiler.reset, torchjit.reset):
        compiled(X)
        reset()
        compiled(X)
    assert counting.counts == (4, 6)


class TestBackends:
    def test_what_it_returns_is_no_code_of_the_program(self) -> None:
        class Runs:
            def __init__(self, gm: torch.fx.GraphModule) -> None:
                self.gm = gm

            def __call__(self, *args: Any) -> Any:
                seen.append(torch.compiler.is_compiling())
                return helper(self.gm, args)

        def helper(gm: torch.fx.GraphModule, args: Any) -> Any:
            seen.append(torch.compiler.is_compiling())
            return gm.forward(*args)

        def f(x: torch.Tensor) -> torch.Tensor:
            y = x.sin()
            torchjit.graph_break()
            return y.cos()

        for wrap in (
            lambda r: r,
            lambda r: r.__call__,
            lambda r: functools.partial(r.__call__),
            lambda r: lambda *a: r(*a),
        ):
            seen: list[bool] = []
            compiled = torchjit.compile(f, backend=lambda gm, inputs, wrap=wrap: wrap(Runs(gm)))
            for _ in range(2):
                torch.testing.assert_close(compiled(X), X.sin().cos())
            assert seen == [False] * 8
            assert {s.name.split(" ")[0].rpartition(".")[2] for s in compiled.compiled.sites} == {"f"}

    def test_registered_upstream(self) -> None:
        made = Counting()
        torch._dynamo.register_backend(lambda gm, inputs: made(gm, inputs), name="counts_here", tags=("debug",))
        torchjit.compile(double, backend="counts_here")(X)
        assert made.counts == (1, 1)
        assert "counts_here" in torchjit.list_backends(None) and "counts_here" not in torchjit.list_backends()
        assert "aot_eager" in torchjit.list_backends(None)  # ours, whatever upstream registers under that name
        with pytest.raises(exc.UserError, match="did you mean 'counts_here'"):
            torchjit.compile(double, backend="count_here")

    @pytest.mark.skipif(not hasattr(torch.compiler, "set_default_backend"), reason="this torch has no such name")
    def test_default(self, counting: Counting) -> None:
        other = Counting()
        assert torchjit.get_default_backend() == "inductor"
        try:
            torch.compiler.set_default_backend(other)
            torchjit.compile(double)(X)
            torchjit.compile(double, backend=None)(X)
            torchjit.compile(double, backend="eager")(X)
            torchjit.set_default_backend(counting)
            torchjit.compile()(double)(X)
            assert torchjit.get_default_backend() is counting
            with pytest.raises(exc.UserError, match="did you mean"):
                torchjit.set_default_backend("egaer")
            with pytest.raises(exc.UserError):
                torchjit.set_default_backend(3)  # type: ignore[arg-type]
        finally:
            torch.compiler.set_default_backend(None)
            torchjit.set_default_backend(None)
        assert (other.counts, counting.counts) == ((2, 2), (1, 1))
        assert torchjit.get_default_backend() == "inductor"

    def test_options_reach_it(self) -> None:
        seen: list[dict[str, Any]] = []

        def backend(gm: torch.fx.GraphModule, inputs: Any, **keywords: Any) -> Callable[..., Any]:
            seen.append(keywords)
            return gm.forward

        torchjit.compile(double, backend=backend, options={"level": 3, "fast": "very"})(X)
        torchjit.compile(double, backend=backend, mode="reduce-overhead")(X)
        torchjit.compile(backend=backend, mode="default")(double)(X)
        assert seen == [{"options": {"level": 3, "fast": "very"}}, {"mode": "reduce-overhead"}, {}]

        def takes_none(gm: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
            return gm.forward

        with pytest.raises(exc.UserError, match="TJ-API-043"):
            torchjit.compile(double, backend=takes_none, options={"level": 3})

    @pytest.mark.parametrize(
        "name", ["aot_eager_decomp_partition", "eager_noexcept", "pre_dispatch_eager", "torch_tensorrt"]
    )
    def test_upstreams_own_names(self, name: str) -> None:
        with pytest.raises(exc.UserError, match=r"TJ-API-042[\s\S]*use '"):
            torchjit.compile(double, backend=name)
