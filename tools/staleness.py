"""Is anything stale served to a second process? One edit at a time between two processes of small projects, compared with eager.

    uv run python tools/staleness.py --edits 2000 --minutes 15
    uv run python tools/staleness.py --jobs 16 --edits 500 --minutes 8 --findings FOLDER   # one archive in the folder
    uv run python tools/staleness.py --stand-in names            # has the fuzzer power? A store with a fault must be found

Each project (`stale_starts/features.py`) is compiled by a first process; behind each edit (`stale_starts/edits.py`) another process runs it, on the
same cache folder. Its results, exceptions and gradients must be eager's of the edited program; where the edit changes nothing, it must not capture
more than a second process without an edit does. A finding is made small and written to a folder, with a script that shows it. Status 1 if there is one.
"""

from __future__ import annotations

import argparse
import collections
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

sys.path.insert(0, str(Path(__file__).parent))
from stale_starts.edits import Edit, edits_of, neutral_edits
from stale_starts.features import FEATURES, PLACED
from stale_starts.projects import Project, compose
from stale_starts.run_project import STAND_INS
from stale_starts.runs import ALSO_IMPORTED, Run, difference, forked, run


@attrs.frozen
class Finding:
    """Something wrong behind an edit: kind `stale`, `wrong` (also without the first process), `captured again` or `failed`."""

    kind: str
    edit: Edit
    before: Project
    how: str
    detail: str


@attrs.define
class Tally:
    """What was done."""

    edits: int = 0
    neutral: int = 0
    invalid: int = 0  # eager cannot import it, crashes or does not end
    loaded: int = 0  # runs that captured nothing
    captured: int = 0
    regions: int = 0
    not_stored: int = 0
    projects: int = 0
    findings: list[Finding] = attrs.Factory(list)
    reasons: collections.Counter[str] = attrs.Factory(collections.Counter)
    kinds: collections.Counter[str] = attrs.Factory(collections.Counter)


class Fuzzer:
    """Projects in a folder, run under one way of keeping results.

    Args:
        folder: of all projects; each has a folder of its own in it.
        store: TORCHJIT_STORE.
        until: the time (monotonic) at which it ends.
    """

    def __init__(self, folder: Path, store: str = "", until: float = math.inf) -> None:
        self.folder, self.store, self.until = folder, store, until
        self.tally = Tally()
        self._number = 0

    def new_folder(self) -> Path:
        """An empty folder."""
        self._number += 1
        made = self.folder / str(self._number)
        made.mkdir()
        return made

    def project(self, project: Project, edits: list[Edit], how: str, r: random.Random) -> Iterator[Finding]:
        """Compile a project, then every edit of it on the same cache. Neutral edits have to come first: later ones fill the cache."""
        parent = self.new_folder()
        first = run(project, parent, how, self.store)
        again = run(project, parent, how, self.store)
        self.tally.projects += 1
        self.tally.regions += first.captured
        self.tally.not_stored += again.captured
        self.tally.reasons.update(s for s in first.said if s.startswith("entry_not_stored"))
        for got, what in ((first, "first"), (again, "second")):
            found = self._judged(
                Edit("nothing", f"the {what} process", project, neutral=True), project, got, how, first.captured
            )
            if found is not None:
                yield found
                return
        for edit in edits:
            if time.monotonic() > self.until:
                break
            if edit.kind != "moved":
                edit = attrs.evolve(edit, after=attrs.evolve(edit.after, folder=project.folder))
            got = run(edit.after, parent, how, self.store, _touched(edit, project, r))
            if got.eager is None:
                self.tally.invalid += 1
                continue
            found = self._judged(edit, project, got, how, again.captured)
            self.tally.edits += 1
            self.tally.neutral += edit.neutral
            self.tally.kinds[edit.kind] += 1
            self.tally.captured += got.captured
            self.tally.loaded += not got.captured
            if found is not None:
                yield found
        shutil.rmtree(parent, ignore_errors=True)

    def _judged(self, edit: Edit, before: Project, got: Run, how: str, captures: int) -> Finding | None:
        if got.eager is None:
            return None  # torch itself crashes, or never ends
        if got.failed:
            return Finding("failed", edit, before, how, got.failed)
        differs = difference(got.facts, got.eager)
        if differs is not None:
            return Finding("stale", edit, before, how, differs)
        if edit.neutral and how.startswith("compiled") and got.captured > captures and not PLACED & set(before.cases):
            why = [s for s in got.said if not s.startswith("entry_loaded")]
            detail = f"{got.captured} captures, {captures} without the edit\n" + "\n".join(why[:20])
            return Finding("captured again", edit, before, how, detail)
        return None

    # ------------------------------------------------------------------ making it small
    def smaller(self, found: Finding) -> Finding:
        """The same finding with fewer cases, from an empty cache; `wrong` if it shows without the first process."""
        cases = found.before.cases
        for kept in (*((c,) for c in sorted(cases, key=lambda c: c != found.edit.case)), cases):
            before, after = found.before.without_others(kept), found.edit.after.without_others(kept)
            again = self._again(attrs.evolve(found, before=before, edit=attrs.evolve(found.edit, after=after)))
            if again is not None:
                return again
        return attrs.evolve(
            found, detail=f"{found.detail}\n(not again from an empty cache: an entry of another edit was taken)"
        )

    def _again(self, found: Finding) -> Finding | None:
        after, how = found.edit.after, found.how
        alone = run(after, self.new_folder(), how, self.store)
        if self._judged(found.edit, found.before, alone, how, alone.captured) is not None:
            return attrs.evolve(found, kind="wrong", detail=str(alone.failed or difference(alone.facts, alone.eager)))
        parent = self.new_folder()
        run(found.before, parent, how, self.store)
        second = run(found.before, parent, how, self.store)
        got = run(after, parent, how, self.store)
        return self._judged(found.edit, found.before, got, how, second.captured)


