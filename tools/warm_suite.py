"""Test files twice on one cache folder with stored entries; the second time they must not capture what the first has stored.

    uv run python tools/warm_suite.py [integration_tests/test_training_steps.py ...] [-k TEXT] [--stored-eager] [--json FILE]

Without names it takes every file of the integration tests but those of `EXCLUDED`, each with a cache folder of its own; a file that captures
nothing runs once. In the second run a capture is an error in the test that asks for it, unless the same test of the first run left as many
captures of that function unstored. What failed in the second run alone is listed, with what it captured and why nothing on disk fitted;
status 1 if there is any that `EXPECTED` does not name.

Half of the tests ask for the backend `eager`, whose results are never stored: with `--stored-eager` they get `aot_eager` in its place, so that
their guards, emitted code and continuations come from disk, too.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXCLUDED = {
    "its tests have cache folders, or processes with some, of their own": (
        "test_cache_command", "test_first_call_memory", "test_size_histories", "test_stale_library", "test_stale_stores", "test_staleness", "test_store_forms",
        "test_store_sessions", "test_stored_elsewhere", "test_stored_targets", "test_what_loaded_entries_tell",
    ),
    "it needs GPUs": ("test_cudagraphs_devices",),
}  # fmt: skip
"""Why, and which."""
EXPECTED = {
    "it looks at what a compilation does (kernels, phases, saved tensors, logs, folders), or at what makes a specialisation": (
        "test_autotuning_options.py::test_products_of_narrow_types", "test_debug_options.py::test_epilogue_fusion_off",
        "test_entries_and_logs.py::test_a_folder_of_what_was_compiled", "test_entries_and_logs.py::test_each_log_tells_something",
        "test_error_on_graph_break.py::test_the_graph_says_nothing_of_it", "test_explain_data.py::test_phases_and_kernels",
        "test_training_memory.py::test_a_budget_", "test_disabled_code.py::", "test_api.py::test_capture_sizes_",
        "test_api.py::test_logs_print_", "test_api.py::test_threads_share_", "test_api.py::test_what_is_true_or_false",
        "test_equal_modules.py::test_own_backends[", "test_marks_of_sizes.py::test_constants_are_folded", "test_data_dependent.py::test_sizes_may_vary",
        "test_checkpoints.py::test_a_selective_checkpoint_keeps", "test_custom_passes.py::test_a_pass_in_the_form_of_torch_compile",
        "test_writes_around_errors.py::test_all_memory_and_effects_are_those_of_plain_python[TriedBetween",
    ),
    "tests of one function follow each other, and sizes and numbers that varied in one are symbolic in the next": (
        "test_language_programs.py::test_arithmetic_that_raises",
    ),
    "it counts specialisations, and one for all floats is on disk": (
        "test_shapes.py::test_a_float_", "test_shapes.py::test_float_arguments_become_inputs[", "test_shapes.py::test_gradients_flow_past_a_float",
    ),
    "names that it expects have the number of a region in the process that compiled it": (
        "test_profiles.py::test_an_inference_shows", "test_profiles.py::test_a_training_step_shows",
    ),
    "hooks go by numbers that the process counts, which other tests have moved on": (
        "test_tensor_hooks.py::test_backward_hooks_of_modules_break_only",
    ),
    "what its class of tensors reaches has a log that the tests write, which is another one in the next process": (
        "test_wrapper_subclasses.py::",
    ),
    "its programs are one function with more arguments than entries of one key are kept": (
        "test_kernel_layouts.py::test_results_of_operands_in_other_orders[aot_eager",
    ),
    "how often it captures depends on the addresses of objects": ("test_object_numbers.py::test_numbers_of_objects",),
}  # fmt: skip
"""Why the second run of a test may fail though all results are right, and beginnings of the tests' names."""
_FIRST, _RECORD, _STORED_EAGER = "WARM_SUITE_FIRST", "WARM_SUITE_RECORD", "WARM_SUITE_STORED_EAGER"
Test = dict[str, Any]
"""Of one test: `captured`, `stored` and `loaded` (counts by function), `refused` (reasons) and `details` of that, `outcome`."""


