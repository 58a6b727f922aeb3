"""Strides of fake tensors beside those of eager's kernels, for every aten operator that OpInfo's samples reach on the CPU.

    python tools/sweep_strides.py [--samples 4] [--only REGEX] [--symbolic] [--dtypes float32,int64]

Each sample runs in eager, forward and backward, with its tensors as they are, in another order of dimensions, in orders
that differ between operands, with gaps, and expanded; each aten call on the way is made once more on fake tensors of a
capture. Prints the operators that lay out a result otherwise, with how often and one example; the exit status says
whether there are any. `--symbolic`: with symbols for the sizes.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import time
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch._dispatch.python import enable_python_dispatcher
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torchjit_core.paths import Arg
from torchjit_core.reasons import GraphBreak
from torchjit_fx.domain import TensorDomain
from torchjit_fx.known_results import fake_tensor
from torchjit_fx.testing import SimpleSizes, StaticSizes

UNDEFINED = re.compile(r"^(resize|set_|sparse|_sparse|_to_sparse|quantize|_nested|to_mkldnn|mkldnn)")


def database() -> list[Any]:
    """torch's own list of operators, from its test utilities."""
    stand_in: Any = types.ModuleType("expecttest")  # imported for the database's own tests only
    stand_in.TestCase = unittest.TestCase
    sys.modules.setdefault("expecttest", stand_in)
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415  # takes seconds

    return list(op_db)


# ---------------------------------------------------------------------- layouts
def reversed_dims(t: torch.Tensor) -> torch.Tensor:
    order = tuple(reversed(range(t.dim())))
    return t.permute(order).contiguous().permute(order)


def last_two(t: torch.Tensor) -> torch.Tensor:
    return t.transpose(-1, -2).contiguous().transpose(-1, -2)


def first_last(t: torch.Tensor) -> torch.Tensor:
    """Dimension 1 innermost."""
    return t.movedim(1, -1).contiguous().movedim(-1, 1)


def with_gaps(t: torch.Tensor) -> torch.Tensor:
    return torch.stack([t, t], -1)[..., 0]


def gaps_and_order(t: torch.Tensor) -> torch.Tensor:
    return with_gaps(reversed_dims(t).permute(tuple(reversed(range(t.dim()))))).permute(tuple(reversed(range(t.dim()))))


def expanded(t: torch.Tensor) -> torch.Tensor:
    return t[..., :1].expand(t.shape)


def expanded_first(t: torch.Tensor) -> torch.Tensor:
    return t[:1].expand(t.shape)


Change = Callable[[torch.Tensor], torch.Tensor]
LAYOUTS: dict[str, tuple[Change | None, Change | None]] = {
    "as they are": (None, None),
    "reversed": (reversed_dims, reversed_dims),
    "first reversed": (reversed_dims, None),
    "others reversed": (None, reversed_dims),
    "last two, dimension 1 innermost": (last_two, first_last),
    "dimension 1 innermost": (first_last, first_last),
    "gaps": (with_gaps, with_gaps),
    "gaps, reversed": (gaps_and_order, gaps_and_order),
    "expanded, reversed": (expanded, reversed_dims),
    "first expanded": (expanded_first, expanded),
}
"""What is done to the first tensor of a sample and to the others."""


def laid_out(sample: Any, layout: tuple[Change | None, Change | None]) -> tuple[Any, Any]:
    first = True

    def change(value: Any) -> Any:
        nonlocal first
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return value
        how, first = layout[0 if first else 1], False
        if value.dim() < 2 or how is None:
            made = value.detach().clone(memory_format=torch.preserve_format)
        else:
            made = how(value.detach())
        return made.requires_grad_(value.requires_grad)

    return pytree.tree_map(change, ((sample.input, *sample.args), dict(sample.kwargs)))


