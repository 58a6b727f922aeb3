"""Small training programs, one for each thing that a compiled training step could get wrong; `observe` says what a user sees."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, final

import attrs
import torch
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor

from torchjit_core.events import listen

Run = Callable[..., Any]
PROGRAMS: dict[str, Program] = {}


@final
@attrs.frozen
class Program:
    """One function and how to try it.

    Attributes:
        f: what is compiled.
        make: its arguments; all tensors that a gradient may reach are leaves that `make` returns, or made from them.
        use: calls the (compiled) function on the arguments and returns what there is to see.
        exact: operators called one by one give bit for bit what eager PyTorch gives.
        tolerance: relative and absolute, for compiled kernels; None: that of the dtype.
    """

    f: Run
    make: Callable[[], list[Any]]
    use: Callable[[Run, list[Any]], Any]
    exact: bool = True
    tolerance: float | None = None


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def program(
    make: Callable[[], list[Any]],
    use: Callable[[Run, list[Any]], Any] | None = None,
    *,
    exact: bool = True,
    tolerance: float | None = None,
) -> Any:
    def add(f: Run) -> Run:
        PROGRAMS[f.__name__] = Program(f, make, use or call_and_backward, exact, tolerance)
        return f

    return add


def tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in tensors(item)] if isinstance(value, (tuple, list)) else []


def describe(value: Any, known: list[Tensor]) -> Any:
    """What can be seen of a result: values, layout, flags, what it is a view of."""
    if isinstance(value, (tuple, list)):
        return [describe(v, known) for v in value]
    if not isinstance(value, Tensor):
        return value
    if type(value) not in (Tensor, torch.nn.Parameter):
        return [type(value).__name__, describe(value.a, []), describe(value.b, []), value.requires_grad]  # type: ignore[attr-defined]
    if value.layout != torch.strided:
        return ["sparse", value.detach().to_dense(), value.layout, value.requires_grad]
    same = [i for i, t in enumerate(known) if t is value]
    shared = [i for i, t in enumerate(known) if t.layout == torch.strided and type(t) is not TwoTensor
              and t.untyped_storage()._cdata == value.untyped_storage()._cdata]  # fmt: skip
    base = value._base if not value.is_inference() and value._is_view() else None
    return [
        value.detach().clone(), value.dtype, value.stride(), value.storage_offset(), value.requires_grad, value.is_leaf,
        value.is_inference(), value.is_conj(), value.is_neg(), same, shared,
        [i for i, t in enumerate(known) if t is base],
    ]  # fmt: skip


def loss_of(outputs: list[Tensor]) -> Tensor | None:
    total = None
    for k, out in enumerate(outputs):
        if out.requires_grad:
            real = torch.view_as_real(out.resolve_conj()) if out.is_complex() else out
            weight = torch.linspace(0.5, 1.5 + k, real.numel()).reshape(real.shape).to(real.dtype)
            total = (real * weight).sum() if total is None else total + (real * weight).sum()
    return total


def call_and_backward(run: Run, args: list[Any]) -> Any:
    inputs = tensors(args)
    versions = [t._version if not t.is_inference() else -1 for t in inputs]
    result = run(*args)
    outputs = tensors(result)
    seen = [
        describe(result, [*inputs, *outputs]),
        [t.is_inference() or t._version != v for t, v in zip(inputs, versions, strict=True)],
    ]
    loss = loss_of(outputs)
    if loss is not None:
        loss.backward()  # type: ignore[no-untyped-call]
    return seen, describe([t.grad for t in inputs if t.is_leaf], []), describe(inputs, inputs)


def observe(run: Run, program: Program) -> Any:
    """What the program shows, the state of the generator, or the error."""
    torch.manual_seed(3)
    args = program.make()
    torch.manual_seed(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            seen = program.use(run, args)
        except Exception as error:
            return ["raised", type(error).__name__, str(error).splitlines()[0][:60]]
    return ["returned", seen, torch.random.get_rng_state()]


@contextlib.contextmanager
def seen_fallbacks() -> Iterator[list[str]]:
    """The reasons of what is left to eager PyTorch meanwhile."""
    found: list[str] = []
    with listen(lambda kind, fields: found.append(fields["reason"]) if kind in ("fallback", "graph_break") else None):
        yield found


def difference(want: Any, have: Any, *, tolerance: float | None, where: str = "") -> str | None:
    """Where two observations differ, or None. `tolerance`: relative and absolute; None is that of the dtype."""
    if isinstance(want, Tensor) and isinstance(have, Tensor):
        options = {} if tolerance is None else {"rtol": tolerance, "atol": tolerance}
        try:
            torch.testing.assert_close(have, want, equal_nan=True, check_stride=False, **options)
        except AssertionError as error:
            return f"{where}: {str(error).splitlines()[0]}"
        return None
    if isinstance(want, (tuple, list)) and isinstance(have, (tuple, list)) and len(want) == len(have):
        for i, (a, b) in enumerate(zip(want, have, strict=True)):
            if found := difference(a, b, tolerance=tolerance, where=f"{where}.{i}"):
                return found
        return None
    return None if type(want) is type(have) and want == have else f"{where}: {want!r} against {have!r}"