class CapturedAgain(AssertionError):
    """A test of the second run captures what the first has stored."""


class Recorder:
    """The pytest plugin. Hears what each test captures, stores and loads; in the second run refuses captures.

    Args:
        first: what the first run has recorded, by test; None in the first run.
    """

    def __init__(self, first: dict[str, Test] | None, record: Path) -> None:
        self.first, self.record = first, record
        self.tests: dict[str, Test] = {}
        self.now: Test = {}
        self.stored_ids: set[str] = set()

    def hear(self, kind: str, fields: dict[str, Any]) -> None:
        """An event of torchjit."""
        if not self.now:
            return
        if kind == "entry_missed":
            self.now["missed"].append(str(fields["why"]))
            return
        if kind == "entry_not_stored":
            self.now["refused"].append(f"{fields['reason']}: {fields.get('headline', 'not written')}")
            self.now["details"].append(fields["detail"])
            return
        function = str(fields.get("function") or fields.get("name"))
        if kind == "entry_stored":
            if fields["compile_id"] in self.stored_ids:
                return  # again, with a backward more
            self.stored_ids.add(fields["compile_id"])
        what = {"compile_start": "captured", "entry_stored": "stored", "entry_loaded": "loaded"}[kind]
        self.now[what][function] += 1
        if kind == "compile_start" and self.first is not None:
            before = self.first.get(self.now["id"])
            if before is not None and self.now["captured"][function] > self.allowed(before, function):
                why = "; ".join(self.now["missed"][-4:]) or "no entry was found by its key"
                raise CapturedAgain(f"{function} has been stored: {why}")

    @staticmethod
    def allowed(before: Test, function: str) -> int:
        """How often the first run captured a function without storing it."""
        return int(before["captured"].get(function, 0) - before["stored"].get(function, 0))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        counts = {name: collections.Counter[str]() for name in ("captured", "stored", "loaded")}
        self.now = {"id": item.nodeid, **counts, "refused": [], "details": [], "missed": [], "outcome": "passed"}
        self.stored_ids.clear()
        try:
            return (yield)
        finally:
            self.tests[item.nodeid], self.now = self.now, {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed" and self.now:
            self.now["outcome"] = report.outcome
            self.now["error"] = str(report.longreprtext)[-600:]

    def pytest_sessionfinish(self) -> None:
        self.record.write_text(json.dumps(self.tests))


def pytest_configure(config: pytest.Config) -> None:
    """This file is named as a plugin by `run`."""
    from torchjit_core import events  # noqa: PLC0415  pytest imports this file, too, where it only starts others

    first = os.environ.get(_FIRST)
    recorder = Recorder(json.loads(Path(first).read_text()) if first else None, Path(os.environ[_RECORD]))
    config.pluginmanager.register(recorder)
    kinds = ("compile_start", "entry_stored", "entry_loaded", "entry_not_stored", "entry_missed")
    events.start_listening(recorder.hear, kinds)
    if os.environ.get(_STORED_EAGER):
        import torchjit  # noqa: PLC0415

        torchjit.register_backend(torchjit.lookup_backend("aot_eager"), "eager", tags=("debug",))


def run(arguments: list[str], cache: str, record: Path, first: Path | None, *, stored_eager: bool) -> dict[str, Test]:
    """One run of the tests."""
    environment = {
        **os.environ,
        "TORCHJIT_STORE": "on",
        "TORCHJIT_CACHE_DIR": cache,
        _RECORD: str(record),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT / "tools"), os.environ.get("PYTHONPATH")))),
    }
    environment.pop(_FIRST, None)
    environment[_STORED_EAGER] = "1" if stored_eager else ""
    if first is not None:
        environment[_FIRST] = str(first)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "warm_suite", "--tb=short", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if not record.exists():
        raise SystemExit(done.stdout[-3000:] + done.stderr[-3000:])
    tests: dict[str, Test] = json.loads(record.read_text())
    return tests


def total(tests: dict[str, Test], what: str) -> int:
    """Over all tests and functions."""
    return sum(sum(t[what].values()) for t in tests.values())


