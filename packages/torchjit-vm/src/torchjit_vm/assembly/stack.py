"""How deep the value stack is before each instruction."""

from __future__ import annotations

import dis
from collections.abc import Iterator

from torchjit_vm.assembly.listing import Handler, Instruction, Label, Listing
from torchjit_vm.assembly.opcodes import JUMPS, NO_FALLTHROUGH, OPCODES

__all__ = ["stack_depths", "stack_size"]


def stack_depths(listing: Listing) -> tuple[int | None, ...]:
    """Number of values on the stack before each instruction, in order; None where control never comes.

    Every path to an instruction gives the same depth in code that CPython's compiler made.

    Raises:
        ValueError: two paths give different depths, or the stack would underflow.
    """
    flow = _Flow(listing)
    flow.run()
    return tuple(flow.depths)


def stack_size(listing: Listing) -> int:
    """The largest depth that any instruction reaches, for `co_stacksize`."""
    flow = _Flow(listing)
    flow.run()
    return flow.highest


class _Flow:
    """Walks all paths from the first instruction, exception handlers included."""

    def __init__(self, listing: Listing) -> None:
        self.instructions = list(listing.instructions())
        self.labels: dict[Label, int] = {}
        count = 0
        for item in listing.items:
            if type(item) is Label:
                self.labels[item] = count
            else:
                count += 1
        self.covering: list[Handler | None] = [None] * count
        for handler in listing.handlers:
            for k in range(self.labels[handler.start], self.labels[handler.end]):
                self.covering[k] = handler
        self.depths: list[int | None] = [None] * count
        self.highest = 0

    def run(self) -> None:
        work = [(0, 0)] if self.instructions else []
        while work:
            k, depth = work.pop()
            if k >= len(self.instructions):
                raise ValueError("control runs off the end of the code")
            known = self.depths[k]
            if known is not None:
                if known != depth:
                    raise ValueError(f"{self.instructions[k]} is reached with {known} and with {depth} values")
                continue
            self.depths[k] = depth
            work.extend(self._successors(k, depth))

    def _successors(self, k: int, depth: int) -> Iterator[tuple[int, int]]:
        instruction = self.instructions[k]
        code = OPCODES[instruction.name]
        if code not in NO_FALLTHROUGH:
            yield k + 1, self._after(instruction, depth, jump=False)
        if code in JUMPS and instruction.target is not None:
            yield self.labels[instruction.target], self._after(instruction, depth, jump=True)
        handler = self.covering[k]
        if handler is not None:
            depth = handler.depth + handler.lasti + 1
            self.highest = max(self.highest, depth)
            yield self.labels[handler.target], depth

    def _after(self, instruction: Instruction, depth: int, *, jump: bool) -> int:
        code = OPCODES[instruction.name]
        if instruction.name == "RETURN_GENERATOR":
            effect = 1  # the value that the generator is started with; `dis` of 3.11 and 3.12 leaves it out
        else:
            effect = dis.stack_effect(code, instruction.arg if code >= dis.HAVE_ARGUMENT else None, jump=jump)
        after = depth + effect
        if after < 0:
            raise ValueError(f"{instruction} takes more than the {depth} values on the stack")
        self.highest = max(self.highest, depth, after)
        return after
