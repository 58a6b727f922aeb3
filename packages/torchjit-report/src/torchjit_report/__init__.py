"""The trace format and the self-contained HTML report."""

from typing import TYPE_CHECKING, Any

from torchjit_report.chrome import chrome_trace, write_chrome_trace
from torchjit_report.time_lost import TimeLost
from torchjit_report.trace import Event, Recorder, Trace, read_trace, recording

if TYPE_CHECKING:
    from torchjit_report.diagram import draw_steps
    from torchjit_report.html import render, render_html, write_report

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


def __getattr__(name: str) -> Any:
    """What writes a report, when it is first asked for: its imports (jinja2, pygments) take longer than recording does."""
    if name in ("render", "render_html", "write_report"):
        # Imported here for that reason.
        from torchjit_report import html  # noqa: PLC0415

        return getattr(html, name)
    if name == "draw_steps":
        # Likewise: pictures are for who asks for them.
        from torchjit_report import diagram  # noqa: PLC0415

        return diagram.draw_steps
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
