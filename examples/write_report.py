"""Record what compiling does: a report for a browser, and the same as data and as JSON."""

import argparse
import json
import tempfile
from pathlib import Path

import torch

import torchjit
from torchjit_core import events
from torchjit_report import Recorder, write_report

seen: list[float] = []


@torchjit.compile
def smooth(x: torch.Tensor) -> torch.Tensor:
    """One break (`.item()`), and a recompilation when the size changes."""
    y = x.cumsum(0) / x.numel()
    seen.append(y[-1].item())
    return y.sin().cos()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="small tensors")
    parser.add_argument("--report", type=Path, default=Path(tempfile.gettempdir()) / "torchjit-example.html")
    options = parser.parse_args()

    recorder = Recorder()
    with events.listen(recorder):
        for rows in (8, 9, 10) if options.small else (1000, 2000, 3000):
            smooth(torch.ones(rows))
    write_report(recorder.events, options.report)
    print("report:", options.report)

    told = smooth.compiled.stats
    for region in told.regions:
        print(f"[{region.compile_id}] {region.function}: {region.seconds:.2f} s, {region.hits} calls, {region.cause}")
    for recompile in told.recompiles:
        print(f"recompiled: {recompile.guard}: {recompile.expected} -> {recompile.actual}; {recompile.advice}")
    assert told.graph_break_count >= 1 and told.recompiles

    kernels = [e.fields["name"] for e in recorder.events if e.kind == "kernel"]
    print(json.dumps({"graphs": told.graph_count, "seconds": round(told.compile_seconds, 2), "kernels": kernels}))


if __name__ == "__main__":
    main()
