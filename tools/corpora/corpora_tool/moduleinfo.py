"""torch's ModuleInfo database: every module of `torch.nn` with the samples that torch's own tests use."""

from __future__ import annotations

import sys
import types
import unittest
from collections.abc import Sequence
from typing import Any

import torch

from corpora_tool.case import Case, Skip

_INFOS: dict[str, Any] = {}


def prepare() -> None:
    """Import the database. It is part of torch's test utilities, which want a package that users do not have."""
    if "expecttest" not in sys.modules:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    # Imported here: the stand-in must be in place.
    from torch.testing._internal.common_modules import module_db

    _INFOS.update({info.name: info for info in module_db})


def names() -> Sequence[str]:
    """Names of modules, such as `nn.Linear`."""
    return sorted(_INFOS)


def build(name: str, mode: str, device: str) -> Sequence[Case]:
    """A case per sample."""
    info = _INFOS[name]
    training = mode == "train"
    if not training and not info.train_and_eval_differ:
        raise Skip("train and eval do not differ")
    torch.manual_seed(0)
    samples = info.module_inputs_func(info, device=device, dtype=torch.float32, requires_grad=True, training=training)
    cases = []
    for number, sample in enumerate(samples):
        if sample.forward_input is None:
            continue
        module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
        module = module.to(device).train(training)
        forward = sample.forward_input
        label = f"{name}/{number}" + (f" {sample.desc}" if sample.desc else "")
        cases.append(Case(label, module, tuple(forward.args), dict(forward.kwargs)))
    if not cases:
        raise Skip("no sample has a forward input")
    return cases
