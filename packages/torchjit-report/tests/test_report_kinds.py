"""Every kind of event that the packages emit has a place on the page, also with fields missing; breaks by line, and large recordings."""

import base64
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from torchjit_report import Event, render_html
from torchjit_report.annotate import annotated
from torchjit_report.collect import KNOWN, collect
from torchjit_report.remarks import KINDS

PACKAGES = Path(__file__).resolve().parents[2]
EMITS = re.compile(r'\bemit(?:_lazy)?\(\s*"(\w+)"')
SOURCE = "def outer(x):\n    x = x + 1\n    return inner(x)\n"


def emitted_kinds() -> set[str]:
    return {kind for file in PACKAGES.glob("*/src/**/*.py") for kind in EMITS.findall(file.read_text(encoding="utf-8"))}


def start(name: str = "outer", compile_id: str = "0/0", **more: object) -> Event:
    place = {"function": name, "filename": "/m/net.py", "lineno": 10, "source": SOURCE}
    return Event("compile_start", {**place, "compile_id": compile_id, "cause": "first call", **more})


def graph_break(compile_id: str = "0/0", **more: object) -> Event:
    told = {"reason": "TJ-VM-002", "headline": "a C function", "detail": "print", "hints": ["write `f(print)`"]}
    stack = [{"filename": "/m/net.py", "lineno": 12}, {"filename": "/m/sub.py", "lineno": 4}]
    place = {"filename": "/m/sub.py", "lineno": 4, "line": "    print(y)", "function": "inner", "stack": stack}
    return Event("graph_break", {**told, **place, "compile_id": compile_id, **more})


def test_every_kind_that_is_emitted_is_known() -> None:
    found = emitted_kinds()
    if len(list(PACKAGES.glob("torchjit-*"))) < 5:
        pytest.skip("the other packages' sources are not here")
    assert {"compile_start", "graph_break", "rewrites"} <= found
    assert found <= KNOWN, found - KNOWN


@pytest.mark.parametrize("kind", sorted(KNOWN))
def test_an_event_without_fields_is_no_error(kind: str) -> None:
    page = render_html([start(), Event(kind, {"compile_id": "0/0"})])
    assert "unknown kinds" not in page


def test_remarks_are_told_once_each() -> None:
    fused = {"kernel": ["mul"], "group": ["sum"], "why": "they <loop> differently", "compile_id": "0/0"}
    counts = Event("rewrites", {"name": "joint", "counts": {"pointless-view": 3}, "compile_id": "0/0"})
    events = [start(), Event("not_fused", fused), Event("not_fused", fused), counts]
    assert sorted(collect(events).compilations[0].remarks.values()) == [1, 2]
    page = render_html(events)
    assert "mul did not join sum: they &lt;loop&gt; differently" in page
    assert "(2 times)" in page
    assert "rewrites of joint: pointless-view (3)" in page
    assert set(KINDS) <= KNOWN


def test_a_break_in_a_callee_is_marked_at_the_call_and_listed_by_line() -> None:
    page = render_html([start(), graph_break(), start("other", "1/0"), graph_break("1/0")])
    calls = page.split('<div class="line marked break" id="f1L12"')[1]
    assert "in inner (sub.py:4)" in calls.split("</div>\n    </div>")[0]
    section = page.split('id="costly"')[1].split("</section>")[0]
    assert section.count("<article") == 1
    assert "2 regions" in section
    assert ">outer</a>" in section and ">other</a>" in section
    assert "write <code>f(print)</code>" in section


def end(compile_id: str, seconds: float) -> Event:
    return Event("compile_end", {"compile_id": compile_id, "seconds": seconds, "ok": True})


def behind(compile_id: str, lineno: int) -> Event:
    """The start of what goes on behind a break in sub.py."""
    return start("rest", compile_id, follows=[{"filename": "/m/sub.py", "lineno": lineno}])


def costly(*events: Event) -> list[str]:
    """The cards of the costly lines, in their order."""
    section = render_html(events).split('id="costly"')[1].split("</section>")[0]
    return [card.split("</article>")[0] for card in section.split("<article")[1:]]


def test_lines_are_ranked_by_time_and_not_by_their_number_of_regions() -> None:
    many = [event for k in range(3) for event in (start("b", f"{k}/0"), graph_break(f"{k}/0", lineno=9))]
    once = [start("a", "7/0"), graph_break("7/0", lineno=4)]
    rest = [behind("8/0", 9), end("8/0", 0.004), behind("9/0", 4), end("9/0", 1.5)]
    first, second = costly(*many, *once, *rest)
    assert "sub.py:4" in first and "about 1.5 s lost: 1.5 s compiling" in first and "1 region<" in first
    assert "sub.py:9" in second and "about 4 ms lost" in second and "3 regions" in second


