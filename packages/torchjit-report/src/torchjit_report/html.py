"""The HTML report."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import tempfile
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from torchjit_report import highlight, view
from torchjit_report.collect import collect
from torchjit_report.diagram import draw_steps
from torchjit_report.listings import Listings
from torchjit_report.model import Schedule
from torchjit_report.trace import Event, PathLike

__all__ = ["render", "render_html", "write_report"]

MOST_STEPS_DRAWN = 120


@functools.cache
def _template() -> Any:
    folder = files(__package__) / "page"
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printable,
    )
    environment.filters.update(
        brief=view.brief,
        inline=highlight.inline,
        prose=highlight.prose,
        short_paths=highlight.short_paths,
        duration=view.duration,
        size=view.size,
        drawn=_drawn,
    )
    # Ours, and free of `</style` and `</script`; they stand inside those elements as they are.
    environment.globals.update(
        style=Markup((folder / "style.css").read_text(encoding="utf-8")),
        most_steps_drawn=MOST_STEPS_DRAWN,
        script=Markup((folder / "script.js").read_text(encoding="utf-8")),
    )
    return environment.get_template("page.html.j2")


def _drawn(schedule: Schedule) -> Markup:
    return Markup(draw_steps(schedule.graph, schedule.steps))  # which escapes everything of the steps


def _printable(value: Any) -> Any:
    return highlight.printable(value) if type(value) is str else value


def render_html(events: Iterable[Event], *, title: str = "torchjit report") -> str:
    """One self-contained page: no scripts, styles, fonts or images from elsewhere, so it works offline.

    Args:
        events: of one or several recordings, in order; a `Trace` also tells how many lines it skipped.
        title: of the page.
    """
    return str(_template().render(page=view.page(collect(events), title), listings=Listings()))


def write_report(events: Iterable[Event], path: PathLike, *, title: str = "torchjit report") -> Path:
    """Write the page to `path`, whole or not at all, and return its absolute path.

    Raises:
        OSError: the file cannot be written.
    """
    target = Path(path).absolute()
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no folder for the report", str(target))
    html = render_html(events, title=title).encode("utf-8", errors="replace")
    handle, temporary = tempfile.mkstemp(prefix=".report-", suffix=".html", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(html)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return target


render = write_report
