"""A project: a package `proj` of four modules, made of some features, written to a folder."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import attrs

from .features import FEATURES, MODULES, Swap

__all__ = ["Project", "compose"]

_HEAD = """\
import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import os
import types
import typing

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import torchjit
import torchjit_aot
"""
_BETWEEN = """
def unrelated_{module}(x, by=1.5):
    return x * by + 2.5

"""
_TOP = """
OPTIONS = {}


def inputs(grad=False, rows=4):
    x = torch.linspace(-1, 1, rows * 6).reshape(rows, 6)
    return x.requires_grad_() if grad else x
"""


@attrs.frozen
class Project:
    """Texts by module, the cases that its program runs, its environment, and the name of its folder."""

    texts: Mapping[str, str]
    cases: tuple[str, ...]
    environment: Mapping[str, str] = {}
    folder: str = "here"

    def write(self, parent: Path) -> Path:
        """Write what differs from what is there.

        Returns:
            The folder that has to be in `sys.path`.
        """
        package = parent / self.folder / "proj"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").touch()
        for module, text in self.texts.items():
            path = package / f"{module}.py"
            if not path.exists() or path.read_text() != text:
                path.write_text(text)
        return package.parent

    def swaps(self) -> list[Swap]:
        """The edits by hand of its features that its texts have a place for."""
        swaps = [swap for case in self.cases for swap in FEATURES[case].swaps]
        return [s for s in swaps if s.module == "environment" or s.old in self.texts[s.module]]


def compose(features: tuple[str, ...], r: random.Random) -> Project:
    """A project of these features, in a random order in each module."""
    texts = {}
    for n, module in enumerate(MODULES):
        imports = "" if n == 0 else "from proj import settings\n"
        pieces = [FEATURES[name].texts[module] for name in features if module in FEATURES[name].texts]
        r.shuffle(pieces)
        pieces.insert(r.randrange(len(pieces) + 1), _BETWEEN.format(module=module).strip("\n") + "\n")
        texts[module] = _HEAD + imports + (_TOP if module == "top" else "") + "\n\n" + "\n\n".join(pieces)
    return Project(texts, features)
