"""The page of parity: upstream's names are all there, and what it says of torchjit is so."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._inductor
import torch._logging._internal

import torchjit
from torchjit.environment import VARIABLES
from torchjit.stance import STANCES
from torchjit_report.logs import log_names

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))
try:
    import write_parity
    from parity_rows import SECTIONS
finally:
    sys.path.pop(0)

NEWEST = (2, 15)
"""The torch of the page; with another one only what it says of torchjit is checked."""
VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
with_newest = pytest.mark.skipif(VERSION != NEWEST, reason="the page is of another torch")
HAS = [(section, row) for section in SECTIONS for row in section.rows if row.answer == "has it" or row.taken]
"""What torchjit has under upstream's name."""
BY_KIND = {section.title: {row.name for row in section.rows} for section in SECTIONS}


@with_newest
def test_upstreams_public_names_are_all_there() -> None:
    logs = torch._logging._internal.log_registry
    artifacts = {name for name in logs.artifact_names if "test" not in name}
    wanted = {
        "Arguments of torch.compile": set(inspect.signature(torch.compile).parameters),
        "Modes": set(torch._inductor.list_mode_options()),
        "Backends": set(torch.compiler.list_backends()),
        "torch.compiler": set(torch.compiler.__all__),
        "Stances": set(write_parity.stances()),
        "torch._dynamo": set(torch._dynamo.__all__),
        "torch.compiler.config": {name for name in torch.compiler.config._config if not name.startswith("_")},
        "TORCH_LOGS": artifacts - LOGS_OF_OTHERS,
    }
    missing = {title: names - BY_KIND[title] for title, names in wanted.items() if names - BY_KIND[title]}
    assert not missing


LOGS_OF_OTHERS = {
    "annotation", "auto_chunker", "autotuning_inputs", "compute_dependencies", "graph_region_expansion", "hierarchical_compile",
    "incremental", "native_dsl_compile", "node_runtime_estimation", "onnx_diagnostics", "overlap", "overlap_scheduling",
    "partitioned_scatter", "trace_shape_events",
}  # fmt: skip
"""Of parts of PyTorch that are not here, and of its developers."""


def test_answers_are_of_four_kinds_and_names_come_once() -> None:
    for section in SECTIONS:
        names = [row.name for row in section.rows]
        assert len(names) == len(set(names)), section.title
        for row in section.rows:
            assert re.match(r"has it$|equivalent: .|needs none: .|not yet($|: .)", row.answer), row
            assert not row.link or (ROOT / "docs" / row.link).exists(), row


def test_what_it_has_is_there() -> None:
    known: dict[str, Any] = {
        "argument": inspect.signature(torchjit.compile).parameters,
        "mode": torchjit.list_mode_options(),
        "stance": STANCES,
        "call": torchjit.__all__,
        "setting": dir(torchjit.config),
        "option": torchjit.list_options(),
        "log": log_names(),
        "variable": [name for each in VARIABLES for name in each.name.split(", ")],
    }
    for section, row in HAS:
        if section.kind == "setting":
            assert hasattr(torchjit.config, row.name), row
        elif section.kind == "backend":
            if row.name not in torchjit.list_backends(None):
                with pytest.raises(torchjit.exc.UserError, match="pip install"):
                    torchjit.lookup_backend(row.name)
        else:
            assert row.name in known[section.kind], row


@with_newest
def test_what_it_has_takes_upstreams_parameters() -> None:
    calls = [("torch.compile", torch.compile, torchjit.compile)]
    for section, row in HAS:
        if section.kind == "call" and row.name != "compile":
            calls.append((row.name, write_parity.theirs(section, row.name), getattr(torchjit, row.name)))
    wrong = [f"{name}: {text}" for name, theirs, ours in calls for text in differences(theirs, ours)]
    assert not wrong


def differences(theirs: Any, ours: Any) -> list[str]:
    """Parameters of theirs that ours does not take in the same way, and more of ours that have no default."""
    wanted, got = inspect.signature(theirs).parameters, inspect.signature(ours).parameters
    found = [f"{p} is needed" for p in got.values() if p.name not in wanted and p.default is p.empty]
    by_place = [p.name for p in got.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    place = 0
    for name, p in wanted.items():
        if name not in got:
            found.append(f"no {name}")
            continue
        if p.kind is p.POSITIONAL_OR_KEYWORD:
            if by_place[place : place + 1] != [name]:
                found.append(f"{name} is not at place {place}")
            place += 1
        if got[name].default != p.default:
            found.append(f"{name} is {got[name].default!r} by default, not {p.default!r}")
    return found


def test_what_it_has_is_used_by_a_test() -> None:
    files = [*ROOT.glob("integration_tests/*.py"), *ROOT.glob("packages/*/tests/*.py")]
    text = "\n".join(path.read_text() for path in files if path.name != Path(__file__).name)
    words = set(re.findall(r"[\w.-]+", text)) | set(re.findall(r"\w+", text))
    assert not {row.name for _, row in HAS if row.name not in words}


def test_what_it_does_not_have_says_what_to_write() -> None:
    for section in SECTIONS:
        for row in section.rows:
            if row.answer == "has it" or row.taken:
                continue
            if section.kind == "call" and not hasattr(torchjit, row.name):
                with pytest.raises(AttributeError, match=re.escape(row.answer)):
                    getattr(torchjit, row.name)
            elif section.kind == "setting":
                with pytest.raises(torchjit.exc.UserError, match=re.escape(row.answer)):
                    setattr(torchjit.config, row.name, True)
                assert not hasattr(torchjit.config, row.name)
            elif section.kind == "option":
                with pytest.raises(torchjit.exc.UserError, match=re.escape(row.answer)):
                    torchjit.compile(abs, options={row.name: True})
    with pytest.raises(AttributeError, match="has no attribute 'complie'"):
        torchjit.complie  # type: ignore[attr-defined]


@with_newest
def test_the_page_is_current() -> None:
    """`uv run python tools/write_parity.py` makes it so."""
    assert write_parity.PAGE.read_text() == write_parity.render()
