"""Random programs of tensors (`fuzz_tensors.py` runs more of them), and what they showed."""

# mypy: allow-untyped-calls, no-warn-return-any

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fuzz_tensors import told, write

import torchjit


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("seed", range(4))
def test_tensor_program(seed: int, backend: str) -> None:
    source = write(seed)
    found = told(source, f"<tensors {seed}>", backend)
    assert found is None, f"{source}\n{found}"


def _of_an_input(w: torch.Tensor) -> Any:
    row = w[1]
    row.register_hook(lambda g: g * 2)  # type: ignore[no-untyped-call]
    return (row,)


def _of_a_result(w: torch.Tensor) -> Any:
    made = w * 3
    row = made[0]
    row.register_hook(lambda g: g * 2)  # type: ignore[no-untyped-call]
    return made, row


def _below_another(w: torch.Tensor) -> Any:
    flat = w.view(-1)
    flat.register_hook(lambda g: g * 2)  # type: ignore[no-untyped-call]
    return flat + 1, flat[1:]


@pytest.mark.parametrize("program", [_of_an_input, _of_a_result, _below_another])
def test_hooks_of_views_that_leave(program: Callable[[torch.Tensor], Any]) -> None:
    """The graph's caller makes such views anew, without hooks."""
    gradients = []
    for function in (program, torchjit.compile(program, backend="aot_eager")):
        w = torch.ones(2, 2, requires_grad=True)
        sum(t.sum() for t in function(w)).backward()
        gradients.append(w.grad)
    assert torch.equal(*gradients)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "cumprod"])
