"""`torchjit.testing`: what a library's tests assert, what the messages say, and the fixture of pytest."""

import functools
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

import torchjit
from torchjit.testing import assert_equal_to_eager, assert_no_breaks, assert_one_graph, assert_recompiles

ROOT = Path(__file__).parent.parent


def plain(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
    return torch.relu(x) * by


def printing(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    print("half way")
    return y * 2


def failure(assertion: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        assertion(*args, **kwargs)
    return str(caught.value)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> Any:
        return {"logits": self.norm(self.linear(x)), "n": 3}


def test_one_graph() -> None:
    x = torch.randn(3)
    assert assert_one_graph(plain, x, by=3.0).graph_count == 1
    assert assert_one_graph(torchjit.compile(plain, backend="eager"), x).op_count == 2
    assert assert_one_graph(Net(), torch.randn(2, 3)).graph_break_count == 0
    assert assert_one_graph(Net().forward, torch.randn(2, 3)).graph_count == 1
    with pytest.raises(ZeroDivisionError):
        assert_one_graph(lambda x: x + 1 / 0, x)


def test_a_break_is_told_with_its_line_and_cure() -> None:
    for assertion in (assert_one_graph, assert_no_breaks):
        text = failure(assertion, printing, torch.ones(2))
        assert text.startswith("printing ")
        assert "2 graphs, 1 break" in text
        assert 'print("half way")' in text
        assert f"line {printing.__code__.co_firstlineno + 2}, in printing" in text
        assert (
            "hint: Let it run at the end of the region: torchjit.config.reorderable_logging_functions.add(print)"
            in text
        )
    assert_no_breaks(plain, torch.ones(2))


def test_graphs_without_a_break_are_counted() -> None:
    def two(x: torch.Tensor) -> torch.Tensor:
        torchjit.graph_break("the tables are filled")
        return x

    assert "one graph: 0 graphs, 1 break" in failure(assert_one_graph, two, torch.ones(2))
    assert "the tables are filled" in failure(assert_no_breaks, two, torch.ones(2))
    assert "0 graphs, 0 breaks" in failure(assert_one_graph, lambda x: x, torch.ones(2))
    assert_no_breaks(lambda x: x, torch.ones(2))


def test_what_is_not_compiled_passes_no_test() -> None:
    off = torchjit.disable(plain)
    x = torch.ones(2)
    for check in (
        lambda: assert_one_graph(off, x),
        lambda: assert_no_breaks(off, x),
        lambda: assert_recompiles(off, [(x,)]),
        lambda: assert_equal_to_eager(off, x),
    ):
        assert "nothing of plain was compiled" in failure(check)
    with torchjit.config.patch(disable=True):
        assert "torchjit.config.disable" in failure(assert_one_graph, plain, x)
    with torchjit.set_stance("force_eager"):
        assert "set_stance" in failure(assert_equal_to_eager, plain, x)


def test_recompiles() -> None:
    sizes = [(torch.ones(n),) for n in (3, 4, 5)]
    assert_recompiles(plain, sizes, at_most=1)
    assert_recompiles(plain, sizes, dynamic=True)
    assert_recompiles(plain, [(torch.ones(2), 1.0), {"x": torch.ones(2), "by": 1.0}])
    text = failure(assert_recompiles, plain, sizes)
    assert text.startswith("plain compiled again once in 3 calls, want at most 0\nRecompile 1: plain: ")
    assert "expected size 3 in dimension 0" in text or "size" in text
    assert "avoid it: mark the dimension, torchjit.mark_dynamic(" in text


def test_recompiles_are_counted_beyond_the_limit() -> None:
    def named(x: torch.Tensor, name: str) -> torch.Tensor:
        return x + len(name)

    calls = [(torch.ones(2), "n" * n) for n in range(1, 13)]
    assert "11 times in 12 calls" in failure(assert_recompiles, named, calls, at_most=10)
    assert len(assert_recompiles(named, calls, at_most=11).regions) == 12


def test_recompiles_of_what_is_compiled_already() -> None:
    fast = torchjit.compile(plain, backend="eager", dynamic=False)
    fast(torch.ones(2))
    assert_recompiles(fast, [(torch.ones(2),)])
    assert "2 times in 3 calls" in failure(assert_recompiles, fast, [(torch.ones(n),) for n in (2, 3, 4)], at_most=1)
    model = Net()
    with torchjit.replace_torch_compile():
        model.compile(backend="eager")
    assert_recompiles(model, [(torch.ones(2, 3),), (torch.ones(2, 3),)])


@pytest.mark.parametrize(
    "f",
    [Net(), Net().forward, torchjit.compile(Net(), backend="aot_eager"), plain],
    ids=["module", "method", "compiled", "function"],
)
def test_equal_to_eager(f: Any) -> None:
    x = torch.randn(4, 3, requires_grad=True)
    before = x.detach().clone()
    states = {k: v.clone() for k, v in f.state_dict().items()} if isinstance(f, torch.nn.Module) else {}
    assert_equal_to_eager(f, x)
    assert x.grad is None
    assert torch.equal(x, before)
    for name, value in states.items():
        assert torch.equal(f.state_dict()[name], value)


def test_writes_random_numbers_and_objects_are_compared() -> None:
    class Box:
        def __init__(self) -> None:
            self.seen: list[int] = []
            self.last: Any = None

    def steps(x: torch.Tensor, box: Box, rows: list[Any], *, noise: bool) -> Any:
        x.mul_(2)
        box.seen.append(1)
        box.last = x.sum()
        rows[0].add_(x[0])
        return torch.nn.functional.dropout(x, 0.5, noise), box

    drawn = torch.get_rng_state()
    result, box = assert_equal_to_eager(steps, torch.ones(8), Box(), [torch.zeros(8)], noise=True)
    assert box.seen == [1]
    assert set(result.tolist()) <= {0.0, 4.0}
    assert torch.equal(torch.get_rng_state(), drawn)


def test_arguments_share_what_they_share() -> None:
    def both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2

    base = torch.ones(4)
    assert assert_equal_to_eager(both, base, base[:2]).tolist() == [4, 4]
    assert assert_equal_to_eager(both, base, base).tolist() == [4, 4, 4, 4]
    leaf = torch.ones(2, requires_grad=True)
    assert_equal_to_eager(lambda x: x * leaf.detach(), leaf * 2)


def test_errors_are_the_same_and_come_out() -> None:
    def looked_up(x: torch.Tensor, key: str) -> torch.Tensor:
        return x * {"a": 1}[key]

    with pytest.raises(KeyError):
        assert_equal_to_eager(looked_up, torch.ones(2), "b")
    assert_equal_to_eager(looked_up, torch.ones(2), "a")


def wrong_backend(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
    return lambda *args: tuple(out + 1 if isinstance(out, torch.Tensor) else out for out in gm.forward(*args))


def test_differences_are_told_by_name() -> None:
    compile = functools.partial(torchjit.compile, backend=wrong_backend)
    text = failure(assert_equal_to_eager, Net(), torch.randn(4, 3), compile=compile)
    assert text.startswith("Net compiled differs from eager: the result['logits']: Tensor-likes are not close!")
    assert (
        "With the backends 'eager' and 'aot_eager' it is equal: the kernels, or a backend of yours, make the difference."
        in text
    )
    fast = torchjit.compile(plain, backend=wrong_backend)
    assert text.splitlines()[-1] in failure(assert_equal_to_eager, fast, torch.randn(3))
    assert_equal_to_eager(fast, torch.zeros(3), rtol=0.0, atol=1.5)

    def told(x: torch.Tensor) -> Any:
        return "captured" if torch.compiler.is_compiling() else "eager", x + 1

    text = failure(assert_equal_to_eager, told, torch.ones(2))
    assert "the result[0] is 'captured', eager's 'eager'" in text
    assert "with backend='eager' already: the capture" in text


def half_gradient(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
    return lambda *args: [out * 0.5 + out.detach() * 0.5 for out in gm.forward(*args)]


def test_gradients_writes_and_errors_that_differ() -> None:
    compile = functools.partial(torchjit.compile, backend=half_gradient)
    x = torch.ones(2, requires_grad=True)
    assert "the gradient of argument 0: " in failure(assert_equal_to_eager, plain, x, compile=compile)
    assert "the gradient of weight: " in failure(
        assert_equal_to_eager, torch.nn.Linear(2, 2), torch.ones(2), compile=compile
    )
    assert_equal_to_eager(plain, x, gradients=False, compile=compile)

    def counting(x: torch.Tensor, seen: list[str], net: Any = None) -> torch.Tensor:
        if torch.compiler.is_compiling():
            seen.append("captured")
            if net is not None:
                net.bias.data.add_(1)
        return x + 1

    assert "argument 1 after the call has another structure" in failure(
        assert_equal_to_eager, counting, torch.ones(2), []
    )
    text = failure(assert_equal_to_eager, counting, torch.ones(2), seen=[], net=torch.nn.Linear(1, 1))
    assert "argument 'seen' after the call" in text

    def failing(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        raise LookupError("no table")

    text = failure(assert_equal_to_eager, plain, x, compile=functools.partial(torchjit.compile, backend=failing))
    assert "eager raises nothing, compiled it raises BackendCompilerFailed" in text


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: assert_one_graph(torch.ones(2)), "got a Tensor"),
        (lambda: assert_recompiles(plain, torch.ones(2)), "calls is a Tensor, want a list"),
        (lambda: assert_recompiles(plain, [torch.ones(2)]), "call 0 is a Tensor, want a tuple or a dict"),
        (lambda: assert_recompiles(plain, [], at_most=-1), "at_most=-1"),
        (lambda: assert_equal_to_eager(plain, torch.ones(2), rtol=1e-3), "give both, or none"),
        (lambda: assert_equal_to_eager(plain, (i for i in "ab")), "make what cannot be copied inside the function"),
    ],
)  # fmt: skip
def test_wrong_calls(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match="hint: For instance") as caught:
        call()
    assert said in str(caught.value)


def test_fresh_restores_what_the_block_sets() -> None:
    fast = torchjit.compile(plain, backend="eager")
    fast(torch.ones(2))
    with torchjit.testing.fresh():
        assert not fast.compiled.stats.regions  # type: ignore[attr-defined]
        torchjit.config.recompile_limit = 3
        torchjit.config.reorderable_logging_functions.add(len)
        torchjit.set_default_backend("eager")
        torchjit.set_stance("force_eager")
    assert torchjit.config.recompile_limit == 8
    assert len not in torchjit.config.reorderable_logging_functions
    assert torchjit.get_default_backend() == "inductor"
    fast(torch.ones(2))
    assert fast.compiled.stats.regions  # type: ignore[attr-defined]


PROGRAM = """
import sys
import pytest

def test_torch_is_not_loaded_before_somebody_asks():
    assert "torch" not in sys.modules and "torchjit" not in sys.modules

def test_the_fixture(fresh_torchjit):
    import torch
    import torchjit
    assert fresh_torchjit is torchjit.testing and torchjit.config.on_error == "raise"
    fresh_torchjit.assert_one_graph(lambda x: x + 1, torch.ones(2))
    torchjit.config.recompile_limit = 2

@pytest.mark.usefixtures("fresh_torchjit")
def test_the_next_one_starts_anew():
    import torchjit
    assert torchjit.config.recompile_limit == 8 and not torchjit.counters
"""


def test_the_fixture_of_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "_torchjit_pytestplugin", "-p", "no:cacheprovider", "."]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_pytest_finds_the_fixture() -> None:
    project = tomllib.loads((ROOT / "packages" / "torchjit" / "pyproject.toml").read_text())
    (module,) = project["project"]["entry-points"]["pytest11"].values()
    assert (ROOT / "packages" / "torchjit" / "src" / f"{module}.py").is_file()
    assert f"src/{module}.py" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
