"""What a compiled entry calls, written as a document and made again: it computes the same, bit for bit."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchjit
import torchjit_inductor
from torchjit_core.events import listen
from torchjit_core.storing import NotStorable, NotYetStorable, how_made, loading_from, when_grown
from torchjit_core.writing import WRITES_FROM
from torchjit_frame import Entry, FrontDoor
from torchjit_inductor.attention.parted import PartedAttention
from torchjit_inductor.cpp import stored_kernels
from torchjit_inductor.triton import cuda
from torchjit_inductor.triton.compile import MachineCode, Recipe
from torchjit_inductor.triton.cuda import CudaDriver
from torchjit_inductor.triton.specialisations import LaunchFacts, Specialisations, launcher_of
from torchjit_store.finder import Finder
from torchjit_store.forms import Document, FormatError, decode, encode
from torchjit_store.origins import Origins


class Doors:
    """The session's own objects: the very ones."""

    def __init__(self) -> None:
        self.met: list[object] = []

    def name(self, obj: object) -> tuple[str, object] | None:
        if not isinstance(obj, FrontDoor):
            return None
        self.met.append(obj)
        return "door", len(self.met) - 1

    def build(self, tag: str, payload: Any) -> object:
        return self.met[payload]


def written(target: Any, roots: tuple[object, ...] = ()) -> tuple[str, tuple[bytes, ...], Doors]:
    origins, doors = Origins((), roots), Doors()
    document = encode(target, origins, doors)
    return json.dumps([origins.table(), document.data]), document.blobs, doors


def again(target: Any) -> Any:
    text, blobs, doors = written(target)
    table, data = json.loads(text)
    with loading_from(os.environ.get("TORCHJIT_CACHE_DIR")):
        return decode(Document(data, blobs), Finder(table), doors)


def sites(compiled: Any) -> Any:
    return compiled.compiled._sites.values()


def replace(compiled: Any) -> int:
    """Put what is read in the place of what was compiled; the number of entries."""
    count = 0
    for site in sites(compiled):
        entries = site.door.entries()
        site.door.clear()
        for entry in entries:
            site.door.append(
                Entry(entry.guard, again(entry.target), entry.unwrap, entry.data, entry.hook, entry.on_raise)
            )
            count += 1
    return count


def check(compiled: Any, run: Callable[[Any], Any]) -> None:
    want = run(compiled)
    assert replace(compiled) > 0
    made = len(compiled.compiled.specializations)
    for _ in range(2):
        assert same(run(compiled), want)
    assert len(compiled.compiled.specializations) == made, "captured again"


def same(got: Any, want: Any) -> bool:
    if isinstance(want, torch.Tensor):
        return got.dtype == want.dtype and got.stride() == want.stride() and torch.equal(got, want)
    if isinstance(want, (list, tuple)):
        return len(got) == len(want) and all(map(same, got, want))
    return bool(got == want)


def trained(module: nn.Module, *inputs: torch.Tensor) -> Callable[[Any], Any]:
    def run(f: Any) -> Any:
        module.zero_grad()
        torch.manual_seed(3)
        out = f(*inputs)
        out.square().sum().backward()
        return [out.detach(), *(p.grad.clone() for p in module.parameters()), torch.get_rng_state()]  # type: ignore[union-attr]

    return run


