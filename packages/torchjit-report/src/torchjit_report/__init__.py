"""The trace format and the self-contained HTML report."""

from torchjit_report.render import render, render_html, write_report
from torchjit_report.trace import Event, Recorder, Trace, read_trace, recording

__all__ = [
    "Event",
    "Recorder",
    "Trace",
    "read_trace",
    "recording",
    "render",
    "render_html",
    "write_report",
]
