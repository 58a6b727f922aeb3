"""The programs in examples/ run, in their small form, in one process: most of a short program's time is importing torch."""

import importlib.util
import sys
from pathlib import Path

import forked

EXAMPLES = Path(__file__).parent.parent / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))
RUN = """
import runpy, sys, torchjit
for path in sys.argv[1:]:
    print("example", path, file=sys.stderr, flush=True)
    sys.argv = [path, "--small"]
    runpy.run_path(path, run_name="__main__")
    torchjit.reset()
"""
SAID = (
    "Graphs: 1   Graph breaks: 0",  # quick_start
    "breaks: 1",  # train_classifier
    "all right",  # serve
    "fullgraph=True: ",  # remove_breaks
    "interpreter agrees with eager",  # custom_backend
    "values as eager's",  # custom_pass
    "recompiled: ",  # write_report
    "inference: eager ",  # resnet18
)


def test_all_run_in_small_form(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN, *map(str, PROGRAMS)]
    done = forked.run(command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    hugging_face = (
        "loss after three steps" if importlib.util.find_spec("transformers") else "skipped: this example needs"
    )
    libraries = [
        f"{name}: 3 steps, graphs: 1" if importlib.util.find_spec(name) else f"skipped: `pip install {name}`"
        for name in ("accelerate", "lightning", "diffusers")
    ]
    for text in (*SAID, hugging_face, *libraries):
        assert text in done.stdout, (text, done.stdout)
    assert not list(tmp_path.iterdir()), "an example leaves files in the current folder"


def test_they_stay_short_and_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    for program in PROGRAMS:
        assert len(program.read_text().splitlines()) <= 80, program.name
        assert f"]({program.name})" in listed, f"examples/README.md does not list {program.name}"
