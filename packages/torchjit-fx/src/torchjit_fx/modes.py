"""Ambient state of torch that a capture tracks: grad mode, inference mode, autocast.

The process keeps its real state during a capture; only while an operation is tried on fake tensors is the tracked state
made real.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, final

import attrs
import torch

from torchjit_fx.inference_state import set_inference_mode
from torchjit_fx.leaves import Function, Raw
from torchjit_fx.strictness import breaks_are_errors, set_breaks_are_errors

__all__ = [
    "DEFAULT_DTYPE", "GRAD", "INFERENCE", "MODE_READERS", "MODE_SETTERS", "AmbientState",
    "TorchModes", "autocast_nesting", "read_all_modes", "write_modes",
]  # fmt: skip

Key = tuple[str, ...]


def _set_grad_mode(value: bool) -> None:
    torch._C._set_grad_enabled(value)


def autocast_nesting() -> int:
    """The number of autocast blocks that this thread is in. Weights that were cast are cached until it is 0."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


_torch: Any = torch
_C: Any = torch._C
_ATTENTION = tuple(
    n
    for n in ("flash", "mem_efficient", "math", "cudnn", "overrideable", "fa3", "fa4")
    if hasattr(_C, f"_set_sdp_use_{n}") and hasattr(_C, f"_get_{n}_sdp_enabled")
)


def _read_attention(name: str) -> bool:
    return bool(getattr(_C, f"_get_{name}_sdp_enabled")())


def _set_attention(name: str, value: bool) -> None:
    getattr(_C, f"_set_sdp_use_{name}")(value)


DEFAULT_DTYPE: Key = ("default_dtype",)
INFERENCE: Key = ("inference",)
GRAD: Key = ("grad",)

_READ: dict[str, Callable[..., Any]] = {
    "grad": torch.is_grad_enabled,
    "autocast": torch.is_autocast_enabled,
    "autocast_dtype": torch.get_autocast_dtype,
    "autocast_cache": torch.is_autocast_cache_enabled,
    "inference": torch.is_inference_mode_enabled,
    "strict": breaks_are_errors,
    "attention": _read_attention,
    DEFAULT_DTYPE[0]: torch.get_default_dtype,
}
_WRITE: dict[str, Callable[..., Any]] = {
    "grad": _set_grad_mode,
    "autocast": torch.set_autocast_enabled,
    "autocast_dtype": torch.set_autocast_dtype,
    "autocast_cache": torch.set_autocast_cache_enabled,
    "inference": set_inference_mode,
    "strict": set_breaks_are_errors,
    "attention": _set_attention,
    DEFAULT_DTYPE[0]: torch.set_default_dtype,
}

MODE_READERS: dict[Any, Callable[..., Key]] = {
    torch.is_grad_enabled: lambda: GRAD,
    torch._C.is_grad_enabled: lambda: GRAD,
    torch.is_inference_mode_enabled: lambda: INFERENCE,
    torch.is_autocast_enabled: lambda device="cuda": ("autocast", device),
    torch.get_autocast_dtype: lambda device: ("autocast_dtype", device),
    torch.is_autocast_cache_enabled: lambda: ("autocast_cache",),
    torch.is_autocast_cpu_enabled: lambda: ("autocast", "cpu"),
    torch.get_autocast_cpu_dtype: lambda: ("autocast_dtype", "cpu"),
    torch.get_autocast_gpu_dtype: lambda: ("autocast_dtype", "cuda"),
    torch.get_default_dtype: lambda: DEFAULT_DTYPE,
    **{getattr(_C, f"_get_{n}_sdp_enabled"): lambda n=n: ("attention", n) for n in _ATTENTION},
}
"""A function that reads ambient state, and the key of what it reads for its arguments."""


def _autocast_key(*args: Raw) -> tuple[Key, Any]:
    return (("autocast", args[0]), args[1]) if len(args) == 2 else (("autocast", "cuda"), args[0])


