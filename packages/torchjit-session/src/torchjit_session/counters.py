"""`torchjit.counters`: what happened so far, under upstream's names.

`counters["stats"]["unique_graphs"]`, `counters["graph_break"][reason]`, `counters["recompiles"][function]`.
"""

from __future__ import annotations

from collections import Counter, defaultdict

__all__ = ["counters"]

counters: defaultdict[str, Counter[str]] = defaultdict(Counter)
