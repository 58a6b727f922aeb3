"""Versions, backends and the machine, for bug reports."""

from __future__ import annotations

import argparse
import platform

import torch

import torchjit

__all__ = ["HELP", "run"]

HELP = "versions, backends and the state of the machine, for bug reports"


def run(options: argparse.Namespace) -> int:
    """Print, always with success."""
    print(f"torchjit {torchjit.__version__}, torch {torch.__version__}, Python {platform.python_version()}")
    print(f"GPU: {torch.cuda.get_device_name() if torch.cuda.is_available() else 'none'}")
    print(f"CPU: {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads")
    print(f"backends: {', '.join(torchjit.list_backends(exclude_tags=None))}")
    return 0
