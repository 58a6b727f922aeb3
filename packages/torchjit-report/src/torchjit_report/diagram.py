"""A picture of a compiled graph: its kernels and operators in layers, and the buffers that flow between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

__all__ = ["draw_steps"]

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 220, 44, 24, 56, 24
MOST_NODES = 3  # of the graph that a box names
STYLE = (
    ".steps text{font:12px ui-monospace,monospace;fill:#1a1a1a}.steps .small{font-size:10px;fill:#444}"
    ".steps .kernel{fill:#dceafe;stroke:#2563eb}.steps .operator{fill:#fef3c7;stroke:#b45309}"
    ".steps path{fill:none;stroke:#888}.steps .title{fill:#777}"
)


def draw_steps(title: str, steps: Sequence[Mapping[str, Any]]) -> str:
    """An SVG document.

    Args:
        title: of the picture.
        steps: as in a `schedule` event, in the order in which they run: each has `name`, `generated` (a kernel of ours, or an operator of
            the library), `nodes` (of the graph that it computes), `reads` and `writes` (names of buffers).

    Returns:
        Text of one `<svg>` element, in which nothing of the steps is markup. Steps lie below those whose results they read.
    """
    sources = _sources(steps)
    layers = _layers(sources)
    columns: dict[int, int] = {}
    places = []
    for layer in layers:
        column = columns.get(layer, 0)
        columns[layer] = column + 1
        places.append((MARGIN + column * (WIDTH + GAP_X), 2 * MARGIN + layer * (HEIGHT + GAP_Y)))
    width = MARGIN + max(columns.values(), default=1) * (WIDTH + GAP_X)
    height = 2 * MARGIN + (max(layers, default=0) + 1) * (HEIGHT + GAP_Y)
    edges = [
        _edge(places[source], places[step], buffer) for step, found in enumerate(sources) for source, buffer in found
    ]
    boxes = [_box(place, step) for place, step in zip(places, steps, strict=True)]
    head = f'<svg class="steps" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    label = f'<text class="title" x="{MARGIN}" y="{MARGIN}">{escape(title)}: {len(steps)} steps</text>'
    return "\n".join([head, f"<style>{STYLE}</style>", label, *edges, *boxes, "</svg>"]) + "\n"


def _sources(steps: Sequence[Mapping[str, Any]]) -> list[list[tuple[int, str]]]:
    """For each step, the earlier ones whose results it reads, with the name of the buffer."""
    writer: dict[str, int] = {}
    sources = []
    for position, step in enumerate(steps):
        sources.append(sorted({(writer[name], name) for name in step["reads"] if name in writer}))
        writer.update((name, position) for name in step["writes"])
    return sources


def _layers(sources: Sequence[Sequence[tuple[int, str]]]) -> list[int]:
    layers: list[int] = []
    for found in sources:
        layers.append(max((layers[source] + 1 for source, _ in found), default=0))
    return layers


def _edge(start: tuple[int, int], end: tuple[int, int], buffer: str) -> str:
    x0, y0, x1, y1 = start[0] + WIDTH // 2, start[1] + HEIGHT, end[0] + WIDTH // 2, end[1]
    middle = (y0 + y1) // 2
    return f'<path d="M{x0},{y0}C{x0},{middle} {x1},{middle} {x1},{y1}"><title>{escape(buffer)}</title></path>'


def _box(place: tuple[int, int], step: Mapping[str, Any]) -> str:
    x, y = place
    nodes = [str(node) for node in step["nodes"]]
    more = ", ..." if len(nodes) > MOST_NODES else ""
    kind = "kernel" if step["generated"] else "operator"
    full = escape(
        f"{step['name']}\n{', '.join(nodes)}\nreads {', '.join(step['reads'])}\nwrites {', '.join(step['writes'])}"
    )
    return (
        f'<g><title>{full}</title><rect class="{kind}" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
        f'<text x="{x + 8}" y="{y + 18}">{escape(_short(str(step["name"]), 28))}</text>'
        f'<text class="small" x="{x + 8}" y="{y + 34}">{escape(_short(", ".join(nodes[:MOST_NODES]) + more, 36))}</text></g>'
    )


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."
