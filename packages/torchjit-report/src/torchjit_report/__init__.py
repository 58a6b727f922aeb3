"""The trace format and the self-contained HTML report."""

import importlib
from typing import TYPE_CHECKING, Any

from torchjit_report.trace import Event, Recorder, Trace, read_trace, recording

if TYPE_CHECKING:
    from torchjit_report.chrome import chrome_trace, write_chrome_trace
    from torchjit_report.diagram import draw_steps
    from torchjit_report.html import render, render_html, write_report
    from torchjit_report.time_lost import TimeLost

__all__ = [
    "Event",
    "Recorder",
    "TimeLost",
    "Trace",
    "chrome_trace",
    "draw_steps",
    "read_trace",
    "recording",
    "render",
    "render_html",
    "write_chrome_trace",
    "write_report",
]


_PLACES = {
    "TimeLost": "time_lost",
    "chrome_trace": "chrome",
    "draw_steps": "diagram",
    "render": "html",
    "render_html": "html",
    "write_chrome_trace": "chrome",
    "write_report": "html",
}


def __getattr__(name: str) -> Any:
    """What reads recordings and writes reports, when it is first asked for: its imports (jinja2, pygments) take longer than recording does."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
