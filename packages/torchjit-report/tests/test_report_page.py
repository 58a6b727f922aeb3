"""The page: what it shows, that it is sound HTML, and that nothing in a trace can break it."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchjit_report import Event, Trace, draw_steps, read_trace, render_html, write_report
from torchjit_report.collect import collect
from torchjit_report.highlight import inline, lines, printable, prose, short_paths
from torchjit_report.view import duration, size

FILE = "/home/somebody/model.py"
SOURCE = "def toy(a, b):\n    x = a / (abs(a) + 1)\n    if b.sum() < 0:\n        b = b * -1\n    return x * b\n"


def event(kind: str, compile_id: str | None = "0/0", **fields: Any) -> Event:
    return Event(kind, {"compile_id": compile_id, "pid": 1, "time": 1.7e9, **fields})


def start(function: str = "toy", compile_id: str = "0/0", lineno: int = 10, **fields: Any) -> Event:
    return event("compile_start", compile_id, function=function, filename=FILE, lineno=lineno, source=SOURCE, **fields)


BREAK = event(
    "graph_break",
    reason="TJ-VM-012",
    headline="branch on the value of a tensor",
    detail="`b.sum() < 0` decides",
    explanation="The value is not known.",
    hints=["Use torch.where.", "Use torch.cond."],
    filename=FILE,
    lineno=12,
    line="    if b.sum() < 0:",
    function="toy",
)
EVENTS = (
    event("session", None, format=1, python="3.12.1", platform="Linux x86_64", versions={"torch": "2.15.0"}),
    start(cause="first call"),
    BREAK,
    event("guards", guards=[{"text": "a is b", "filename": FILE, "lineno": 11}, {"text": "no place"}]),
    event("graph", stage="captured", name="graph_0", code="def forward(self, a):\n    return a", nodes=3),
    event("graph", stage="joint", name="joint_0", code="def joint(a):\n    return a", nodes=9),
    event(
        "saved_tensors",
        tensors=[{"name": "x", "shape": [2, 3], "dtype": "float32", "bytes": 3072, "why": "cheap to keep"}],
    ),
    event(
        "autotune",
        what="1 x [64, 32] @ [32, 48]",
        choices=[{"choice": "aten", "seconds": 14e-6}, {"choice": "64 x 64 tiles", "seconds": 12e-6}],
        rejected={"256 x 256 tiles": "too much shared memory"},
    ),
    event("product_settled", products=["mm"], kernel_seconds=12e-6, library_seconds=None, kept=True),
    event("cudagraph_timed", graph="graph_0", plain=4e-4, replay=1e-4, bytes_copied=512, kept=True),
    event("kernel", name="k_mul", language="c", source="int x = 1;", origins=["aten.mul"], graph="graph_0"),
    event("kernel", name="k_add", language="triton", source="@triton.jit\ndef k_add(): pass", origins=[], graph="?"),
    event("host_program", name="call_0", source="def call(args): ..."),
    event("emitted", source="def toy(a): return graph(a)"),
    event("phase", name="capture", seconds=0.25),
    event("phase", name="codegen", seconds=0.5),
    event("phase", name="capture", seconds=0.125),
    event("compile_end", seconds=1.0, ok=True),
    event(
        "recompile", None, function="toy", guard="a.size(0) == 10", expected="10", actual="8", filename=FILE, lineno=11
    ),
    start(compile_id="0/1", cause="a.size(0) == 10"),
    event("fallback", "0/1", reason="TJ-IND-004", headline="no compiler", detail="tried cc"),
    event("compile_end", "0/1", seconds=0.5, ok=False),
    start("other", "1/0", 40),
)

VOID = {"meta", "input", "br", "link", "img", "hr"}


class Page(HTMLParser):
    """Reads a page and checks that its tags are balanced."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.ids: list[str] = []
        self.hrefs: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            self.attributes.append((tag, name, value or ""))
            if name == "id":
                self.ids.append(value or "")
            if name == "href":
                self.hrefs.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)

    @property
    def shown(self) -> str:
        return " ".join("".join(self.text).split())


