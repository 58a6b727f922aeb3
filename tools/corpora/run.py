"""Sweeps a collection of models: outputs, mutations and gradients against eager, graphs and breaks beside torch.compile.

    uv run --group models python tools/corpora/run.py {moduleinfo,torchvision,timm,transformers} ... [options]
    uv run --group models python tools/corpora/run.py --summarise results.jsonl ...

Each model runs in a process of its own, forked from one that has imported everything. Results are JSON lines.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
if "cuda" not in sys.argv:
    # Autograd starts a thread per GPU, and a process with such threads cannot fork.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
sys.path.insert(0, str(Path(__file__).parent))

import torch
from corpora_tool import moduleinfo, timm_models, torchvision_models, transformers_models
from corpora_tool.case import Case, Corpus, Skip
from corpora_tool.measure import Plan, measure
from corpora_tool.pool import Job, run_jobs
from corpora_tool.summary import merge, one_line, summarise

import torchjit

os.environ.setdefault("TORCHJIT_STORE", "off")  # what this is about is compiled, not found on disk

CORPORA: dict[str, Corpus] = {
    "moduleinfo": moduleinfo,
    "torchvision": torchvision_models,
    "timm": timm_models,
    "transformers": transformers_models,
}


def work(job: Job, plan: Plan, device: str) -> Iterator[dict[str, Any]]:
    """All cases of one model, in the child process."""
    try:
        cases = CORPORA[job.corpus].build(job.name, job.mode, device)
    except Skip as reason:
        yield {"case": job.name, "status": "skip", "why": str(reason)}
        return
    except Exception as error:
        yield {"case": job.name, "status": "skip", "why": f"building raises {type(error).__name__}: {error}"[:400]}
        return
    for case in cases:
        yield measure(case, plan)


def warm_up(plan: Plan, device: str) -> None:
    """Compile something small with both, so that what a process does once is not counted to the models."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.1), torch.nn.ReLU())
    if device == "cpu":
        measure(Case("warm-up", module, (torch.randn(2, 4),), backward=False), plan)
    torchjit.reset()


def plan_jobs(o: argparse.Namespace) -> list[Job]:
    """The jobs, corpora in turns so that a deadline cuts all of them alike."""
    per_corpus = []
    for corpus in o.corpora:
        CORPORA[corpus].prepare()
        names = [n for n in CORPORA[corpus].names() if re.search(o.filter, n)][: o.limit]
        modes = o.modes.split(",")
        per_corpus.append([Job(corpus, n, m) for n in names for m in modes])
    longest = max(map(len, per_corpus))
    order = []
    for i in range(longest):
        for jobs in per_corpus:
            share = len(jobs) / longest
            order += jobs[int(i * share) : int((i + 1) * share)]
    done = {(r["corpus"], r["model"], r["mode"]) for r in _read(o.resume)} if o.resume else set()
    return [j for j in order if (j.corpus, j.name, j.mode) not in done]


def _read(paths: list[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for p in paths for line in p.read_text().splitlines() if line.strip()]


def main() -> int:
    """Run or summarise; status 1 if any result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="*", choices=[*CORPORA, []], help="which collections")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--filter", default="", help="a regular expression that names must contain")
    parser.add_argument("--modes", default="train", help="train, eval or train,eval")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--backend", default="eager", choices=["eager", "aot_eager", "inductor"])
    parser.add_argument("--dynamic", action="store_true", help="sizes are symbols from the first call on")
    parser.add_argument(
        "--float64",
        action="store_true",
        help="models in double precision, where what rounding does is far below the tolerance (for backends that round otherwise than eager)",
    )
    parser.add_argument("--limit", type=int, help="at most so many models of each collection")
    parser.add_argument("--compare", action=argparse.BooleanOptionalAction, default=True, help="also torch.compile")
    parser.add_argument("--eager-only", action="store_true", help="only find out what eager runs")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a model may take")
    parser.add_argument("--deadline", type=float, help="seconds after which the whole sweep ends")
    parser.add_argument("--memory", type=float, help="GB of address space that a model may take")
    parser.add_argument("--out", type=Path, help="JSON lines; the summary goes beside it as .md")
    parser.add_argument("--resume", type=Path, nargs="+", help="skip what these results already have")
    parser.add_argument("--summarise", type=Path, nargs="+", help="print the summary of results; later files win")
    o = parser.parse_args()
    if o.summarise:
        results = merge([_read([path]) for path in o.summarise])
        print(summarise(results))
        return int(any(r["status"] == "wrong" for r in results))
    if not o.corpora:
        parser.error("name a collection, or --summarise")
    deadline = None if o.deadline is None else time.monotonic() + o.deadline
    plan = Plan(o.backend, o.compare and not o.eager_only, not o.eager_only, True if o.dynamic else None)
    jobs = plan_jobs(o)
    warm_up(plan, o.device)
    if o.float64:
        torch.set_default_dtype(torch.float64)
    results = []
    out = open(o.out, "a") if o.out else None  # noqa: SIM115 - closed at exit, flushed per line
    memory = None if o.memory is None else int(o.memory * 2**30)
    for result in run_jobs(
        jobs, lambda j: work(j, plan, o.device), processes=o.jobs, timeout=o.timeout, deadline=deadline, memory=memory
    ):
        results.append(result)
        print(one_line(result), flush=True)
        if out:
            out.write(json.dumps(result) + "\n")
            out.flush()
    text = summarise(results)
    if o.out:
        o.out.with_suffix(".md").write_text(text + "\n")
    print("\n" + text)
    return int(any(r["status"] == "wrong" for r in results))


if __name__ == "__main__":
    sys.exit(main())
