"""Is anything stale served to a second process? One edit at a time between two processes of small projects, compared with eager.

    uv run python tools/staleness.py --edits 2000 --minutes 15 --store on
    uv run python tools/staleness.py --stand-in names            # has the fuzzer power? A store with a fault must be found

Each project (`stale_starts/features.py`) is compiled by a first process; behind each edit (`stale_starts/edits.py`) another process runs it, on the
same cache folder. Its results, exceptions and gradients must be eager's of the edited program; where the edit changes nothing, it must not capture
more than a second process without an edit does. A finding is made small and written to a folder, with a script that shows it. Status 1 if there is one.
"""

from __future__ import annotations

import argparse
import collections
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

sys.path.insert(0, str(Path(__file__).parent))
from stale_starts.edits import Edit, edits_of, neutral_edits
from stale_starts.features import FEATURES
from stale_starts.projects import Project, compose
from stale_starts.run_project import STAND_INS
from stale_starts.runs import ALSO_IMPORTED, Run, difference, forked, run


@attrs.frozen
class Finding:
    """Something wrong behind an edit: kind `stale`, `wrong` (also without the first process), `captured again` or `failed`."""

    kind: str
    edit: Edit
    before: Project
    detail: str


@attrs.define
class Tally:
    """What was done."""

    edits: int = 0
    loaded: int = 0  # runs that captured nothing
    captured: int = 0
    regions: int = 0
    not_stored: int = 0
    findings: list[Finding] = attrs.Factory(list)
    reasons: collections.Counter[str] = attrs.Factory(collections.Counter)


class Fuzzer:
    """Projects in a folder, run under one way of keeping results.

    Args:
        folder: of all projects; each has a folder of its own in it.
        how: `compiled`, `compiled:BACKEND`, or a stand-in.
        store: TORCHJIT_STORE.
    """

    def __init__(self, folder: Path, how: str = "compiled", store: str = "") -> None:
        self.folder, self.how, self.store = folder, how, store
        self.tally = Tally()
        self._number = 0

    def new_folder(self) -> Path:
        """An empty folder."""
        self._number += 1
        made = self.folder / str(self._number)
        made.mkdir()
        return made

    def project(self, project: Project, edits: list[Edit]) -> Iterator[Finding]:
        """Compile a project, then every edit of it on the same cache. Neutral edits have to come first: later ones fill the cache."""
        parent = self.new_folder()
        first = run(project, parent, self.how, self.store)
        again = run(project, parent, self.how, self.store)
        self.tally.regions += first.captured
        self.tally.not_stored += again.captured
        self.tally.reasons.update(s for s in first.said if s.startswith("entry_not_stored"))
        unedited = Edit("nothing", "the first process", project, neutral=True)
        found = self._judged(unedited, project, first, run(project, parent, "eager", ""), first.captured)
        if found is not None:
            yield found
            return
        for edit in edits:
            eager = run(edit.after, parent, "eager", "")
            got = run(edit.after, parent, self.how, self.store)
            found = self._judged(edit, project, got, eager, again.captured)
            self.tally.edits += 1
            self.tally.captured += got.captured
            self.tally.loaded += not got.captured
            if found is not None:
                yield found
        shutil.rmtree(parent)

    def _judged(self, edit: Edit, before: Project, got: Run, eager: Run, captures: int) -> Finding | None:
        if eager.failed:
            return None  # torch itself crashes, or never ends
        if got.failed:
            return Finding("failed", edit, before, got.failed)
        differs = difference(got.facts, eager.facts)
        if differs is not None:
            return Finding("stale", edit, before, differs)
        if edit.neutral and self.how.startswith("compiled") and got.captured > captures:
            why = [s for s in got.said if not s.startswith("entry_loaded")]
            return Finding(
                "captured again",
                edit,
                before,
                f"{got.captured} captures, {captures} without the edit\n" + "\n".join(why[:20]),
            )
        return None

    # ------------------------------------------------------------------ making it small
    def smaller(self, found: Finding) -> Finding:
        """The same finding with fewer cases, from an empty cache; `wrong` if it shows without the first process."""
        for cases in (*((c,) for c in found.before.cases), found.before.cases):
            before, after = attrs.evolve(found.before, cases=cases), attrs.evolve(found.edit.after, cases=cases)
            again = self._again(attrs.evolve(found, before=before, edit=attrs.evolve(found.edit, after=after)))
            if again is not None:
                return again
        return attrs.evolve(
            found, detail=f"{found.detail}\n(not again from an empty cache: an entry of another edit was taken)"
        )

    def _again(self, found: Finding) -> Finding | None:
        parent = self.new_folder()
        eager = run(found.edit.after, parent, "eager", "")
        alone = run(found.edit.after, parent, self.how, self.store)
        if self._judged(found.edit, found.before, alone, eager, alone.captured) is not None:
            return attrs.evolve(found, kind="wrong", detail=str(difference(alone.facts, eager.facts) or alone.failed))
        parent = self.new_folder()
        run(found.before, parent, self.how, self.store)
        second = run(found.before, parent, self.how, self.store)
        got = run(found.edit.after, parent, self.how, self.store)
        return self._judged(found.edit, found.before, got, eager, second.captured)


