"""Options of autotuning, and products of narrow types with what follows them."""

# mypy: allow-untyped-calls

from collections.abc import Callable

import pytest
import torch

import torchjit
from torchjit.options import make_options
from torchjit_core import events

F8 = torch.float8_e4m3fn


def _rand(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def scaled(x: torch.Tensor, w: torch.Tensor, sa: torch.Tensor, sb: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    narrow = (x / sa).clamp(-448, 448).to(F8)
    return torch._scaled_mm(narrow, w.t(), sa, sb, out_dtype=torch.bfloat16).relu() * 2 + r


def integers(a: torch.Tensor, b: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return (torch._int_mm(a, b) * s).bfloat16() + 1


def grouped(a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return torch._grouped_mm(a, b, offs=ends).relu() + 1


PROGRAMS: dict[Callable[..., torch.Tensor], Callable[[], tuple[torch.Tensor, ...]]] = {
    scaled: lambda: (
        _rand(64, 64).bfloat16(), _rand(32, 64).to(F8), torch.tensor(0.0625), torch.tensor(0.5), _rand(64, 32).bfloat16(),
    ),
    integers: lambda: ((_rand(64, 64) * 40).to(torch.int8), (_rand(64, 32) * 40).to(torch.int8), _rand(32)),
    grouped: lambda: (_rand(64, 64).bfloat16(), _rand(3, 64, 32).bfloat16(), torch.tensor([16, 40, 64]).int()),
}  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")],
        ),
    ],
)
@pytest.mark.parametrize("mode", ["default", "max-autotune-no-cudagraphs"])
def test_products_of_narrow_types_with_what_follows(
    program: Callable[..., torch.Tensor], device: str, mode: str
) -> None:
    inputs = [t.to(device) for t in PROGRAMS[program]()]
    want = program(*inputs)
    heard: list[str] = []
    with events.listen(lambda kind, fields: heard.append(kind)):
        got = torchjit.compile(program, mode=mode, fullgraph=True)(*inputs)
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    assert "kernel" in heard and "fallback" not in heard


def test_wrong_values_of_options() -> None:
    for wrong in ({"autotune_seconds": -1}, {"autotune_seconds": "long"}, {"coordinate_descent_tuning": 1}):
        with pytest.raises(ValueError, match="want"):
            make_options(None, wrong)


def test_padding_is_an_option() -> None:
    """Only graphs on GPUs are padded: here both compile and agree."""
    x, w = _rand(40, 30), _rand(30, 50)
    for padding in (True, False):
        compiled = torchjit.compile(lambda a, b: (a @ b).relu(), options={"shape_padding": padding})
        torch.testing.assert_close(compiled(x, w), (x @ w).relu())
