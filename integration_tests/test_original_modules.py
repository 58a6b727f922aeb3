"""What libraries ask compiled modules: are they compiled, which module is below, do upstream's checkpoints load?"""

import copy
import io
from typing import Any

import pytest
import torch

import torchjit


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        self.last = torch.nn.Linear(4, 2)
        self.register_buffer("offset", torch.randn(2))

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.inner(x)) + self.offset


def compiled(model: Any) -> Any:
    return torchjit.compile(model, backend="eager")


def test_is_compiled() -> None:
    model, function = Block(), torch.sin
    assert torchjit.is_compiled(compiled(model))
    assert torchjit.is_compiled(compiled(function))
    assert torchjit.is_compiled(compiled(model.forward))
    assert not any(map(torchjit.is_compiled, (model, function, model.forward, 3, None, Block)))
    assert not torchjit.is_compiled(torchjit.compile(model, disable=True))
    with torchjit.replace_torch_compile():
        model.compile(backend="eager")
    assert torchjit.is_compiled(model)
    assert not torchjit.is_compiled(Block())


def test_the_module_below() -> None:
    model = Block()
    fast = compiled(model)
    assert fast._orig_mod is model
    assert compiled(fast)._orig_mod is model
    assert not hasattr(model, "_orig_mod")
    assert list(fast.state_dict()) == list(model.state_dict())
    assert [name for name, _ in fast.named_modules()] == [name for name, _ in model.named_modules()]
    again = copy.deepcopy(fast)
    assert again._orig_mod is not model
    assert torch.equal(again._orig_mod.offset, model.offset)
    file = io.BytesIO()
    torch.save(fast.state_dict(), file)
    file.seek(0)
    assert list(torch.load(file)) == list(model.state_dict())


def test_the_module_below_can_be_called_inside() -> None:
    fast = compiled(Block().eval())
    x = torch.randn(2, 3)
    assert torch.equal(compiled(lambda x: fast._orig_mod(x) * 2)(x), fast(x) * 2)


def upstreams(state: dict[str, torch.Tensor], *places: str) -> dict[str, torch.Tensor]:
    """The checkpoint that upstream writes where the modules at these places are compiled."""
    for place in places:
        state = {
            place + "_orig_mod." + k.removeprefix(place) if k.startswith(place) else k: v for k, v in state.items()
        }
    return state


@pytest.mark.parametrize("places", [("",), ("inner.",), ("inner.0.",), ("inner.", "")], ids=str)
def test_upstreams_checkpoints_load(places: tuple[str, ...]) -> None:
    source, target = Block(), Block()
    checkpoint = upstreams(source.state_dict(), *places)
    keys = list(checkpoint)
    assert all("_orig_mod." in k for k in keys if k.startswith(places[-1]))
    result = compiled(target).load_state_dict(checkpoint)
    assert not result.missing_keys
    assert not result.unexpected_keys
    assert list(checkpoint) == keys
    for name, value in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], value)


def test_a_compiled_child_of_a_plain_module() -> None:
    source, target = Block(), Block()
    target.inner = compiled(target.inner)
    target.load_state_dict(upstreams(source.state_dict(), "inner."))
    assert torch.equal(target.inner[0].weight, source.inner[0].weight)  # type: ignore[arg-type]
    target.load_state_dict(Block().state_dict())  # plain ones as well


def test_wrong_checkpoints_are_still_refused() -> None:
    checkpoint = upstreams(Block().state_dict(), "")
    del checkpoint["_orig_mod.offset"]
    checkpoint["_orig_mod.other"] = torch.ones(1)
    with pytest.raises(
        RuntimeError, match=r'(?s)Missing key.*"offset".*Unexpected key.*"other"|Unexpected.*other.*Missing.*offset'
    ):
        compiled(Block()).load_state_dict(checkpoint)


def test_a_module_that_has_such_keys_itself() -> None:
    class Wrapper(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self._orig_mod = torch.nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> Any:
            return self._orig_mod(x)

    source, target = Wrapper(), Wrapper()
    fast = compiled(target)
    fast.load_state_dict(source.state_dict())
    assert torch.equal(target._orig_mod.weight, source._orig_mod.weight)
    assert fast._orig_mod is target._orig_mod
