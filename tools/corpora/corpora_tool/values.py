"""What a call produced, as a flat list of labelled values that can be compared."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any, final

import attrs
import torch

__all__ = ["Difference", "Snapshot", "fresh", "leaves", "snapshot"]

BIG = 1 << 22  # elements above which a tensor is kept as a digest
SAMPLES = 4096
MAX_DEPTH = 12


def leaves(value: Any, label: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Labelled tensors and atoms of any structure: containers, dataclasses, and objects with attributes."""
    if (
        isinstance(value, torch.Tensor)
        or value is None
        or isinstance(value, bool | int | float | complex | str | bytes)
    ):
        yield label, value
    elif depth > MAX_DEPTH:
        return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{label}[{key!r}]", depth + 1)
    elif isinstance(value, list | tuple):
        yield f"{label}.len", len(value)
        for i, item in enumerate(value):
            yield from leaves(item, f"{label}[{i}]", depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name, None), f"{label}.{field.name}", depth + 1)
    elif hasattr(value, "__dict__") and not callable(value):
        yield f"{label}.type", type(value).__qualname__
        for key, item in vars(value).items():
            yield from leaves(item, f"{label}.{key}", depth + 1)
    else:
        yield f"{label}.type", type(value).__qualname__


def fresh(value: Any) -> Any:
    """A copy of inputs: tensors are new leaves with the same requires_grad, layout kept."""
    if isinstance(value, torch.Tensor):
        with torch.no_grad():
            copy = value.detach().clone()
        return copy.requires_grad_(value.requires_grad)
    if type(value) in (list, tuple):
        return type(value)(fresh(v) for v in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(fresh(v) for v in value))
    if type(value) is dict:
        return {k: fresh(v) for k, v in value.items()}
    return value


@final
@attrs.frozen
class Digest:
    """A big tensor: a hash of its bytes, and samples for when the hash differs."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    hash: str
    sample: torch.Tensor


@final
@attrs.frozen
class Snapshot:
    """Labelled values of one call."""

    values: dict[str, Any]


@final
@attrs.frozen
class Difference:
    """Where two snapshots differ. `relative` is the norm of the difference over the larger norm (inf: not comparable)."""

    label: str
    relative: float
    text: str


def snapshot(parts: Mapping[str, Any]) -> Snapshot:
    """Detached copies of everything."""
    kept: dict[str, Any] = {}
    for name, value in parts.items():
        for label, leaf in leaves(value, name):
            kept[label] = _keep(leaf)
    return Snapshot(kept)


def _keep(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    tensor = leaf.detach()
    if type(tensor) is torch.nn.Parameter or type(tensor) is not torch.Tensor:
        tensor = tensor.as_subclass(torch.Tensor) if not hasattr(type(tensor), "__torch_dispatch__") else tensor
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.numel() <= BIG:
        return tensor.clone()
    flat = tensor.reshape(-1)
    cpu = flat.cpu().contiguous()
    digest = hashlib.blake2b(cpu.view(torch.uint8).numpy(), digest_size=16).hexdigest()
    step = flat.numel() // SAMPLES
    return Digest(tuple(tensor.shape), tensor.dtype, digest, cpu[:: max(step, 1)].clone())


def compare(got: Snapshot, want: Snapshot, tolerance: float) -> list[Difference]:
    """All differences above `tolerance`, largest first.

    A tensor's difference is measured against the larger of its own norm and a ten-thousandth of the largest norm among the tensors of its
    group (the first word of the label), so that a gradient that is zero but for rounding does not count.
    """
    found: list[Difference] = []
    scales: dict[str, float] = {}
    for label, w in want.values.items():
        if isinstance(w, torch.Tensor) and w.is_floating_point():
            group = label.split(" ")[0]
            scales[group] = max(scales.get(group, 0.0), _norm(w))
    for label in got.values.keys() - want.values.keys():
        found.append(Difference(label, math.inf, f"unexpected value {_short(got.values[label])}"))
    for label, w in want.values.items():
        if label not in got.values:
            found.append(Difference(label, math.inf, f"missing; eager has {_short(w)}"))
            continue
        floor = 1e-4 * scales.get(label.split(" ")[0], 0.0)
        difference = _differ(label, got.values[label], w, floor)
        if difference is not None and difference.relative > tolerance:
            found.append(difference)
    return sorted(found, key=lambda d: -d.relative)


def _differ(label: str, got: Any, want: Any, floor: float) -> Difference | None:
    if isinstance(want, Digest) and isinstance(got, Digest):
        if got.hash == want.hash and got.shape == want.shape:
            return None
        if got.shape != want.shape or got.dtype != want.dtype:
            return Difference(label, math.inf, f"{got.shape} {got.dtype}, eager {want.shape} {want.dtype}")
        return _differ(label, got.sample, want.sample, floor)
    if isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor):
        if got.shape != want.shape or got.dtype != want.dtype or got.device != want.device:
            text = f"{tuple(got.shape)} {got.dtype} {got.device}, eager {tuple(want.shape)} {want.dtype} {want.device}"
            return Difference(label, math.inf, text)
        if torch.equal(got, want):
            return None
        if not (want.is_floating_point() or want.is_complex()):
            wrong = int((got != want).sum())
            return Difference(label, wrong / max(want.numel(), 1), f"{wrong} of {want.numel()} elements differ")
        nan = int((got.isnan() != want.isnan()).sum())
        if nan:
            return Difference(label, math.inf, f"{nan} of {want.numel()} elements are NaN on one side only")
        infinite = want.isinf() | got.isinf()
        if bool((got[infinite] != want[infinite]).any()):
            return Difference(label, math.inf, "infinities differ")
        keep = ~(want.isnan() | infinite)
        a, b = got[keep], want[keep]
        wide = torch.complex128 if want.is_complex() else torch.float64
        distance = float((a.to(wide) - b.to(wide)).norm())
        scale = max(float(b.to(wide).norm()), float(a.to(wide).norm()), floor)
        relative = distance / scale if scale else 0.0
        return Difference(label, relative, f"relative difference {relative:.2e} (norm {scale:.2e})")
    if type(got) is not type(want):
        return Difference(label, math.inf, f"{_short(got)}, eager {_short(want)}")
    if got == want or (isinstance(want, float) and math.isclose(got, want, rel_tol=1e-5)) or got != got:
        return None
    return Difference(label, math.inf, f"{_short(got)}, eager {_short(want)}")


def _norm(tensor: torch.Tensor) -> float:
    value = float(tensor.double().norm())
    return value if math.isfinite(value) else 0.0


def _short(value: Any) -> str:
    if isinstance(value, torch.Tensor | Digest):
        return f"tensor {tuple(value.shape)} {value.dtype}"
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."