MODE_SETTERS: dict[Any, Callable[..., tuple[Key, Any]]] = {
    torch._C._set_grad_enabled: lambda value: (GRAD, value),
    torch.set_autocast_enabled: _autocast_key,
    torch.set_autocast_dtype: lambda device, dtype: (("autocast_dtype", device), dtype),
    torch.set_autocast_cache_enabled: lambda value: (("autocast_cache",), value),
    torch.set_autocast_cpu_enabled: lambda value: (("autocast", "cpu"), value),
    torch.set_autocast_cpu_dtype: lambda dtype: (("autocast_dtype", "cpu"), dtype),
    torch.set_autocast_gpu_dtype: lambda dtype: (("autocast_dtype", "cuda"), dtype),
    **{getattr(_C, f"_set_sdp_use_{n}"): lambda value, n=n: (("attention", n), value) for n in _ATTENTION},
}
"""A function that sets ambient state, and what it sets to which value."""


_PROCESS_STATE: tuple[Callable[[], Any], ...] = (
    torch.get_default_dtype, torch.get_default_device, torch._C._get_flash_sdp_enabled,
    torch._C._get_mem_efficient_sdp_enabled, torch._C._get_math_sdp_enabled, torch._C._get_cudnn_sdp_enabled,
    torch._C._get_cudnn_enabled, torch._C._get_mkldnn_enabled, torch._C._get_deterministic_algorithms,
)  # fmt: skip
"""State of the process that metadata depends on: which kernel runs decides the strides of its result."""


_ALL_KEYS: tuple[Key, ...] = (
    GRAD, INFERENCE, ("autocast", "cpu"), ("autocast", "cuda"), ("autocast_cache",), ("autocast_dtype", "cpu"),
    ("autocast_dtype", "cuda"), DEFAULT_DTYPE, ("strict",), *(("attention", n) for n in _ATTENTION),
)  # fmt: skip
"""What `made_real` may set."""


def read_all_modes() -> list[Raw]:
    """All that `made_real` may set, as it is in the process, for `write_modes`."""
    return [_READ[key[0]](*key[1:]) for key in _ALL_KEYS]


def write_modes(wanted: list[Any]) -> None:
    """Bring back what `read_all_modes` gave. What is as it was is not touched."""
    for key, value in zip(_ALL_KEYS, wanted, strict=True):
        if _READ[key[0]](*key[1:]) != value:
            _WRITE[key[0]](*key[1:], value)


@contextmanager
def _set_for_a_while(wanted: Mapping[Key, Any]) -> Iterator[None]:
    undo: list[tuple[Key, Any]] = []
    try:
        for key, value in wanted.items():
            if key[0] in _WRITE and (before := _READ[key[0]](*key[1:])) != value:
                undo.append((key, before))  # first: an exception of a signal's handler may come in between
                _WRITE[key[0]](*key[1:], value)
        yield
    finally:
        for key, before in undo:
            _WRITE[key[0]](*key[1:], before)


def _without_anomalies() -> AbstractContextManager[Any]:
    """Anomaly mode would look for NaNs in fakes, and note where each was made."""
    if not torch.is_anomaly_enabled():
        return nullcontext()
    return torch.autograd.set_detect_anomaly(False, check_nan=torch.is_anomaly_check_nan_enabled())


@final
@attrs.frozen
class AmbientState:
    """The autocast state that a captured body starts under, to be set where something else runs it."""

    state: tuple[tuple[Key, Any], ...]

    @classmethod
    def of(cls, modes: TorchModes) -> AmbientState:
        """The state now. The cache of cast weights is off: what a body casts has no history outside of it."""
        found = {key: value for key, value in modes.snapshot().items() if key[0].startswith("autocast")}
        return cls(tuple({**found, ("autocast_cache",): False}.items()))

    def made_real(self) -> AbstractContextManager[None]:
        """The process has this state while the block runs."""
        return _set_for_a_while(dict(self.state))


