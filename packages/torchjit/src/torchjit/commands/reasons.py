"""What a reason id of a message means, and what to do: `torchjit reasons TJ-VM-002`. Without an id, all of them."""

from __future__ import annotations

import argparse
import difflib
import importlib
import pkgutil
from collections.abc import Sequence

from rich.table import Table

from torchjit.commands.console import PARTS, print_table
from torchjit_core.reasons import Reason, UserError, all_reasons
from torchjit_core.user_errors import UNKNOWN_NAME

__all__ = ["HELP", "add_arguments", "every_reason", "run"]

HELP = "what a reason id such as TJ-VM-002 means, and what to do about it"
_OF_TESTS = "TJ-TST-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The ids that are asked for."""
    parser.add_argument("ids", nargs="*", metavar="ID", help="such as TJ-VM-002, or vm-002; none: a table of all")


def run(options: argparse.Namespace) -> int:
    """Print the reasons that are asked for.

    Raises:
        UserError: there is no such id.
    """
    known = {reason.id: reason for reason in every_reason()}
    if not options.ids:
        _print_all(list(known.values()))
        return 0
    print("\n\n".join(_text(_find(asked, known)) for asked in options.ids))
    return 0


def every_reason() -> tuple[Reason, ...]:
    """The reasons of all packages, sorted by id. A reason is registered by the module that gives it, so all modules are imported."""
    for package in ("torchjit", *(f"torchjit_{part}" for part in PARTS)):
        root = importlib.import_module(package)
        for module in pkgutil.walk_packages(root.__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    return tuple(reason for reason in all_reasons() if not reason.id.startswith(_OF_TESTS))


def _find(asked: str, known: dict[str, Reason]) -> Reason:
    id = asked.strip().rstrip(":").upper()
    id = id if id.startswith("TJ-") else f"TJ-{id}"
    if id in known:
        return known[id]
    near = difflib.get_close_matches(id, known, n=3)
    error = UserError(
        UNKNOWN_NAME, f"{asked!r} is no reason id" + (f"; did you mean {', '.join(near)}?" if near else "")
    )
    error.hints = ("torchjit reasons lists all ids.",)
    raise error


def _text(reason: Reason) -> str:
    lines = [f"{reason.id}: {reason.headline}", "", f"  {reason.explanation}"]
    return "\n".join([*lines, *(f"  hint: {hint}" for hint in reason.hints)])


def _print_all(reasons: Sequence[Reason]) -> None:
    table = Table("id", "what happened")
    for reason in reasons:
        table.add_row(reason.id, reason.headline)
    print_table(table)
    print("torchjit reasons ID says what an id means, and what to do.")
