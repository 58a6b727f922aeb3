"""What to write instead of a line that breaks the graph: for one break, where its reason alone cannot say."""

from __future__ import annotations

from typing import Final

from torchjit_core.reasons import Reason

__all__ = ["cures"]

_MOVE_OUT: Final = "Move the call out of the compiled region."
_PRINT: Final = "torchjit.config.reorderable_logging_functions.add(print)"
_SCALARS: Final = "torchjit.config.capture_scalar_outputs = True"
_SHAPES: Final = "torchjit.config.capture_dynamic_output_shape_ops = True"
_STREAMS: Final = ("TextIOWrapper.", "StringIO.", "BufferedWriter.", "io.open", "input", "breakpoint")
"""Input and output: these never compute tensors, so `allow_in_graph` is no way out."""
_NUMBERS: Final = ("Tensor.item", "TensorBase.item", "TensorBase.tolist", "Tensor.tolist", "float() of", "bool() of")
_GENERATORS: Final = ("RandomState.", "Generator.")
_INTEGERS: Final = ("int() of", "index() of")


def cures(why: Reason, detail: str) -> tuple[str, ...]:
    """Lines to write, the best first: those of the reason, unless the detail tells more.

    Args:
        why: the reason of a break.
        detail: its text, which begins with what was called or read.
    """
    made = {"TJ-VM-002": _of_call, "TJ-FX-001": _of_value, "TJ-FX-002": _of_shape, "TJ-FX-020": _of_numpy}.get(why.id)
    return (made(detail) if made is not None else ()) or why.hints


def _of_call(called: str) -> tuple[str, ...]:
    if called == "print":
        return f"Let it run at the end of the region: {_PRINT}", _MOVE_OUT
    if called.startswith(("TextIOWrapper.write", "StringIO.write", "TextIOWrapper.flush")):
        return f"Write with print, and let that run at the end of the region: {_PRINT}", _MOVE_OUT
    if called.startswith(_STREAMS):
        return (_MOVE_OUT,)
    return ()


def _of_value(read: str) -> tuple[str, ...]:
    if read == "the truth of a tensor" or any(sign in read for sign in (" > ", " < ", " == ", " != ", " >= ", " <= ")):
        return (
            "Compute both sides and choose: torch.where(condition, a, b).",
            "Keep the branch in the graph: torch.cond(condition, true_function, false_function, operands).",
        )
    if read.startswith("format() of"):
        return ("Make the text from the tensor outside of the compiled region.",)
    if read.endswith("() of a list with tensors"):
        return ("Stack them: torch.stack([a, b]), which keeps their gradients, too.",)
    if read.startswith(_NUMBERS):
        return (
            f"Let the number be a symbol of the graph: {_SCALARS}",
            "Keep the value in a tensor: drop the conversion.",
        )
    if read.startswith(_INTEGERS):
        return (
            f"Let the number of an integer tensor be a symbol of the graph: {_SCALARS}",
            "Keep the value in a tensor: drop the conversion.",
        )
    return ()


def _of_numpy(called: str) -> tuple[str, ...]:
    if called.startswith(_GENERATORS):
        return (
            "Draw with torch: torch.rand(()), torch.randint, torch.randperm, torch.distributions.",
            "Draw before the call, and pass the number in as a tensor.",
        )
    return ()


def _of_shape(called: str) -> tuple[str, ...]:
    return (
        f"Let the size be a symbol of the graph: {_SHAPES}",
        "Keep the full size: torch.where(mask, a, b), or multiply by the mask.",
    )
