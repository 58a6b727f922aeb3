"""`compile(dynamic_shapes=...)`, `explain(f, dynamic=...)` and `list_mode_options(mode, dynamic)`."""

# mypy: allow-untyped-decorators, no-warn-return-any

from typing import Any

import pytest
import torch
from torch.export import Dim

import torchjit
from torchjit import exc


def join(x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
    return x * 2 if y is None else x * 2 + y.sum()


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, *, scale: torch.Tensor | None = None) -> torch.Tensor:
        return x + 1 if scale is None else x * scale.mean()

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(1)


def compiled(model: Any, shapes: Any, **keywords: Any) -> Any:
    return torchjit.compile(model, backend="eager", dynamic_shapes=shapes, **keywords)


def count(fast: Any) -> int:
    return len(fast.compiled.specializations)


def sizes(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.randn(shape) for shape in shapes]


@pytest.mark.parametrize(
    "spec",
    [{0: True}, {0: Dim("batch")}, {0: Dim("batch", min=2, max=64)}, {0: Dim.DYNAMIC}, {0: Dim.AUTO}, (True, None), {-2: True}],
    ids=str,
)  # fmt: skip
def test_a_size_varies_from_the_first_call(spec: Any) -> None:
    fast = compiled(join, {"x": spec})
    for x in sizes((3, 4), (5, 4), (9, 4)):
        assert torch.equal(fast(x), join(x))
    assert count(fast) == 1
    fast(torch.randn(9, 5))  # a size of which nothing was said, or that is a constant
    assert count(fast) == 2


@pytest.mark.parametrize("spec", [{0: None}, {0: Dim.STATIC}, None], ids=str)
def test_a_size_stays_a_constant(spec: Any) -> None:
    fast = compiled(join, {"x": spec})
    for x in sizes((3, 4), (5, 4), (9, 4)):
        assert torch.equal(fast(x), join(x))
    assert count(fast) == 3


def test_without_it_the_second_size_compiles_anew() -> None:
    fast = torchjit.compile(join, backend="eager")
    for x in sizes((3, 4), (5, 4)):
        fast(x)
    assert count(fast) == 2


def test_tensors_are_left_as_they_were() -> None:
    x = torch.randn(3, 4)
    torchjit.mark_static(x, 1)
    before = dict(x.__dict__)
    fast = compiled(join, {"x": {0: True, 1: True}})
    fast(x)
    assert x.__dict__ == before
    fast(torch.randn(5, 4))
    assert count(fast) == 1
    fast(torch.randn(5, 6))
    assert count(fast) == 2  # what is said of the tensor itself counts more
    y = torch.randn(3, 4)
    compiled(join, {"x": {0: True}})(y)
    assert not y.__dict__


def test_arguments_by_order_and_containers() -> None:
    fast = compiled(join, ({0: True}, {0: True}))
    for x, y in zip(sizes((3, 4), (5, 4)), sizes((7,), (8,)), strict=True):
        assert torch.equal(fast(x, y), join(x, y))
    assert count(fast) == 1

    def of_containers(pair: Any, *more: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        return pair["a"][0].sum() + more[0].sum() + named["z"].sum()

    fast = compiled(of_containers, {"pair": {"a": [{0: True}]}, "*args": [{0: True}], "z": {0: True}})
    for n in (3, 5, 8):
        args: Any = {"a": [torch.ones(n)]}, torch.ones(n + 1)
        assert fast(*args, z=torch.ones(n + 2)) == 3 * n + 3
    assert count(fast) == 1


def test_modules_and_methods() -> None:
    model = Model()
    fast = compiled(model, {"x": {0: True}, "scale": {0: True}})
    for n in (3, 5, 7):
        x, scale = torch.randn(n, 2), torch.randn(n + 1)
        assert torch.equal(fast(x, scale=scale), model(x, scale=scale))
    assert count(fast) == 1
    fast = compiled(model.rows, [{0: True}])
    for n in (3, 5, 7):
        fast(torch.randn(n, 2))
    assert count(fast.__func__) == 1

    @compiled_decorator
    def decorated(x: torch.Tensor) -> torch.Tensor:
        return x.cos()

    for n in (3, 5, 7):
        decorated(torch.randn(n))
    assert count(decorated) == 1


compiled_decorator: Any = torchjit.compile(backend="eager", dynamic_shapes={"x": {0: True}})


def test_ranges_hold() -> None:
    fast = compiled(join, {"x": {0: Dim("batch", min=2, max=8)}})
    fast(torch.randn(4, 2))
    with pytest.raises(exc.UserError, match="outside"):
        fast(torch.randn(9, 2))
    fast = compiled(join, {"x": {0: True}})

    def only_four(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] == 4 else x

    with pytest.raises(exc.UserError):
        compiled(only_four, {"x": {0: True}})(torch.randn(4))


def test_upstreams_classes() -> None:
    spec = pytest.importorskip("torch.fx.experimental.dynamic_spec")
    shapes = spec.ShapesSpec({"x": spec.TensorSpec([spec.ShapeVar("batch", max=64), None])})
    for given in (shapes, spec.ParamsSpec({"x": spec.TensorSpec([spec.ShapeVar("batch"), 4])})):
        fast = compiled(join, given)
        for x in sizes((3, 4), (5, 4), (9, 4)):
            assert torch.equal(fast(x), join(x))
        assert count(fast) == 1


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        (3, "want a dict"),
        ({"z": {0: True}}, "argument 'z'"),
        ([None, None, None], "3 entries"),
        ({"x": {5: True}}, "dimension 5 of x"),
        ({"x": {"a": True}}, "dimension 'a' of x"),
        ({"x": (True,)}, "1 entries for x"),
        ({"x": True}, "True for the tensor x"),
        ({"x": {0: "yes"}}, "'yes'"),
        ({"x": {0: 7}}, "is 3, not 7"),
        ({"x": {0: 2 * Dim("half")}}, "stands for itself"),
        ({"x": {0: (both := Dim("both")), 1: both}}, "was 3 before"),
    ],
    ids=str,
)
def test_what_fits_no_argument_is_refused(shapes: Any, said: str) -> None:
    with pytest.raises(exc.UserError, match=said):
        compiled(join, shapes)(torch.randn(3, 4))


def test_modules_refuse_unknown_names() -> None:
    with pytest.raises(exc.UserError, match="'scal'.*scale"):
        compiled(Model(), {"scal": {0: True}})


def test_explain_takes_dynamic() -> None:
    def with_size(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + x.shape[0]

    x = torch.randn(3, 4)
    fixed = "sizes=[3, 4]"
    for dynamic, constant in ((True, False), (False, True), (None, True)):
        guards = torchjit.explain(with_size, dynamic=dynamic)(x).regions[0].guards
        assert any(fixed in guard for guard in guards) == constant
    with pytest.raises(exc.UserError, match="dynamic='yes'"):
        torchjit.explain(join, dynamic="yes")  # type: ignore[arg-type]


def test_mode_options_take_dynamic() -> None:
    assert torchjit.list_mode_options("max-autotune", dynamic=True) == torchjit.list_mode_options("max-autotune")
    assert set(torchjit.list_mode_options(dynamic=False)) == set(torchjit.list_mode_options())
    with pytest.raises(exc.UserError, match="dynamic=3"):
        torchjit.list_mode_options("default", 3)  # type: ignore[arg-type]