# ---------------------------------------------------------------------- one call
class Beside(TorchDispatchMode):
    """Makes every aten call on fakes as well and notes results that lie otherwise."""

    def __init__(self, symbolic: bool) -> None:
        super().__init__()
        self.symbolic = symbolic
        self.asked: set[Any] = set()
        self.failed: Counter[str] = Counter()
        self.without_samples: dict[str, str] = {}
        self.differ: dict[str, list[str]] = {}
        self.reached: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        key = (func, str(pytree.tree_map(_kind, (args, kwargs))))
        given = pytree.tree_flatten((args, kwargs))[0]
        plain = all(type(t) is torch.Tensor and t.layout is torch.strided and not t.is_quantized for t in given if isinstance(t, torch.Tensor))  # fmt: skip
        before = pytree.tree_map(_facts, (args, kwargs))
        out = func(*args, **kwargs)
        if plain and key not in self.asked and func.namespace == "aten" and not UNDEFINED.match(func._opname):
            self.asked.add(key)
            self.compare(func, before, out)
        return out

    def compare(self, func: Any, before: Any, out: Any) -> None:
        want = [t.stride() for t in pytree.tree_leaves(out) if _comparable(t)]
        if not want:
            return
        with torch.utils._python_dispatch._disable_current_modes():
            try:
                got = self.strides(func, *before)
            except (Exception, GraphBreak) as error:
                self.failed[f"{func}: {type(error).__name__}: {str(error)[:80]}"] += 1
                return
        self.reached.add(str(func))
        sizes = [t.shape for t in pytree.tree_leaves(out) if _comparable(t)]
        if len(got) != len(want) or any(_differ(*x) for x in zip(sizes, want, got, strict=True)):
            text = f"{pytree.tree_map(str, before)}\n      want {want} got {got}"
            self.differ.setdefault(str(func), []).append(text)

    def strides(self, func: Any, args: Any, kwargs: Any) -> list[tuple[int, ...]]:
        sizes = SimpleSizes() if self.symbolic else StaticSizes()
        domain = TensorDomain(lambda gm, inputs: gm, sizes)
        count = itertools.count()

        def fake(value: Any) -> Any:
            if not isinstance(value, _Facts):
                return value
            path = Arg.of(next(count), "x")
            shape = [domain.numbers.sym_int(sizes.size(n, path.size(d))) for d, n in enumerate(value.sizes)]
            strides: Any = value.strides
            if self.symbolic:
                exprs = [sizes.size(n, path.size(d)) for d, n in enumerate(value.sizes)]
                strides = domain.numbers.strides(exprs, value.sizes, value.strides, path, None)
                strides = [domain.numbers.sym_int(n) for n in strides]
            return fake_tensor(domain.mode, shape, strides, value.dtype, torch.device("cpu"))

        args, kwargs = pytree.tree_map(fake, (args, kwargs))
        with domain.mode, torch.no_grad():
            if self.symbolic:
                with enable_python_dispatcher():
                    out = func(*args, **kwargs)
            else:
                out = func(*args, **kwargs)
        return [tuple(map(int, t.stride())) for t in pytree.tree_leaves(out) if _comparable(t)]


class _Facts:
    def __init__(self, t: torch.Tensor) -> None:
        self.sizes, self.strides, self.dtype = tuple(t.shape), t.stride(), t.dtype

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.sizes)}/{list(self.strides)}"


def _facts(value: Any) -> Any:
    return _Facts(value) if isinstance(value, torch.Tensor) else value


def _kind(value: Any) -> str:
    return str(_facts(value)) if isinstance(value, torch.Tensor) else repr(value)


def _comparable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _differ(sizes: Any, want: Any, got: Any) -> bool:
    """As a program may tell; strides of tensors without elements are not asked about."""
    return 0 not in sizes and want != got


# ---------------------------------------------------------------------- all
BESIDE_THE_DATABASE: tuple[Callable[..., Any], ...] = (
    lambda x: torch.poisson(x.abs()),
    lambda x: torch.binomial(x.abs().round(), x.sigmoid()),
    lambda x: torch.bernoulli(x.sigmoid()),
    lambda x: torch.bernoulli(x, 0.5),
    lambda x: torch._standard_gamma(x.abs() + 0.1),
    lambda x: torch._sample_dirichlet(x.abs() + 0.1),
    lambda x: torch.normal(x, 1.0),
    lambda x: torch.normal(0.5, x.abs()),
    lambda x: F.rrelu(x, training=True),
    lambda x: F.rrelu(x, training=False),
    lambda x: F.dropout(x, 0.5),
    lambda x: F.alpha_dropout(x, 0.5, training=True),
    lambda x: F.feature_dropout(x, 0.5) if hasattr(F, "feature_dropout") else x,
    lambda x: F.gumbel_softmax(x),
    lambda x: 2**x,
    lambda x: 1**x,
    lambda x: x % 2,
    lambda x: 2 % x,
    lambda x: x // 2,
    lambda x: 2 // x,
    lambda x: x.ldexp(x.round()),
    lambda x: torch.xlogy(2, x.abs()),
    lambda x: torch.xlogy(x, 2),
    lambda x: torch.special.zeta(x, 2),
    lambda x: torch.special.xlog1py(2, x.abs()),
    lambda x: torch.copysign(x, -1.0),
    lambda x: torch.div(x, 0.3, rounding_mode="floor"),
    lambda x: torch.remainder(2, x),
    lambda x: torch.fmod(x, 2),
    lambda x: torch.bitwise_and(x.round().long(), 3),
    lambda x: torch.bitwise_and(3, x.round().long()),
    lambda x: x.round().int() << 1,
    lambda x: 1 << x.abs().round().int(),
    lambda x: torch.clamp(x, x * 0.5, x * 2),
    lambda x: torch.clamp(x, min=x.t() if x.dim() == 2 and x.shape[0] == x.shape[1] else x),
    lambda x: torch.frexp(x),
    lambda x: torch.complex(x, x),
    lambda x: torch.polar(x, x),
    lambda x: torch.where(x > 0, x, 1.0),
    lambda x: x.masked_fill(x > 0, 1.0),
    lambda x: torch.float_power(x.abs(), 2),
    lambda x: torch.lerp(x, x + 1, 0.5),
    lambda x: torch.addcdiv(x, x, x.abs() + 1),
    lambda x: F.hardshrink(x) + F.softshrink(x) + F.hardsigmoid(x) + F.hardswish(x) + F.mish(x) + F.elu(x),
    lambda x: torch.empty_like(x).exponential_(),
    lambda x: torch.rand_like(x),
    lambda x: torch.randint_like(x, 3),
    lambda x: torch.full_like(x, 2),
    lambda x: torch.zeros_like(x),
)
"""Operators for which the database has no samples, or none with such arguments."""


