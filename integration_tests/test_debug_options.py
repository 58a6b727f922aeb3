"""Options that leave something out or write something down: fusion of epilogues, layouts, the debug folder and its pictures."""

# mypy: allow-untyped-defs

from __future__ import annotations

import os
import sys
from pathlib import Path
from xml.etree import ElementTree

import forked
import pytest
import torch
from torch import nn

import torchjit
from torchjit_core import events

PROGRAM = """
import torch, torchjit
def f(x, w):
    return torch.relu((x @ w).sum(-1) * 2).sum()
x, w = torch.randn(64, 32), torch.randn(32, 32, requires_grad=True)
torchjit.compile(f, options={options})(x, w).backward()
"""


def kernels_of(f, *args, **options) -> int:
    """How many kernels are generated, with values as in eager."""
    heard: list[str] = []
    with events.listen(lambda kind, fields: heard.append(kind)):
        got = torchjit.compile(f, options=options)(*args)
    torch.testing.assert_close(got, f(*args))
    return heard.count("kernel")


def test_epilogue_fusion_off_makes_more_kernels():
    def f(x):
        return torch.relu(x.sum(-1) * 2 + 1)

    x = torch.randn(64, 32)
    assert kernels_of(f, x) == 1
    assert kernels_of(f, x, epilogue_fusion=False) == 2

    def pointwise(x):
        return torch.relu(x * 2 + 1)

    assert kernels_of(pointwise, x, epilogue_fusion=False) == 1  # nothing reduces: no epilogue


def test_layout_optimization_off_leaves_layouts(monkeypatch):
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).eval()
    x = torch.randn(2, 4, 16, 16)

    def strides(**options) -> list[tuple[int, ...]]:
        seen: list[tuple[int, ...]] = []

        def look(graph):
            seen.extend(n.meta["val"].stride() for n in graph.nodes if n.target is torch.ops.aten.convolution.default)

        look.uuid = lambda: "look"
        fast = torchjit.compile(model, options={**options, "post_grad_custom_post_pass": look})
        fast(x).sum().backward()
        return seen

    import torchjit_inductor.convolution_layouts as convolution_layouts

    monkeypatch.setattr(convolution_layouts, "_worth_it_on_cpu", lambda graph, convolutions: True)
    turned, left = strides(), strides(layout_optimization=False)
    assert any(s[1] == 1 for s in turned), turned
    assert left and all(s[1] != 1 for s in left), left


@pytest.mark.parametrize("options", [{"trace.enabled": True}, {"trace.graph_diagram": True}])
def test_debug_folder(options, tmp_path: Path):
    command = [sys.executable, "-c", PROGRAM.format(options=options)]
    done = forked.run(command, cwd=tmp_path, env={**os.environ, "TORCHJIT_CACHE_DIR": str(tmp_path / "cache")})
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "torchjit_debug").iterdir()
    names = sorted(p.name for p in (run / "0_0").iterdir())
    pictures = [p for p in (run / "0_0").glob("*.svg")]
    if "trace.enabled" in options:
        assert any(n.endswith(".host.py") for n in names) and any(n.endswith(".cpp") for n in names), names
        assert any("backward" in n for n in names) and any("joint" in n for n in names), names
        assert "guards.txt" in names and not pictures
    else:
        assert len(pictures) == len(names) == 2, names  # the forward's and the backward's
        for picture in pictures:
            assert ElementTree.fromstring(picture.read_text()).tag.endswith("svg")


def test_a_debug_folder_that_cannot_be_written_is_told_once(tmp_path: Path):
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-c", PROGRAM.format(options={"trace.enabled": True})]
    done = forked.run(command, cwd=tmp_path, env={**os.environ, "TORCHJIT_DEBUG_DIR": str(tmp_path / "file")})
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("TORCHJIT_DEBUG_DIR") == 1
