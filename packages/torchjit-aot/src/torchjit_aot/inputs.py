"""Fake tensors for the graph's inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, cast, final

import attrs
import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from torchjit_aot.ambient import saved_tensor_hooks_aside
from torchjit_aot.refusals import EMPTY_GRAPH, SUBCLASS
from torchjit_core.reasons import GraphBreak
from torchjit_torch.layouts import is_leaf, is_static

__all__ = ["GraphInput", "fake_inputs", "lifted_state", "no_autocast", "tracing_context"]

_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)


@final
@attrs.define(eq=False)
class GraphInput:
    """One input of the graph while it is traced.

    Attributes:
        name: for the placeholder.
        value: the fake tensor that stands for it, a `SymInt` or a number.
        leaf: with respect to what gradients are taken, a fake tensor; None if the input does not require grad. It is
            not `value` when the real input is no leaf: then writing to it in place is allowed, and `value` is a clone.
        real: what the caller passes now; None once the graph is compiled.
        static: its storage stays the same over the calls.
        address_stays: the program promised that its memory stays where it is: what is in it changes.
    """

    name: str
    value: Any
    leaf: torch.Tensor | None
    real: Any
    static: bool
    address_stays: bool = False


def lifted_state(gm: fx.GraphModule) -> dict[str, torch.Tensor]:
    """The parameters and buffers that the module itself holds, by name: they become inputs after the placeholders."""
    return {**dict(gm.named_parameters()), **dict(gm.named_buffers())}


def fake_inputs(
    gm: fx.GraphModule, example_inputs: Sequence[Any], state: dict[str, torch.Tensor]
) -> tuple[FakeTensorMode, list[GraphInput]]:
    """Make the traced value of every placeholder and of every tensor in `state`.

    Sizes and strides come from the placeholder's `meta["val"]`, else from the real input.

    Raises:
        GraphBreak: an input is a tensor subclass, sparse, quantized, or of an unknown kind.
    """
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    if len(placeholders) != len(example_inputs):
        raise ValueError(f"the graph has {len(placeholders)} placeholders, got {len(example_inputs)} inputs")
    fake_mode = gm.meta.get("fake_mode")
    vals = [node.meta.get("val") for node in placeholders]
    if fake_mode is None:
        fakes = (v.fake_mode for v in (*vals, *example_inputs) if isinstance(v, FakeTensor))
        fake_mode = next(fakes, None) or FakeTensorMode()
    made: list[GraphInput] = []
    with fake_mode, torch.no_grad():
        for node, val, real in zip(placeholders, vals, example_inputs, strict=True):
            static = bool(node.meta.get("static", False))
            made.append(_graph_input(str(node.target).lstrip("*"), val, real, static))
            made[-1].address_stays = bool(node.meta.get("address_stays", False))
        for name, real in state.items():
            made.append(_graph_input(name.replace(".", "_"), None, real, True))
    return fake_mode, made


def _graph_input(name: str, val: Any, real: Any, static: bool) -> GraphInput:
    if not isinstance(real, torch.Tensor):
        if real is not None and not isinstance(real, (int, float, bool, str, torch.SymInt, torch.device, torch.dtype)):
            raise GraphBreak(EMPTY_GRAPH, f"{name} is a {type(real).__name__}")
        return GraphInput(name, real if val is None else val, None, real, static)
    if type(real) not in _PLAIN or real.layout != torch.strided or real.is_quantized:
        raise GraphBreak(SUBCLASS, f"{name} is a {type(real).__name__} with layout {real.layout}")
    if real.is_conj() or real.is_neg():
        raise GraphBreak(SUBCLASS, f"{name} is a lazily conjugated or negated view")
    shape = val if isinstance(val, torch.Tensor) else real
    fake = _fake_like(shape, real)
    if not real.requires_grad:
        return GraphInput(name, fake, None, real, static)
    leaf = fake.requires_grad_()
    if is_leaf(real):
        return GraphInput(name, leaf, leaf, real, static)
    with torch.enable_grad():
        return GraphInput(name, _clone(leaf, shape), leaf, real, static)


def _clone(leaf: torch.Tensor, shape: torch.Tensor) -> torch.Tensor:
    """A clone with the leaf's own strides: kernels read the input by them."""
    made = leaf.clone(memory_format=torch.preserve_format)
    # With symbolic strides a comparison would be a guard, and what is not surely dense is cloned otherwise anyway.
    if is_static(shape) and made.stride() == leaf.stride():
        return made
    return cast(torch.Tensor, _Clone.apply(leaf))


@final
class _Clone(torch.autograd.Function):
    """`clone`, also where memory has gaps or elements share it."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor) -> torch.Tensor:
        return _fake_like(leaf, leaf)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0]


def _fake_like(shape: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    sizes, strides, offset = shape.size(), shape.stride(), shape.storage_offset()
    if type(offset) is int and offset == 0:
        return torch.empty_strided(sizes, strides, dtype=real.dtype, device=real.device)
    extent = offset + 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) if real.numel() else offset
    base = torch.empty((extent,), dtype=real.dtype, device=real.device)
    return base.as_strided(sizes, strides, offset).detach()


@contextlib.contextmanager
def tracing_context(fake_mode: FakeTensorMode) -> Iterator[None]:
    """Fake mode and Python dispatcher on; grad mode and autocast as they were when the block ends."""
    grad_mode = torch.is_grad_enabled()
    autocast = {device: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in _devices()}
    cache = torch.is_autocast_cache_enabled()
    try:
        # Anomaly mode would look for NaNs in fakes.
        with (
            saved_tensor_hooks_aside(),
            torch.autograd.set_detect_anomaly(False),
            fake_mode,
            enable_python_dispatcher(),
        ):
            yield
    finally:
        torch._C._set_grad_enabled(grad_mode)
        for device, (enabled, dtype) in autocast.items():
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(cache)
        torch.clear_autocast_cache()  # it may hold casts of our fakes


@contextlib.contextmanager
def no_autocast() -> Iterator[None]:
    """Autocast off on all devices."""
    with contextlib.ExitStack() as stack:
        for device in _devices():
            stack.enter_context(torch.autocast(device, enabled=False))
        yield


def _devices() -> list[str]:
    return [device for device in ("cpu", "cuda") if device == "cpu" or torch.cuda.is_available()]
