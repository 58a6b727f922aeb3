"""Tensors that consist of others (`__torch_dispatch__` with `__tensor_flatten__`): one graph of plain tensors, and eager's results."""

# mypy: allow-untyped-defs, allow-untyped-calls, no-warn-return-any

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

import torchjit
from torchjit_core.events import listen
from torchjit_core.storing import ReliedOn, collecting_reliance
from torchjit_fx.wrapper_values import described

aten = torch.ops.aten


class Scaled(torch.Tensor):
    """Integers and a scale for each row; made plain for every operator but a transposition. Gradients of it are plain."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, data, scale, transposed=False):
        shape = data.shape[::-1] if transposed else data.shape
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=scale.dtype, device=data.device)

    def __init__(self, data, scale, transposed=False):
        self.data_of, self.scale, self.transposed = data, scale, transposed

    def __tensor_flatten__(self):
        return ["data_of", "scale"], {"transposed": self.transposed}

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["data_of"], inner["scale"], **context)

    def full(self):
        whole = self.data_of.to(self.scale.dtype) * self.scale
        return whole.t() if self.transposed else whole

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        if func in (aten.detach.default, aten.t.default):
            w = args[0]
            return cls(w.data_of, w.scale, w.transposed is not (func is aten.t.default))
        return func(*tree_map(lambda a: a.full() if isinstance(a, Scaled) else a, args), **(kwargs or {}))


class Traced(torch.Tensor):
    """One tensor and a tag; results are of the class, and so are gradients."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    seen: list[str] = []

    @staticmethod
    def __new__(cls, elem, tag=""):
        options = {"strides": elem.stride(), "dtype": elem.dtype, "device": elem.device}
        return torch.Tensor._make_wrapper_subclass(cls, elem.shape, **options)

    def __init__(self, elem, tag=""):
        self.elem, self.tag = elem, tag

    def __tensor_flatten__(self):
        return ["elem"], [self.tag]

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Traced(inner["elem"], *context)

    def __coerce_same_metadata_as_tangent__(self, context, expected_type=None):
        return None if expected_type else Traced(self.elem, *context)

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        cls.seen.append(str(func))
        args, kwargs = tree_map(lambda a: a.elem if isinstance(a, Traced) else a, (args, kwargs or {}))
        return tree_map(lambda t: Traced(t, "made") if isinstance(t, torch.Tensor) else t, func(*args, **kwargs))


class Uncoerced(Traced):
    """Whose gradients nobody can make like another one."""

    __coerce_same_metadata_as_tangent__ = None  # type: ignore[assignment]


class Tables(Scaled):
    """Says in `__torch_function__` what a linear layer is, as torchao's classes do."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.linear:
            x, w, bias = args
            return torch.mm(x, w.data_of.t().to(x.dtype)) * w.scale.flatten() + bias
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Turning(Tables):
    """Whose transposition is made in `__torch_function__`, out of a part and what it knows of it."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.linear:
            x, w, bias = args
            return x @ w.t().full().to(x.dtype) + bias
        if func is torch.Tensor.t:
            (w,) = args
            return cls(w.data_of, scale=w.scale, transposed=not w.transposed)
        return super().__torch_function__(func, types, args, kwargs)


