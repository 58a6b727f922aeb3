"""One process of a project: import it, run cases of it eagerly or compiled, print what came of them as JSON.

    python run_project.py FOLDER compiled|names|code|text CASE...

`compiled:BACKEND` takes another backend than the default one; `eager` compiles nothing. What eager calls give is told beside it, from a fork. `names`, `code` and `text` are stand-ins for a store, each with a fault: results are kept by the function's name, by its own code too, or by the project's whole text.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import torchjit
from torchjit_core import events

Facts = list[Any]
STAND_INS = ("names", "code", "text")
MOST = 64
"""Values that are kept of a tensor."""


def facts_of(value: Any) -> Any:
    """Anything that a call gives, as comparable data: floating values are compared with a tolerance later."""
    if isinstance(value, torch.Tensor):
        numbers = value.detach().as_subclass(torch.Tensor).double().flatten()[:MOST].tolist()
        return [str(value.dtype), list(value.shape), value.requires_grad, numbers]
    if isinstance(value, list | tuple):
        return [facts_of(v) for v in value]
    if isinstance(value, bool | int | str | None):
        return [type(value).__name__, repr(value)]
    if isinstance(value, float):
        return ["float", value]
    return type(value).__name__


def raised(error: BaseException, folder: str) -> Facts:
    """An exception, with the project's lines in its traceback."""
    if isinstance(error, RecursionError):
        return ["raised", "RecursionError"]  # at some depth
    frames = traceback.extract_tb(error.__traceback__)
    return [
        "raised",
        type(error).__name__,
        [[f.name, f.lineno, f.line] for f in frames if f.filename.startswith(folder)],
    ]


def floating(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of a result that have gradients."""
    if isinstance(value, torch.Tensor):
        if value.requires_grad and value.is_floating_point():
            yield value
    elif isinstance(value, list | tuple):
        for v in value:
            yield from floating(v)


def call(function: Callable[..., Any], args: tuple[Any, ...], state: list[torch.Tensor], folder: str) -> Facts:
    """One call: its result, the gradients of arguments and state, and what became of these."""
    torch.manual_seed(0)
    wanted = [t for t in (*args, *state) if isinstance(t, torch.Tensor)]
    try:
        out = function(*args)
        facts = [facts_of(out)]
        for t in wanted:
            t.grad = None
        results = list(floating(out))
        if results:
            sum(t.sum() for t in results).backward()
    except Exception as error:
        return raised(error, folder)
    return [*facts, [facts_of(t.detach()) for t in wanted], [facts_of(t.grad) for t in wanted if t.is_leaf]]


def outcome(top: types.ModuleType, case: str, folder: str, how: str) -> Facts:
    """All calls of a case, `eager` or `compiled`."""
    torch.manual_seed(1)
    try:
        function, calls, state, *other = getattr(top, f"case_{case}")()
    except Exception as error:
        return raised(error, folder)
    compiled, _, backend = how.partition(":")
    if compiled == "compiled":
        function = torchjit.compile(function, **({"backend": backend} if backend else {}) | top.OPTIONS.get(case, {}))
    elif other:
        (function,) = other
    return [call(function, args, state, folder) for args in calls]


def stood_in(top: types.ModuleType, case: str, folder: str, how: str) -> Facts:
    """The eager outcome, kept under a key that says too little."""
    key: Any = case
    with contextlib.suppress(Exception):
        function = getattr(top, f"case_{case}")()[0]
        code = getattr(function, "__code__", None) or type(function).forward.__code__
        if how == "code":
            key = (case, code.co_code, repr(code.co_consts))
    if how == "text":
        key = (case, [path.read_text() for path in sorted(Path(folder).glob("proj/*.py"))])
    kept = Path(os.environ["TORCHJIT_CACHE_DIR"], hashlib.sha256(repr(key).encode()).hexdigest())
    if kept.exists():
        found: Facts = json.loads(kept.read_text())
        return found
    facts = outcome(top, case, folder, "eager")
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps(facts))
    return facts


def count_events(counts: dict[str, int], said: list[str]) -> None:
    """From now on, what is captured, loaded, missed and not stored."""

    def hear(kind: str, fields: dict[str, Any]) -> None:
        if kind == "activity_start":
            if fields["name"] == "capture":
                counts["captured"] += 1
            return
        counts[kind] = counts.get(kind, 0) + 1
        said.append(f"{kind}: " + ", ".join(f"{k}={v}" for k, v in fields.items() if k not in ("time", "compile_id")))

    events.start_listening(hear, ("activity_start", "entry_loaded", "entry_missed", "entry_not_stored", "fallback"))


def eagerly(top: types.ModuleType, cases: tuple[str, ...], folder: str) -> dict[str, Facts] | None:
    """What eager calls give; None where torch crashes or does not end. In a fork: what they leave behind is no concern of compiled ones."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(EAGER_SECONDS)
        with os.fdopen(write, "w") as out:
            json.dump({case: outcome(top, case, folder, "eager") for case in cases}, out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    return None if status else json.loads(text)


EAGER_SECONDS = 20


def main(folder: str, how: str, *cases: str) -> None:
    """Run them and print facts and counts."""
    sys.path.insert(0, folder)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    counts, said = {"captured": 0}, list[str]()
    facts: dict[str, Facts] = {}
    eager: dict[str, Facts] | None = {}
    try:
        sys.dont_write_bytecode = True  # its key is a time of whole seconds and a size: edits are quicker
        from proj import top  # type: ignore[import-not-found]  # noqa: PLC0415  an edit may make this fail

        sys.dont_write_bytecode = False
    except Exception as error:  # the edited project cannot be imported: nothing was asked of torchjit
        print(json.dumps({"facts": {}, "eager": None, "counts": counts, "said": [], "failed": type(error).__name__}))
        return
    eager = eagerly(top, cases, folder)
    if how != "eager" and eager is not None:
        torchjit.config.on_error = "raise"
        if how.startswith("compiled"):
            count_events(counts, said)
        for case in cases:
            make = stood_in if how in STAND_INS else outcome
            facts[case] = make(top, case, folder, how)
    print(json.dumps({"facts": facts, "eager": eager, "counts": counts, "said": said}))


if __name__ == "__main__":
    main(*sys.argv[1:])