_SCRIPT = """\
# {kind} behind an edit. {edit}
# {detail}
cd "$(dirname "$0")" && export TORCHJIT_CACHE_DIR=$(mktemp -d) {environment}
rm -rf here && cp -r before here && echo first process && {run}
rm -rf here && cp -r after here && echo second process && {run} && echo eager && {eager}
"""


def write_reproduction(found: Finding, folder: Path, how: str, store: str) -> None:
    """The two projects and a script that shows the finding."""
    for name, project in (("before", found.before), ("after", found.edit.after)):
        attrs.evolve(project, folder=name).write(folder)
    program = Path(__file__).parent / "stale_starts" / "run_project.py"
    cases = " ".join(found.before.cases)
    settings = {**found.edit.after.environment, **({"TORCHJIT_STORE": store} if store else {})}
    text = _SCRIPT.format(
        kind=found.kind,
        edit=str(found.edit).replace("\n", " "),
        detail=found.detail.replace("\n", "\n# "),
        environment=" ".join(f"{k}={v}" for k, v in settings.items()),
        run=f"{sys.executable} {program} $PWD/here {how} {cases}",
        eager=f"{sys.executable} {program} $PWD/here eager {cases}",
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


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--features", nargs="+", default=list(FEATURES), choices=list(FEATURES))
    parser.add_argument("--size", type=int, default=3, help="features of a project")
    parser.add_argument(
        "--per-project", type=int, default=20, help="edits of a project, besides those that change nothing"
    )
    parser.add_argument("--neutral", type=int, default=3, help="edits of a project that change nothing")
    parser.add_argument("--store", default="", help="TORCHJIT_STORE")
    parser.add_argument("--backend", help="another than the default one")
    parser.add_argument("--stand-in", choices=STAND_INS, help="a store with a fault, to see the fuzzer find it")
    parser.add_argument("--findings", type=Path, default=Path("staleness-findings"), help="where reproductions go")
    o = parser.parse_args()
    start, how = time.monotonic(), o.stand_in or (f"compiled:{o.backend}" if o.backend else "compiled")
    forked.also_imported += ALSO_IMPORTED
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(Path(folder).resolve(), how, o.store)
        t = fuzzer.tally
        for project, edits in projects(o.seed, o.features, o.size, o.per_project, o.neutral):
            for found in fuzzer.project(project, edits):
                small = fuzzer.smaller(found)
                t.findings.append(small)
                place = o.findings.resolve() / f"{small.kind.replace(' ', '-')}-{len(t.findings)}"
                write_reproduction(small, place, how, o.store)
                print(
                    f"{small.kind}: {small.edit}\n  {small.detail[:1500]}\n  {place}/again.sh ({', '.join(small.before.cases)})",
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
    print(f"{t.edits} edits in {spent:.0f} s, seed {o.seed}: {dict(kinds) or 'nothing found'}")
    print(
        f"{t.regions} regions compiled at first, {t.not_stored} of them again by a second process; {t.loaded} of the edited runs captured nothing"
    )
    for reason, times in t.reasons.most_common(20):
        print(f"  {times} times {reason}")
    return int(bool(t.findings))


if __name__ == "__main__":
    sys.exit(main())
