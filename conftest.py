"""`uv run pytest` runs the whole suite in two processes, each file in one of them; anything else that is asked for runs in this one.

`-n 0` keeps the whole suite in this process, too.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator

import pytest

_PROCESSES = 2
# Tests compile what they are about: nothing that an earlier run has left on disk, whatever the default is. Processes that they start inherit it,
# and what tests of the store set counts; tools/warm_suite.py runs the suite with the store on.
os.environ.setdefault("TORCHJIT_STORE", "off")


try:
    from hypothesis import HealthCheck, settings
except ModuleNotFoundError:  # where a package is tested alone that has no property tests
    pass
else:
    # How long an example takes says how busy the machine is.
    settings.register_profile("torchjit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("torchjit")


def _keep_bytecode() -> None:
    """Of processes that tests start, in a folder of this run, where the environment asks Python to write none.

    Most of them import torch: without bytecode each compiles 1,700 modules first, which doubles what its imports take.
    """
    if not os.environ.get("PYTHONDONTWRITEBYTECODE") or os.environ.get("PYTHONPYCACHEPREFIX"):
        return
    folder = tempfile.mkdtemp(prefix="torchjit-bytecode-")
    atexit.register(_remove, folder, os.getpid())
    del os.environ["PYTHONDONTWRITEBYTECODE"]
    os.environ["PYTHONPYCACHEPREFIX"] = folder
    # And of this one, for what it imports from now on.
    sys.dont_write_bytecode = False
    sys.pycache_prefix = folder


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # not in the children of forks
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Before pytest-xdist reads these options. Where a package is tested alone it is not installed."""
    if hasattr(config, "workerinput"):  # one of the two
        return
    _keep_bytecode()
    options = config.option
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.getoption("collectonly")
    if not whole or not config.pluginmanager.hasplugin("xdist") or options.numprocesses is not None or options.usepdb:
        return
    options.numprocesses = _PROCESSES
    if options.dist == "no":
        options.dist = "loadfile"  # tests of a file share what it has compiled
        # As collected. By default files of few tests come last: many of those take longest, and one would run alone at the end.
        options.loadscopereorder = False
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads of two processes that wait must not spin


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --one-a-file, for a second run of tests that have run whole elsewhere, --seconds and --failures."""
    parser.addoption("--one-a-file", action="store_true", help="the first test of each file only")
    parser.addoption(
        "--seconds",
        metavar="FILE",
        help="append each test's processor seconds, its processes' included, as tools/test_seconds.py reads them",
    )
    parser.addoption("--failures", metavar="FILE", help="append what fails at once: a run that is cut off has told it")


class _FailuresAtOnce:
    """Each failure with its text as it happens, not at the end: a borrowed machine may be gone by then."""

    def __init__(self, file: str) -> None:
        self.file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            with open(self.file, "a", errors="backslashreplace") as lines:
                lines.write(f"FAILED {report.nodeid} ({report.when})\n{report.longreprtext}\n\n")


def pytest_configure(config: pytest.Config) -> None:
    """Of parallel processes the one that started the others hears of every test."""
    file = config.getoption("failures")
    if file and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FailuresAtOnce(file))


def _spent() -> float:
    """Processor seconds of this process and of those that it started and waited for."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note what the test and its fixtures took; of parallel processes each appends its own lines."""
    file = item.config.getoption("seconds")
    before = _spent()
    result = yield
    if file:
        with open(file, "a") as lines:
            lines.write(f"{_spent() - before:.2f}\t{item.nodeid}\n")
    return result


@pytest.fixture
def older_objects_rest(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is there before the test is out of the collector's sight during it.

    In a process with torch and all that other tests have left each `gc.collect()` takes half a second otherwise.
    """
    gc.freeze()
    count = gc.get_freeze_count()
    monkeypatch.setattr(gc, "get_freeze_count", lambda: count)  # each capture asks, and they are counted one by one
    yield
    gc.unfreeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the other tests of a file, after others have left out what they leave out."""
    if not config.getoption("one_a_file"):
        return
    first: dict[str, pytest.Item] = {}
    for item in items:
        first.setdefault(item.nodeid.partition("::")[0], item)
    kept = set(map(id, first.values()))
    left_out = [item for item in items if id(item) not in kept]
    if left_out:
        items[:] = first.values()
        config.hook.pytest_deselected(items=left_out)
