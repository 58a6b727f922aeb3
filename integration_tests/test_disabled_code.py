"""What is disabled runs as plain Python and stays what it was: functions, methods, classes and modules."""

# mypy: allow-untyped-calls, allow-untyped-decorators, no-warn-return-any

import copy
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchjit
from torchjit import exc

DISABLES: dict[str, Callable[..., Any]] = {"torchjit": torchjit.disable, "torch.compiler": torch.compiler.disable}


def told(x: torch.Tensor) -> torch.Tensor:
    """Another result under a compiler: what is disabled must not take this way."""
    return x + (1 if torchjit.is_compiling() or torch.compiler.is_compiling() else 2)


def graphs_of(compiled: Any) -> list[list[Any]]:
    return [
        [n.target for n in g.graph.nodes if n.op.startswith("call_")]
        for s in compiled.compiled.specializations
        for g in s.graphs
    ]


class Told(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return told(self.lin(x))


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x * 2) * 3


@pytest.mark.parametrize("name", DISABLES)
class TestPlainly:
    def check(self, f: Callable[..., Any], *args: Any, graphs: int = 2) -> Any:
        """Compiled as in eager, the parts around a call that is left alone in graphs of their own."""
        want = f(*args)
        compiled = torchjit.compile(f, backend="eager")
        for _ in range(2):
            torch.testing.assert_close(compiled(*args), want)
        assert len(graphs_of(compiled)) == graphs, graphs_of(compiled)
        return compiled

    def test_functions_and_what_they_call(self, name: str) -> None:
        def below(x: torch.Tensor) -> torch.Tensor:
            return told(x).sin()

        @DISABLES[name]
        def alone(x: torch.Tensor) -> torch.Tensor:
            return below(x) * below(x)

        self.check(lambda x: alone(x * 2) * 3, torch.ones(2))

    def test_what_was_compiled_elsewhere_is_plain_below(self, name: str) -> None:
        def below(x: torch.Tensor) -> torch.Tensor:
            return told(x)

        opaque = DISABLES[name](
            lambda x: below(x), recursive=False
        )  # its call breaks, and `below` is compiled on its own
        alone = DISABLES[name](lambda x: below(x))

        def f(x: torch.Tensor) -> torch.Tensor:
            return opaque(x * 2) * alone(x * 3) * opaque(x)

        compiled = torchjit.compile(f, backend="eager")
        x = torch.ones(2)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), (x * 2 + 1) * (x * 3 + 2) * (x + 1))

    def test_not_recursive(self, name: str) -> None:
        def below(x: torch.Tensor) -> torch.Tensor:
            return told(x)

        @DISABLES[name](recursive=False)
        def alone(x: torch.Tensor) -> torch.Tensor:
            return x + (1 if torch.compiler.is_compiling() else 2) + below(x)

        x = torch.ones(2)
        compiled = torchjit.compile(lambda x: alone(x * 2), backend="eager")
        for _ in range(2):
            torch.testing.assert_close(compiled(x), (x * 2 + 2) + (x * 2 + 1))

    def test_methods_of_every_kind(self, name: str) -> None:
        class K:
            scale = 2

            @DISABLES[name]
            def method(self, x: torch.Tensor) -> torch.Tensor:
                return told(x) * self.scale

            @staticmethod
            @DISABLES[name]
            def static(x: torch.Tensor) -> torch.Tensor:
                return told(x)

            @classmethod
            @DISABLES[name]
            def of_class(cls, x: torch.Tensor) -> torch.Tensor:
                return told(x) * cls.scale

        k = K()
        self.check(lambda x: k.method(x * 2) + k.static(x * 2) + K.of_class(x) + 1, torch.ones(2), graphs=4)

    def test_modules(self, name: str) -> None:
        model = Outer(DISABLES[name](Told()))
        self.check(model, torch.randn(2, 3))

    def test_forward_under_the_decorator(self, name: str) -> None:
        class Plain(Told):
            @DISABLES[name]
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return super().forward(x)

        self.check(Outer(Plain()), torch.randn(2, 3))

    def test_classes(self, name: str) -> None:
        @DISABLES[name]
        class Plain(Told):
            pass

        assert isinstance(Plain, type) and isinstance(Plain(), Told)
        self.check(Outer(Plain()), torch.randn(2, 3))

        @DISABLES[name]
        class Scale:
            def __init__(self, x: torch.Tensor) -> None:
                self.by = told(x).sum()

        def f(x: torch.Tensor) -> torch.Tensor:
            return Scale(x * 2).by * x

        want = f(torch.ones(2))
        torch.testing.assert_close(torchjit.compile(f, backend="eager")(torch.ones(2)), want)

    def test_nothing_of_its_own_is_compiled(self, name: str) -> None:
        class Plain(Told):
            pass

        for made in (DISABLES[name](told), DISABLES[name](Told()), DISABLES[name](Plain)()):
            assert torchjit.compile(made, backend="eager") is made

    def test_the_reason_is_shown(self, name: str) -> None:
        alone = DISABLES[name](told, reason="its numbers must be exact")
        (record,) = torchjit.explain(lambda x: alone(x) * 2)(torch.ones(2)).breaks
        assert record.reason_id == "TJ-API-010" and "its numbers must be exact" in record.detail
        with pytest.raises(exc.Unsupported, match="its numbers must be exact"):
            torchjit.compile(lambda x: alone(x) * 2, backend="eager", fullgraph=True)(torch.ones(2))

    def test_decorators_over_it_are_captured(self, name: str) -> None:
        from functools import wraps  # noqa: PLC0415  # what copies the marks

        inner = DISABLES[name](told)

        @wraps(inner)
        def around(x: torch.Tensor) -> torch.Tensor:
            return inner(x * 2) * 3

        compiled = torchjit.compile(lambda x: around(x) + 1, backend="eager")
        torch.testing.assert_close(compiled(torch.ones(2)), around(torch.ones(2)) + 1)

    def test_gradients_go_through(self, name: str) -> None:
        alone = DISABLES[name](told)
        compiled = torchjit.compile(lambda x: (alone(x.sin()) * x).sum(), backend="inductor")
        x = torch.randn(3, requires_grad=True)
        compiled(x).backward()
        torch.testing.assert_close(x.grad, (x.sin() + 2 + x * x.cos()).detach())


