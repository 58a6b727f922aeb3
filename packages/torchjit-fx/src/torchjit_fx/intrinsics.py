"""What polyfills say to the tensor domain: functions without a body, which the domain answers (see `calls.intrinsics`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from torchjit_fx.leaves import Function, Raw

__all__ = [
    "INTRINSICS", "Value", "abandon_backward", "announce_block", "ask_metadata", "call_whole", "convert_results", "derive", "enter_backward",
    "enter_body", "enter_checkpoint", "enter_forward", "enter_hook", "enter_range", "enter_replicas", "enter_transform", "expect_true",
    "finish_control_flow", "finish_flex_attention", "finish_function", "follow_under_transforms", "group_name", "group_rank", "group_size",
    "hook_leaf", "keep_function", "leave_backward", "leave_body", "leave_checkpoint", "leave_forward", "leave_hook",
    "leave_transform", "reduction_name", "refuse", "remove_hook", "switch_dispatch",
]  # fmt: skip


Value: TypeAlias = Any
"""What a polyfill is given and gives: any value of the program."""


def _only_interpreted() -> NoReturn:
    raise RuntimeError("this function has a meaning only while it is interpreted")


def refuse(what: str, collective: bool = False) -> NoReturn:
    """The polyfill does not cover this call (of a group of processes): it breaks the graph and runs the original."""
    _only_interpreted()


def enter_forward(tensors: list[Value]) -> None:
    """The forward of a custom autograd function starts; `tensors` are its tensor arguments."""
    _only_interpreted()


def leave_forward(outputs: list[Raw], saved: list[Value], constant: list[Value], dirty: list[Value]) -> None:
    """It ends: its tensor results, what was saved for the backward, what has no gradient, what was written."""
    _only_interpreted()


def enter_backward(defined: list[bool]) -> list[Raw]:
    """Its backward starts: gives one gradient per result of the forward, None where `defined` says so."""
    _only_interpreted()


def leave_backward(gradients: list[Value]) -> None:
    """It ends: one gradient or None per tensor argument."""
    _only_interpreted()


def abandon_backward() -> None:
    """It raised: these gradients may not be missing."""
    _only_interpreted()


def finish_function(name: str, materialize: bool, once: bool) -> list[Raw]:
    """Record the call; gives the results that the program goes on with."""
    _only_interpreted()


def enter_checkpoint(context_fn: Callable[..., Any] | None, *args: Raw) -> None:
    """What is recorded from here on belongs to a checkpointed region; `context_fn(*args)` says what it keeps."""
    _only_interpreted()


def leave_checkpoint() -> None:
    """The region ends."""
    _only_interpreted()


def follow_under_transforms(plain: bool) -> None:
    """A custom autograd function is called. Under a transform its class has rules of its own, unless they are `plain`: the forward, batched."""
    _only_interpreted()


def enter_transform(flat: list[Raw], dims: list[int | None], wrapped: list[bool | None]) -> list[Raw]:
    """The function under a transform starts: gives what it sees of these tensors, see `transforms.TransformCapture`."""
    _only_interpreted()


def leave_transform(kind: str, outputs: list[Raw], options: dict[str, Value], more: list[Value]) -> list[Raw]:
    """It has returned: record the call of the transform; gives the transform's results."""
    _only_interpreted()


def enter_body(flat: list[Raw], rows: int) -> list[Raw]:
    """A branch, or the body of a loop, starts: gives what it sees of these tensors; from `rows` on, a row of each."""
    _only_interpreted()


def leave_body(outputs: list[Raw]) -> None:
    """It has returned these tensors."""
    _only_interpreted()


def finish_control_flow(kind: str, first: list[Value], operands: list[Raw]) -> list[Raw]:
    """Record the call over the bodies captured last; gives its results."""
    _only_interpreted()


def finish_flex_attention(operands: list[Raw], blocks: list[Value], scale: Value, options: Raw) -> list[Raw]:
    """Record the call of `flex_attention` over the two bodies captured last; gives its results."""
    _only_interpreted()


def keep_function(results: list[Raw], rest: list[Raw]) -> tuple[list[Any], Any]:
    """The function under vjp has returned: gives its results, and what stands for it in `derive`."""
    _only_interpreted()


def derive(kept: Value, directions: list[Value]) -> list[Raw]:
    """The vjp of a kept function, at the arguments that it had then."""
    _only_interpreted()


def enter_hook(tensor: Raw) -> Raw:
    """The hook of a tensor starts: gives the gradient that it sees."""
    _only_interpreted()


def leave_hook(result: Raw) -> Raw:
    """It has returned: record the registration; gives what stands for it in `remove_hook`."""
    _only_interpreted()


def hook_leaf(tensor: Raw) -> None:
    """A leaf of autograd is about to be given a hook, by what follows."""
    _only_interpreted()


def remove_hook(token: Value) -> None:
    """The program removes the hook again."""
    _only_interpreted()


def group_name(group: Value, tag: str = "") -> str:
    """The name of a process group; None is the default one. What is said of it is guarded."""
    _only_interpreted()


def group_size(name: str) -> int:
    """How many processes it has."""
    _only_interpreted()


def group_rank(name: str, rank: int | None) -> int:
    """The place in it of the process that has this rank in the default group; of this process for None."""
    _only_interpreted()


def reduction_name(operation: Value) -> str:
    """A `ReduceOp`, its name, or None for the sum, as functional collectives name it."""
    _only_interpreted()


def announce_block() -> None:
    """A block is about to be entered that cannot be left by a break: that must be here."""
    _only_interpreted()


def switch_dispatch(off: bool) -> bool:
    """Calls with tensors of other classes do not go to these classes (or do again); gives what it was before."""
    _only_interpreted()


def convert_results(function: Function, result: Raw, cls: type) -> Raw:
    """What a call of `function` gave, as tensors of the class."""
    _only_interpreted()


def call_whole(function: Function, args: Raw, kwargs: Raw) -> Raw:
    """Record one call of `function`, whose arguments may hold objects as well as tensors: they are constants of the graph."""
    _only_interpreted()


def enter_range(name: str) -> None:
    """A range of the profiler begins: the region is to have one of this name. For real, behind a break, there is none."""


def enter_replicas(module: Value) -> None:
    """The forward of the module that is replicated begins; `module` is the `DistributedDataParallel`."""
    _only_interpreted()


def ask_metadata(function: Function, args: Raw) -> Raw:
    """What `function` says of tensors by their metadata, see `answers`."""
    _only_interpreted()


def expect_true(holds: Value) -> bool:
    """A fact that the program states: of what only the run knows it is tested there, and known from here on."""
    _only_interpreted()


INTRINSICS = (
    refuse, ask_metadata, call_whole, announce_block, expect_true, enter_range, enter_replicas, switch_dispatch, convert_results, enter_forward, leave_forward,
    enter_backward, leave_backward, abandon_backward, finish_function, enter_checkpoint, leave_checkpoint,
    follow_under_transforms, enter_transform, leave_transform, enter_body, leave_body, finish_control_flow, finish_flex_attention,
    keep_function, derive, enter_hook, leave_hook, hook_leaf, remove_hook, group_name, group_size, group_rank,
    reduction_name,
)  # fmt: skip