def run_beside(beside: Beside) -> None:
    for shape in ((3, 4), (4, 4), (2, 3, 4), (2, 3, 4, 5), (4, 1), (1, 4), (2, 1, 3)):
        x = torch.randn(shape, requires_grad=True)
        for layout, _ in LAYOUTS.values():
            for program in BESIDE_THE_DATABASE:
                try:
                    given = (x if layout is None else layout(x)).detach().requires_grad_()
                    with beside:
                        out = program(given)
                        _differentiate([out], [given])
                except Exception:  # the operation does not take such tensors
                    continue


def _differentiate(results: list[Any], inputs: list[Any]) -> None:
    results, inputs = [[t for t in pytree.tree_leaves(x) if isinstance(t, torch.Tensor) and t.requires_grad] for x in (results, inputs)]  # fmt: skip
    if not results or not inputs:
        return
    for change in (lambda t: t, lambda t: reversed_dims(t) if t.dim() > 1 else t):
        grads = [change(torch.ones_like(t)) for t in results]
        torch.autograd.grad(results, inputs, grads, retain_graph=True, allow_unused=True)


def run(op: Any, dtype: torch.dtype, samples: int, beside: Beside) -> None:
    for sample in _samples(op, dtype, samples, beside):
        for layout in LAYOUTS.values():
            try:
                args, kwargs = laid_out(sample, layout)
                torch.manual_seed(0)
                with beside:
                    out = op.op(*args, **kwargs)
                    _differentiate([out], [args, kwargs])
            except Exception:  # the sample does not take such tensors
                continue


def _samples(op: Any, dtype: torch.dtype, count: int, beside: Beside) -> Iterator[Any]:
    try:
        yield from itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=op.supports_autograd and dtype.is_floating_point), count)  # fmt: skip
    except Exception as error:  # of torch's own makers of samples; which operators it leaves out is told at the end
        beside.without_samples[op.name] = f"{type(error).__name__}: {str(error)[:80]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--only", default="")
    parser.add_argument("--symbolic", action="store_true")
    parser.add_argument("--dtypes", default="float32,int64")
    parser.add_argument("--examples", type=int, default=1)
    parser.add_argument("--failed", action="store_true", help="print what fakes refused, too")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    beside, start = Beside(options.symbolic), time.time()
    for op in database():
        if not re.search(options.only, op.name) or op.name.startswith(("jiterator", "sparse", "torch.ops")):
            continue
        for name in options.dtypes.split(","):
            dtype = getattr(torch, name)
            if dtype in op.dtypes:
                run(op, dtype, options.samples, beside)
    if re.search(options.only, "beside"):
        run_beside(beside)
    for func, found in sorted(beside.differ.items()):
        print(f"{func}: {len(found)}")
        for text in found[: options.examples]:
            print(f"   {text}")
    if options.failed:
        for text, count in beside.failed.most_common():
            print(f"refused {count} times: {text}")
    for name, error in sorted(beside.without_samples.items()):
        print(f"no samples of {name}: {error}")
    calls = (
        f"{len(beside.asked)} calls of {len(beside.reached)} operators, {sum(beside.failed.values())} refused by fakes"
    )
    print(f"{calls}; {len(beside.differ)} operators lay out results otherwise; {time.time() - start:.0f} s")
    return bool(beside.differ)


if __name__ == "__main__":
    sys.exit(main())