def test_lines_that_are_called_often_come_before_what_took_long_to_compile() -> None:
    breaks = [start("b"), graph_break(lineno=9), start("a", "1/0"), graph_break("1/0", lineno=4)]
    rest = [behind("2/0", 9), end("2/0", 0.001), behind("3/0", 4), end("3/0", 0.5)]
    hits = Event("calls", {"hits": {"0/0": 400_000, "2/0": 400_000, "1/0": 1, "3/0": 1}})
    first, second = costly(*breaks, *rest, hits)
    assert "sub.py:9" in first and "1.2 s entering regions behind it 400,000 times" in first
    assert "sub.py:4" in second
    assert "sub.py:4" in costly(*breaks, *rest)[0]  # of a program that was killed, what is known


def test_recompiles_are_ranked_among_the_breaks() -> None:
    place = {"function": "outer", "filename": "/m/net.py", "compile_id": "0/0"}
    slow = Event(
        "recompile", {**place, "guard": "kind == 1", "expected": "1", "actual": "2", "advice": "fix it", "lineno": 11}
    )
    fast = Event("recompile", {**place, "guard": "n == 1", "expected": "1", "actual": "2", "lineno": 12})
    refused = Event("recompile", {**place, "guard": "late", "expected": "1", "actual": "2", "lineno": 13})
    made = [start(compile_id="0/1", cause="n == 1"), end("0/1", 0.01)]
    made += [fast, start(compile_id="0/2", cause="n == 1"), end("0/2", 0.01)]
    events = [start(), graph_break(), behind("1/0", 4), end("1/0", 0.5), fast, *made]
    events += [slow, start(compile_id="0/3", cause="kind == 1"), end("0/3", 2.0), refused]
    cards = costly(*events)
    assert [re.findall(r"(\w+\.py:\d+)</b>", card) for card in cards] == [
        ["net.py:11"],
        ["sub.py:4"],
        ["net.py:12"],
        ["net.py:13"],
    ]
    assert "<li>fix it</li>" in cards[0] and 'class="excerpt"' in cards[0] and "2 recompiles" in cards[2]
    assert "about 20 ms lost" in cards[2] and "about 0 us lost" in cards[3]  # nothing was compiled for the last one


def test_the_head_says_how_it_was_compiled() -> None:
    asked: dict[str, Any] = {
        "backend": "inductor",
        "mode": "max-autotune",
        "options": {"fast": "True"},
        "device": "cpu",
    }
    page = render_html([start(**asked), start("g", "1/0", backend="eager", fullgraph=True)])
    facts = page.split('class="facts">')[1].split("</p>")[0]
    for wanted in (
        "backend inductor, eager",
        "mode max-autotune",
        "options fast = True",
        "device cpu",
        "fullgraph True",
    ):
        assert wanted in facts


def test_recompiles_come_with_advice() -> None:
    missed = {"function": "outer", "guard": "x.size(0) == 3", "advice": "mark_dynamic(x, 0)", "compile_id": "0/0"}
    assert "<li>mark_dynamic(x, 0)</li>" in render_html([start(), Event("recompile", missed)])


def test_many_recompiles_of_one_line_are_one_card_and_a_few_notes() -> None:
    fields = {
        "function": "outer",
        "advice": "mark_dynamic(x, 0)",
        "compile_id": "0/0",
        "filename": "/m/net.py",
        "lineno": 11,
    }
    many = [Event("recompile", {**fields, "guard": f"size == {n}", "expected": n, "actual": n + 1}) for n in range(40)]
    other = Event("recompile", {**fields, "guard": "mode", "expected": "a", "actual": "b", "advice": "set it once"})
    page = render_html([start(), *many, other])
    assert (
        page.count("<li>mark_dynamic(x, 0)</li>") == page.count("<li>set it once</li>") == 2
    )  # by line, and at the function
    assert "Guards missed 40 times" in page and page.count("A guard missed") == 1
    assert all(f'id="f1r{k}"' in page for k in range(1, 42))
    assert page.count('<div class="note recompile">') == 4 and "and 38 more guards" in page


def test_a_break_shows_the_calls_that_lead_to_it() -> None:
    places = [{"filename": "/m/net.py", "lineno": 12, "function": "Outer.forward", "module": "self: Outer"}]
    places += [{"filename": "/m/sub.py", "lineno": 4, "function": "Inner.forward", "module": "blocks.0: Inner"}]
    page = render_html([start(), graph_break(calls=places)])
    calls = re.search(r'<ol class="calls">(.*?)</ol>', page, re.DOTALL)
    assert calls is not None and calls[1].count("<li>") == 2
    assert calls[1].index("Outer.forward") < calls[1].index("blocks.0: Inner") < calls[1].index("sub.py:4")