def disabled_and_called(x: torch.Tensor) -> torch.Tensor:
    return torchjit.disable(told, reason="it asks")(x * 2) * 3


def disabled_by_a_decorator(x: torch.Tensor) -> torch.Tensor:
    @torchjit.disable(reason="it asks")
    def told(x: torch.Tensor) -> torch.Tensor:
        return x + (1 if torchjit.is_compiling() else 2)

    return told(x * 2) * 3


def disabled_not_recursively(x: torch.Tensor) -> torch.Tensor:
    return torchjit.disable(lambda x: x + 1, recursive=False, reason="it asks")(x * 2) * 3


def disabled_by_torchs_name(x: torch.Tensor) -> torch.Tensor:
    return torch.compiler.disable(told, reason="it asks")(x * 2) * 3


def disabled_by_torchs_decorator(x: torch.Tensor) -> torch.Tensor:
    @torch.compiler.disable(reason="it asks")
    def told(x: torch.Tensor) -> torch.Tensor:
        return x + (1 if torch.compiler.is_compiling() else 2)

    return told(x * 2) * 3


def disabled_by_dynamos_name(x: torch.Tensor) -> torch.Tensor:
    return torch._dynamo.disable(told, reason="it asks")(x * 2) * 3


@pytest.mark.parametrize(
    ("f", "name"),
    [
        (disabled_and_called, "told"),
        (disabled_by_a_decorator, "disabled_by_a_decorator.<locals>.told"),
        (disabled_not_recursively, "disabled_not_recursively.<locals>.<lambda>"),
        (disabled_by_torchs_name, "told"),
        (disabled_by_torchs_decorator, "disabled_by_torchs_decorator.<locals>.told"),
        (disabled_by_dynamos_name, "told"),
    ],
)
def test_a_region_that_disables_tells_what_and_why(f: Callable[..., Any], name: str) -> None:
    x = torch.ones(2)
    compiled = torchjit.compile(f, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(x), f(x))
    (record,) = torchjit.explain(f)(x).breaks
    assert record.reason_id == "TJ-API-010" and record.detail == f"{name}: it asks"