@final
class TorchModes:
    """The ambient state as the captured program sees it.

    Attributes:
        inference_changed: the program has entered or left inference mode.
        token: what metadata depends on; equal tokens mean equal state.
        nesting: how many autocast blocks the program has entered beyond those at the start.
    """

    def __init__(self) -> None:
        self._initial: dict[Key, Any] = {}
        self._now: dict[Key, Any] = {}
        self.nesting = 0
        self.inference_changed = False
        for key in (GRAD, INFERENCE, ("autocast", "cpu"), ("autocast", "cuda"), ("autocast_cache",), DEFAULT_DTYPE):
            self.read(key)
        for device in ("cpu", "cuda"):
            self.read(("autocast_dtype", device))
        self._process = tuple(read() for read in _PROCESS_STATE)
        self.token: tuple[Any, ...] = ()
        self._renew()

    def read(self, key: Key) -> Raw:
        """The state under `key`, taken from the process at the first time."""
        if key not in self._now:
            self._now[key] = self._initial[key] = _READ[key[0]](*key[1:])
        return self._now[key]

    def reader(self, key: Key) -> Callable[[], Any]:
        """A function that reads the process's state under `key`, for guards."""
        return functools.partial(_READ[key[0]], *key[1:])

    def initial(self, key: Key) -> Raw:
        """The state at the start; None for what is no state but an action."""
        return self._initial.get(key)

    def write(self, key: Key, value: Raw) -> None:
        """The program sets `key`; the process is left alone."""
        self.read(key)
        self._now[key] = value
        if key == INFERENCE:
            self.inference_changed |= value != self._initial[key]
        self._renew()

    def snapshot(self) -> dict[Key, Any]:
        """The state now, for `restore`."""
        return dict(self._now)

    def restore(self, snapshot: dict[Key, Any]) -> None:
        """Go back to an earlier state."""
        self._now = {key: snapshot.get(key, self._initial[key]) for key in self._now}
        self._renew()

    @property
    def inference(self) -> bool:
        """Is the program in inference mode?"""
        return bool(self._now[INFERENCE])

    @property
    def graph_grad(self) -> bool:
        """Is autograd recording what goes into the graph? Not in inference mode, whatever the grad mode is."""
        return self.grad and not self.inference

    def graph_initial(self, key: Key) -> Raw:
        """What a graph that runs outside of inference mode finds under `key` when it starts."""
        if key == GRAD and self._initial[INFERENCE]:
            return False
        return self.initial(key)

    @property
    def grad(self) -> bool:
        """Is autograd recording?"""
        return bool(self._now[GRAD])

    def _renew(self) -> None:
        self.token = (self._process, *self._now.items())

    @contextmanager
    def made_real(self, token: tuple[Any, ...] | None = None) -> Iterator[None]:
        """The process has the tracked state (or that of an earlier `token`) while the block runs.

        The autocast weight cache stays off: fake weights must not get into it.
        """
        wanted = dict(self._now if token is None else token[1:])
        wanted[("autocast_cache",)] = False
        with _set_for_a_while(wanted), _without_anomalies():
            yield

    def epilogue(self) -> tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...]:
        """The calls that bring the process from the state at the start to the state now."""
        calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        for key, value in self._now.items():
            if value != self._initial[key] or (key == GRAD and self.inference_changed):
                setter = torch._C._set_grad_enabled if key[0] == "grad" else _WRITE[key[0]]
                calls.append((setter, (*key[1:], value)))
        step = torch.autocast_increment_nesting if self.nesting > 0 else torch.autocast_decrement_nesting
        calls.extend([(step, ())] * abs(self.nesting))
        return tuple(calls)

    def restoring(self, target: Function) -> Function:
        """`target`, which sets ambient state as it runs, made to leave the state at its start behind.

        The region's own code sets the new one where its effects begin: an interrupt before that finds the old one.
        """
        initial = tuple((key, value) for key, value in self._initial.items() if key[0] in _WRITE)

        changed = tuple((key, value) for key, value in initial if self._now[key] != value)

        def run(*inputs: Raw) -> Raw:
            try:
                result = target(*inputs)
                for key, value in changed:
                    _WRITE[key[0]](*key[1:], value)
                return result
            except BaseException:
                for key, value in initial:
                    _WRITE[key[0]](*key[1:], value)
                raise

        return run
