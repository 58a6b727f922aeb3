"""Run a command from a checkout without installing anything: sources on the path, C extensions built in place.

For machines without a package index (the reference GPU machine): needs torch, attrs, rich, Jinja2, platformdirs, setuptools and a C compiler.

    python3 tools/from_checkout.py python3 -m torchjit.cli demo
    python3 tools/from_checkout.py python3 -m pytest -m gpu packages integration_tests
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parent.parent


def build(package: Path) -> None:
    """Compile csrc/*.c into src/<import name>/_c.<tag>.so, unless that is newer than the sources."""
    target = package / "src" / package.name.replace("-", "_") / f"_c{sysconfig.get_config_var('EXT_SUFFIX')}"
    inputs = sorted(package.glob("csrc/*.[ch]"))
    if target.exists() and target.stat().st_mtime > max(p.stat().st_mtime for p in inputs):
        return
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=package,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"building {package.name} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def main() -> int:
    """Build, then run the command given; returns its status."""
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    for package in sorted(ROOT.glob("packages/*")):
        if (package / "csrc").exists():
            build(package)
    sources = [str(p) for p in (*ROOT.glob("packages/*/src"), *ROOT.glob("tools/*/src"))]
    path = os.pathsep.join([*sources, *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(sys.argv[1:], env={**os.environ, "PYTHONPATH": path}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