class Shifted(nn.Module):
    """Its mask depends on no input: it is computed once, and is a view."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(6).float().sin().cumsum(0).unsqueeze(0)
        return (x * self.scale + rows).sin()


CONV = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, momentum=0.0), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
MODULES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Sequential(nn.Linear(16, 8), nn.GELU(), nn.LayerNorm(8)), (4, 16)),
    "dropout": (nn.Sequential(nn.Linear(16, 8), nn.Dropout(0.4), nn.Linear(8, 2)), (4, 16)),
    "conv": (CONV, (2, 3, 9, 9)),
    "depthwise": (nn.Sequential(nn.Conv2d(8, 8, 5, padding=2, groups=8), nn.ReLU()), (2, 8, 9, 9)),
    "constant": (Shifted(), (3, 6)),
    "attention": (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (2, 5, 16)),
}


@pytest.mark.parametrize("name", MODULES)
def test_training(name: str) -> None:
    module, sizes = MODULES[name]
    check(torchjit.compile(module), trained(module, torch.randn(sizes)))


@pytest.mark.parametrize("name", MODULES)
def test_inference(name: str) -> None:
    module, sizes = MODULES[name]
    module.eval()
    x = torch.randn(sizes)
    with torch.no_grad():
        check(torchjit.compile(module), lambda f: f(x))
    module.train()


def test_aot_eager_and_symbolic_sizes() -> None:
    module = nn.Sequential(nn.Linear(16, 8), nn.GELU())
    check(torchjit.compile(module, backend="aot_eager", dynamic=True), trained(module, torch.randn(5, 16)))
    compiled = torchjit.compile(module, dynamic=True)
    check(compiled, trained(module, torch.randn(5, 16)))
    for rows in (3, 7):
        run = trained(module, torch.randn(rows, 16))
        for got, want in zip(run(compiled), run(module), strict=True):
            torch.testing.assert_close(got, want)


# -------------------------------------------------------------------------------------------------------- backwards
class Two(nn.Module):
    """Two results with parameters of their own and shared ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.shared = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = self.shared(x).tanh()
        return self.first(h).sigmoid(), self.second(h).exp()


def _of(module: nn.Module, x: torch.Tensor, which: tuple[int, ...]) -> Callable[[Any], Any]:
    def run(f: Any) -> Any:
        module.zero_grad()
        out = f(x)
        sum(out[i].square().sum() for i in which).backward()  # type: ignore[union-attr]
        return [None if p.grad is None else p.grad.clone() for p in module.parameters()]

    return run


