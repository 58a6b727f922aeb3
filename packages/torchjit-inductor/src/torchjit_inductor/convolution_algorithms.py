"""Convolutions whose algorithm cuDNN chooses by running all that it has (`torch.backends.cudnn.benchmark`), for `max_autotune`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch

from torchjit_inductor.steps import ExternStep, Program, Step, TensorRef

__all__ = ["convolution", "convolution_backward", "measure_algorithms", "with_measured_algorithm"]

_aten = torch.ops.aten


def convolution(*args: Any) -> torch.Tensor:
    """`aten.convolution` by the fastest algorithm for these sizes, found out in the first call."""
    result: torch.Tensor = _measured(_aten.convolution.default, args)
    return result


def convolution_backward(*args: Any) -> tuple[torch.Tensor | None, ...]:
    """`aten.convolution_backward`, likewise."""
    results: tuple[torch.Tensor | None, ...] = _measured(_aten.convolution_backward.default, args)
    return results


_MEASURED: dict[object, Callable[..., Any]] = {
    _aten.convolution.default: convolution,
    _aten.convolution_backward.default: convolution_backward,
}


def with_measured_algorithm(op: object) -> Callable[..., Any]:
    """The function for a convolution's operator.

    Raises:
        KeyError: it is another operator.
    """
    return _MEASURED[op]


def measure_algorithms(program: Program) -> Program:
    """The program with such convolutions, where their sizes are fixed: for each new size all algorithms would be run again."""
    return program.mapped(lambda step: [_with_measured(step)])


def _with_measured(step: Step) -> Step:
    if not isinstance(step, ExternStep) or step.op not in _MEASURED or step.kwargs:
        return step
    refs = [a for a in step.args if isinstance(a, TensorRef)]
    fixed = all(n.value is not None for ref in refs for n in ref.sizes)
    return attrs.evolve(step, op=_MEASURED[step.op]) if fixed else step


def _measured(op: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    # The program's own choice stands where results are to be alike whatever the machine does.
    if torch.are_deterministic_algorithms_enabled() or torch.backends.cudnn.benchmark:
        return op(*args)
    torch._C._set_cudnn_benchmark(True)  # `torch.backends.cudnn` refuses where a program has frozen its flags
    try:
        return op(*args)
    finally:
        torch._C._set_cudnn_benchmark(False)
