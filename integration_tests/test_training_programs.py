"""A table of training programs, compiled, against eager PyTorch: results, aliasing, gradients, mutations, versions, errors."""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import training_programs_backward  # noqa: F401  # these fill the table
import training_programs_memory  # noqa: F401
import training_programs_modes  # noqa: F401
from training_programs import PROGRAMS, difference, observe, seen_fallbacks

import torchjit
from torchjit import backends
from torchjit_core.events import listen

SAMPLE = [
    "write_to_overlapping_inputs", "write_to_a_tensor_and_its_transpose", "write_to_two_caches_of_one_tensor",
    "write_to_slices_that_move", "a_result_and_its_view", "pieces_of_a_result", "transpose_an_input",
    "squeeze_and_transpose_an_intermediate", "write_to_views_of_an_input_with_gaps", "write_through_data", "write_to_a_nonleaf",
    "autocast_casts_a_weight_once", "grad_modes_inside", "a_tangent_that_is_a_subclass", "a_tangent_expanded",
    "a_tangent_negated", "a_tangent_of_zeros", "a_conjugated_tangent", "sparse_gradient_of_an_embedding",
    "complex_arithmetic", "integers_and_booleans", "backward_of_a_retained_graph", "operators_with_effects",
    "an_operator_that_writes", "effects_that_nobody_reads", "random_numbers", "a_checkpoint_with_dropout",
    "module_batch_norm", "effects_in_forward_and_backward", "a_break_without_grad",
]  # fmt: skip
"""What also runs through the compiled kernels; all others are about autograd, which is the same there."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_equal_eager(name: str) -> None:
    program = PROGRAMS[name]
    want = observe(program.f, program)
    compiled = torchjit.compile(program.f, backend="aot_eager")
    for _ in range(2):
        assert difference(want, observe(compiled, program), tolerance=0.0 if program.exact else None) is None


@pytest.mark.parametrize("name", SAMPLE)
def test_programs_in_kernels_equal_eager(name: str) -> None:
    program = PROGRAMS[name]
    want = observe(program.f, program)
    compiled = torchjit.compile(program.f)
    for _ in range(2):
        assert difference(want, observe(compiled, program), tolerance=program.tolerance) is None


@pytest.mark.parametrize(
    "name", [*SAMPLE, "an_expanded_result", "pieces_of_an_input", "views_of_an_input", "grad_enabled_inside"]
)
def test_programs_with_symbolic_sizes_equal_eager(name: str) -> None:
    program = PROGRAMS[name]
    want = observe(program.f, program)
    compiled = torchjit.compile(program.f, backend="aot_eager", dynamic=True)
    for _ in range(2):
        assert difference(want, observe(compiled, program), tolerance=0.0 if program.exact else None) is None


WHOLE = [
    "an_operator_that_writes", "transpose_an_input", "squeeze_and_transpose_an_intermediate",
    "write_to_an_input_with_gaps", "write_to_a_tensor_and_its_transpose", "write_to_two_caches_of_one_tensor",
    "write_to_views_of_an_input_with_gaps", "effects_in_forward_and_backward", "an_operator_whose_backward_has_effects",
]  # fmt: skip
"""What is one graph, without a break and without being left to eager PyTorch."""


@pytest.mark.parametrize("name", WHOLE)
def test_programs_that_are_one_graph(name: str) -> None:
    program = PROGRAMS[name]
    with seen_fallbacks() as found:
        observe(torchjit.compile(program.f, backend="aot_eager"), program)
    assert found == []


def test_a_users_backend_gets_no_written_inputs_that_share_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        graphs.append(sum(node.op == "placeholder" for node in gm.graph.nodes))
        return gm.forward

    graphs: list[int] = []
    program = PROGRAMS["write_to_two_caches_of_one_tensor"]
    want = observe(program.f, program)
    monkeypatch.setattr(backends, "_registered", dict(backends._registered))
    torchjit.register_backend(backend, "keeps_inputs_apart")
    with seen_fallbacks() as found:
        have = observe(torchjit.compile(program.f, backend="keeps_inputs_apart"), program)
    assert difference(want, have, tolerance=0.0) is None
    assert "TJ-FX-009" in found and graphs


def test_a_sparse_tangent_gives_the_values_of_a_dense_one() -> None:
    def f(x: torch.Tensor) -> Any:
        return x.sin() * x

    tangent = torch.eye(2, 3)
    a, b = (torch.arange(6.0).view(2, 3).requires_grad_() for _ in range(2))
    torchjit.compile(f)(a).backward(tangent.to_sparse())
    f(b).backward(tangent)
    torch.testing.assert_close(a.grad, b.grad)


def test_double_backward_says_what_to_do() -> None:
    x = torch.randn(3, requires_grad=True)
    (g,) = torch.autograd.grad(torchjit.compile(lambda t: (t * t).sum(), backend="aot_eager")(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        g.sum().backward()


def test_dropout_in_kernels_draws_eager_numbers_bit_for_bit() -> None:
    def f(x: torch.Tensor) -> Any:
        return F.dropout(x.sin(), 0.5) + torch.rand_like(x)

    def run(g: Any) -> Any:
        torch.manual_seed(11)
        x = torch.linspace(-1, 1, 64).requires_grad_()
        y = g(x)
        y.sum().backward()
        return y == 0, x.grad == 0, torch.random.get_rng_state()

    for a, b in zip(run(f), run(torchjit.compile(f)), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("dynamic", [False, True])
def test_functional_random_numbers_are_computed_again_in_the_backward(dynamic: bool) -> None:
    def f(x: torch.Tensor) -> Any:
        return F.dropout(x.sin(), 0.5) * torch.rand_like(x)

    saved: list[Any] = []
    compiled = torchjit.compile(f, options={"fallback_random": False}, dynamic=dynamic)
    x = torch.linspace(0.1, 1, 512).view(2, 256).requires_grad_()
    with listen(lambda kind, fields: saved.extend(fields["tensors"]) if kind == "saved_tensors" else None):
        torch.manual_seed(11)
        y = compiled(x)
    assert sorted(t["bytes"] for t in saved) == [16, 2048]  # two seeds and the input
    y.sum().backward()
    torch.testing.assert_close(x.grad, (y / x.sin() * x.cos()).detach())
    assert 0.3 < (y == 0).float().mean() < 0.7
    torch.manual_seed(11)
    assert torch.equal(compiled(x), y) and not torch.equal(compiled(x), y)