def _check(text: str) -> Page:
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    for href in page.hrefs:
        assert href.startswith("#"), href
        assert href[1:] in page.ids, href
    for tag, name, value in page.attributes:
        assert name not in ("src", "srcset", "action", "poster"), (tag, name, value)
        assert not name.startswith("on"), (tag, name)
    assert page.tags.count("script") == page.tags.count("style") == 1
    assert "@import" not in text
    assert "url(" not in text
    return page


def test_measured_choices_are_listed_the_fastest_first() -> None:
    first, second, replay = collect(EVENTS).functions[0].compilations[0].choices
    assert [way for way, _ in first.measured] == ["64 x 64 tiles", "aten"]
    assert first.rejected == ("256 x 256 tiles: too much shared memory",)
    assert second.what == "mm" and second.decision == "generated kernel" and len(second.measured) == 1
    assert replay.measured == (("replayed as a CUDA graph", 1e-4), ("call by call", 4e-4))
    shown = _check(render_html(EVENTS)).shown
    assert "replayed as a CUDA graph 100 µscall by call 400 µsCUDA graph kept; it copies 512 bytes" in shown
    assert "64 x 64 tiles 12 µs" in shown and "rejected: 256 x 256 tiles" in shown


def test_the_page_shows_every_event() -> None:
    page = _check(render_html(EVENTS))
    for wanted in (
        "TJ-VM-012", "branch on the value of a tensor", "b.sum() < 0", "The value is not known.", "Use torch.where.",
        "a is b", "no place", "Captured graph", "Joint graph", "Saved for backward 1 tensor, 3 KiB", "[2, 3]",
        "cheap to keep", "k_mul", "k_add", "aten.mul", "Host program", "call_0", "Rewritten code", "capture", "375 ms",
        "A guard missed", "a.size(0) == 10", "expected", "left to eager PyTorch", "TJ-IND-004", "failed", "unfinished",
        "torch 2.15.0", "Python 3.12.1", "2023-11-14", "first call", "12 %",
    ):  # fmt: skip
        assert wanted in page.shown, wanted


def test_the_overview_counts() -> None:
    text = render_html(EVENTS)
    rows = re.findall(r'<tr data-name="(\w+)">(.*?)</tr>', text, re.DOTALL)
    numbers = {name: re.findall(r'data-value="([^"]*)"', row) for name, row in rows}
    #                seconds, compilations, graphs, kernels, breaks, recompiles, fallbacks
    assert numbers == {"toy": ["1.5", "2", "1", "2", "1", "1", "1"], "other": ["0.0", "1", "0", "0", "0", "0", "0"]}
    assert "<b>1.50 s</b><span>compiling" in text


def test_source_lines_carry_their_marks() -> None:
    text = render_html(EVENTS)
    marked = re.findall(r'<div class="line marked (\w+)" id="(\w+)"', text)
    assert marked == [("recompile", "f1L11"), ("break", "f1L12")]
    assert re.search(r'id="f1L12".*?</div>\s*<div class="note break"><a href="#f1c1b1">', text, re.DOTALL)
    assert re.search(
        r'id="f1L11".*?1 guard relies on this line.*?<div class="note recompile"><a href="#f1r1">', text, re.DOTALL
    )
    assert '<a class="place" href="#f1L12"' in text


def test_a_break_elsewhere_is_shown_without_a_link() -> None:
    inlined = event(
        "graph_break", reason="TJ-VM-001", headline="h", filename="/lib/x.py", lineno=5, line="y()", function="g"
    )
    text = render_html([start(), inlined])
    _check(text)
    assert 'title="/lib/x.py:5">x.py:5</span>' in text
    assert "in g" in Page(text).shown


def test_equal_remarks_stand_once_under_a_line() -> None:
    again = [start(compile_id="0/1"), Event("graph_break", {**BREAK.fields, "compile_id": "0/1"})]
    text = render_html([start(), BREAK, *again])
    assert text.count('<div class="note break">') == 1
    assert text.count('<article class="card break" id=') == 2


