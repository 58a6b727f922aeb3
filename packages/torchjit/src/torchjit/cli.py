"""The command line: `torchjit COMMAND`. See `torchjit.commands`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import torchjit
from torchjit.commands import COMMANDS
from torchjit_core.reasons import TorchjitError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = _parser()
    given = sys.argv[1:] if arguments is None else arguments
    if not given:
        parser.print_help(sys.stderr)  # which lists the commands; that one is missing is told below it
    options = parser.parse_args(given)
    try:
        status: int = options.run(options)
    except TorchjitError as error:  # of the user's words to the command: no traceback helps
        print(f"torchjit {options.command}: {error}", file=sys.stderr)
        return 2
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torchjit", description=(torchjit.__doc__ or "").splitlines()[0])
    parser.add_argument("--version", action="version", version=torchjit.__version__)
    commands = parser.add_subparsers(required=True, metavar="command", dest="command")
    for name, command in COMMANDS.items():
        described = getattr(command, "DESCRIPTION", command.__doc__)
        added = commands.add_parser(name, help=command.HELP, description=described)
        if hasattr(command, "add_arguments"):
            command.add_arguments(added)
        added.set_defaults(run=command.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