def failed(tests: dict[str, Test]) -> list[str]:
    """Their names."""
    return [name for name, test in tests.items() if test["outcome"] == "failed"]


def twice(
    arguments: list[str], kernels: Path | None, *, stored_eager: bool = False
) -> tuple[dict[str, Test], dict[str, Test]]:
    """Both runs of some tests; the second is empty where the first has stored nothing. The first may start with kernels of a cache folder."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        if kernels is not None:
            shutil.copytree(kernels / "c", place / "cache" / "c", copy_function=os.link)
        cold = run(arguments, str(place / "cache"), place / "cold.json", None, stored_eager=stored_eager)
        if not total(cold, "stored"):
            return cold, {}
        warm = run(arguments, str(place / "cache"), place / "warm.json", place / "cold.json", stored_eager=stored_eager)
        return cold, warm


def expected(name: str) -> str | None:
    """Why the second run of a test may fail; None: it may not."""
    return next((why for why, tests in EXPECTED.items() if any(f"/{test}" in name for test in tests)), None)


def tell(file: str, cold: dict[str, Test], warm: dict[str, Test]) -> list[str]:
    """Print what came of a file; the tests that fail in the second run alone."""
    worse = [name for name in failed(warm) if cold.get(name, {}).get("outcome") == "passed"]
    for name, tests in (("first", cold), ("second", warm)):
        counts = ", ".join(f"{total(tests, what)} {what}" for what in ("captured", "stored", "loaded"))
        outcomes = collections.Counter(t["outcome"] for t in tests.values())
        print(f"{Path(file).stem} {name} run: {counts}; {dict(outcomes)}", flush=True)
    for name in failed(cold):
        print(f"  {name} fails in the first run\n{cold[name]['error']}")
    for name in worse:
        print(f"  {name} fails in the second run alone: {expected(name) or warm[name]['error']}", flush=True)
    return worse


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("-k", default="", help="as pytest has it")
    parser.add_argument(
        "--stored-eager", action="store_true", help="the backend eager is aot_eager, whose results are stored"
    )
    parser.add_argument(
        "--kernels", type=Path, metavar="FOLDER", help="a cache folder whose compiled kernels the first run finds"
    )
    parser.add_argument(
        "--together", type=int, default=1, metavar="N", help="so many files in one process, with one cache folder"
    )
    parser.add_argument("--json", type=Path, help="write both runs' records of each test into this file, by file")
    o = parser.parse_args()
    excluded = {name for names in EXCLUDED.values() for name in names}
    found = sorted(p for p in (ROOT / "integration_tests").glob("test_*.py") if p.stem not in excluded)
    cold: dict[str, Test] = {}
    warm: dict[str, Test] = {}
    worse: list[str] = []
    records = {}
    files = o.files or [str(path.relative_to(ROOT)) for path in found]
    for start in range(0, len(files), o.together):
        some = files[start : start + o.together]
        first, second = twice([*some] + (["-k", o.k] if o.k else []), o.kernels, stored_eager=o.stored_eager)
        for file in some:
            of_file = [
                {name: test for name, test in tests.items() if name.split("::")[0] == file} for tests in (first, second)
            ]
            worse += tell(file, of_file[0], of_file[1])
            records[file] = (of_file[0], of_file[1])
        cold.update(first)
        warm.update(second)
        if o.json is not None:
            o.json.write_text(json.dumps(records))
    print(f"\n{len(records)} files, {sum(bool(second) for _, second in records.values())} of which store something")
    for name, tests in (("first", cold), ("second", warm)):
        print(f"{name} run: " + ", ".join(f"{total(tests, what)} {what}" for what in ("captured", "stored", "loaded")))
    refused = collections.Counter(reason for t in cold.values() for reason in t["refused"])
    for reason, times in refused.most_common():
        print(f"  not stored {times} times: {reason}")
    known = [name for name in worse if expected(name)]
    said = f"{len(worse)} of {len(warm)} tests fail in the second run alone, {len(known)} of them as expected"
    print(f"{said}; {len(failed(cold))} in both or the first")
    return int(len(worse) > len(known))


if __name__ == "__main__":
    sys.exit(main())
