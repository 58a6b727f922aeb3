"""A project: a package `proj` of four modules and a library beside it, made of some features, written to a folder."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import attrs

from .features import FEATURES, MODULES, Swap

__all__ = ["END", "Piece", "Project", "compose"]

_HEAD = """\
import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import os
import sys
import types
import typing

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import torchjit
import torchjit_aot
"""
_BETWEEN = """\
def unrelated_{module}(x, by=1.5):
    return x * by + 2.5
"""
_TOP = """
OPTIONS = {}


def inputs(grad=False, rows=4):
    x = torch.linspace(-1, 1, rows * 6).reshape(rows, 6)
    return x.requires_grad_() if grad else x
"""
END = "end"
"""Of pieces that change what others have defined: they stay last."""


def _renamed(text: str, old: str, new: str) -> str:
    """A text that imports a module by another name."""
    text = re.sub(rf"\bproj\.{old}\b", f"proj.{new}", text)
    return re.sub(rf"from proj import {old}( as \w+)?", lambda m: f"from proj import {new}{m[1] or f' as {old}'}", text)


class Piece(NamedTuple):
    """A part of a module's text and the feature it belongs to; "" is nobody's, and nothing depends on it."""

    feature: str
    text: str
    place: str = ""


@attrs.frozen
class Project:
    """Pieces by module, the cases that its program runs, its environment, the name of its folder and other names of its modules."""

    pieces: Mapping[str, tuple[Piece, ...]]
    cases: tuple[str, ...]
    environment: Mapping[str, str] = {}
    folder: str = "here"
    names: Mapping[str, str] = {}

    def text(self, module: str) -> str:
        """Of a module: the pieces of the first lines, imports, then the others."""
        pieces = self.pieces[module]
        first = [p.text for p in pieces if p.place == "first"]
        between = "" if module in ("settings", "vendor") else "from proj import settings\n"
        head = "".join(first) + _HEAD + between + (_TOP if module == "top" else "")
        text = head + "".join("\n\n" + p.text for p in pieces if p.place != "first")
        for old, new in self.names.items():
            text = _renamed(text, old, new)
        return text

    def write(self, parent: Path) -> Path:
        """Write what differs from what is there.

        Returns:
            The folder that has to be in `sys.path`.
        """
        folder = parent / self.folder
        wanted = {folder / "proj" / "__init__.py": ""}
        for module in self.pieces:
            name = self.names.get(module, module)
            wanted[
                folder
                / ("vendor" if module == "vendor" else "proj")
                / f"{'__init__' if module == 'vendor' else name}.py"
            ] = self.text(module)
        version = (
            re.search(r'^__version__ = "(.*)"', self.text("vendor"), re.MULTILINE) if "vendor" in self.pieces else None
        )
        wanted[folder / "vendor-0.dist-info" / "METADATA"] = f"Name: vendor\nVersion: {version[1] if version else 0}\n"
        for path in (folder / "proj").glob("*.py"):
            if path not in wanted:
                path.unlink()
        for path, text in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_text() != text:
                path.write_text(text)
        return folder

    def gone_from(self, parent: Path) -> None:
        """Remove its folder."""
        shutil.rmtree(parent / self.folder.partition("/")[0], ignore_errors=True)

    def compiles(self) -> bool:
        """Is every module a program?"""
        try:
            for module in self.pieces:
                compile(self.text(module), "", "exec")
        except (SyntaxError, ValueError):
            return False
        return True

    def without_others(self, cases: tuple[str, ...]) -> Project:
        """Only these features, what belongs to nobody, and what they need."""
        kept = {m: tuple(p for p in pieces if p.feature in ("", *cases)) for m, pieces in self.pieces.items()}
        return attrs.evolve(self, pieces=kept, cases=cases)

    def swaps(self, case: str) -> list[Swap]:
        """The edits by hand of a feature that its texts have a place for."""
        texts = {m: "\n".join(p.text for p in pieces if p.feature == case) for m, pieces in self.pieces.items()}
        return [s for s in FEATURES[case].swaps if s.module == "environment" or s.old in texts[s.module]]


def compose(features: tuple[str, ...], r: random.Random) -> Project:
    """A project of these features, in a random order in each module."""
    pieces: dict[str, tuple[Piece, ...]] = {}
    for module in MODULES:
        chosen = [Piece(name, FEATURES[name].texts[module]) for name in features if module in FEATURES[name].texts]
        r.shuffle(chosen)
        chosen.insert(r.randrange(len(chosen) + 1), Piece("", _BETWEEN.format(module=module)))
        pieces[module] = tuple(chosen)
    return Project(pieces, features)