def test_methods_are_dedented() -> None:
    source = "    def forward(self):\n        return 1\n"
    text = render_html([event("compile_start", function="f", filename=FILE, lineno=1, source=source)])
    assert '<code><span class="k">def</span>' in text


def test_a_continuation_keeps_its_copy_of_the_source_folded() -> None:
    text = render_html([start("f", "0/0"), start("f (continuation)", "1/0"), start("g", "2/0", 50)])
    assert re.findall(r'<details class="source"( open)?>', text) == [" open", "", " open"]
    marked = Event("graph_break", {**BREAK.fields, "compile_id": "1/0"})
    text = render_html([start("f", "0/0"), start("f (continuation)", "1/0"), marked])
    assert re.findall(r'<details class="source"( open)?>', text) == [" open", " open"]


def test_the_side_list_keeps_the_lines_of_continuations() -> None:
    side = render_html([start("f", "0/0"), start("f (continuation at line 12)", "1/0")]).split("<main")[0]
    assert re.findall(r"<span>(.*?)</span>", side) == ["f", "f:12"] and 'title="f (continuation at line 12)"' in side


def test_emitted_code_told_twice_stands_once() -> None:
    report = collect([start(), *[event("emitted", source="x")] * 2, event("emitted", source="y")])
    assert [p.source for p in report.compilations[0].emitted] == ["x", "y"]


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'><b>&amp;{{ 7*7 }}{% raw %}\x00\x1b[31m\ud800"


def _spoiled(value: Any) -> Any:
    if isinstance(value, str):
        return EVIL
    if isinstance(value, list):
        return [_spoiled(v) for v in value]
    if isinstance(value, dict):
        return {k: _spoiled(v) for k, v in value.items()}
    return value


def test_nothing_in_a_trace_is_taken_for_html() -> None:
    plain = [name for name in ("kind", "filename", "compile_id") if name]
    spoiled = [Event(e.kind, {k: v if k in plain else _spoiled(v) for k, v in e.fields.items()}) for e in EVENTS]
    text = render_html(spoiled, title=EVIL)
    page = _check(text)
    assert "img" not in page.tags
    assert "<b>&amp;{{ 7*7 }}" in page.shown
    assert "49}" not in page.shown
    assert "\x00" not in text
    text.encode()


def test_the_page_forbids_loading_anything() -> None:
    text = render_html(EVENTS)
    assert "default-src 'none'" in text
    assert "http" not in re.sub(r"http-equiv", "", text.split("<body>")[0])
    assert "prefers-color-scheme: dark" in text
    assert 'data-theme="dark"' in text


def test_an_empty_trace() -> None:
    page = _check(render_html([]))
    assert "Nothing was compiled" in page.shown


def test_skipped_lines_and_unknown_kinds_are_told() -> None:
    shown = _check(render_html(Trace((start(), event("novelty"), event("novelty")), skipped=3))).shown
    assert "3 lines of the trace could not be read and were skipped." in shown
    assert "novelty (2)" in shown


def test_events_without_an_id_belong_to_the_innermost_open_compilation() -> None:
    report = collect(
        [
            start("outer", "0/0"),
            start("inner", "1/0"),
            event("kernel", None, name="of inner"),
            event("compile_end", "1/0", seconds=1, ok=True),
            event("kernel", None, name="of outer"),
        ]
    )
    assert [[k.name for k in c.kernels] for c in report.compilations] == [["of outer"], ["of inner"]]


def test_processes_have_their_own_ids() -> None:
    second = [Event(e.kind, {**e.fields, "pid": 2}) for e in (start("g"), event("kernel", name="k"))]
    report = collect([start("f"), *second, event("compile_end", seconds=2, ok=True)])
    f, g = report.functions
    assert (f.seconds, f.count("kernels"), g.seconds, g.count("kernels")) == (2, 0, 0, 1)


def test_a_reused_id_starts_anew() -> None:
    report = collect([start(), event("compile_end", seconds=1, ok=True), start(), event("kernel", name="k")])
    assert [len(c.kernels) for c in report.functions[0].compilations] == [0, 1]


