"""The commands of the command line, in the order in which `torchjit --help` lists them.

A command is a module with `HELP` (one line), `run(options)`, which returns the exit status, and, if it takes any, `add_arguments(parser)`;
or it is a table.
"""

from typing import Any

from torchjit.commands import bench, cache, demo, doctor, explain, info, reasons, report
from torchjit.commands.tables import TABLES

__all__ = ["COMMANDS"]

COMMANDS: dict[str, Any] = {
    "demo": demo, "explain": explain, "bench": bench, "report": report, "cache": cache, "doctor": doctor, "info": info,
    **TABLES, "reasons": reasons,
}  # fmt: skip
