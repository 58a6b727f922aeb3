"""What a release promises of each distribution, as far as its pyproject.toml and files say it; `tools/release.py` builds and tries them."""

# mypy: no-warn-return-any

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import torchjit

ROOT = Path(__file__).parent.parent
PACKAGES = sorted(p.parent for p in ROOT.glob("packages/*/pyproject.toml"))


def _project(package: Path) -> dict[str, Any]:
    return tomllib.loads((package / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.name)
def test_what_an_index_shows_and_installers_need(package: Path) -> None:
    project = _project(package)
    assert project["version"] == torchjit.__version__
    assert project["license-files"] == ["LICENSE"]
    assert (package / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert len((package / project["readme"]).read_text()) > 500
    assert "Typing :: Typed" in project["classifiers"] and project["keywords"] and project["description"]
    needs = [*project["dependencies"], *(n for more in project.get("optional-dependencies", {}).values() for n in more)]
    for need in needs:
        if need.startswith("torchjit"):
            assert re.search(rf"=={re.escape(torchjit.__version__)}$", need), f"{need}: siblings come in one version"
        if re.match(r"torch\b(?!vision)", need):
            assert re.fullmatch(r"torch>=2\.11,<2\.\d+", need), f"{need}: from the oldest to the newest that is tested"


@pytest.mark.slow
def test_a_wheel_alone_runs_the_tutorial_of_the_vm(tmp_path: Path) -> None:
    """In an environment without torch."""
    command = [sys.executable, str(ROOT / "tools" / "release.py"), "torchjit-vm", "--dist", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "torchjit-vm: installed alone, works" in done.stdout, done.stdout + done.stderr
