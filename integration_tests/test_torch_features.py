"""Features of torch that real training and serving code uses, inside compiled code."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from compare import check

import torchjit


def breaks_of(compiled):
    return [record for s in compiled.compiled.specializations for record in s.breaks]


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1),
    "SGD momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, 0.01),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
    "AdamW amsgrad": lambda p: torch.optim.AdamW(p, 0.01, amsgrad=True, foreach=False),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.5),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_step(name):
    def train(compiled):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        optimizer = OPTIMIZERS[name](model.parameters())

        def step():
            optimizer.step()

        run = torchjit.compile(step, backend="eager") if compiled else step
        for i in range(4):
            optimizer.zero_grad()
            model(torch.randn(3, 4)).square().sum().backward()
            run()
        return run, [p.detach() for p in model.parameters()], optimizer

    _, want, eager = train(False)
    run, got, optimizer = train(True)
    torch.testing.assert_close(got, want)
    assert [set(s) for s in optimizer.state.values()] == [set(s) for s in eager.state.values()]
    assert [g.get("capturable") for g in optimizer.param_groups] == [g.get("capturable") for g in eager.param_groups]
    for mine, theirs in zip(optimizer.state.values(), eager.state.values(), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert not breaks_of(run) and len(run.compiled.specializations) <= 2


def test_clip_grad_norm():
    model = torch.nn.Linear(4, 4)

    def clip(x):
        return torch.nn.utils.clip_grad_norm_(model.parameters(), x)

    for p in model.parameters():
        p.grad = torch.randn_like(p)
    before = [p.grad.clone() for p in model.parameters()]
    want = clip(0.5), [p.grad for p in model.parameters()]
    for p, g in zip(model.parameters(), before, strict=True):
        p.grad = g
    got = torchjit.compile(clip, backend="eager", fullgraph=True)(0.5), [p.grad for p in model.parameters()]
    torch.testing.assert_close(got, want)


def test_text_of_tensors_and_shapes():
    def f(x):
        return f"{x.shape} {x.dtype}", str(x.size()), repr(x.sum())[:6], f"{x[0, 0]:.2f}", x * 2

    compiled = torchjit.compile(f, backend="eager")
    check(compiled, f, torch.ones(2, 3))
    assert all(r.reason.id == "TJ-FX-001" for r in breaks_of(compiled))


def test_python_values_that_depend_on_data_are_not_asked_of_fakes():
    def f(x, mask):
        return torch._nested_tensor_from_mask_left_aligned(x, mask)

    compiled = torchjit.compile(f, backend="eager")
    for mask in ([[True, True, False], [True, False, True]], [[True, True, False], [True, False, False]]):
        check(compiled, f, torch.ones(2, 3, 4), torch.tensor(mask))


def test_out_is_written_although_fakes_do_not_show_it():
    def f(x):
        out = torch.zeros((), dtype=torch.int64)
        return torch.linalg.matrix_rank(x, out=out), out

    check(torchjit.compile(f, backend="eager", fullgraph=True), f, torch.eye(4))


@torch.profiler.record_function("made before")
def _in_a_range(x):
    return x + 1


def _record_function(x):
    x = _in_a_range(x)
    with torch.profiler.record_function("range"):
        return x * 2


def _checked(x):
    torch._check(x.shape[0] > 1, lambda: "too short")
    return x + 1


WHOLE = {
    "record_function": _record_function,
    "check": _checked,
    "cond of a Python value": lambda x: torch.cond(x.shape[0] > 2, torch.sin, torch.cos, (x,)),
    "log_prob": lambda x: torch.distributions.MultivariateNormal(x, torch.eye(4)).log_prob(x * 2),
    "rsample": lambda x: torch.distributions.Dirichlet(x.exp()).rsample(),
}


@pytest.mark.parametrize("name", WHOLE)
def test_captured_whole(name):
    f = WHOLE[name]
    compiled = torchjit.compile(f, backend="eager", fullgraph=True)
    check(compiled, f, torch.randn(3, 4, requires_grad=True), backward=True)


ONE_BREAK = {
    "item": lambda x: x * x.sum().item() + 1,
    "tolist": lambda x: x + sum(x.tolist()[0]),
    "nonzero": lambda x: (x + 1).nonzero().sum() + x,
    "mask": lambda x: x[x > 0].sum() + x,
}


@pytest.mark.parametrize("name", ONE_BREAK)
def test_one_obstacle_is_one_break(name):
    f = ONE_BREAK[name]
    compiled = torchjit.compile(f, backend="eager")
    check(compiled, f, torch.randn(3, 4))
    assert len(breaks_of(compiled)) == 1


class Twice(torch.nn.Module):
    def forward(self, x):
        return x * 2


def test_backward_hooks_of_modules():
    def make():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), Twice(), torch.nn.Linear(4, 4))
        model[0].register_full_backward_hook(lambda m, gi, go: (gi[0] * 3,))
        model[2].register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
        return model

    compiled = torchjit.compile(make(), backend="eager")
    check(compiled, make(), torch.randn(3, 4, requires_grad=True), backward=True)


def test_requires_grad_that_changes_nothing():
    def f(x):
        return (x * 2).requires_grad_(True) + 1

    check(torchjit.compile(f, backend="eager", fullgraph=True), f, torch.randn(3, requires_grad=True), backward=True)


def test_is_compiling_in_all_its_forms():
    def f(x):
        flags = (torchjit.is_compiling(), torchjit.is_dynamo_compiling(), torchjit.is_exporting())
        return (
            x + 1,
            flags,
            torch.compiler.is_compiling(),
            torch.compiler.is_dynamo_compiling(),
            torch._utils.is_compiling(),
        )

    x = torch.ones(2)
    assert f(x)[1:] == ((False, False, False), False, False, False)
    assert torchjit.compile(f, backend="eager", fullgraph=True)(x)[1:] == ((True, True, False), True, True, True)


def test_substitute_in_graph():
    import zlib

    with pytest.raises(torchjit.exc.UserError, match="other parameters"):
        torchjit.substitute_in_graph(_checked)(lambda a, b: a)

    @torchjit.substitute_in_graph(zlib.crc32, skip_signature_check=True)
    def crc(data):
        return len(data)

    from torchjit_session.control import SUBSTITUTED

    try:
        f = lambda x: x + zlib.crc32(b"abc")
        compiled = torchjit.compile(f, backend="eager", fullgraph=True)
        assert torch.equal(compiled(torch.zeros(2)), torch.full((2,), 3.0))
    finally:
        del SUBSTITUTED[zlib.crc32]


@torch.jit.script
def _scripted(x):
    return x * 2


def test_scripted_functions_are_read_from_their_source():
    def f(x):
        return _scripted(x) + 1

    check(torchjit.compile(f, backend="eager", fullgraph=True), f, torch.randn(3, 4, requires_grad=True), backward=True)


@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(reverse):
    from torch._higher_order_ops.associative_scan import associative_scan

    def combine(a, b):
        return a[0] * b[0], b[0] * a[1] + b[1]

    def f(x):
        return associative_scan(combine, (x, x * 2), 1, reverse=reverse, combine_mode="generic")

    for backend in ("eager", "aot_eager"):
        check(
            torchjit.compile(f, backend=backend, fullgraph=True),
            f,
            torch.randn(3, 5, requires_grad=True),
            backward=True,
        )


def test_torch_compile_inside_and_around():
    def inside(x):
        return torch.compile(lambda y: y * 2, backend="eager")(x) + 1

    x = torch.ones(3)
    compiled = torchjit.compile(inside, backend="eager")
    assert [compiled(x).tolist() for _ in range(2)] == [[3.0] * 3] * 2
    ours = torchjit.compile(lambda y: y.sin() * y.sum().item(), backend="eager")
    around = torch.compile(lambda y: ours(y * 2) + 1, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(around(x), (x * 2).sin() * 6 + 1)
    module = torch.compile(torch.nn.Linear(3, 3), backend="eager")
    outer = torchjit.compile(lambda y: module(y * 2) + 1, backend="eager")
    torch.testing.assert_close(outer(x), module(x * 2) + 1)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_attention_kernels_are_chosen_inside(backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    attend = torch.nn.functional.scaled_dot_product_attention

    def f(x, kernels):
        with sdpa_kernel(kernels):
            y = attend(x, x, x)
        return attend(y, x, x), torch.backends.cuda.flash_sdp_enabled()

    compiled = torchjit.compile(f, backend=backend, fullgraph=True)
    x = torch.randn(1, 2, 4, 8, requires_grad=True)
    for kernels in (SDPBackend.MATH, [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], SDPBackend.MATH):
        check(compiled, f, x, kernels, backward=True)
        assert torch.backends.cuda.flash_sdp_enabled() and torch.backends.cuda.mem_efficient_sdp_enabled()
    torch.backends.cuda.enable_flash_sdp(False)
    try:
        check(compiled, f, x, SDPBackend.MATH)
        assert not torch.backends.cuda.flash_sdp_enabled()
    finally:
        torch.backends.cuda.enable_flash_sdp(True)


def test_a_break_under_chosen_attention_kernels():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def f(x):
        with sdpa_kernel(SDPBackend.MATH):
            n = float(x.sum())
            inside = torch.backends.cuda.flash_sdp_enabled()
            y = torch.nn.functional.scaled_dot_product_attention(x, x, x)
        return y * n, inside, torch.backends.cuda.flash_sdp_enabled()

    compiled = torchjit.compile(f, backend="eager")
    for _ in range(2):
        check(compiled, f, torch.randn(1, 2, 4, 8))
    assert len(breaks_of(compiled)) == 1


def test_part_of_a_parameter_is_written_under_no_grad():
    """A view that was made there and written since has lost its node: even `is_leaf` raises."""

    def fn(x, p):
        with torch.no_grad():
            p[0].mul_(0.5)
        return x + p

    expected, real = (torch.nn.Parameter(torch.arange(12.0).view(3, 4)) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an internal error would be one
        torch.testing.assert_close(torchjit.compile(fn)(torch.ones(4), real), fn(torch.ones(4), expected))
    torch.testing.assert_close(real, expected)


def test_sizes_keep_their_class() -> None:
    def f(x: torch.Tensor) -> Any:
        s = x.shape
        return x + 1, [s + (2,), (2,) + s, s * 2, 2 * s, s + s, s[1:] + (1,), (*s, 1), tuple(s)]

    for dynamic in (False, True):
        compiled = torchjit.compile(f, backend="eager", dynamic=dynamic)
        got, want = compiled(torch.ones(3, 4))[1], f(torch.ones(3, 4))[1]
        assert got == want and [type(s) for s in got] == [type(s) for s in want]