def test_reductions_into_integers(name: str) -> None:
    """Eager adds up in the dtype of `out=`."""

    def program(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        getattr(torch, name)(x, 0, out=out)
        return out

    x = torch.tensor([[1.6, -2.5], [1.6, -0.7]])
    sizes = x.shape if name.startswith("cum") else (2,)
    want, got = (
        function(x, torch.zeros(sizes, dtype=torch.int64))
        for function in (program, torchjit.compile(program, backend="aot_eager"))
    )
    assert torch.equal(want, got)


def _sum_into(t: torch.Tensor) -> Any:
    return torch.sum(torch.ones(2, 3), 0, out=t)


def _sum_into_one_made_here(t: torch.Tensor) -> Any:
    made = t * 2
    return torch.sum(torch.ones(2, 3), 0, out=made) + 1, made


def _sum_into_a_view(t: torch.Tensor) -> Any:
    row = t[:1]
    torch.add(torch.ones(2, 3), 1, out=row)
    return t + row.sum(), row


def _through_a_view(t: torch.Tensor) -> Any:
    flat = t.view(-1)
    torch.add(torch.ones(2, 3), 1, out=t)
    return t + flat.sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("sizes", [(2, 2), (5, 2), (0, 2)])
@pytest.mark.parametrize("program", [_sum_into, _sum_into_one_made_here, _sum_into_a_view, _through_a_view])
def test_results_that_are_resized(program: Callable[[torch.Tensor], Any], sizes: tuple[int, ...], backend: str) -> None:
    """With one warning, but for empty ones."""
    found = []
    for function in (program, torchjit.compile(program, backend=backend)):
        t = torch.zeros(sizes)
        with warnings.catch_warnings(record=True) as told_of:
            warnings.simplefilter("always")
            found.append([function(t), t])
        found[-1].append([str(w.message) for w in told_of])
    torch.testing.assert_close(found[1][:2], found[0][:2])
    assert found[1][2] == found[0][2]


def _mode_of_a_number(x: torch.Tensor, n: int) -> Any:
    with torch.set_grad_enabled(n > 2):
        made = x * 2
    with torch.inference_mode(n > 4), torch.autocast("cpu", dtype=torch.bfloat16, enabled=n > 3):
        product = x @ x
    return made.requires_grad, product.is_inference(), product


def _transposed_below_a_view(x: torch.Tensor, n: int) -> Any:
    made = x.clone()
    made.view(-1)[0] = n
    made.t_()
    return made


def _product_into_a_tensor(x: torch.Tensor, n: int) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        return torch.matmul(x, x / 3, out=torch.zeros_like(x))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [_mode_of_a_number, _transposed_below_a_view, _product_into_a_tensor])
def test_what_random_programs_showed(program: Callable[..., Any], backend: str) -> None:
    compiled = torchjit.compile(program, backend=backend, dynamic=True, on_error="raise")
    for n in (2, 3, 4, 5):
        x = torch.tensor([[1.5, 0.3], [7.0, 3.1]]).mul(n).requires_grad_()
        torch.testing.assert_close(compiled(x, n), program(x, n), rtol=0, atol=0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_rows_copied_onto_themselves_with_sizes_that_vary(backend: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.index_copy_(0, torch.tensor([0, 1]), x[1:3])

    compiled = torchjit.compile(program, backend=backend, dynamic=True)
    for rows in (3, 4):
        with pytest.raises(RuntimeError, match="single memory location"):
            compiled(torch.ones(rows, 2))


def test_hooks_of_parameters_without_a_gradient_are_not_called() -> None:
    model, average = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    seen: list[Any] = []
    model.weight.register_hook(seen.append)

    @torchjit.compile(backend="aot_eager", fullgraph=True)  # type: ignore[untyped-decorator]
    def step(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for mine, theirs in zip(average.parameters(), model.parameters(), strict=True):
                mine.lerp_(theirs, 0.1)
        return average(x) + model.weight.detach()

    step(torch.ones(2, 2)).sum().backward()
    assert not seen and average.weight.grad is not None


def test_a_state_whose_neighbour_goes_backward_gives_no_gradient() -> None:
    """Both are results of one node of autograd, and of a node in the call before."""

    @torchjit.compile(backend="aot_eager")  # type: ignore[untyped-decorator]
    def step(x: torch.Tensor, w: torch.Tensor, state: dict[str, torch.Tensor]) -> torch.Tensor:
        state["mean"] = state["mean"].lerp(w.exp(), 0.1)
        return x * 2

    w, state = torch.ones(2, requires_grad=True), {"mean": torch.zeros(2)}
    for _ in range(3):
        x = torch.ones(2, requires_grad=True)
        step(x, w, state).sum().backward()
        assert w.grad is None and x.grad is not None and x.grad.tolist() == [2, 2]
    state["mean"].sum().backward()
    torch.testing.assert_close(w.grad, w.detach().exp() * (1 - 0.9**3))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_diagonal_is_filled_with_sizes_that_vary(backend: str) -> None:
    compiled = torchjit.compile(lambda x: x.fill_diagonal_(3), backend=backend, dynamic=True, on_error="raise")
    for rows in (3, 5):
        assert torch.equal(compiled(torch.ones(rows, 4)), torch.ones(rows, 4).fill_diagonal_(3))


def test_a_view_that_torch_gives_no_history_goes_on() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        first, *_ = x.unbind()
        first.mul_(2)
        torchjit.graph_break()
        return first * 2

    compiled = torchjit.compile(program, backend="aot_eager", on_error="raise")
    for function in (program, compiled):
        x = torch.ones(2, 2, requires_grad=True) * 1
        with torch.no_grad():
            assert function(x).tolist() == [4, 4]


def test_a_graph_that_is_not_compiled_keeps_the_dtypes_that_its_backward_reads() -> None:
    """Eager has statistics in float32 for a layer norm in bfloat16, torch's metadata says bfloat16."""

    def program(x: torch.Tensor, weight: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        c.add_(1)  # complex numbers have no kernels
        return torch.nn.functional.layer_norm(x.bfloat16(), (4,), weight)

    gradients = []
    for function in (program, torchjit.compile(program)):
        x = torch.linspace(-1, 2, 16).view(4, 4).cos().requires_grad_()
        made = function(x, torch.ones(4), torch.ones(2, dtype=torch.complex64))
        (made * torch.linspace(0, 1, 16).view(4, 4)).sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0.1, atol=0.1)


_STRIDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gaps": lambda h: h[..., ::2],
    "offset": lambda h: h[:, 1:],
    "expanded": lambda h: h[:1].expand(3, 4),
    "overlapping": lambda h: h.as_strided((3, 2), (1, 1)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("view", _STRIDED)
def test_inputs_with_a_history_are_read_by_their_strides(view: str, dynamic: bool) -> None:
    """The fake of an input that is no leaf is a clone, and clones are dense."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.cos().sum(), x[..., 1:] * 2

    def write(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.mul_(2).sin(), x

    for traced in (program, write) if view in ("gaps", "offset") else (program,):
        found = []
        for function in (traced, torchjit.compile(traced, dynamic=dynamic, on_error="raise")):
            w = torch.linspace(-1, 2, 12).view(3, 4).requires_grad_()
            x = _STRIDED[view](w * 1)
            made = function(x)
            sum(t.sum() for t in made).backward()
            found.append([*(t.detach() for t in made), x.detach(), w.grad])
            assert made[1].stride() == x.stride() or traced is program
        torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("norm", ["layer", "group", "batch", "batch without weights"])
def test_statistics_of_mixed_norms_are_as_precise_as_eagers(norm: str) -> None:
    """Of a norm in 16 bits with parameters in 32 kernels save statistics in 32 bits, torch's metadata says 16."""

    def program(x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        if norm == "layer":
            return F.layer_norm(x, (4,), weight)
        if norm == "group":
            return F.group_norm(x, 2, weight)
        return F.batch_norm(x, mean, mean + 1, weight if norm == "batch" else None, training=True)

    found = []
    for function in (program, torchjit.compile(program, on_error="raise")):
        x = (torch.linspace(-1, 2, 16).view(4, 4).cos() + 3).bfloat16().requires_grad_()
        weight = torch.ones(4, requires_grad=True)
        function(x, weight, torch.zeros(4)).backward(torch.full((4, 4), 7.0, dtype=torch.bfloat16))
        found.append(
            [x.grad, weight.grad] if norm in ("group", "batch") else [x.grad]
        )  # eager sums a layer norm's in 16 bits
    torch.testing.assert_close(found[1], found[0], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_deep_copies_of_tensors_copy_no_mode(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake names its mode, and the mode all sizes and numbers that it knows of: a copy of those corrupted the heap."""
    copied: list[Any] = []

    def program(x: torch.Tensor, p: torch.nn.Parameter) -> torch.Tensor:
        return copy.deepcopy({"p": p.detach()})["p"] + x

    monkeypatch.setattr(torch._subclasses.FakeTensorMode, "__deepcopy__", lambda *_: copied.append(1), raising=False)
    with warnings.catch_warnings(action="error"):
        compiled = torchjit.compile(program, backend=backend, dynamic=True, on_error="raise")
        made = compiled(torch.ones(3), torch.nn.Parameter(torch.ones(3)))
    assert made.tolist() == [2, 2, 2] and not made.requires_grad and not copied


def test_views_that_say_nothing_of_it_keep_their_memory() -> None:
    """The memory below an `_unsafe_view` that aten computes was given to the next result."""

    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a.reshape(2, -1), torch.ones_like(b)

    compiled = torchjit.compile(program, dynamic=True, on_error="raise")
    a = torch.arange(12.0).view(4, 3).t()
    made, ones = compiled(a, torch.zeros(3, 4))
    assert torch.equal(made, a.reshape(2, -1)) and made.data_ptr() != ones.data_ptr()


def _written_through(number: float) -> Any:
    made = torch.tensor(number) + 1
    made.view(-1)[0] = 5
    return made, made * 2


def _view_of_what_is_written(number: float) -> Any:
    made = torch.tensor(number).clone()
    flat = made.unsqueeze(0)
    made.mul_(3)
    return flat + 1, flat, made


def _written_by_the_operator(number: float) -> Any:
    made = torch.tensor(number).neg()
    again = torch.ops.aten.add_.Tensor(made, 1)
    again.view(1).mul_(2)
    return made, again, made is again


def _known_after_a_write(number: float) -> Any:
    made = torch.tensor(number) + 1
    made.view(1)[0] = 2
    return torch.arange(4)[made.int().item() :], made


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize(
    "program", [_written_through, _view_of_what_is_written, _written_by_the_operator, _known_after_a_write]
)
def test_views_of_tensors_made_of_numbers(program: Callable[[float], Any], backend: str) -> None:
    """Fakes of such tensors are computed by their values; each view had memory of its own."""
    want, got = program(-1.5), torchjit.compile(program, backend=backend, on_error="raise")(-1.5)
    assert str(want) == str(got)
    shared = [[p.untyped_storage()._cdata == q.untyped_storage()._cdata for p in t[:2] for q in t[:2]] for t in (want, got)]  # fmt: skip
    assert shared[0] == shared[1]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_writes_to_pieces_of_a_split_whose_last_size_varies(backend: str) -> None:
    def program(x: torch.Tensor) -> Any:
        made = x * 2
        first, *rest = made.split(2, -1)
        rest[-1].mul_(3)
        first.add_(1)
        return made, first, rest

    compiled = torchjit.compile(program, backend=backend, dynamic=True, on_error="raise")
    for columns in (4, 3, 5, 8):
        x = torch.arange(3.0 * columns).view(3, columns)
        assert str(program(x)) == str(compiled(x))


def _expanded(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return (x.sum() * w).sum().expand(x.shape[0], 2)


def _expanded_rows(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return (x * w.sum())[:, None].expand(x.shape[0], 4)


def _a_gradient(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad((x * w.sum()).exp().sum(), w, create_graph=True)[0]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", [_expanded, _expanded_rows, _a_gradient])
def test_results_that_show_memory_twice_are_views(
    program: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], dynamic: bool, backend: str
) -> None:
    """Autograd cannot go back through a write to a tensor like this if it is a view of nothing."""
    found = []
    for function in (program, torchjit.compile(program, backend=backend, dynamic=dynamic, on_error="raise")):
        for rows in (3, 4):
            w, x = torch.full((4, 4), 0.1, requires_grad=True), torch.linspace(0.1, 1, rows).requires_grad_()
            made = function(w, x)
            made[0, 1] = 3
            made.sum().backward()  # type: ignore[no-untyped-call]
            found.append([made.detach(), made._is_view(), made.stride(), x.grad, w.grad])
    for want, got in zip(found[:2], found[2:], strict=True):
        torch.testing.assert_close(got[0], want[0])
        assert got[1:3] == want[1:3]
        torch.testing.assert_close(got[3:], want[3:])


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", [0.1, 0.3])
def test_the_backward_of_dropout_has_its_forwards_factor(p: float, dtype: torch.dtype, backend: str) -> None:
    """In 16 bits kernels on CPU round `1 / (1 - p)`."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, p).sin()

    found = []
    for function in (program, torchjit.compile(program, backend=backend, on_error="raise")):
        torch.manual_seed(0)
        x = torch.zeros(64, dtype=dtype, requires_grad=True)  # where the sine's slope is one
        function(x).backward(torch.linspace(1, 2, 64, dtype=dtype))
        found.append(x.grad)
    torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=0)
