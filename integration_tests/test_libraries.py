"""What libraries ask of compiled modules, by code like theirs; and the libraries themselves where they are installed."""

# mypy: no-warn-return-any

import copy
import importlib.util
import sys
from pathlib import Path
from typing import Any

import forked
import pytest
import torch
import torch._dynamo

import torchjit

LIBRARIES = ("accelerate", "lightning", "diffusers", "peft", "transformers")


class Block(torch.nn.Module):
    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x).relu()


def compiled(model: Any) -> Any:
    return torchjit.compile(model, backend="eager")


def says_compiled(module: Any) -> bool:
    """As accelerate and diffusers ask."""
    return isinstance(module, torch._dynamo.eval_frame.OptimizedModule)


X = torch.randn(2, 3)


def test_the_class_that_libraries_look_for() -> None:
    model = Block()
    fast = compiled(model)
    assert says_compiled(fast) and isinstance(fast, torch._dynamo.OptimizedModule)
    assert isinstance(fast, Block) and isinstance(fast, torch.nn.Module)
    assert not any(map(says_compiled, (model, model.inner, torchjit.disable(Block()), 3, None)))
    assert not isinstance(fast, torch.nn.Linear) and not isinstance(fast, dict)
    assert any(map(says_compiled, torch.nn.Sequential(Block(), fast).modules()))
    assert isinstance(torch.compile(model), torch._dynamo.OptimizedModule)
    assert fast.__class__ is fast.__class__ and fast.__class__.__name__ == type(fast).__name__ == "Block"
    assert issubclass(fast.__class__, Block) and fast.__class__.__module__ == __name__
    assert type(fast).__mro__[1] is Block and torch._dynamo.OptimizedModule not in type(fast).__mro__


def test_it_is_not_loaded_for_that() -> None:
    program = """
import sys, torch, torchjit
fast = torchjit.compile(torch.nn.Linear(2, 2), backend="eager")
assert fast.__class__ is type(fast) and not isinstance(fast, dict)
assert "torch._dynamo" not in sys.modules
import torch._dynamo
assert isinstance(fast, torch._dynamo.OptimizedModule)  # one that was compiled before
"""
    forked.run([sys.executable, "-c", program], check=True)


def test_captured_code_asks() -> None:
    fast = compiled(Block())

    def asks(x: torch.Tensor) -> torch.Tensor:
        inner = fast._orig_mod if says_compiled(fast) else fast
        if isinstance(fast, (list, dict)) or says_compiled(inner) or not isinstance(fast, Block):
            return x
        return inner(x) + len(fast.__class__.__name__)

    assert torch.equal(torchjit.compile(asks, backend="eager", fullgraph=True)(X), fast(X) + 5)


def test_new_ones_are_plain() -> None:
    fast = compiled(Block(4))
    for made in (type(fast)(3), fast.__class__(3)):
        assert type(made) is Block and made.inner.in_features == 3
        torch.testing.assert_close(made(X), made.inner(X).relu())
    empty = fast.__class__.__new__(fast.__class__)  # accelerate's compile_regions fills it
    empty.__dict__.update(Block(3).__dict__)
    assert type(empty) is Block and empty(X).shape == (2, 3)


def test_copies_have_attributes_of_their_own() -> None:
    fast = compiled(Block())
    for again in (copy.copy(fast), copy.deepcopy(fast)):
        assert torchjit.is_compiled(again) and again._orig_mod is not fast._orig_mod
        again.name = "a copy"
        assert not hasattr(fast, "name")
        assert torch.equal(again(X), fast(X))


def test_the_module_below_can_be_set() -> None:
    """As accelerate's `extract_model_from_parallel` does."""
    model = Block()
    fast, keys = compiled(model), list(model.state_dict())
    fast._orig_mod = fast._orig_mod
    assert list(fast.state_dict()) == list(model.state_dict()) == keys and list(model._modules) == ["inner"]
    wrapper = torch.nn.Sequential(Block())
    fast = compiled(wrapper)
    fast._orig_mod = wrapper[0]
    assert fast._orig_mod is wrapper[0] and list(fast.state_dict()) == list(wrapper.state_dict())
    fast.extra = torch.nn.Linear(1, 1)
    assert "extra.weight" in fast.state_dict()
    fast.inner_name = "set"
    assert wrapper.inner_name == "set"


def test_what_lightning_takes_over() -> None:
    """`from_compiled` compiles the module's steps with the wrapper's settings; Fabric compiles again with its arguments."""

    class Net(Block):
        def step(self, x: torch.Tensor) -> Any:
            return self(x).sum()

    net = Net()
    fast = torchjit.compile(net, backend="eager", dynamic=True)
    assert fast._compile_kwargs == {"backend": "eager", "dynamic": True}
    step: Any = fast.dynamo_ctx(net.step)
    assert torchjit.is_compiled(step) and torch.equal(step(X), net.step(X))
    assert step.compiled.told["dynamic"] is True
    again = torchjit.compile(torch.nn.Sequential(net), **fast._compile_kwargs)
    assert torch.equal(again(X), net(X))


def test_torch_asks_for_names_without_a_prefix() -> None:
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    model = torch.nn.Sequential(compiled(Block()))
    state = get_model_state_dict(model)
    assert list(state) == list(model.state_dict()) == ["0.inner.weight", "0.inner.bias"]
    assert not set_model_state_dict(model, state).missing_keys


def test_the_class_can_be_set() -> None:
    """As `fully_shard` does."""
    fast = compiled(Block())

    class Sharded(type(fast)):  # type: ignore[misc]
        pass

    fast.__class__ = Sharded
    assert type(fast) is Sharded and says_compiled(fast)


@pytest.mark.parametrize("order", ["before", "after"])
def test_the_libraries_themselves(order: str) -> None:
    """Those that are here, `torch.compile` being torchjit's before or after they are imported."""
    there = [name for name in LIBRARIES if importlib.util.find_spec(name)]
    if not there:
        pytest.skip(f"none of {', '.join(LIBRARIES)} is installed")
    program = Path(__file__).with_name("library_program.py")
    done = forked.run([sys.executable, str(program), order])
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("done ")] == there