@pytest.mark.parametrize("name", DISABLES)
def test_a_region_that_disables_a_module_or_a_class_tells_which_and_why(name: str) -> None:
    """A break where it is changed and one where it is called, and no line of torchjit or of the library is captured."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return DISABLES[name](Told(), reason="it asks")(x * 2) * 3

    def g(x: torch.Tensor) -> torch.Tensor:
        class Scale:
            def __init__(self, x: torch.Tensor) -> None:
                self.by = told(x)

        return DISABLES[name](Scale, reason="it asks")(x * 2).by * 3

    for function, what in ((f, "Told"), (g, "Scale")):
        torch.manual_seed(0)
        want = function(torch.ones(2, 3))
        torch.manual_seed(0)
        compiled: Any = torchjit.compile(function, backend="eager")
        torch.testing.assert_close(compiled(torch.ones(2, 3)), want)
        record = next(b for b in torchjit.explain(function)(torch.ones(2, 3)).breaks if b.reason_id == "TJ-API-010")
        assert record.detail.endswith(": it asks") and what in record.detail, record
        files = {Path(r.location.filename).name for r in compiled.compiled.stats.regions if r.location is not None}
        assert files.isdisjoint({"disabling.py", "inspect.py", "module.py"}), files


def test_calls_of_a_disabled_module_are_named_after_its_class() -> None:
    module = torchjit.disable(Told(), reason="it asks")
    (record,) = torchjit.explain(lambda x: module(x) * 2)(torch.ones(2, 3)).breaks
    assert record.detail == "Told.__call__: it asks"


def test_modules_stay_themselves() -> None:
    plain = Told()
    keys = list(plain.state_dict())
    made = torchjit.disable(plain)
    assert made is plain and isinstance(made, Told) and type(made).__name__ == "Told"
    model = Outer(made)
    assert list(made.state_dict()) == keys and len(list(model.parameters())) == 2
    model.to(torch.float64).load_state_dict(Outer(Told()).state_dict())
    assert model(torch.ones(1, 3, dtype=torch.float64)).dtype is torch.float64
    assert inspect.signature(made.forward) == inspect.signature(Told().forward)
    seq = nn.Sequential(nn.Linear(3, 3))
    seq[0] = torchjit.disable(seq[0])
    assert torchjit.disable(made) is made


@pytest.mark.parametrize(
    "again", [copy.deepcopy, copy.copy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "copy", "pickle"]
)
def test_copies_of_modules_are_disabled_too(again: Callable[[Any], Any]) -> None:
    model = Outer(torchjit.disable(Told()))
    model.inner.parent = [model]  # a cycle through the disabled one
    made = again(model)
    assert isinstance(made.inner, Told) and list(made.state_dict()) == list(model.state_dict())
    x = torch.randn(2, 3)
    torch.testing.assert_close(torchjit.compile(made, backend="eager")(x), model(x))
    torch.testing.assert_close(made(x), model(x))
    if again is not copy.copy:
        assert made.inner is not model.inner and made.inner.parent[0] is made
        with torch.no_grad():
            made.inner.lin.weight.zero_()
        assert model.inner.lin.weight.count_nonzero()


def test_other_instances_of_the_class_are_captured() -> None:
    torchjit.disable(Told())
    model = Outer(Told())
    compiled: Any = torchjit.compile(model, backend="eager", fullgraph=True)
    x = torch.randn(2, 3)
    torch.testing.assert_close(compiled(x), (model.inner.lin(x * 2) + 1) * 3)


def test_modules_not_recursively() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Told()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) + (1 if torch.compiler.is_compiling() else 2)

    model = Outer(torchjit.disable(Both(), recursive=False))
    compiled: Any = torchjit.compile(model, backend="eager")
    x = torch.randn(2, 3)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), (model.inner.inner.lin(x * 2) + 1 + 2) * 3)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(exc.UserError, match="TJ-API-040"):
        torchjit.disable(3)  # type: ignore[call-overload]
