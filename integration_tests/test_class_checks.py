"""`isinstance` and `issubclass` with checks of the program's own: they run in each call, and see what the region wrote."""

# mypy: allow-untyped-calls

from __future__ import annotations

import abc
import collections.abc
import typing
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

import torchjit

state = {"on": True}
asked: list[Any] = []


class Switched(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        asked.append(1)
        return state["on"]

    def __subclasscheck__(cls, subclass: type) -> bool:
        return not state["on"]


class SwitchedABC(abc.ABCMeta):
    def __instancecheck__(cls, instance: Any) -> bool:
        return state["on"] and super().__instancecheck__(instance)


class SwitchedSubclasses(abc.ABCMeta):
    def __subclasscheck__(cls, subclass: type) -> bool:
        return state["on"]


class Ranked(type):
    """As jaxtyping's: a class attribute says what the check asks of the instance."""

    _skip = False
    rank: int

    def __instancecheck__(cls, instance: Any) -> bool:
        return cls._skip or (isinstance(instance, torch.Tensor) and len(instance.shape) == cls.rank)


class Raising(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        raise ValueError("not to be asked")


class Kind(metaclass=Switched):
    pass


class Abstract(metaclass=SwitchedABC):
    pass


class Matrix(metaclass=Ranked):
    rank = 2


class Unasked(metaclass=Raising):
    pass


class Checker:
    def __init__(self, answer: bool) -> None:
        self.answer = answer

    def __instancecheck__(self, instance: Any) -> bool:
        return self.answer and state["on"]


class Holder:
    label = "a"


class Lies:
    __class__ = property(lambda self: int)  # type: ignore[assignment]


@typing.runtime_checkable
class Labelled(typing.Protocol):
    label: str


checker: Any = Checker(True)
parameter = torch.nn.Parameter(torch.ones(1))
array = numpy.ones(2)
PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {}
MAY_BREAK = {"new_label", "lies", "abstract", "protocols"}


def program(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    PROGRAMS[function.__name__] = function
    return function


@program
def tensors(x: torch.Tensor) -> Any:
    return isinstance(x, Kind), isinstance(x + 1, Kind), isinstance(parameter, Kind), isinstance(array, Kind)


@program
def other_objects(x: torch.Tensor) -> Any:
    return [isinstance(v, Kind) for v in (3, "a", None, [], len, Holder(), x.shape, x.dtype)]


@program
def several(x: torch.Tensor) -> Any:
    return isinstance(x, (int, Kind)), isinstance(x, int | Kind), isinstance(3, int | Unasked)


@program
def unions(x: torch.Tensor) -> Any:
    return isinstance(x, typing.Union[int, Kind]), isinstance(x, typing.Optional[Kind])  # noqa: UP007, UP045


@program
def subclasses(x: torch.Tensor) -> Any:
    return issubclass(torch.Tensor, Kind), issubclass(int, (str, Kind)), isinstance(3, Kind)


@program
def patterns(x: torch.Tensor) -> Any:
    match x:
        case Kind():
            return 1
        case torch.Tensor(ndim=n):
            return n


@program
def abstract(x: torch.Tensor) -> Any:
    return isinstance(x, Abstract), isinstance([], Abstract), isinstance(Abstract(), Abstract)


@program
def written_before(x: torch.Tensor) -> Any:
    before, state["on"] = state["on"], True
    first = isinstance(x, Kind), isinstance(x, checker)
    state["on"] = False
    second = isinstance(x, Kind), isinstance(x, checker), issubclass(int, Kind)
    state["on"] = before
    return first, second


@program
def number_of_checks(x: torch.Tensor) -> Any:
    asked.clear()
    return isinstance(x, Kind), isinstance(Kind(), Kind), len(asked)


@program
def shapes(x: torch.Tensor) -> Any:
    return isinstance(x, Matrix), isinstance(x[None], Matrix), isinstance(x.sum(), Matrix), isinstance(3, Matrix)


@program
def raised(x: torch.Tensor) -> Any:
    try:
        return isinstance(x, (int, Unasked))
    except ValueError as error:
        return str(error)


@program
def no_classes(x: torch.Tensor) -> Any:
    texts = []
    for kind in (typing.List[int], list[int], 3, typing.Any, (int, 3)):  # noqa: UP006
        try:
            texts.append(str(isinstance(x, kind)))  # type: ignore[arg-type]
        except TypeError as error:
            texts.append(str(error))
    return texts


@program
def except_clauses(x: torch.Tensor) -> Any:
    class Error(Exception, metaclass=Switched):
        pass

    try:
        raise ValueError("asks no metaclass")
    except Error:
        return 1
    except ValueError:
        return 2


@program
def metaclass_in_region(x: torch.Tensor) -> Any:
    class Meta(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return cls.__name__ == "First"

    class First(metaclass=Meta):
        pass

    class Second(metaclass=Meta):
        pass

    return isinstance(x, First), isinstance(x, Second), isinstance(First(), Second), isinstance(Second(), Second)


@program
def protocols(x: torch.Tensor) -> Any:
    return isinstance(x, Labelled), isinstance(3, Labelled), isinstance(x, typing.SupportsFloat)


@program
def new_label(x: torch.Tensor) -> Any:
    y: Any = x + 1
    y.label = "b"
    return isinstance(y, Labelled), isinstance(Holder(), Labelled)


@program
def lies(x: torch.Tensor) -> Any:
    return isinstance(Lies(), int), isinstance(Lies(), Matrix), isinstance(Lies(), collections.abc.Hashable)


@program
def of_torch(x: torch.Tensor) -> Any:
    kinds = (torch.nn.Parameter, torch.nn.Buffer, torch.FloatTensor, torch.DoubleTensor, torch.cuda.FloatTensor)
    return [isinstance(v, kinds) for v in (x, x.double(), x.int(), parameter)] + [isinstance(x, kind) for kind in kinds]


@program
def of_python(x: torch.Tensor) -> Any:
    kinds = (collections.abc.Sequence, collections.abc.Mapping, collections.abc.Hashable, collections.abc.Callable)
    return [isinstance(v, kind) for v in (x, [], {}, (), "a", 3, len) for kind in kinds]


def outcomes(call: Callable[[torch.Tensor], Any]) -> list[Any]:
    found = []
    for on in (True, False, True):
        state["on"] = on
        found.append((call(torch.ones(2)), state["on"]))
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_checks_are_asked_in_each_call(name: str) -> None:
    function = PROGRAMS[name]
    expected = outcomes(function)
    assert outcomes(torchjit.compile(function, backend="eager")) == expected
    if name not in MAY_BREAK:
        state["on"] = True
        assert not torchjit.explain(function)(torch.ones(2)).breaks


@pytest.mark.parametrize("hooked", [False, True])
def test_abstract_classes_ask_once(hooked: bool) -> None:
    """The answer is remembered; the first question is asked where eager asks it, after what the program wrote."""

    def outcome(wrap: Any) -> Any:
        class Hooked(abc.ABC):
            @classmethod
            def __subclasshook__(cls, subclass: type) -> bool:
                asked.append(1)
                return state["on"]

        class Checked(metaclass=SwitchedSubclasses):
            pass

        def function(x: torch.Tensor) -> Any:
            before, state["on"] = state["on"], not state["on"]
            found = isinstance(x, Hooked if hooked else Checked), issubclass(int, Hooked if hooked else Checked)
            state["on"] = before
            return found

        asked.clear()
        return outcomes(wrap(function)), len(asked)

    assert outcome(lambda f: torchjit.compile(f, backend="eager")) == outcome(lambda f: f)


def test_attributes_that_a_check_reads_are_relied_on() -> None:
    function = torchjit.compile(lambda x: x * 2 if isinstance(x, Matrix) else x - 1, backend="eager")
    x = torch.full((3,), 5.0)
    assert function(x)[0] == 4
    Ranked._skip = True
    assert function(x)[0] == 10
    Ranked._skip = False
    Matrix.rank = 1
    assert function(x)[0] == 10
    Matrix.rank = 2
    assert function(x)[0] == 4


def test_a_label_that_a_tensor_is_given_counts() -> None:
    function = torchjit.compile(lambda x: isinstance(x, Labelled), backend="eager")
    x: Any = torch.ones(2)
    assert not function(x)
    x.label = "c"
    assert function(x)
