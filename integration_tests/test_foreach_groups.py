"""Groups of tensors by device and dtype, which clipping of gradients and optimizers make: also of none, and what is refused."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import pytest
import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype

import torchjit


def model(gradients):
    m = torch.nn.Linear(2, 2)
    with torch.no_grad():
        m.weight.fill_(1.0)
        m.bias.fill_(2.0)
    for p, wanted in zip(m.parameters(), gradients, strict=True):
        p.grad = p.detach().clone() if wanted else None
    return m


def groups(*lists, with_indices=False):
    """`lists` of 1 and 2 for tensors of two dtypes."""

    def program(m):
        tensors = {1: m.weight.detach(), 2: m.weight.detach().half(), None: None}
        made = _group_tensors_by_device_and_dtype([[tensors[q] for q in items] for items in lists], with_indices)
        return list(made.items())

    return program


PROGRAMS = {
    "values": lambda m: clip_grad_value_(m.parameters(), 0.1),
    "values, one by one": lambda m: clip_grad_value_(m.parameters(), 0.1, foreach=False),
    "values of nothing": lambda m: clip_grad_value_([], 0.1),
    "norm": lambda m: clip_grad_norm_(m.parameters(), 0.1),
    "norm of nothing": lambda m: clip_grad_norm_([], 0.1),
    "largest": lambda m: clip_grad_norm_(m.parameters(), 0.1, float("inf")),
    "total norm": lambda m: get_total_norm([p.grad for p in m.parameters() if p.grad is not None]),
    "total norm with no gradient": lambda m: get_total_norm([p.grad for p in m.parameters()]),
    "norm that is known": lambda m: clip_grads_with_norm_(m.parameters(), 1.0, torch.tensor(3.0)),
    "norms of no tensors": lambda m: torch._foreach_norm([]),
    "no lists": groups(),
    "an empty list": groups([]),
    "an empty first list": groups([], [1]),
    "a shorter list": groups([1, 1], [1]),
    "a longer list": groups([1], [1, 1]),
    "no first tensor": groups([1, None], [1, 1]),
    "no second tensor": groups([1], [None]),
    "an empty second list": groups([1], []),
    "two dtypes": groups([1, 2, 1], with_indices=True),
}


def outcome(program, gradients):
    m = model(gradients)
    try:
        result = program(m)
    except (RuntimeError, AttributeError) as error:
        result = str(error)
    return repr(result), [repr(p.grad) for p in m.parameters()]


@pytest.mark.parametrize("gradients", [(True, True), (True, False), (False, False)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name, gradients):
    compiled = torchjit.compile(PROGRAMS[name], backend="aot_eager", on_error="raise")
    for _ in range(2):
        assert outcome(compiled, gradients) == outcome(PROGRAMS[name], gradients)


def test_an_error_is_caught_in_the_region():
    def program(m):
        try:
            clip_grad_value_(m.parameters(), 0.1)
        except RuntimeError as error:
            return str(error)

    assert outcome(torchjit.compile(program, backend="eager"), (False, False)) == outcome(program, (False, False))