def test_events_of_a_compilation_whose_start_is_missing() -> None:
    report = collect([event("kernel", "7/7", name="k"), event("compile_end", "7/7", seconds=1, ok=True)])
    assert report.functions[0].name == "(start not recorded)"
    assert report.functions[0].count("kernels") == 1
    _check(render_html([event("kernel", None, name="k")]))


def test_a_recompile_told_before_its_function_is_met() -> None:
    missed = event("recompile", None, function="toy", guard="g", filename=FILE, lineno=11)
    report = collect([missed, start(), event("recompile", None, function="gone", guard="g")])
    assert [(f.name, len(f.recompiles), len(f.compilations)) for f in report.functions] == [
        ("toy", 1, 1),
        ("gone", 1, 0),
    ]
    _check(render_html([missed, event("recompile", None, function="gone", guard="g")]))


def test_phases_longer_than_the_whole_still_fit() -> None:
    text = render_html([start(), event("phase", name="p", seconds=9.0), event("compile_end", seconds=1.0, ok=True)])
    assert max(float(w) for w in re.findall(r"width:([\d.]+)%", text)) == 100


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "name", "lineno"]), inner),
    max_leaves=4,
)
names = ["function", "filename", "lineno", "source", "cause", "reason", "headline", "detail", "explanation", "hints",
         "line", "guards", "stage", "name", "code", "nodes", "tensors", "language", "origins", "graph", "seconds",
         "guard", "expected", "actual", "ok", "compile_id", "pid", "time", "versions", "python"]  # fmt: skip
kinds = sorted({e.kind for e in EVENTS})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.builds(Event, st.sampled_from(kinds), st.dictionaries(st.sampled_from(names), json_values, max_size=8)),
        max_size=8,
    )
)
def test_no_trace_breaks_the_page(events: list[Event]) -> None:
    _check(render_html(events))


@given(st.text(), st.sampled_from(["python", "c", "triton"]))
def test_highlighting_keeps_every_character(text: str, language: str) -> None:
    shown = [html.unescape(re.sub(r"<[^>]*>", "", line)) for line in lines(text, language)]
    assert shown == printable(text).rstrip("\n").split("\n")


def test_lines_are_complete_html_even_inside_strings() -> None:
    for line in lines('"""a\nb < c\n"""\nx = 1'):
        assert line.count("<span") == line.count("</span>")


def test_very_long_text_is_shown_plain() -> None:
    assert lines("x = '<'\n" * 60_000)[5] == "x = &#39;&lt;&#39;"


def test_a_backward_compiled_later_counts() -> None:
    early = event("phase", name="capture", seconds=1.0, time=2.0)
    late = [
        event("phase", name="c compile", seconds=1.0, time=9.5),
        event("phase", name="compile backward", seconds=2.0, time=10.0),
    ]
    (compilation,) = collect([start(), early, event("compile_end", seconds=1.0, ok=True), *late]).compilations
    assert compilation.seconds == 3.0
    assert [p.name for p in compilation.phases] == ["capture", "c compile", "compile backward"]


def test_every_colored_class_is_in_the_style_sheet() -> None:
    colored = set(re.findall(r'class="(\w+)"', "".join(lines(SOURCE + "@d\nclass C:\n  'x' + 1  # c\n"))))
    assert {"k", "nf", "nb", "s1", "mi", "c1", "nd", "nc", "o"} <= colored
    style = render_html([]).split("<style>")[1].split("</style>")[0]
    assert all(f".{name}" in style for name in colored)


def test_short_paths() -> None:
    assert short_paths("relu  /venv/lib/d-e/f.py:3 in g | x / y") == "relu  f.py:3 in g | x / y"
    assert short_paths("add (/usr/lib/x/nn.py:210)") == "add (nn.py:210)"
    assert short_paths("C:\\lib\\nn.py:2 and a/b.py:3") == "nn.py:2 and a/b.py:3"


