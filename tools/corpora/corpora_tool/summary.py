"""Tables over results."""

from __future__ import annotations

import collections
import statistics
from collections.abc import Sequence
from typing import Any

__all__ = ["merge", "one_line", "summarise"]

FAILED = ("wrong", "error", "fallback", "crash", "timeout")


def merge(files: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Later results replace earlier ones of the same case; what they have of torch.compile stays if they lack it."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for results in files:
        for r in results:
            key = (r["corpus"], r["model"], r["mode"], r.get("case"))
            if "torch" not in r and "torch" in found.get(key, {}):
                r = r | {"torch": found[key]["torch"]}
            found[key] = r
    return list(found.values())


def one_line(r: dict[str, Any]) -> str:
    """A result in a line of text."""
    text = f"{r['corpus']:12} {r.get('case', r['model']):44.44} {r['mode']:5} {r['status']:8}"
    if "graphs" in r:
        text += f" graphs {r['graphs']} breaks {r['breaks']}"
    if "torch" in r:
        text += f" (torch {r['torch']['status']} {r['torch']['graphs']} {r['torch']['breaks']})"
    if "capture_s" in r:
        text += f" {r['capture_s']:.2f} s"
    why = r.get("why")
    return text + (f"  {str(why)[:160]}" if why else "")


def _first_calls(side: dict[str, Any], eager: list[float]) -> float | None:
    seconds = side.get("seconds")
    return max(seconds[0] - seconds[1], 1e-3) if seconds and len(seconds) > 1 else None


def summarise(results: Sequence[dict[str, Any]]) -> str:
    """Markdown: a row per collection, then failures, then reasons of breaks."""
    lines = [
        "| collection | cases that run in eager | pass | wrong | raise, fall back, crash or time out | "
        "our breaks | torch.compile's breaks | one graph where torch.compile has one | torch.compile: wrong or raises | capture time, ours / theirs (median) |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for r in results:
        groups[f"{r['corpus']}, {r['mode']}"].append(r)
    for name, group in sorted(groups.items()):
        lines.append(_row(name, [r for r in group if r["status"] not in ("skip", "eager")]))
    failures = [r for r in results if r["status"] in FAILED]
    if failures:
        lines += ["", "Failures:", ""] + [f"* {one_line(r)}" for r in failures]
    lines += ["", "Breaks that torch.compile does not have:", ""]
    reasons: collections.Counter[str] = collections.Counter()
    example: dict[str, str] = {}
    for r in results:
        if "torch" in r and r["torch"]["status"] == "ok" and r.get("breaks", 0) > r["torch"]["breaks"]:
            for b in r["reasons"]:
                key = f"{b['id']} {b['what']}"
                reasons[key] += 1
                example.setdefault(key, f"{r['case']}: {b['detail'][:100]}: `{b['line'][:80]}`")
    lines += [f"* {n} {k} (such as {example[k]})" for k, n in reasons.most_common(30)]
    return "\n".join(lines)


def _row(name: str, ran: list[dict[str, Any]]) -> str:
    count = collections.Counter(r["status"] for r in ran)
    both = [r for r in ran if r.get("torch", {}).get("status") == "ok" and "breaks" in r]
    ours, theirs = sum(r["breaks"] for r in both), sum(r["torch"]["breaks"] for r in both)
    single = [r for r in both if r["torch"]["graphs"] == 1 and r["torch"]["breaks"] == 0]
    kept = [r for r in single if r["graphs"] == 1 and r["breaks"] == 0]
    bad = sum(r["torch"]["status"] != "ok" for r in ran if "torch" in r)
    ratios = []
    for r in both:
        their_time = _first_calls(r["torch"], r["eager_s"])
        if their_time is not None and r["status"] == "ok":
            ratios.append(r["capture_s"] / their_time)
    failed = sum(count[s] for s in FAILED) - count["wrong"]
    share = f"{100 * count['ok'] / len(ran):.1f} %" if ran else "-"
    return (
        f"| {name} | {len(ran)} | {count['ok']} ({share}) | {count['wrong']} | {failed} | {ours if both else '-'} | "
        f"{theirs if both else '-'} | {f'{len(kept)} of {len(single)}' if single else '-'} | {bad if both else '-'} | "
        f"{f'{statistics.median(ratios):.3f}' if ratios else '-'} |"
    )