def test_bytecode_and_symbols_have_a_place() -> None:
    code = Event("bytecode", {"original": "LOAD_FAST 0", "rewritten": "", "source": "", "compile_id": "0/0"})
    sizes = Event("symbols", {"symbols": [{"name": "s0", "path": "x.size(0)", "range": "2.."}], "compile_id": "0/0"})
    page = render_html([start(), code, sizes])
    assert "Original bytecode" in page and "Rewritten bytecode" not in page
    assert "s0 is x.size(0) (2..)" in page


def test_graphs_have_shapes_and_lines() -> None:
    code = "def forward(self, x, y : torch.Tensor):\n    add = x + y;  x = y = None\n    return (add,)\n"
    values = {"x": "float32[3]", "y": "float32[3]", "add": "float32[3]"}
    text = annotated(code, values, {"add": "net.py:7 layers.0"})
    assert re.search(r"add = x \+ y;  x = y = None\s+# float32\[3\]  net\.py:7 layers\.0\n", text)
    assert "    # x: float32[3]\n    # y: float32[3]\n" in text
    assert annotated(code, {}, {}) == code
    graph = {"stage": "captured", "name": "g", "code": code, "nodes": 4, "values": values, "compile_id": "0/0"}
    assert "# float32[3]" in render_html([start(), Event("graph", graph)])


def large(compilations: int) -> list[Event]:
    """Regions of the size of a transformer's block."""
    code = "def forward(self, x):\n" + "".join(f"    add_{n} = torch.add(x, {n});  x = None\n" for n in range(120))
    kernel = "".join(f"    tmp{n} = tl.load(in_ptr{n % 4} + (x{n}), None)\n" for n in range(60))
    guards = [
        {"text": f"self.layers[{n}].weight: Tensor(torch.float32)", "filename": "/m/net.py", "lineno": 11}
        for n in range(150)
    ]
    events = []
    for number in range(compilations):
        unique = f"# region {number}\n" + code
        identity = f"{number}/0"
        parts: list[tuple[str, dict[str, Any]]] = [
            ("guards", {"guards": guards}),
            *[("graph", {"stage": stage, "name": f"g{number}", "code": f"# {stage}\n{unique}", "nodes": 122}) for stage in ("captured", "joint", "forward")],
            *[("kernel", {"name": f"k{number}_{n}", "language": "triton", "source": f"# {number} {n}\n{kernel}", "graph": f"g{number}"}) for n in range(6)],
            ("host_program", {"name": f"g{number}", "source": f"# host\n{unique}"}),
            ("emitted", {"source": code[:2000]}),
            ("phase", {"name": "capture", "seconds": 0.1}),
            ("compile_end", {"seconds": 0.3, "ok": True}),
        ]  # fmt: skip
        events += [start(f"block_{number}", identity), graph_break(identity)]
        events += [Event(kind, {**fields, "compile_id": identity}) for kind, fields in parts]
    return events


@pytest.mark.parametrize(("compilations", "megabytes"), [(4, 2.0), (200, 10.0)])
def test_pages_stay_small(compilations: int, megabytes: float) -> None:
    page = render_html(large(compilations))
    assert len(page.encode()) < megabytes * 1e6
    assert page.count('<details class="compilation"') == compilations


def unpacked(page: str) -> str:
    """The page with its compressed parts in their places, as the script of the page puts them there."""
    packed = re.compile(r' data-packed="([^"]*)">')
    while packed.search(page):
        page = packed.sub(lambda m: ">" + zlib.decompress(base64.b64decode(m[1])).decode(), page)
    return page


def test_large_pages_are_compressed_and_nothing_is_lost() -> None:
    small, page = render_html(large(1)), render_html(large(4))
    assert "data-packed" in page and unpacked(page).count("<div") == unpacked(page).count("</div>")
    last = page.split('<section class="function"')[-1]
    assert last.count('data-packed="') == 1 and '<details class="part"' not in last and "in_ptr" not in last
    whole = unpacked(page)
    for number in range(4):
        assert f"region {number}" in whole and f"k{number}_5" in whole and f'id="f{number + 1}c1k6"' in whole
    assert len(set(re.findall(r' id="(\w+)"', whole))) == len(re.findall(r' id="(\w+)"', whole))
    links = set(re.findall(r'href="#(\w+)"', whole))
    assert links and all(f'id="{name}"' in whole for name in links)
    assert not re.search(
        r'<details class="compilation"[^>]* open>\s*<summary>(?:(?!</summary>).)*</summary>\s*<div data-packed',
        page,
        re.S,
    )
    assert unpacked(small).count("in_ptr") == 360


def test_equal_blocks_stand_once() -> None:
    code = "def forward(self, x):\n" + "    x = x + 1\n" * 40
    graph = {"name": "g", "code": code, "nodes": 42, "compile_id": "0/0"}
    page = render_html([start(), Event("graph", {"stage": "a", **graph}), Event("graph", {"stage": "b", **graph})])
    assert page.count('<div class="code"') == 1
    assert page.count('The same text as <a href="#f1c1t1">') == 1
