"""What `test_triton_kernels` runs: prints, for each program, whether it did what eager does, and its breaks; then the kernels of
`flex_attention` that agree (`flex_program`), here because a process with an interpreting Triton takes seconds to start."""

# mypy: allow-untyped-decorators, allow-untyped-defs

from __future__ import annotations

from typing import Any

import few_queries_program
import flex_program
import torch
import triton
import triton.language as tl

import torchjit


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=inside) + tl.load(y_ptr + at, mask=inside), mask=inside)


def add(x: torch.Tensor, y: torch.Tensor, kernel: Any = add_kernel) -> torch.Tensor:
    out = torch.empty_like(x)
    n = out.numel()
    kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=64)
    return out


def launch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return add(x * 2, y).sin()


def launch_twice(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = add(x * 2, y)
    out = torch.empty_like(z)
    add_kernel[(triton.cdiv(z.numel(), 32),)](z, y, out, z.numel(), BLOCK=32)
    return out + 1


def launch_wrapped(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return add(x * 2, y, torch.library.wrap_triton(add_kernel)) + 1


class Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return add(x, y)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * 2, gradients[0]


def launch_by_function(x: torch.Tensor, y: torch.Tensor) -> Any:
    return Add.apply(x * 2, y) * 3


@torch.library.triton_op("torchjit_test::add", mutates_args={})
def operator(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return add(x, y, torch.library.wrap_triton(add_kernel))


def launch_by_operator(x: torch.Tensor, y: torch.Tensor) -> Any:
    return operator(x * 2, y) + 1


def wraps() -> bool:
    """Does this version of PyTorch wrap functions of Triton's interpreter?"""
    try:
        torch.library.wrap_triton(add_kernel)
    except RuntimeError:
        return False
    return True


def main() -> None:
    wrapped = (launch_wrapped, launch_by_operator) if wraps() else ()
    print("wraps" if wrapped else "does not wrap")
    for program in (launch, launch_twice, launch_by_function, *wrapped):
        compiled: Any = torchjit.compile(program, backend="aot_eager")
        x, y = torch.randn(100), torch.randn(100)
        same = all(torch.allclose(compiled(x, y), program(x, y)) for _ in range(2))
        print(program.__name__, same, sum(len(s.breaks) for s in compiled.compiled.specializations))


if __name__ == "__main__":
    main()
    flex_program.main()
    few_queries_program.main()
