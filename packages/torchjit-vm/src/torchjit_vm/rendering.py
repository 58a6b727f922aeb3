"""Text for people: instructions, frames, and what a capture relies on and does."""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from torchjit_vm.decode import JUMPS, decode

if TYPE_CHECKING:
    from torchjit_vm.capture.api import Captured
    from torchjit_vm.frame import Frame

__all__ = ["render_captured", "render_code", "render_frame", "render_instruction"]


def render_instruction(code: CodeType, index: int) -> str:
    """One canonical instruction, with its line and its argument in words."""
    decoded = decode(code)
    name, argument = decoded.names[index], decoded.instrs[index][1]
    shown: object = argument
    if name in JUMPS:
        shown = f"to {argument}"
    elif name == "LOAD_CONST":
        shown = repr(code.co_consts[argument])
    elif "FAST" in name or "DEREF" in name or name == "MAKE_CELL":
        shown = decoded.locals[argument]
    elif callable(argument):
        shown = argument.__name__
    text = f"{decoded.location(index).lineno:5} {index:4} {name:24} {shown}"
    return text.rstrip() if shown not in (0, None) else text.removesuffix(str(shown)).rstrip()


def render_code(code: CodeType | FunctionType) -> str:
    """All canonical instructions of a code object: line, index, name, argument. Handlers of exceptions come last."""
    real = code.__code__ if isinstance(code, FunctionType) else code
    decoded = decode(real)
    lines = [render_instruction(real, i) for i in range(len(decoded.names))]
    for row in decoded.handling:
        keeps = ", keeps the instruction" if row.lasti else ""
        lines.append(f"      {row.start} to {row.end - 1}: handler {row.target}, stack depth {row.depth}{keeps}")
    return "\n".join(lines)


def render_frame(frame: Frame[Any]) -> str:
    """Where a frame is, its stack and its local variables."""
    names = frame.code.locals
    values = {n: v for n, v in zip(names, frame.fast, strict=False) if v is not None}
    return f"{frame.code.code.co_qualname} at {frame.pc - 1}: stack {frame.stack}, locals {values}"


def render_captured(captured: Captured) -> str:
    """What a capture relies on, what its code does (the graph call, effects, the result), and why it ended."""
    parts = ["guards:", *(f"    {guard}" for guard in captured.guards), "code:"]
    parts += [f"    {line}" for line in (captured.source or "the graph itself").splitlines()]
    for record in captured.breaks:
        where = "" if record.location is None else f" at line {record.location.lineno} of {record.location.function}"
        parts.append(f"break {record.reason.id}{where}: {record.reason.headline} ({record.detail})")
    for region in captured.continuations:
        parts.append(f"continues in {region.code.co_qualname} at offset {region.offset}")
    return "\n".join(parts)
