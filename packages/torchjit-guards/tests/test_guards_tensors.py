"""Tensor guards answer as the attributes do, read raw or not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchjit_core import events
from torchjit_core.guards import (
    Ambient,
    ClassAttrIs,
    DictKeys,
    Different,
    Guard,
    IdIs,
    InstanceLacks,
    LengthIs,
    TensorMatches,
    TypeIs,
    ValueEquals,
)
from torchjit_core.paths import Arg
from torchjit_guards import GuardProgram, _c

torch = pytest.importorskip("torch", reason="tensor guards need torch")

from torchjit_guards import layout, torch_support  # noqa: E402  # imports torch

X, Y = Arg.of(0, "x"), Arg.of(1, "y")


class Sub(torch.Tensor):  # type: ignore[misc,name-defined]
    pass


class Wrapper(torch.Tensor):  # type: ignore[misc,name-defined]
    """A subclass with its own dispatch: its sizes are what it says."""

    @staticmethod
    def __new__(cls, n: int) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, (n, 2), dtype=torch.float32)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def sample_tensors() -> list[Any]:
    x = torch.arange(24.0).reshape(4, 6)
    with torch.inference_mode():
        inference = torch.ones(4, 6)
    return [
        x, x.double(), x.int(), x.t(), x[1:], x[:, 1:], x.clone().requires_grad_(), torch.nn.Parameter(x.clone()),
        torch.nn.Parameter(x.clone(), requires_grad=False), torch.nn.Buffer(x.clone()), x.clone().requires_grad_() * 2,
        x.clone().requires_grad_()[1:], x.detach(), torch.tensor(1.0), torch.ones(0), torch.ones(0, 3), x.reshape(2, 2, 1, 6),
        torch.ones(1, 2, 1, 2, 1, 2), torch.ones(1, 2, 1, 2, 1, 2, 3).transpose(1, 6), torch.empty(4, 6, device="meta"),
        inference, x.to_sparse(), x.to_sparse_csr(), torch.nested.nested_tensor([x, x[1:]]), x.to(torch.complex64).conj(),
        torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), x.as_subclass(Sub), Wrapper(3), x.to_mkldnn(), torch._efficientzerotensor((4, 6)),
    ]  # fmt: skip


def describe(t: Any, path: Any = X, **changes: Any) -> TensorMatches:
    """The guard with every fact that the tensor can tell."""

    def ask(f: Any) -> Any:
        try:
            return f()
        except (RuntimeError, NotImplementedError):
            return None

    try:
        sizes = tuple(t.shape)
    except RuntimeError:
        sizes = (None,) * t.dim()
    fields: dict[str, Any] = dict(
        path=path, type=type(t), dtype=t.dtype, device=t.device, requires_grad=t.requires_grad, sizes=sizes,
        strides=ask(lambda: tuple(t.stride())), offset=ask(t.storage_offset), is_leaf=t.is_leaf,
    )  # fmt: skip
    fields.update(changes)
    return TensorMatches(**fields)


def definition(guard: Guard, slots: tuple[Any, ...]) -> bool:
    try:
        return guard.check(slots)
    except Exception:
        return False


@pytest.fixture(params=["raw", "attributes"])
def reading(request: pytest.FixtureRequest) -> Iterator[str]:
    """Once with raw reads, once as if the layout could not be found."""
    found = torch_support.raw_reads()
    assert found is not None, "raw reads must work on supported torch versions"
    if request.param == "attributes":
        _c.set_tensor_layout()
    yield request.param
    found.activate()


def test_every_sample_against_every_guard(reading: str) -> None:
    tensors = sample_tensors()
    for t in tensors:
        guard = describe(t)
        program = GuardProgram([guard], [X], 1)
        for other in tensors:
            assert program.check((other,)) is definition(guard, (other,)), (str(guard), type(other))
        assert program.check((t,)) is definition(guard, (t,))
        assert program.check((None,)) is False
        assert program.check((3,)) is False


def test_free_dimensions_and_missing_facts(reading: str) -> None:
    t = torch.ones(3, 4)
    guard = describe(t, sizes=(None, 4), strides=(None, 1), offset=None, is_leaf=None)
    program = GuardProgram([guard], [X], 1)
    assert program.check((torch.ones(9, 4),))
    assert not program.check((torch.ones(9, 5),))
    assert program.check((torch.ones(9, 8)[:, :4],))
    assert not program.check((torch.ones(9, 8)[:, ::2],))


def test_dispatch_key_sets(reading: str) -> None:
    z = torch.ones(3, dtype=torch.complex64)
    keys = torch_support.dispatch_keys(z)
    for recorded in (keys.raw_repr(), str(keys)):
        program = GuardProgram([describe(z, key_set=recorded)], [], 1)
        assert program.check((z,))
        assert not program.check((z.conj(),))
        assert program.explain((z,)) is None
        assert program.explain((z.conj(),)) is not None


def test_sizes_strides_and_offsets_are_gathered(reading: str) -> None:
    paths = [X.size(0), X.size(-1), X.stride(0), X.stride(1), X.offset(), X]
    program = GuardProgram([ValueEquals(X.size(1), 3)], paths, 1)
    t = torch.ones(7, 9)[2:, 1:4]
    assert program(t)[:-1] == (5, 3, 9, 1, 19)  # type: ignore[index]
    assert program(torch.ones(5, 4)) is None
    assert program(torch.ones(5)) is None
    assert GuardProgram([], [X.size(6), X.stride(0)], 1)(torch.ones(2, 1, 1, 1, 1, 1, 7)) == (7, 7)
    assert program("text") is None
    assert GuardProgram([], [X.size(0)], 1)(Wrapper(3)) == (3,)
    assert GuardProgram([], [X.size(0)], 1)(torch.ones(3).to_sparse()) == (3,)


def test_storages(reading: str) -> None:
    a, b = torch.ones(4), torch.ones(4)
    guard = Different((X, Y), storages=True)
    for pair in [
        (a, b),
        (a, a),
        (a, a[1:]),
        (a, a.detach()),
        (a, 3),
        (a, b.to_sparse()),
        (a, b.as_subclass(Sub)),
        (a, a.as_subclass(Sub)),
    ]:
        assert GuardProgram([guard], [], 2).check(pair) is definition(guard, pair)


def test_changes_that_no_watcher_sees(reading: str) -> None:
    t = torch.nn.Parameter(torch.ones(3, 4))
    program = GuardProgram([describe(t)], [], 1)
    assert program.check((t,))
    t.requires_grad_(False)
    assert not program.check((t,))
    t.requires_grad_(True)
    assert program.check((t,))
    t.data = torch.ones(4, 4)
    assert not program.check((t,))
    t.data = torch.ones(3, 4)
    assert program.check((t,))
    t.data = torch.ones(4, 3).t()
    assert not program.check((t,))


def test_a_view_learns_requires_grad_from_its_base(reading: str) -> None:
    base = torch.zeros(4)
    view = base[1:]
    program = GuardProgram([describe(view)], [], 1)
    assert program.check((view,))
    base.mul_(torch.ones(4, requires_grad=True))
    assert view.requires_grad
    assert not program.check((view,))


def test_ambient_state() -> None:
    program = GuardProgram(torch_support.ambient_guards(), [], 0)
    assert program.listing().count("CHECK_NATIVE") == 12
    assert program.check(())
    contexts = [
        torch.no_grad(), torch.inference_mode(), torch.autocast("cpu"), torch.device("meta"), torch._C.DisableTorchFunction(),
    ]  # fmt: skip
    for context in contexts:
        with context:
            assert not program.check(()), context
            miss = program.explain(())
            assert miss is not None and isinstance(miss.guard, Ambient)
            inside = GuardProgram(torch_support.ambient_guards(), [], 0)
            assert inside.check(())
        assert program.check(())
        assert not inside.check(())
    with torch.autograd.forward_ad.dual_level():
        assert not program.check(())
        assert "forward_ad" in str(program.explain(()))
    held: list[bool] = []

    def check_inside(x: Any) -> Any:
        held.append(program.check(()))
        return x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        torch.jit.trace(check_inside, torch.ones(1), check_trace=False)
    torch.vmap(check_inside)(torch.ones(1))
    assert held == [False, False]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        bf16 = GuardProgram(torch_support.ambient_guards(), [], 0)
    with torch.autocast("cpu", dtype=torch.float16):
        assert not bf16.check(())
    torch.set_default_dtype(torch.float64)
    try:
        assert not program.check(())
    finally:
        torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(True)
    try:
        assert not program.check(())
    finally:
        torch.use_deterministic_algorithms(False)
    assert program.check(())


def test_modes_of_functions_do_not_see_guards() -> None:
    """Who asks a view whether it is a leaf calls a getter, which a mode sees."""
    overrides: Any = torch.overrides
    view = torch.ones(4).reshape(2, 2)
    facts = TensorMatches(X, torch.Tensor, view.dtype, view.device, False, (2, 2), None, is_leaf=True)
    program = GuardProgram([facts, *torch_support.ambient_guards()], [], 1)
    seen = []

    class Mode(overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Mode():
        assert not program.check((view,))
    assert seen == []


def test_calibration_works_under_any_mode() -> None:
    found = layout.calibrate()
    for context in (torch.no_grad(), torch.inference_mode(), torch.device("meta"), torch.autocast("cpu")):
        with context:
            assert layout.calibrate() == found
            layout.verify(found)


def test_a_wrong_layout_is_found_out_and_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    import attrs

    found = layout.calibrate()
    wrong = attrs.evolve(found, offset=found.offset + 8)
    monkeypatch.setattr(layout, "calibrate", lambda: wrong)
    monkeypatch.setattr(torch_support, "_offered", None)
    heard: list[tuple[str, Any]] = []
    with events.listen(lambda kind, fields: heard.append((kind, fields["reason"]))):
        assert torch_support.raw_reads.__wrapped__() is None
    assert heard == [("fallback", "TJ-GRD-001")]
    t = torch.ones(2, 3)
    assert GuardProgram([describe(t)], [X.size(0)], 1)(t) == (2,)
    found.activate()


@pytest.mark.parametrize(
    "moved", [{}, {"offset": 8}, {"sizes": 8}, {"autograd": 8}, {"autograd": -8}, {"grad_flag": 1}, {"dtype": 2}]
)
def test_a_layout_that_another_process_has_found_is_tested_again(
    monkeypatch: pytest.MonkeyPatch, moved: dict[str, int]
) -> None:
    import attrs

    found = layout.calibrate()
    offered = attrs.evolve(found, plain_meta=0, **{name: getattr(found, name) + by for name, by in moved.items()})
    calibrated: list[layout.Layout] = []
    monkeypatch.setattr(layout, "calibrate", lambda: calibrated.append(found) or found)  # type: ignore[func-returns-value]
    monkeypatch.setattr(torch_support, "_offered", offered.numbers())
    assert torch_support.raw_reads.__wrapped__() == found
    assert bool(calibrated) == bool(moved)
    t = torch.ones(2, 3)
    assert GuardProgram([describe(t)], [X.size(0)], 1)(t) == (2,)
    assert not GuardProgram([describe(t)], [], 1).check((t.t(),))
    found.activate()


def test_tensor_miss_names_the_field() -> None:
    t = torch.ones(3, 4)
    program = GuardProgram([describe(t)], [], 1)
    for other, expected, actual in [
        (torch.ones(5, 4), "size(0) 3", "size(0) 5"),
        (torch.ones(3, 4).double(), "dtype torch.float32", "dtype torch.float64"),
        (torch.ones(3, 4, requires_grad=True), "requires_grad False", "requires_grad True"),
        (torch.ones(4, 3).t(), "stride(0) 4", "stride(0) 1"),
    ]:
        miss = program.explain((other,))
        assert miss is not None and (miss.expected, miss.actual) == (expected, actual)


@st.composite
def tensors(draw: st.DrawFn) -> Any:
    sizes = draw(st.lists(st.integers(0, 3), max_size=7))
    t = torch.zeros(sizes, dtype=draw(st.sampled_from([torch.float32, torch.float64, torch.int64, torch.bool])))
    for _ in range(draw(st.integers(0, 3))):
        step = draw(st.integers(0, 5))
        if step == 0 and t.dim() > 1:
            t = t.transpose(0, -1)
        elif step == 1 and t.dim() and t.size(0) > 1:
            t = t[1:]
        elif step == 2 and t.is_floating_point():
            t = t.detach().requires_grad_()
        elif step == 3 and t.is_floating_point():
            t = t * 2
        elif step == 4:
            t = t.unsqueeze(0).expand(2, *t.shape)
        elif step == 5 and t.is_floating_point():
            t = torch.nn.Parameter(t.detach())
    return t


@settings(max_examples=200, deadline=None)
@given(one=tensors(), other=tensors(), same_shape=st.booleans())
def test_any_two_tensors(one: Any, other: Any, same_shape: bool) -> None:
    if same_shape:
        other = other.new_empty(one.shape)
    guard = describe(one)
    for t in (one, other):
        assert GuardProgram([guard], [], 1).check((t,)) is definition(guard, (t,))


def module_guards(path: Any, module: Any) -> list[Guard]:
    """What a VM records for a module tree that it called."""
    kind = type(module)
    guards: list[Guard] = [
        TypeIs(path, kind), InstanceLacks(path, "forward"), ClassAttrIs(kind, "forward", kind.forward),
        IdIs(path.instance_attr("training"), module.training), LengthIs(path.instance_attr("_forward_hooks"), 0),
        DictKeys(path.instance_attr("_parameters"), tuple(module._parameters)),
    ]  # fmt: skip
    for name, parameter in module._parameters.items():
        where = path.instance_attr("_parameters").item(name)
        guards.append(IdIs(where, None) if parameter is None else describe(parameter, where))
    guards.append(DictKeys(path.instance_attr("_modules"), tuple(module._modules)))
    for name, child in module._modules.items():
        guards += module_guards(path.instance_attr("_modules").item(name), child)
    return guards


class Block(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.norm = torch.nn.LayerNorm(3)
        self.scale = 2

    def forward(self, x: Any) -> Any:
        return self.norm(self.linear(x)) * self.scale


def module_changes() -> list[tuple[str, Any, Any]]:
    """(what, do, undo), each of a module `m` with one block."""
    other = torch.nn.Parameter(torch.ones(3, 3))
    state: dict[str, Any] = {}

    def swap(obj: Any, name: str, value: Any) -> None:
        state[name] = obj.__dict__[name]
        obj.__dict__[name] = value

    def hook(m: Any) -> None:
        state["hook"] = m[0].linear.register_forward_hook(lambda *a: None)

    def new_dict(m: Any) -> None:
        state["dict"] = m[0].__dict__
        m[0].__dict__ = dict(m[0].__dict__, training=False)

    def change_class(m: Any) -> None:
        m[0].__class__ = type("Derived", (Block,), {})

    def patch_class(m: Any) -> None:
        state["forward"] = Block.forward
        Block.forward = lambda self, x: x  # type: ignore[method-assign]

    return [
        ("eval", lambda m: m.eval(), lambda m: m.train()),
        ("eval of a leaf", lambda m: m[0].norm.eval(), lambda m: m[0].norm.train()),
        ("weight data", lambda m: setattr(m[0].linear.weight, "data", torch.ones(4, 3)), lambda m: setattr(m[0].linear.weight, "data", torch.ones(3, 3))),
        ("freeze", lambda m: m[0].linear.weight.requires_grad_(False), lambda m: m[0].linear.weight.requires_grad_()),
        ("another weight", lambda m: setattr(m[0].linear, "weight", other), lambda m: None),
        ("no bias", lambda m: setattr(m[0].linear, "bias", None), lambda m: setattr(m[0].linear, "bias", torch.nn.Parameter(torch.ones(3)))),
        ("hook", hook, lambda m: state["hook"].remove()),
        ("forward on the instance", lambda m: setattr(m[0], "forward", print), lambda m: delattr(m[0], "forward")),
        ("another parameter dict", lambda m: swap(m[0].linear, "_parameters", {}), lambda m: swap(m[0].linear, "_parameters", state["_parameters"])),
        ("another __dict__", new_dict, lambda m: setattr(m[0], "__dict__", state["dict"])),
        ("another child", lambda m: setattr(m[0], "norm", torch.nn.Identity()), lambda m: setattr(m[0], "norm", torch.nn.LayerNorm(3))),
        ("one more child", lambda m: m[0].add_module("more", torch.nn.Identity()), lambda m: delattr(m[0], "more")),
        ("double", lambda m: m.double(), lambda m: m.float()),
        ("class of an instance", change_class, lambda m: setattr(m[0], "__class__", Block)),
        ("method of the class", patch_class, lambda m: setattr(Block, "forward", state["forward"])),
        ("unrelated attribute", lambda m: setattr(m[0], "note", 1), lambda m: delattr(m[0], "note")),
    ]  # fmt: skip


@pytest.mark.parametrize("change", module_changes(), ids=lambda c: c[0])
def test_module_trees_are_followed(change: tuple[str, Any, Any]) -> None:
    model = torch.nn.Sequential(Block(), torch.nn.GELU())
    guards = module_guards(X, model)
    program = GuardProgram(guards, [X.instance_attr("_modules").item("0").instance_attr("_modules").item("linear")], 1)

    def agrees() -> bool:
        want = all(definition(g, (model,)) for g in guards)
        for _ in range(3):
            assert program.check((model,)) is want
        if want:
            assert program(model) == (model[0].linear,)
        return want

    _, do, undo = change
    assert agrees()
    do(model)
    assert agrees() is (change[0] in ("unrelated attribute", "another weight"))
    undo(model)
    assert agrees()
