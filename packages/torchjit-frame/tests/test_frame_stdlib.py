"""CPython's own tests give the same result when every function frame is replaced."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MODULES = ["test_functools", "test_dataclasses", "test_contextlib", "test_scope", "test_super", "test_copy"]

KNOWN = {
    # A decision keeps the first function of each code object alive, and the test counts instances.
    "door": {"test.test_scope.ScopeTests.testLeaks"},
}


def outcome(mode: str, modules: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-X", "faulthandler", str(Path(__file__).parent / "swap_stdlib.py"), mode, *modules]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    parsed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return parsed


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    if importlib.util.find_spec("test.test_functools") is None:
        pytest.skip("this Python came without its tests")
    return outcome("plain", MODULES)


@pytest.mark.parametrize("mode", ["left", "identity", "widen", "door"])
def test_same_outcome(mode: str, plain: dict[str, Any]) -> None:
    found = outcome(mode, MODULES)
    for module in MODULES:
        expected, result = plain["modules"][module], found["modules"][module]
        assert result["run"] == expected["run"] > 10
        assert set(result["failed"]) - set(expected["failed"]) <= KNOWN.get(mode, set())
    counters = found["counters"]
    assert counters["asked"] > 1000
    assert counters["swapped"] > 10_000 or mode in ("left", "door")
