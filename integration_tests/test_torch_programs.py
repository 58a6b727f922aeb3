"""The programs of `torch_programs` and the files beside it compiled and in eager mode: everything that they do must be the same."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import random

import pytest
import torch
import torch_programs_caught  # noqa: F401  # these fill the table
import torch_programs_hooks  # noqa: F401
import torch_programs_known  # noqa: F401
import torch_programs_modes  # noqa: F401
import torch_programs_parameters  # noqa: F401
import torch_programs_random  # noqa: F401
import torch_programs_scalars  # noqa: F401
import torch_programs_subclasses  # noqa: F401
import torch_programs_training  # noqa: F401
import torch_programs_usage  # noqa: F401
from torch import nn
from torch.utils import _pytree as pytree
from torch_programs import PROGRAMS, Two

import torchjit

CALLS = 2


def _facts(value):
    """A comparable description."""
    if isinstance(value, Two):
        return "Two", _facts(value.a), _facts(value.b)
    if isinstance(value, torch.Tensor):
        plain = value.detach().as_subclass(torch.Tensor)
        stride = plain.stride() if plain.layout is torch.strided else plain.layout
        flags = (value.requires_grad, value.is_leaf, value.is_inference())
        return type(value).__name__, str(value.dtype), tuple(value.shape), stride, flags, plain.clone()
    if isinstance(value, list | tuple):
        return type(value).__name__, [_facts(v) for v in value]
    return value if isinstance(value, int | float | str | type(None)) else type(value).__name__


def _state(owner):
    if isinstance(owner, torch.Generator):
        return _facts(owner.get_state())
    if not isinstance(owner, nn.Module):
        return _facts(owner)
    tensors = [*owner.named_parameters(), *owner.named_buffers()]
    members = [sorted(vars(m)) for m in owner.modules()]
    return [(name, _facts(t), _facts(t.grad)) for name, t in tensors], members


def _did(function, args, owners):
    found = []
    for call in range(CALLS):
        torch.manual_seed(call)
        random.seed(call)
        try:
            out = function(*args)
        except Exception as error:
            found.append((type(error).__name__, str(error).splitlines()[0]))
            continue
        kept = [t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.requires_grad]
        if kept:
            torch.autograd.backward([t.abs().double().sum() for t in kept])
        grads = [t.grad for t in kept if t.is_leaf or t.retains_grad]
        found.append((_facts(out), _facts(grads)))
    found.append([(_facts(a), _facts(a.grad)) for a in args])
    found.append([_state(owner) for owner in owners])
    found.append((_facts(torch.get_rng_state()), random.getstate()))
    modes = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch._C._len_torch_function_stack())
    found.append((modes, str(torch.get_default_dtype()), str(torch.get_default_device())))
    return found


def _assert_equal(got, want, where=""):
    if isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want, equal_nan=True)
    elif isinstance(want, list | tuple):
        assert type(got) is type(want) and len(got) == len(want), (where, got, want)
        for i, (a, b) in enumerate(zip(got, want, strict=True)):
            _assert_equal(a, b, f"{where}.{i}")
    else:
        assert type(got) is type(want) and got == pytest.approx(want), (where, got, want)


@pytest.mark.filterwarnings("ignore")
# What a user's own backend is given differs in few programs from what ours are: every third shows it.
@pytest.mark.parametrize(
    ("name", "backend"), [*((n, "aot_eager") for n in PROGRAMS), *((n, "eager") for n in [*PROGRAMS][::3])]
)
def test_does_what_eager_does(name, backend):
    most, make = PROGRAMS[name]
    torch.manual_seed(1)
    want = _did(*make())
    torch.manual_seed(1)
    function, args, owners = make()
    compiled = torchjit.compile(function, backend=backend)
    _assert_equal(_did(compiled, args, owners), want)
    breaks = [record for s in compiled.compiled.specializations for record in s.breaks]
    assert len(breaks) <= most, [(b.reason.id, b.detail) for b in breaks]
