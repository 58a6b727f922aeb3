"""`tools/replay.py`: what was recorded is found again, and a change is told at the stages that it reaches."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
REPLAY = ROOT / "tools/replay.py"


def replay(*arguments: object, seed: int = 0) -> tuple[int, str]:
    command = [sys.executable, str(REPLAY), *map(str, arguments), "--only", "goldens", "--filter", "affine"]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    return done.returncode, done.stdout + done.stderr


def test_a_record_is_found_again_and_a_change_is_told_at_its_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, told = replay("record", tmp_path / "old", seed=1)
    assert status == 0, told
    (path,) = (tmp_path / "old/goldens").glob("*.txt")
    text = path.read_text()
    stages = re.findall(r"(?m)^%%%% (.*)$", text)
    assert {
        "fx graphs",
        "guards",
        "joint graphs",
        "partitioned graphs",
        "C kernels",
        "Triton kernels",
        "host programs",
        "emitted code",
    } <= {*stages}
    assert str(ROOT) not in text and not re.search(r"0x[0-9a-f]{6}", text)
    changed = text.replace("torch.relu", "torch.selu", 1)
    assert changed != text
    path.write_text(changed)
    status, told = replay("compare", tmp_path / "old", "--into", tmp_path / "new", seed=2)
    assert status == 1, told
    assert re.findall(r"(?m)^== (.*)$", told) == ["goldens/affine: fx graphs"]
    assert "selu" in told and f"1 programs, {len(stages)} stages compared, 1 differences" in told
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        from replay import compare  # noqa: PLC0415  a tool's
    finally:
        del sys.path[0]
    renamed = ["torch.selu=torch.relu"]
    assert compare(tmp_path / "old", tmp_path / "new", ["goldens"], "", renamed, None) == 0
    assert f"1 programs, {len(stages)} stages compared, 0 differences" in capsys.readouterr().out
