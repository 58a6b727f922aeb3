"""What this package asks of a compiled callable, and the reasons for which it leaves one alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from torchjit_core.reasons import Reason, reason
from torchjit_torch.layouts import is_static, overlaps_itself

__all__ = ["Recordable", "Refusal", "name_of", "overlaps", "refusal", "run_compiled"]


class Recordable(Protocol):
    """A compiled graph: takes its inputs positionally and returns a sequence of outputs.

    It must launch the same work on every call with the same sizes, read nothing but its inputs and its constants, and
    keep its inputs' addresses only in what it launches. If it has a method `boxed`, which takes its inputs as one
    list and empties it, inputs that nobody else holds give their memory to what comes after their last use.

    Attributes:
        static_inputs: positions of inputs whose address stays the same from call to call (parameters, buffers).
        mutated_inputs: positions of inputs that a call writes to.
        device: the one device of all the work, or None if there is none or more than one.
        reason_not_recordable: why the callable knows that it cannot be captured (an op that reads sizes back from
            the device, say), or None.
    """

    @property
    def static_inputs(self) -> frozenset[int]: ...
    @property
    def mutated_inputs(self) -> frozenset[int]: ...
    @property
    def device(self) -> torch.device | None: ...
    @property
    def reason_not_recordable(self) -> str | None: ...
    def __call__(self, *inputs: Any) -> Sequence[Any]: ...


NOT_ONE_DEVICE = reason(
    "TJ-CG-001",
    "no CUDA graph: the work is not on one CUDA device",
    "A CUDA graph holds the work of one CUDA device, so graphs on the CPU or on several devices run as they are.",
    "Move the model and its inputs to one CUDA device.",
)
CPU_INPUT = reason(
    "TJ-CG-002",
    "no CUDA graph: an input lives on another device",
    "A replay reads its inputs from fixed addresses on the graph's device; an input elsewhere has none there.",
    "Pass the tensor on the CUDA device; a number may be passed as a Python number.",
)
NOT_CAPTURABLE = reason(
    "TJ-CG-004",
    "no CUDA graph: the compiled graph cannot be captured",
    "Some operation waits for the device or has sizes that depend on data; a capture allows neither.",
    "Avoid `.item()`, `nonzero` and boolean masks as indices in the compiled region.",
)
NEEDS_GRAD = reason(
    "TJ-CG-005",
    "no CUDA graph: an input requires grad and grad mode is on",
    "Recordings are made of inference graphs; a replay makes no autograd history.",
    "Run inference under torch.no_grad() or torch.inference_mode().",
)
TOO_MANY_SIZES = reason(
    "TJ-CG-006",
    "CUDA graph limit: too many combinations of input sizes",
    "Every combination of sizes needs a recording of its own, and max_recordings of them exist; this call ran without.",
    "Pad inputs to a few sizes, or raise max_recordings.",
)
TOO_MANY_VERSIONS = reason(
    "TJ-CG-007",
    "CUDA graph limit: parameters keep moving, or earlier results are held in ever new combinations",
    "A recording holds the addresses of parameters, and memory that is in use when it is made stays untouched by it; "
    "max_versions recordings for these sizes were made, and none fits this call, which ran without.",
    "Update parameters in place (`p.copy_(...)`) rather than replace them, drop results that are not needed any more, "
    "or raise max_versions.",
)
CAPTURE_FAILED = reason(
    "TJ-CG-008",
    "no CUDA graph: the capture failed",
    "CUDA or an operation refused to be captured; the compiled graph runs without a CUDA graph from now on.",
    "The detail holds the error; operations that synchronize with the device are the usual cause.",
)
OVERLAPPING_INPUT = reason(
    "TJ-CG-009",
    "no CUDA graph: elements of an input overlap in memory",
    "The input is copied into a buffer of the same layout, which cannot be done when its elements share memory.",
    "Pass `x.contiguous()`.",
)

DOES_NOT_PAY = reason(
    "TJ-CG-010",
    "no CUDA graph: a replay takes longer than the calls that it replaces",
    "Both were timed, from an idle device to an idle device. With large inputs the work of the device hides the time of "
    "launching it, and a replay adds copies of the inputs.",
    "Nothing needs to be done; `CudaGraphSettings(measure=False)` keeps such recordings.",
)

LARGER_THAN_ALL = reason(
    "TJ-CG-011",
    "no CUDA graph: the batch is larger than every capture size",
    "With `capture_sizes`, batches are filled up to the next size that is recorded; this one has none, and ran without.",
    "Add a larger size to `capture_sizes`, or call with smaller batches.",
)

ROWS_MIX = reason(
    "TJ-CG-013",
    "no CUDA graph: rows of a batch depend on one another",
    "With `capture_sizes`, batches are filled with rows of zeros up to the next size. Here that changed the other rows' results (batch "
    "norm in training mode, a sum over the batch), so only batches of exactly these sizes are recorded.",
    "Leave `capture_sizes` out, or compute what spans the batch outside.",
)
NO_BATCH = reason(
    "TJ-CG-014",
    "no capture sizes: the graph has no dimension that could be filled up",
    "Capture sizes need one dynamic first dimension that inputs share, and that every result has; training graphs are not filled up.",
    "Mark the dimension (`torchjit.mark_dynamic(x, 0)`) and return results row by row. Every size is recorded on its own otherwise.",
)

FORWARD_WITHOUT = reason(
    "TJ-CG-015",
    "no CUDA graph: the forward ran without one",
    "What a recorded forward saves lies where the recorded backward reads it. This forward ran without a CUDA graph, so a replay of "
    "the backward would copy all of it, and keep a second place for it.",
    "Another message says why the forward has none.",
)

Refusal = tuple[Reason, str]


def refusal(
    compiled: Recordable, example_inputs: Sequence[Any], device_type: str, names: Sequence[str] = ()
) -> Refusal | None:
    """Why `compiled` cannot be recorded for inputs such as these, with a detail; None if it can.

    Args:
        compiled: the callable.
        example_inputs: tensors (real or fake) and numbers, in the callable's order.
        device_type: the device type that can be captured: `cuda`.
        names: of the inputs, for the detail.
    """
    if compiled.reason_not_recordable is not None:
        return NOT_CAPTURABLE, compiled.reason_not_recordable
    device = compiled.device
    if device is None or device.type != device_type:
        return NOT_ONE_DEVICE, f"device is {device}"
    for position, value in enumerate(example_inputs):
        if isinstance(value, torch.Tensor):
            found = _tensor_refusal(value, device, position in compiled.static_inputs)
            if found is not None:
                return found[0], f"{name_of(position, names)} {found[1]}"
    return None


def name_of(position: int, names: Sequence[str]) -> str:
    """An input as messages call it."""
    return names[position] if position < len(names) else f"input {position}"


def _tensor_refusal(value: torch.Tensor, device: torch.device, static: bool) -> Refusal | None:
    if value.device.type != device.type or (device.index is not None and value.device.index != device.index):
        return CPU_INPUT, f"is on {value.device}, the work on {device}"
    if value.layout is not torch.strided:
        return NOT_CAPTURABLE, f"has layout {value.layout}"
    if torch.is_grad_enabled() and value.requires_grad:
        return NEEDS_GRAD, "requires grad"
    if not static and is_static(value) and overlaps(value):  # symbolic sizes: asked at each recording
        return OVERLAPPING_INPUT, f"has sizes {list(value.shape)} and strides {list(value.stride())}"
    return None


def overlaps(value: torch.Tensor) -> bool:
    """Do elements share memory otherwise than through dimensions of stride 0 (which are copied once)?"""
    dims = [dim for dim, stride in enumerate(value.stride()) if stride != 0]
    return overlaps_itself([value.shape[dim] for dim in dims], [value.stride(dim) for dim in dims])


def run_compiled(compiled: Recordable, inputs: list[Any]) -> Sequence[Any]:
    """Call `compiled`; it empties `inputs` if it can."""
    boxed = getattr(compiled, "boxed", None)
    result: Sequence[Any] = compiled(*inputs) if boxed is None else boxed(inputs)
    return result