def _touched(edit: Edit, project: Project, r: random.Random) -> tuple[str, ...]:
    """The cases to run: all of them where nothing has changed and now and then, else the one that the edit is about."""
    return project.cases if edit.neutral or r.random() < 0.05 else (edit.case,)


_SCRIPT = """\
# {kind} behind an edit. {edit}
# {detail}
cd "$(dirname "$0")" && export TORCHJIT_CACHE_DIR=$(mktemp -d) {environment}
rm -rf here && cp -r before here && echo first process && {run}
rm -rf here && cp -r after here && echo second process, with what eager gives && {run}
"""


def write_reproduction(found: Finding, folder: Path, store: str) -> None:
    """The two projects and a script that shows the finding."""
    for name, project in (("before", found.before), ("after", found.edit.after)):
        attrs.evolve(project, folder=name).write(folder)
    program = "tools/stale_starts/run_project.py"
    settings = {**found.edit.after.environment, **({"TORCHJIT_STORE": store} if store else {})}
    text = _SCRIPT.format(
        kind=found.kind,
        edit=str(found.edit).replace("\n", " "),
        detail=found.detail.replace("\n", "\n# "),
        environment=" ".join(f"{k}={v}" for k, v in settings.items()),
        run=f"python $TORCHJIT/{program} $PWD/here {found.how} {' '.join(found.before.cases)}",
    )
    (folder / "again.sh").write_text(text)


def projects(
    seed: int, features: list[str], size: int, per_project: int, neutral: int
) -> Iterator[tuple[Project, list[Edit]]]:
    """Projects without end, each feature as often as the others, with their edits."""
    r = random.Random(seed)
    queue: list[str] = []
    while True:
        if len(queue) < size:
            queue += r.sample(features, len(features))
        chosen, queue = tuple(dict.fromkeys(queue[:size])), queue[size:]
        project = compose(chosen, r)
        yield project, neutral_edits(project, neutral, r) + edits_of(project, per_project, r)