def test_prose() -> None:
    assert prose("use `a < b` here") == "use <code>a &lt; b</code> here"
    assert prose("one ` tick <") == "one ` tick &lt;"
    assert str(inline("a < b")).count("&lt;") == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0"), (0.000012, "12 µs"), (0.00123, "1.23 ms"), (0.0456, "45.6 ms"), (0.2, "200 ms"), (0.9996, "1000 ms"), (3.14159, "3.14 s"), (1234.5, "1,234 s")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("n", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 20, "1 MiB"), (5 << 40, "5 TiB")])  # fmt: skip
def test_sizes(n: int, text: str) -> None:
    assert size(n) == text


def test_writing_replaces_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    assert write_report(EVENTS, path) == path
    _check(path.read_text(encoding="utf-8"))
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(OSError):
        write_report(EVENTS, tmp_path / "missing" / "report.html")


def test_the_command_line(tmp_path: Path) -> None:
    from torchjit_report import Recorder

    with Recorder(tmp_path / "trace.jsonl") as recorder:
        for e in EVENTS:
            recorder(e.kind, e.fields)
    with (tmp_path / "trace.jsonl").open("a") as file:
        file.write('{"kind":')
    assert len(read_trace(tmp_path / "trace.jsonl")) == len(EVENTS) + 1
    run = [sys.executable, "-m", "torchjit_report", str(tmp_path / "trace.jsonl")]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert "1 unreadable lines skipped" in done.stdout
    assert "toy" in _check((tmp_path / "trace.html").read_text(encoding="utf-8")).shown
    done = subprocess.run([*run[:-1], str(tmp_path / "nothing")], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "nothing" in done.stderr


def test_importing_needs_no_torch() -> None:
    code = "import sys, torchjit_report; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_picture_of_the_steps_is_in_the_page_and_escaped() -> None:
    steps: list[dict[str, Any]] = [
        {
            "name": "kernel_0",
            "generated": True,
            "nodes": ["<b>", "add", "mul", "sum"],
            "reads": ["x"],
            "writes": ["b0"],
        },
        {"name": "aten.mm", "generated": False, "nodes": ["mm"], "reads": ["b0", "w"], "writes": ["b1"]},
        {"name": "kernel_1", "generated": True, "nodes": ["relu"], "reads": ["b1", "b0"], "writes": ["b2"]},
    ]
    svg = draw_steps("a & b", steps)
    root = ElementTree.fromstring(svg)
    tops = [int(r.get("y", "")) for r in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert tops == sorted(tops) and len(set(tops)) == 3  # each reads the one before it
    assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) == 3
    assert "<b>" not in svg and "a &amp; b" in svg and "..." in svg
    events = [
        Event("compile_start", {"compile_id": "0/0", "function": "f", "filename": "f.py", "lineno": 1}),
        Event("schedule", {"compile_id": "0/0", "graph": "g", "steps": steps}),
        Event("compile_end", {"compile_id": "0/0", "seconds": 1.0, "ok": True}),
    ]
    page = render_html(events)
    assert 'class="steps"' in page and "kernel_1" in page and "unknown kinds" not in page
    facts = page.split('class="facts">')[1].split("</p>")[0]
    assert "PyTorch&#39;s own operators: 1 of 6 (17%)" in facts and "kept eager" not in facts


def test_the_head_says_how_much_is_kept_eager() -> None:
    events = []
    for identity, nodes, kept in (("0/0", 30, ("compiled", "eager")), ("1/0", 70, ("compiled",)), ("2/0", 100, ())):
        events += [
            start(f"f{identity[0]}", identity),
            event("graph", identity, stage="captured", name="g", nodes=nodes),
        ]
        events += [event("graph", identity, stage="forward", name="h", nodes=5)]
        events += [event("compared_with_eager", identity, choice=f"kept {way}", kept=way) for way in kept]
    facts = render_html(events).split('class="facts">')[1].split("</p>")[0]
    assert "kept eager: 1 of 3 compilations, 30 of 200 nodes" in facts
