"""How large the report of 4 and of 200 compilations is, and how long a real Chromium takes to load it.

    uv run python benchmarks/report_page.py
    uv run python benchmarks/report_page.py --pages report.html        # any page
    uv run python benchmarks/report_page.py --shots shots              # pictures: wide and 420 px, light and dark

Recorded are resnet18 and a small transformer, inference and training. Of 200 compilations each is a copy with names, ids and texts of its own, so
that no text stands for another one. Loading: from the start of the navigation to the load event, and to the first frame after it; the best of
three fresh tabs. Needs Chromium (Debian: `apt-get install chromium`).
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import torchjit
from torchjit.demo.models import GPT, resnet18
from torchjit_core import events
from torchjit_report import Event, Recorder, write_report

PAINTED = "new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()), 0)))"
LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"
WIDTHS = {"wide": 1280, "narrow": 420}


class Browser:
    """A headless Chromium that is spoken to over pipes, in its DevTools protocol."""

    def __init__(self) -> None:
        program = next(
            (p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), ""
        )
        if not program:
            sys.exit("there is no Chromium here (Debian: apt-get install chromium)")
        self.profile = tempfile.TemporaryDirectory(prefix="report-page-")
        to_browser, self.write = os.pipe()
        self.read, from_browser = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars"]
        command = [program, *flags, f"--user-data-dir={self.profile.name}"]
        # It reads file 3 and writes file 4.
        shell = ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "chromium", *command]
        self.process = subprocess.Popen(shell, pass_fds=(to_browser, from_browser), stderr=subprocess.DEVNULL)
        os.close(to_browser), os.close(from_browser)
        self.numbers = itertools.count(1)
        self.rest = b""
        self.session: str | None = None

    def _messages(self) -> Iterator[dict[str, Any]]:
        while True:
            while b"\0" in self.rest:
                line, _, self.rest = self.rest.partition(b"\0")
                yield json.loads(line)
            data = os.read(self.read, 1 << 20)
            if not data:
                raise RuntimeError("Chromium has ended")
            self.rest += data

    def ask(self, method: str, **arguments: Any) -> dict[str, Any]:
        """The result of a command, in the open tab if there is one."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": arguments}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        for answer in self._messages():
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
        raise AssertionError

    def tab(self, width: int = 1280, height: int = 900, *, dark: bool = False) -> None:
        """Open an empty tab."""
        self.session = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.enable")

    def value(self, expression: str) -> Any:
        """Of an expression in the page; promises are waited for."""
        told = self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        return told["result"].get("value")

    def open(self, page: Path) -> None:
        """Load a page; comes back after the load event."""
        self.ask("Page.navigate", url=page.resolve().as_uri())
        while self.value("document.readyState") != "complete" or not self.value(LOADED):
            time.sleep(0.02)

    def picture(self, path: Path) -> None:
        """Of what the tab shows."""
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """End the browser."""
        self.session = None
        self.ask("Browser.close")
        self.process.wait(timeout=20)
        self.profile.cleanup()


def recorded() -> list[Event]:
    """Two models, inference and training: four compilations."""
    recorder = Recorder()
    torch.manual_seed(0)
    with events.listen(recorder):
        for model, inputs in (
            (resnet18(), torch.randn(2, 3, 64, 64)),
            (GPT(layers=4, width=64, heads=4, context=32), torch.randint(0, 1024, (2, 32))),
        ):
            fast = torchjit.compile(model)
            with torch.no_grad():
                fast(inputs)
            fast(inputs).sum().backward()
    return list(recorder.events)


def copies(one: list[Event], count: int) -> list[Event]:
    """`count` compilations out of these, with names, ids and texts of their own."""
    session, rest = [e for e in one if e.kind == "session"], [e for e in one if e.kind != "session"]
    per_round = sum(e.kind == "compile_start" for e in rest)
    made = session
    for number in range(-(-count // per_round)):
        made += [Event(e.kind, _own(e.fields, number)) for e in rest]
    return made


def _own(fields: Mapping[str, Any], number: int) -> dict[str, Any]:
    changed = dict(fields)
    for name in ("code", "source"):
        if changed.get(name):
            changed[name] = f"{changed[name]}\n# copy {number}\n"
    if changed.get("function"):
        changed["function"] = f"{changed['function']} {number}"
    if changed.get("compile_id"):
        changed["compile_id"] = f"{number}.{changed['compile_id']}"
    return changed


def measured(browser: Browser, page: Path) -> str:
    """A row of the table."""
    loads, frames = [], []
    for _ in range(3):
        browser.tab()
        browser.open(page)
        frames.append(browser.value(PAINTED))
        loads.append(browser.value(LOADED))
    nodes = browser.value("document.querySelectorAll('*').length")
    start = time.perf_counter()
    browser.value("document.querySelector('[data-key=e]').click()")
    while browser.value("document.querySelectorAll('[data-packed]').length"):
        time.sleep(0.02)
    expanded = time.perf_counter() - start
    size = page.stat().st_size / 1e6
    compilations = browser.value("document.querySelectorAll('details.compilation').length")
    return f"| {page.name} | {compilations} | {size:.2f} MB | {min(loads) / 1e3:.2f} s | {min(frames) / 1e3:.2f} s | {nodes:,} | {expanded:.1f} s |"


def pictures(browser: Browser, page: Path, folder: Path) -> None:
    """The top of the page and its first function with a kernel open, by width and color scheme."""
    folder.mkdir(parents=True, exist_ok=True)
    for (name, width), dark in itertools.product(WIDTHS.items(), (False, True)):
        browser.tab(width, dark=dark)
        browser.open(page)
        label = f"{page.stem}-{name}-{'dark' if dark else 'light'}"
        browser.picture(folder / f"{label}-top.png")
        for part in ("costly", "f1", "f1c1", "f1c1guards", "f1c1g1", "f1c1k1", "f1c1e1"):
            if browser.value(f"location.hash = {part!r}, !!document.getElementById({part!r})"):
                time.sleep(1.0)
                browser.picture(folder / f"{label}-{part}.png")
        wide = browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if wide > 0:
            print(f"WRONG {label}: the page is {wide} px wider than the screen")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=Path, nargs="*", default=[], help="these rather than recorded ones")
    parser.add_argument("--compilations", type=int, nargs="*", default=[4, 200])
    parser.add_argument("--shots", type=Path, help="a folder for pictures of the first page")
    parser.add_argument("--keep", type=Path, help="a folder for the pages")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = o.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        pages = list(o.pages)
        if not pages:
            one = recorded()
            for count in o.compilations:
                start = time.perf_counter()
                pages.append(write_report(copies(one, count), folder / f"report-{count}.html"))
                print(f"{pages[-1].name}: written in {time.perf_counter() - start:.1f} s", flush=True)
        browser = Browser()
        print(
            "| page | compilations | size | load event | next frame | elements | expand all |\n|---|---|---|---|---|---|---|"
        )
        for page in pages:
            print(measured(browser, page), flush=True)
        if o.shots:
            pictures(browser, pages[0], o.shots)
        browser.close()


if __name__ == "__main__":
    main()
