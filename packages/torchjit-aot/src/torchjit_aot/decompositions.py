"""Decompositions: operators written in terms of simpler ones, as a pass over the joint graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch._ops import OpOverload

from torchjit_aot.joint import JointGraph

__all__ = ["decompose", "default_decompositions"]


def default_decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """x"""
    return {}


def decompose(joint: JointGraph, table: Mapping[OpOverload, Callable[..., Any]], keep: frozenset[OpOverload]) -> None:
    """x"""