def fuzz(o: argparse.Namespace, seed: int) -> Tally:
    """The findings of one seed, with their reproductions."""
    start = time.monotonic()
    known = set[tuple[str, str, str]]()
    r = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(Path(folder).resolve(), o.store, start + o.minutes * 60)
        t = fuzzer.tally
        for project, edits in projects(seed, o.features, o.size, o.per_project, o.neutral):
            backend = o.backend or ("inductor" if t.projects % 10 == 9 else "aot_eager")
            for found in fuzzer.project(project, edits, o.stand_in or f"compiled:{backend}", r):
                if (found.kind, found.edit.kind, found.edit.detail) in known:
                    continue
                known.add((found.kind, found.edit.kind, found.edit.detail))
                small = fuzzer.smaller(found)
                t.findings.append(small)
                place = o.findings.resolve() / f"{small.kind.replace(' ', '-')}-{seed}-{len(t.findings)}"
                write_reproduction(small, place, o.store)
                print(
                    f"{small.kind}: {small.edit} [{', '.join(small.before.cases)}, {small.how}]\n  {small.detail[:1500]}\n  {place.name}",
                    flush=True,
                )
            spent = time.monotonic() - start
            print(
                f"{t.edits} edits, {t.loaded} without a capture, {len(t.findings)} findings, {spent:.0f} s",
                file=sys.stderr,
                flush=True,
            )
            if t.edits >= o.edits or spent > o.minutes * 60:
                break
    kinds = collections.Counter(f.kind for f in t.findings)
    print(
        f"seed {seed}: {t.edits} edits ({t.neutral} neutral, {t.invalid} invalid besides) of {t.projects} projects in {spent:.0f} s: {dict(kinds) or 'nothing found'}"
    )
    print(
        f"{t.regions} regions compiled at first, {t.not_stored} of them again by a second process; {t.loaded} of the edited runs captured nothing"
    )
    print(f"kinds of edits: {dict(t.kinds)}")
    for reason, times in t.reasons.most_common(20):
        print(f"  {times} times {reason}")
    return t


def fuzz_in_parallel(o: argparse.Namespace, arguments: list[str]) -> int:
    """Seeds side by side, each in a process of its own; what they say and their reproductions become one archive."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, f"seed-{o.seed + n}.txt") for n in range(o.jobs)]
        running = []
        for n, output in enumerate(outputs):
            command = [
                sys.executable,
                __file__,
                *arguments,
                "--jobs",
                "1",
                "--seed",
                str(o.seed + n),
                "--findings",
                str(Path(folder, "findings")),
            ]
            with output.open("w") as out:
                running.append(subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT))
        failed = sum(process.wait() != 0 for process in running)
        texts = [output.read_text() for output in outputs]
        edits = sum(int(n) for text in texts for n in re.findall(r"^seed \d+: (\d+) edits", text, re.MULTILINE))
        lines = [
            line
            for text in texts
            for line in text.splitlines()
            if re.match(r"(stale|wrong|failed|captured again): ", line)
        ]
        summary = "\n".join([f"{edits} edits, {len(lines)} findings", *sorted(lines)])
        Path(folder, "summary.txt").write_text(summary + "\n")
        o.findings.mkdir(parents=True, exist_ok=True)
        with tarfile.open(o.findings / "staleness.tar.gz", "w:gz") as archive:
            archive.add(folder, "staleness")
        print(summary)
    return int(failed > 0)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=2000, help="of each seed")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=1, help="seeds side by side")
    parser.add_argument("--features", nargs="+", default=list(FEATURES), choices=list(FEATURES))
    parser.add_argument("--size", type=int, default=3, help="features of a project")
    parser.add_argument(
        "--per-project", type=int, default=30, help="edits of a project, besides those that change nothing"
    )
    parser.add_argument("--neutral", type=int, default=3, help="edits of a project that change nothing")
    parser.add_argument("--store", default="on", help="TORCHJIT_STORE")
    parser.add_argument("--backend", help="of all projects; else the inductor for each tenth, and aot_eager")
    parser.add_argument("--stand-in", choices=STAND_INS, help="a store with a fault, to see the fuzzer find it")
    parser.add_argument("--findings", type=Path, default=Path("staleness-findings"), help="where reproductions go")
    o = parser.parse_args()
    forked.also_imported += ALSO_IMPORTED
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    if o.jobs > 1:
        return fuzz_in_parallel(o, sys.argv[1:])
    return int(bool(fuzz(o, o.seed).findings))


if __name__ == "__main__":
    sys.exit(main())
