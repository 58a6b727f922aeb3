"""Which sizes have changed at a site: by the modules that it was called with, of this process and of earlier ones.

A size is evidence for the modules that it was met with, and for others that are like them: of the same classes, with parameters of the same shapes. Two
networks of one class, or two ways to configure it, share their code but say nothing about each other's sizes. A network's static code is
faster, so what merely differs between networks, between processes or behind a `reset` is no reason for symbols.

Where a site meets very many kinds of modules (a layer of one's own, in all widths), what differs between them counts too, before the
recompile limit is reached.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, final

import torch

import torchjit_guards

if TYPE_CHECKING:
    import torchjit_vm

__all__ = ["SizeHistories"]

_ANY = "any modules"
_shape: Any = torch._C.TensorBase.shape
_shape_of: Callable[[torch.Tensor], torch.Size] = _shape.__get__
"""Without asking a subclass."""


@final
class SizeHistories:
    """The histories of one site."""

    def __init__(self) -> None:
        self._of: dict[str, torchjit_guards.SizeHistory] = {}
        self._met: set[str] = set()
        """The kinds of modules that calls of this process came with."""
        self._unread: list[tuple[Callable[[], torchjit_guards.SizeHistory], bool]] = []

    def of(self, region: torchjit_vm.Region, slots: tuple[Any, ...], most: int) -> torchjit_guards.SizeHistory:
        """The history that calls like this one belong to.

        Args:
            region: of the site.
            slots: of the call.
            most: how many kinds of modules have a history of their own; with the next one all have a common one.
        """
        self._read()
        modules = _described_modules(region, slots)
        self._met.add(modules)
        mine = self._of.setdefault(modules, torchjit_guards.SizeHistory(modules))
        if _ANY not in self._of and len(self._met) > most:
            self._of[_ANY] = common = torchjit_guards.SizeHistory(_ANY)
            for met in self._met:
                common.learn(self._of[met], met_here=True)
        return self._of.get(_ANY, mine)

    def learn(self, stored: Callable[[], torchjit_guards.SizeHistory], *, met_here: bool) -> None:
        """Take over what another process has seen vary.

        Args:
            stored: gives it once something is asked: a warm start ends without.
            met_here: a call of this process had the numbers of the last capture there.
        """
        self._unread.append((stored, met_here))

    def restore(self, stored: torchjit_guards.SizeHistory) -> None:
        """Be as another process was when it had captured something."""
        self._unread.clear()
        self._of = {stored.modules: stored}

    def _read(self) -> None:
        while self._unread:
            stored, met_here = self._unread.pop(0)
            theirs = stored()
            if met_here:
                self._met.add(theirs.modules)
            elif theirs.modules == _ANY:
                continue  # here there are not that many
            mine = self._of.setdefault(theirs.modules, torchjit_guards.SizeHistory(theirs.modules))
            mine.learn(theirs, met_here=met_here)


def _described_modules(region: torchjit_vm.Region, slots: tuple[Any, ...]) -> str:
    """A digest of the modules that a call brings or that the region's code names: their classes and the shapes of their parameters.

    Numbers in modules are not in it (equal blocks have their index in a list), nor are buffers (which may grow). Empty without modules.
    """
    digest, found = hashlib.sha256(), False
    for place, module in _modules_near(region, slots):
        found = True
        digest.update(f"\n{place}".encode("utf-8", "surrogatepass"))
        for line in _lines(module):
            digest.update(line.encode("utf-8", "surrogatepass"))
    return digest.hexdigest() if found else ""


def _modules_near(region: torchjit_vm.Region, slots: tuple[Any, ...]) -> Iterator[tuple[str, torch.nn.Module]]:
    """In the slots and the tuples there, under global names of the code, and in cells of the function."""
    cells = () if region.function is None else region.function.__closure__ or ()
    near: list[tuple[str, Any]] = [(f"argument {i}", slot) for i, slot in enumerate(slots)]
    near += [(name, region.globals.get(name)) for name in region.code.co_names]
    near += [(f"cell {i}", _content(cell)) for i, cell in enumerate(cells)]
    for place, value in near:
        for item in value if type(value) is tuple else (value,):
            if issubclass(type(item), torch.nn.Module):
                yield place, item


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


def _lines(module: torch.nn.Module) -> Iterator[str]:
    """Of a module and all below it, read from their dicts: no code of theirs runs."""
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", module)]
    while waiting:
        name, at = waiting.pop()
        if id(at) in seen or at is None:
            continue
        seen.add(id(at))
        state = object.__getattribute__(at, "__dict__")
        yield f"\n{name} {type(at).__module__}.{type(at).__qualname__}"
        for key, parameter in state.get("_parameters", {}).items():
            yield f"\n{key}" if parameter is None else f"\n{key} {tuple(_shape_of(parameter))}"
        waiting += state.get("_modules", {}).items()
