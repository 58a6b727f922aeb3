"""The commands of the command line, in the order in which `torchjit --help` lists them.

A command is a module with `HELP` (one line), `add_arguments(parser)` and `run(options)`, which returns the exit status.
"""

from torchjit.commands import backends, bench, cache, demo, doctor, explain, info, logs, modes, options, reasons, report

__all__ = ["COMMANDS"]

COMMANDS = (demo, explain, bench, report, cache, doctor, info, backends, modes, options, logs, reasons)