def _close(got: list[Any], want: list[Any]) -> None:
    for a, b in zip(got, want, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("met", [(0, 1), (0,), (1,)])
def test_backwards_that_were_not_met_give_the_same_gradients(met: tuple[int, ...]) -> None:
    module, x = Two(), torch.randn(3, 4)
    compiled = torchjit.compile(module)
    check(compiled, _of(module, x, met))
    for which in ((0,), (1,), (0, 1)):
        _close(_of(module, x, which)(compiled), _of(module, x, which)(module))


class Told:
    """Counts."""

    times = 0

    def grown(self) -> None:
        self.times += 1

    def grows(self) -> None:
        pass


def test_an_entry_waits_for_its_backward_and_says_when_it_is_there() -> None:
    module, x = nn.Linear(4, 4), torch.randn(2, 4)
    compiled = torchjit.compile(module)
    out = compiled(x)
    (entry,) = compiled.compiled.root.door.entries()
    told = Told()
    when_grown(entry.data.compile_id, told)
    with pytest.raises(NotYetStorable):
        written(entry.target)
    assert told.times == 0
    out.sum().backward()
    assert told.times == 1
    written(entry.target)


def test_one_operation_that_runs_as_eager_code() -> None:
    compiled, x = torchjit.compile(torch.bmm), torch.randn(2, 3, 4, requires_grad=True)

    def run(f: Any) -> Any:
        x.grad = None
        f(x, torch.ones(2, 4, 5)).square().sum().backward()
        return x.grad

    check(compiled, run)


def test_parts_whose_backwards_have_nothing_in_common() -> None:
    def f(x, y):
        return (x.exp() * 2).sin(), (y.tanh() * 3).cos()

    compiled = torchjit.compile(f)

    def run(f: Any) -> Any:
        x, y = (torch.linspace(0, 1, 6).requires_grad_() for _ in range(2))
        a, b = f(x * 1, y * 1)
        a.sum().backward()
        b.sum().backward()
        return [x.grad, y.grad]

    check(compiled, run)


def test_tangents_that_compiled_code_cannot_read() -> None:
    module, x = nn.Linear(4, 4), torch.randn(2, 4)
    compiled = torchjit.compile(module)

    def run(f: Any) -> Any:
        out = f(x)
        return torch.autograd.grad(
            out, module.weight, torch.eye(8).view(8, 2, 4), is_grads_batched=True, retain_graph=True
        )

    trained(module, x)(compiled)
    replace(compiled)
    torch.testing.assert_close(run(compiled)[0], run(module)[0])


def test_double_backward_is_refused_as_before() -> None:
    module, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(2, 4, requires_grad=True)
    compiled = torchjit.compile(module)
    compiled(x).sum().backward()
    replace(compiled)
    (grad,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="TJ-AOT"):
        grad.sum().backward()


def test_autograd_knows_the_node_by_the_same_name() -> None:
    module, x = nn.Linear(4, 4), torch.randn(2, 4)
    compiled = torchjit.compile(module)
    trained(module, x)(compiled)
    name = type(compiled(x).grad_fn).__name__
    replace(compiled)
    assert type(compiled(x).grad_fn).__name__ == name == "CompiledGraphFunctionBackward"


# ------------------------------------------------------------------------------------------- what runs as it is
def test_inputs_that_share_memory_after_all_run_the_graph_itself() -> None:
    def f(x, y):
        x.add_(1)
        return x * y

    compiled = torchjit.compile(f)
    check(compiled, lambda f: f(torch.ones(4), torch.ones(4)))
    shared = torch.ones(8)
    got = compiled(shared[:4], shared[2:6])
    other = torch.ones(8)
    assert torch.equal(got, f(other[:4], other[2:6])) and torch.equal(shared, other)


def test_graphs_that_run_operator_by_operator() -> None:
    def f(x):
        return torch.nonzero(x).float() * 2 + x.sum()

    with contextlib.suppress(NotStorable):
        check(torchjit.compile(f), lambda f: f(torch.tensor([0.0, 1.0, 2.0])))


def test_autograd_functions_of_the_program() -> None:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            ctx.k = k
            return x * k

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ctx.k + x, None

    def f(x):
        return Scaled.apply(x.sin(), 3.0).cos()

    def run(f: Any) -> Any:
        x = torch.linspace(0, 1, 5, requires_grad=True)
        f(x).sum().backward()
        return x.grad

    check(torchjit.compile(f), run)


def test_modes_that_the_region_sets() -> None:
    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        with torch.no_grad():
            z = y.float() * 2
        torch.set_grad_enabled(False)
        return z, y

    def run(f: Any) -> Any:
        out = f(torch.ones(3, 3))
        enabled = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        return [*out, enabled]

    check(torchjit.compile(f), run)


def test_random_numbers_are_given_back_where_the_graph_raises() -> None:
    def f(x, i):
        return torch.rand(3) + x[i]

    compiled = torchjit.compile(f)
    x, good, bad = torch.randn(3), torch.tensor([0, 1, 2]), torch.tensor([0, 1, 9])
    torch.manual_seed(0)
    compiled(x, good)
    replace(compiled)

    def run(f: Any) -> Any:
        torch.manual_seed(0)
        with pytest.raises(IndexError):
            f(x, bad)
        return torch.rand(2)

    assert torch.equal(run(compiled), run(f))


# ------------------------------------------------------------------------------------------------------- kernels
def _host(compiled: Any) -> Any:
    (entry,) = compiled.compiled.root.door.entries()
    return entry.target


def test_kernels_are_those_of_the_cache() -> None:
    compiled = torchjit.compile(lambda x: (x * 2).relu() + 1)
    compiled(torch.randn(8))
    target = _host(compiled)
    made = again(target)
    assert [k.name for k in made.kernels] == [k.name for k in target.kernels]
    call, other = made._call, target._call
    assert call.__globals__ is not other.__globals__
    assert call.__globals__[WRITES_FROM] == other.__globals__[WRITES_FROM]
    assert made.static_inputs == target.static_inputs and made.device == target.device


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_a_library_that_is_not_what_it_was_is_no_kernel(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_kernels, "_trusted", {})
    monkeypatch.setattr(stored_kernels, "_restored", {})
    monkeypatch.setenv("TORCHJIT_CACHE_DIR", str(tmp_path))
    compiled = torchjit.compile(lambda x: (x * 3).relu() + 1)
    compiled(torch.randn(8))
    text, blobs, doors = written(_host(compiled))
    (library,) = (tmp_path / "c").glob("*.so")
    content = library.read_bytes()
    library.unlink()
    if how == "damaged":
        library.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        library.chmod(0o700)
    table, data = json.loads(text)
    with pytest.raises(FormatError, match="TJ-STORE-041"), loading_from(str(tmp_path)):
        decode(Document(data, blobs), Finder(table), doors)


def test_kernels_of_a_temporary_folder_are_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TORCHJIT_CACHE_DIR", str(blocked))
    with torchjit.config.patch(on_error="eager"), pytest.warns(RuntimeWarning, match="TJ-IND-009"):
        compiled = torchjit.compile(lambda x: (x * 4).relu() + 1)
        compiled(torch.randn(8))
    with pytest.raises(NotStorable):
        written(_host(compiled))


def test_launches_are_ranges_of_a_profiler_again() -> None:
    compiled = torchjit.compile(lambda x: (x * 2).relu() + 1)
    compiled(torch.randn(8))
    replace(compiled)
    target = _host(compiled)
    (kernel,) = target.kernels
    torchjit_inductor.show_ranges(True)
    try:
        assert type(target._call.launch.__globals__[kernel.name]).__name__ == "Ranged"
        with pytest.raises(NotYetStorable):
            written(target)
    finally:
        torchjit_inductor.show_ranges(False)
    assert target._call.__globals__[kernel.name] is kernel.launch and written(target)


def test_nothing_is_captured_or_compiled_for_it() -> None:
    compiled = torchjit.compile(lambda x: F.softmax(x, 0) * 2)
    compiled(torch.randn(8))
    kinds: list[str] = []
    with listen(lambda kind, fields: kinds.append(kind)):
        again(_host(compiled))
    assert not {"graph", "host_program", "compile_start", "kernel"} & set(kinds)


@pytest.fixture
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launchers are made where there is no driver to ask for its function."""
    monkeypatch.setattr(cuda, "launch_address", lambda: 1)


def test_launchers_of_gpu_kernels_are_plain_data(no_cuda: None) -> None:
    recipe = Recipe("def kernel(): ...", "kernel", (("p0", "*fp32"), ("n0", "i32")), frozenset(), 90, 4, 2)
    code = MachineCode("kernel", b"\x7fELF\0", ".entry kernel()", 128, 0, 2)
    facts = LaunchFacts("kernel", 0, 1, 1, None, None, (True,))
    launch = launcher_of(Specialisations(facts, CudaDriver(), lambda aligned, wide: recipe, lambda variant: code))
    made = again(launch)
    (kernels,) = how_made(made).arguments  # type: ignore[union-attr]
    assert kernels.facts == facts and type(kernels.driver) is CudaDriver
    state = kernels.__stored_state__()
    assert state["codes"] == {(True, False, (True,)): code} and set(state["bases"].values()) == {recipe}
    assert type(made) is type(launch)


def test_kernels_of_few_queries_are_plain_data(no_cuda: None) -> None:
    recipe = Recipe("def kernel(): ...", "kernel", (("p0", "*fp32"), ("n0", "i32")), frozenset(), 90, 4, 2)
    code = MachineCode("kernel", b"\x7fELF\0", ".entry kernel()", 128, 0, 2)
    kernels = [
        Specialisations(
            LaunchFacts(name, 0, 1, 1, None, False, (True,)),
            CudaDriver(),
            lambda aligned, wide: recipe,
            lambda variant: code,
        )
        for name in ("part", "join")
    ]
    attention = PartedAttention(*map(launcher_of, kernels), (8, 4, 4), (1, 2, 1, 8), (16, 8, 8, 1), torch.bfloat16)
    made = again(attention)
    assert [how_made(f).arguments[0].facts.name for f in (made.part, made.join)] == ["part", "join"]  # type: ignore[union-attr]
    assert (made.scratch, made.sizes, made.strides, made.dtype) == (
        (8, 4, 4),
        (1, 2, 1, 8),
        (16, 8, 8, 1),
        torch.bfloat16,
    )


def test_attention_kernels_of_a_gpu_are_not_stored_without_what_they_hold() -> None:
    launcher = pytest.importorskip("torchjit_inductor._c").Launcher
    with pytest.raises(NotStorable):
        written((launcher(1, print, 0, print, 1, 1),))
