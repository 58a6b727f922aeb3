"""`uv run pytest` runs the whole suite in two processes, each file in one of them; anything else that is asked for runs in this one.

`-n 0` keeps the whole suite in this process, too.
"""

from __future__ import annotations

import os

import pytest

_PROCESSES = 2


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Before pytest-xdist reads these options. Where a package is tested alone it is not installed."""
    if hasattr(config, "workerinput"):  # one of the two
        return
    options = config.option
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.getoption("collectonly")
    if not whole or not config.pluginmanager.hasplugin("xdist") or options.numprocesses is not None or options.usepdb:
        return
    options.numprocesses = _PROCESSES
    if options.dist == "no":
        options.dist = "loadfile"  # tests of a file share what it has compiled
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads of two processes that wait must not spin
