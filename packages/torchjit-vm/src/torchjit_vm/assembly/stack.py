"""What the value stack looks like before each instruction: its depth, and how many exceptions are being handled."""

from __future__ import annotations

import dis
from collections.abc import Iterator

from torchjit_vm.assembly.listing import Handler, Instruction, Label, Listing
from torchjit_vm.assembly.opcodes import JUMPS, NO_FALLTHROUGH, OPCODES

__all__ = ["handler_nesting", "stack_depths", "stack_size"]


def stack_depths(listing: Listing) -> tuple[int | None, ...]:
    """Number of values on the stack before each instruction, in order; None where control never comes.

    Every path to an instruction gives the same depth in code that CPython's compiler made.

    Raises:
        ValueError: two paths give different depths, the stack would underflow, or control runs off the end.
    """
    return tuple(_depths(_Flow(listing))[0])


def stack_size(listing: Listing) -> int:
    """The largest depth that any instruction reaches, for `co_stacksize`. Raises as `stack_depths` does."""
    return _depths(_Flow(listing))[1]


def handler_nesting(listing: Listing) -> tuple[int | None, ...]:
    """Number of this code's exception handlers that are active before each instruction; None where control never comes.

    That is, how many PUSH_EXC_INFO have run without their POP_EXCEPT.
    """
    flow = _Flow(listing)
    found: list[int | None] = [None] * len(flow.instructions)
    work = [(0, 0)] if found else []
    while work:
        k, nesting = work.pop()
        known = found[k]
        if known is not None and known <= nesting:
            continue
        # An exception edge from a handler's own clean-up code counts one too many (the exception leaves only after
        # POP_EXCEPT), so of several paths the lowest count is right.
        found[k] = nesting
        change = {"PUSH_EXC_INFO": 1, "POP_EXCEPT": -1}.get(flow.instructions[k].name, 0)
        after = max(0, nesting + change)
        work.extend((following, after) for following, _ in flow.normal(k))
        if (handler := flow.covering[k]) is not None:
            work.append((flow.labels[handler.target], min(nesting, after)))
    return tuple(found)


class _Flow:
    """The control-flow graph over instruction indices."""

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

    def normal(self, k: int) -> Iterator[tuple[int, bool]]:
        """(index, by a jump) of what can run after instruction `k` when it does not raise."""
        instruction = self.instructions[k]
        code = OPCODES[instruction.name]
        if code not in NO_FALLTHROUGH:
            if k + 1 == len(self.instructions):
                raise ValueError("control runs off the end of the code")
            yield k + 1, False
        if code in JUMPS and instruction.target is not None:
            yield self.labels[instruction.target], True


def _depths(flow: _Flow) -> tuple[list[int | None], int]:
    depths: list[int | None] = [None] * len(flow.instructions)
    highest = 0
    work = [(0, 0)] if depths else []
    while work:
        k, depth = work.pop()
        highest = max(highest, depth)
        known = depths[k]
        if known is not None:
            if known != depth:
                raise ValueError(f"{flow.instructions[k]} is reached with {known} and with {depth} values")
            continue
        depths[k] = depth
        for following, jump in flow.normal(k):
            work.append((following, depth + _effect(flow.instructions[k], depth, jump=jump)))
        if (handler := flow.covering[k]) is not None:
            work.append((flow.labels[handler.target], handler.depth + handler.lasti + 1))
    return depths, highest


def _effect(instruction: Instruction, depth: int, *, jump: bool) -> int:
    if instruction.name == "RETURN_GENERATOR":
        return 1  # the value that the generator is started with; `dis` of 3.11 and 3.12 leaves it out
    code = OPCODES[instruction.name]
    effect = dis.stack_effect(code, instruction.arg if code >= dis.HAVE_ARGUMENT else None, jump=jump)
    if depth + effect < 0:
        raise ValueError(f"{instruction} takes more than the {depth} values on the stack")
    return effect