class Breaking(Scaled):
    """Whose code for calls cannot be captured, so that it runs between graphs; so does code that guards ask."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        torchjit.graph_break()
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Kind(enum.Enum):
    ROWS = 1


def scaled(*sizes: int, cls: Any = Scaled) -> Any:
    return cls(torch.randint(-9, 9, sizes, dtype=torch.int8), torch.rand(sizes[0], 1))


def traced(*sizes: int) -> Any:
    return Traced(torch.randn(sizes), "given")


def flat(value: Any) -> Any:
    """Comparable: classes, contexts and plain tensors."""
    if isinstance(value, Scaled | Traced):
        names, context = value.__tensor_flatten__()
        return [type(value), context, *[flat(getattr(value, name)) for name in names]]
    return [flat(item) for item in value] if isinstance(value, tuple | list) else value


def same(a: Any, b: Any) -> None:
    a, b = flat(a), flat(b)
    assert type(a) is type(b)
    if isinstance(a, list):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            same(one, other)
    elif isinstance(a, torch.Tensor):
        torch.testing.assert_close(a, b)
    else:
        assert a == b


def layers(cls: Any = Scaled) -> Any:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    for i in (0, 2):
        made = scaled(*model[i].weight.shape, cls=cls)  # type: ignore[arg-type]
        model[i].weight = nn.Parameter(made, requires_grad=False)
    return model


def store_a_part(x, y):
    x.elem = y
    return x * 2


def made_of_rows(x):
    made = Traced(x * 2, Kind.ROWS)
    return made.sin() + 1, made.tag is Kind.ROWS, made.elem + 1


def linear_of_made(x, data, scale):
    return nn.functional.linear(x, Scaled(data, scale)).relu(), Scaled(data, scale=scale, transposed=True)


def write_a_part_late(w):
    part = w.t().data_of
    product = w.t().full() @ torch.ones(w.shape[0], 1)
    part.add_(1)
    return product, w.t().full() + 1, part


Program = tuple[str, int, Callable[[], tuple[Any, tuple[Any, ...]]]]
PROGRAMS: list[Program] = [
    ("parameters", 0, lambda: (layers(), (torch.randn(3, 8),))),
    ("an input's gradient", 0, lambda: (layers(), (torch.randn(3, 8, requires_grad=True),))),
    ("a class with tables", 0, lambda: (layers(Tables), (torch.randn(3, 8, requires_grad=True),))),
    ("a class with tables, below", 0, lambda: (lambda x, w: x @ w.t() + 1, (torch.randn(3, 8), scaled(4, 8, cls=Tables)))),
    ("plain results", 0, lambda: (lambda x, w: torch.mm(x, w.t()) + w.shape[0], (torch.randn(3, 8), scaled(4, 8)))),
    ("a plain gradient", 0, lambda: (lambda x, w: (x @ w.t()).relu(), (torch.randn(3, 8, requires_grad=True), scaled(4, 8).requires_grad_()))),
    ("results that are views", 0, lambda: (lambda w: (w.t(), w, w.t().t().data_of), (scaled(4, 8),))),
    ("parts", 0, lambda: (lambda w: (w.data_of + 1, w.t().scale * 2), (scaled(4, 8),))),
    ("a part that is written", 0, lambda: (write_a_part_late, (scaled(8, 8),))),
    ("chains", 0, lambda: (lambda x: (x.sin() + 1, x[1:] * x.view(2, 2)[0, 1], x.tag), (traced(4),))),
    ("gradients of the class", 0, lambda: (lambda x, y: x.sin() * y, (traced(4).requires_grad_(), traced(4)))),
    ("made here", 0, lambda: (linear_of_made, (torch.randn(3, 8, requires_grad=True), torch.ones(4, 8, dtype=torch.int8), torch.rand(4, 1)))),
    ("made in its own code", 0, lambda: (layers(Turning), (torch.randn(3, 8, requires_grad=True),))),
    ("made with a member of an enum", 0, lambda: (made_of_rows, (torch.randn(4),))),
    ("made of what has a history", 6, lambda: (lambda x: Traced(x * 2).sin(), (torch.randn(4, requires_grad=True),))),
    ("made of another one", 6, lambda: (lambda x: Traced(x.sin(), "outer") + 1, (traced(4),))),
    ("its own code breaks", 60, lambda: (layers(Breaking), (torch.randn(3, 8),))),
    ("wrapped twice", 0, lambda: (lambda x: x.sin() @ x, (Traced(traced(4, 4), "outer"),))),
    ("a write", 3, lambda: (lambda x: x.add_(1) * 2, (traced(4),))),
    ("an attribute stored", 1, lambda: (store_a_part, (traced(4), torch.randn(4)))),
    ("a gradient that is not coerced", 4, lambda: (lambda x: x.sin(), (Uncoerced(torch.randn(4)).requires_grad_(),))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "most_breaks", "make"), PROGRAMS, ids=[name for name, _, _ in PROGRAMS])
def test_equals_eager(name: str, most_breaks: int, make: Callable[[], tuple[Any, tuple[Any, ...]]]) -> None:
    found = []
    for compiled in (False, True):
        torch.manual_seed(3)
        function, args = make()
        run: Any = torchjit.compile(function, backend="aot_eager") if compiled else function
        results: list[Any] = [run(*args), run(*args)]
        first = results[1][0] if isinstance(results[1], tuple) else results[1]
        if isinstance(first, torch.Tensor) and first.requires_grad:
            first.backward(torch.ones_like(first.detach()))
        grads = [a.grad for a in args]
        found.append([results, grads, list(args)])
    same(*found)
    torch.manual_seed(3)
    function, args = make()
    told = torchjit.explain(function)(*args)
    assert len(told.breaks) <= most_breaks, told.breaks


def test_what_a_graph_relies_on_is_guarded() -> None:
    """The parts may be others, of the same kinds; another context, or parts of other kinds, are compiled anew."""
    compiles: list[str] = []
    w = scaled(4, 8)

    def product(x):
        return x @ w.t()

    with listen(lambda kind, fields: compiles.append(kind) if kind == "compile_start" else None):
        run = torchjit.compile(product, backend="aot_eager", fullgraph=True)

        def check(compiled: int) -> None:
            for rows in (3, 3):
                x = torch.randn(rows, w.shape[1])
                torch.testing.assert_close(run(x), product(x))
            assert len(compiles) == compiled

        check(1)
        w.scale.mul_(2)
        w.data_of = w.data_of + 1
        check(1)
        w.data_of, w.scale, w.transposed = torch.zeros(8, 4, dtype=torch.int8), torch.rand(8, 1), True
        check(2)
        w.scale = w.scale.double()
        with pytest.raises(RuntimeError, match="same dtype"):
            product(torch.randn(3, 8))
        with pytest.raises(RuntimeError, match="same dtype"):
            torchjit.compile(product, backend="aot_eager")(torch.randn(3, 8))


def test_sizes_of_other_arguments_vary() -> None:
    model, graphs = layers(), []
    with listen(lambda kind, fields: graphs.append(fields) if kind == "compile_start" else None):
        run = torchjit.compile(model)
        with torch.no_grad():
            for rows in (3, 5, 7, 9):
                x = torch.randn(rows, 8)
                torch.testing.assert_close(run(x), model(x))
    assert len(graphs) == 2


def quantized(x: Any, w: Any) -> Any:
    """As torchao quantizes activations."""
    return Scaled((x * 10).round().to(torch.int8), x.abs().amax(1, keepdim=True) / 127) @ w + 1


@pytest.mark.parametrize("made", [quantized, lambda x, w: (Traced(x * 2) + 1).elem @ w], ids=["two tensors", "one"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_of_what_a_graph_makes_hold_for_the_graph(made: Callable[..., Any], dynamic: bool | None) -> None:
    run, w = torchjit.compile(made, backend="aot_eager", fullgraph=True, dynamic=dynamic), torch.randn(8, 4)
    graphs: list[Any] = []
    with listen(lambda kind, fields: graphs.append(fields) if kind == "compile_start" else None):
        for rows in (4, 5, 6, 5, 4):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(run(x, w), made(x, w))
    assert len(graphs) == 3


def test_the_class_sees_nothing_in_later_calls() -> None:
    run = torchjit.compile(lambda x: x.cos() + 1, backend="aot_eager")
    run(traced(3))
    Traced.seen.clear()
    run(traced(3))
    assert Traced.seen == []


def test_an_entry_on_disk_relies_on_the_class() -> None:
    """Its methods run while the graph is traced, and leave no guards."""
    with collecting_reliance() as found:
        described(Scaled(torch.ones(2), torch.ones(())), lambda part: None)  # type: ignore[arg-type, return-value]  # nobody asks
    assert [noted.function for noted in found.values() if isinstance(noted, ReliedOn)] == [Scaled]
