"""What libraries ask compiled modules: are they compiled, which module is below, do upstream's checkpoints load?"""

import abc
import copy
import gc
import io
import pickle
import threading
import typing
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import pytest
import torch
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.nn.utils.parametrize import register_parametrization, remove_parametrizations

import torchjit

T = TypeVar("T")


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


# ---------------------------------------------------------------------- classes that nobody has written
class Registered(torch.nn.Module):
    """Subclasses are registered under tags of their own."""

    tags: ClassVar[dict[str, type]] = {}

    def __init_subclass__(cls, *, tag: str, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if tag in Registered.tags:
            raise TypeError(f"{tag} is taken")
        Registered.tags[tag] = cls


class Tagged(Registered, tag="tagged"):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class RegisteringMeta(type):
    made: ClassVar[list[str]] = []

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        if name in cls.made:
            raise TypeError(f"{name} is taken")
        cls.made.append(name)
        return super().__new__(cls, name, bases, namespace)

    def __init__(cls, *args: Any) -> None:
        super().__init__(*args)
        cls.made.append(cls.__name__.lower())


class OfMeta(torch.nn.Module, metaclass=RegisteringMeta):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 2


class Abstract(torch.nn.Module, abc.ABC):
    @abc.abstractmethod
    def forward(self, x: torch.Tensor) -> Any: ...


class Concrete(Abstract):
    def forward(self, x: torch.Tensor) -> Any:
        return x + self.more()

    def more(self) -> int:
        return 3


class Further(Concrete):
    def more(self) -> int:
        return super().more() + super().more()


class Generic(torch.nn.Module, typing.Generic[T]):
    def forward(self, x: T) -> T:
        return x


class Slotted(torch.nn.Module):
    __slots__ = ("scale", "unset")

    def __init__(self) -> None:
        super().__init__()
        self.scale = 5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


@typing.runtime_checkable
class HasForward(typing.Protocol):
    def forward(self, x: Any) -> Any: ...


CLASSES = [Tagged, OfMeta, Concrete, Further, Generic, Slotted, Block]


@pytest.mark.usefixtures("older_objects_rest")
@pytest.mark.parametrize("cls", CLASSES)
def test_the_class_of_a_compiled_module(cls: type[torch.nn.Module]) -> None:
    import torch._dynamo  # noqa: PLC0415  # as a library has done that asks for its class

    before = [*Registered.tags, *RegisteringMeta.made]
    model: Any = cls().eval()
    fast = compiled(model)
    x = torch.randn(2, 3)
    assert torch.equal(fast(x), model(x)) and torch.equal(fast.forward(x), model(x))
    assert isinstance(fast, torch._dynamo.OptimizedModule)
    assert [*Registered.tags, *RegisteringMeta.made] == before  # registries of the program have not heard of it
    for asked in (cls, torch.nn.Module, HasForward, type(fast), fast.__class__):
        assert isinstance(fast, asked) and isinstance(model, asked)
        assert issubclass(type(fast), asked) and issubclass(cls, asked)
    assert not isinstance(torch.nn.ReLU(), type(fast)) and not issubclass(torch.nn.ReLU, fast.__class__)
    assert isinstance(compiled(cls()), type(fast))
    for named in (type(fast), fast.__class__):
        assert (named.__name__, named.__module__, named.__doc__) == (cls.__name__, cls.__module__, cls.__doc__)
        assert pickle.loads(pickle.dumps(named)) is cls and type(named()) is cls
    assert copy.deepcopy({"cls": type(fast)})["cls"] is type(fast)
    assert type(pickle.loads(pickle.dumps(fast))) is cls
    file = io.BytesIO()
    torch.save({"model": fast, "cls": type(fast)}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert loaded["cls"] is cls is type(loaded["model"])
    assert cls is Slotted or torch.equal(loaded["model"](x), model(x))  # slots are lost in eager mode, too
    together = copy.deepcopy({"fast": fast, "model": model, "again": fast})
    assert together["fast"] is together["again"] and together["fast"]._orig_mod is together["model"] is not model
    assert torchjit.is_compiled(copy.copy(fast)) and copy.copy(fast)._orig_mod is not model
    assert weakref.WeakKeyDictionary({fast: 1})[fast] == 1
    held, below = weakref.ref(fast), weakref.ref(type(fast))
    del fast, together, asked, named
    gc.collect()
    assert held() is None and below() is None


def test_the_class_is_made_by_several_threads() -> None:
    fast, classes = compiled(Concrete()), list[type]()
    threads = [threading.Thread(target=lambda: classes.append(fast.__class__)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(classes) == 4 and all(isinstance(fast, each) for each in classes)


def test_slots_are_shared() -> None:
    model = Slotted()
    fast = compiled(model)
    fast.scale = 7
    assert model.scale == 7 and torch.equal(fast(torch.ones(2)), torch.full((2,), 7.0))
    model.scale = 2
    assert fast.scale == 2 and not hasattr(fast, "unset")
    del fast.scale
    assert not hasattr(model, "scale")


@pytest.mark.parametrize("on", ["compiled", "original"])
@pytest.mark.parametrize(
    "register", [spectral_norm, weight_norm, lambda m: register_parametrization(m, "weight", torch.nn.Tanh())]
)
def test_parametrizations(register: Callable[[torch.nn.Module], Any], on: str) -> None:
    model, x = torch.nn.Linear(3, 3), torch.randn(2, 3)
    reference = copy.deepcopy(model)
    fast = compiled(model)
    torch.testing.assert_close(fast(x), reference(x))
    for _ in range(2):
        for each in (fast if on == "compiled" else model, reference):
            torch.manual_seed(0)
            register(each)
            each.eval()
        torch.testing.assert_close(fast(x), reference(x))
        assert (
            torchjit.is_compiled(fast)
            and fast.compiled.entries
            and list(fast.state_dict()) == list(reference.state_dict())
        )
        if on == "original":  # torch refuses it of a module that it has parametrized
            torch.testing.assert_close(copy.deepcopy(fast)(x), reference(x))
        fast(x).sum().backward()
        reference(x).sum().backward()
        for got, wanted in zip(fast.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(got.grad, wanted.grad)
        for each in (fast if on == "compiled" else model, reference):
            remove_parametrizations(each, "weight")
            each.zero_grad()
        torch.testing.assert_close(fast(x), reference(x))


def test_another_class_of_the_programs() -> None:
    class Other(Concrete):
        def more(self) -> int:
            return 100

    fast = compiled(Concrete())
    assert fast(torch.zeros(1)).item() == 3
    fast.__class__ = Other
    assert type(fast) is Other and fast(torch.zeros(1)).item() == 100 and not torchjit.is_compiled(fast)
