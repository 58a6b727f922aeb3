"""Finding out where tensors keep their metadata, and testing the answer.

Every offset is the only place of an object where known values are found for several objects that differ in
them: sizes, strides and storage offset of strided views, `untyped_storage()._cdata`, the raw dispatch key set, dtype and
device codes, the `requires_grad` flag that toggles, the `grad_fn` whose address Python shows.

Source: c10/core/TensorImpl.h and torch/csrc/autograd/variable.h (torch 2.11 to 2.15) for what to look for.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, final

import attrs
import torch
from torch._ops import _len_torch_dispatch_stack_pre_dispatch
from torch.utils._python_dispatch import _disable_current_modes

from torchjit_core.guards import TensorMatches
from torchjit_core.handlers import let_through, raised_in_handler
from torchjit_core.paths import Arg
from torchjit_guards._c import OPS, Program, set_tensor_layout

__all__ = ["SCALAR_CODES", "CalibrationError", "Layout", "calibrate", "verify"]

_IMPL_BYTES = 176
"""TensorImpl is at least this large in every version supported; nothing beyond is read."""
_META_BYTES = 224
"""Of AutogradMeta, which is followed by its heap neighbour: reading that is harmless."""
_OBJECT_BYTES = 48
SCALAR_CODES = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5,
    torch.float32: 6, torch.float64: 7, torch.complex64: 9, torch.complex128: 10, torch.bool: 11, torch.bfloat16: 15,
}  # fmt: skip
"""c10::ScalarType of the dtypes."""
_PLAIN_KEYS = ("CPU", "CUDA", "AutogradCPU", "AutogradCUDA", "AutocastCPU", "AutocastCUDA", "ADInplaceOrView")
_INLINE_DIMS = 5


class CalibrationError(RuntimeError):
    """A tensor's metadata is not where, or not what, it should be."""


@final
@attrs.frozen(repr=False)
class Layout:
    """Byte offsets (`impl` in the Python object, `grad_*` in AutogradMeta, the rest in TensorImpl) and more facts.

    Attributes:
        inline_dims: sizes and strides of at most so many dimensions lie inside TensorImpl.
        plain_meta: address of the vtable of an AutogradMeta that belongs to no view.
        plain_keys: dispatch keys of tensors that are stored in the plain way.
        exact: Python types whose instances are read raw.
    """

    impl: int
    storage: int
    autograd: int
    ndim: int
    sizes: int
    offset: int
    dtype: int
    device: int
    keys: int
    inline_dims: int
    grad_flag: int
    grad_fn: int
    plain_meta: int
    plain_keys: int
    exact: tuple[type, ...]

    def activate(self) -> None:
        """Let the C program read tensors with this layout from now on."""
        offsets = (
            self.impl, self.storage, self.autograd, self.ndim, self.sizes, self.offset, self.dtype, self.device,
            self.keys, self.inline_dims, self.grad_flag, self.grad_fn,
        )  # fmt: skip
        base: Any = torch._C.TensorBase
        set_tensor_layout(offsets, self.plain_meta, self.plain_keys, self.exact, base.requires_grad, base.is_leaf)

    def numbers(self) -> tuple[int, ...]:
        """All of it but types, for `recalled`."""
        return attrs.astuple(self, recurse=False)[:-1]

    def dtype_code(self, dtype: torch.dtype) -> int | None:
        """The dtype as stored, or None for what is no dtype."""
        return _code(self.dtype, dtype, torch.device("cpu")) if isinstance(dtype, torch.dtype) else None

    def device_code(self, device: torch.device) -> int | None:
        """The device as stored (type and index bytes), or None for devices that are not read raw."""
        return _code(self.device, torch.float32, device) if device.type in ("cpu", "cuda") else None


@functools.cache
def _code(place: int, dtype: torch.dtype, device: torch.device) -> int | None:
    """The two bytes there of a tensor of this kind."""
    with _plain_world():
        try:
            sample = torch.empty(0, dtype=dtype, device=device)
        except (RuntimeError, TypeError, AssertionError):
            let_through()
            return None
        return _read(sample._cdata + place, 2) if sample.device == device else None


@contextlib.contextmanager
def _plain_world() -> Iterator[None]:
    """No modes, whatever the caller has switched on: samples must be plain tensors."""
    before_dispatch: Any = _len_torch_dispatch_stack_pre_dispatch
    modes = torch._C._len_torch_dispatch_stack() + before_dispatch()
    with (
        _disable_current_modes() if modes else contextlib.nullcontext(),  # it imports the modes that it knows
        torch._C.DisableTorchFunction(),
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        yield


def _read(address: int, width: int) -> int:
    return int.from_bytes(ctypes.string_at(address, width), "little")


def _only(what: str, found: Iterable[int]) -> int:
    offsets = sorted(found)
    if len(offsets) != 1:
        raise CalibrationError(f"{what}: want one place, found {offsets}")
    return offsets[0]


def _find(what: str, samples: Sequence[tuple[int, int]], limit: int, width: int = 8) -> int:
    """The only offset below `limit` where each (address, value) sample holds its value."""
    blocks = [(ctypes.string_at(address, limit), value.to_bytes(width, "little")) for address, value in samples]
    places = range(0, limit - width + 1, width)
    return _only(what, (at for at in places if all(block[at : at + width] == value for block, value in blocks)))


def _strided(sizes: tuple[int, ...], strides: tuple[int, ...], offset: int) -> torch.Tensor:
    return torch.empty(8192, dtype=torch.float32, device="cpu").as_strided(sizes, strides, offset)


def _views() -> list[torch.Tensor]:
    return [
        _strided((3, 5, 7, 2), (211, 223, 227, 229), 13),
        _strided((7, 4, 3, 6), (307, 311, 313, 331), 29),
        _strided((4, 9, 2), (401, 419, 421), 101),
    ]


def _find_sizes(views: Sequence[torch.Tensor]) -> tuple[int, int]:
    """(offset of the number of dimensions, offset of the first size)."""
    ndim = _only(
        "sizes",
        (
            at
            for at in range(0, _IMPL_BYTES - 16 * _INLINE_DIMS - 7, 8)
            if all(_dims_at(v._cdata + at + 8, v) and _read(v._cdata + at, 8) == v.dim() for v in views)
        ),
    )
    return ndim, ndim + 8


def _dims_at(address: int, view: torch.Tensor) -> bool:
    words = [_read(address + 8 * i, 8) for i in range(2 * _INLINE_DIMS)]
    n = view.dim()
    return words[:n] == list(view.shape) and words[_INLINE_DIMS : _INLINE_DIMS + n] == list(view.stride())


def _find_grad() -> tuple[int, int, int, int]:
    """Offsets of AutogradMeta in TensorImpl, of the flag and grad_fn in AutogradMeta, and its vtable."""
    leaf = torch.ones(3, device="cpu")
    before = ctypes.string_at(leaf._cdata, _IMPL_BYTES)
    leaf.requires_grad_()
    after = ctypes.string_at(leaf._cdata, _IMPL_BYTES)
    changed = [at for at in range(0, _IMPL_BYTES, 8) if before[at : at + 8] != after[at : at + 8]]
    autograd = _only("autograd meta", (at for at in changed if not any(before[at : at + 8])))
    meta = _read(leaf._cdata + autograd, 8)
    on = ctypes.string_at(meta, _META_BYTES)
    leaf.requires_grad_(False)
    off = ctypes.string_at(meta, _META_BYTES)
    leaf.requires_grad_()
    again = ctypes.string_at(meta, _META_BYTES)
    flags = (at for at in range(_META_BYTES) if (on[at], off[at], again[at]) == (1, 0, 1))
    flag = _only("requires_grad", flags)
    results = [leaf * 2, leaf.exp(), (leaf + leaf) * leaf]
    nodes = [r.grad_fn for r in results]  # kept: their C++ addresses are read out of the Python objects
    samples = [(_read(r._cdata + autograd, 8), _read(id(n) + 16, 8)) for r, n in zip(results, nodes, strict=True)]
    grad_fn = _find("grad_fn", samples, _META_BYTES)
    if _read(meta + grad_fn, 8) != 0 or any(_read(m, 8) != _read(meta, 8) for m, _ in samples):
        raise CalibrationError("grad_fn or the vtable of AutogradMeta is not as expected")
    return autograd, flag, grad_fn, _read(meta, 8)


def calibrate() -> Layout:
    """Find the layout of this process's tensors.

    Raises:
        CalibrationError: something is not found, or in several places.
    """
    try:
        with _plain_world():
            return _calibrate()
    except (RuntimeError, AttributeError, TypeError, ValueError) as error:
        let_through()
        raise CalibrationError(f"{type(error).__name__}: {error}") from error


def _calibrate() -> Layout:
    views = _views()
    impl = _find("TensorImpl", [(id(v), v._cdata) for v in views], _OBJECT_BYTES)
    typed = [(torch.empty(1, dtype=d, device="cpu"), code) for d, code in SCALAR_CODES.items()]
    placed = [(torch.empty(1, device="cpu"), 0xFF00), (torch.empty(1, device="meta"), 0xFF0E)]
    ndim, sizes = _find_sizes(views)
    storages = [(v._cdata, v.untyped_storage()._cdata) for v in views]
    keyed = [*views, torch.empty(1, device="meta"), torch.empty(2, dtype=torch.complex64, device="cpu").conj()]
    autograd, grad_flag, grad_fn, plain_meta = _find_grad()
    return Layout(
        impl=impl,
        storage=_find("storage", storages, _IMPL_BYTES),
        autograd=autograd,
        ndim=ndim,
        sizes=sizes,
        offset=_find("storage offset", [(v._cdata, int(v.storage_offset())) for v in views], _IMPL_BYTES),
        dtype=_find("dtype", [(t._cdata, code) for t, code in typed], _IMPL_BYTES, 2),
        device=_find("device", [(t._cdata, code) for t, code in placed], _IMPL_BYTES, 2),
        keys=_find(
            "dispatch keys", [(t._cdata, torch._C._dispatch_keys(t).raw_repr()) for t in keyed], _IMPL_BYTES + 8
        ),
        inline_dims=_INLINE_DIMS,
        grad_flag=grad_flag,
        grad_fn=grad_fn,
        plain_meta=plain_meta,
        plain_keys=_plain_keys(),
        exact=_EXACT,
    )


_EXACT = (torch.Tensor, torch.nn.Parameter)


def recalled(numbers: tuple[int, ...]) -> Layout:
    """The layout that another process with this very build of torch has found and tested. Its one address is looked up again.

    Args:
        numbers: `Layout.numbers` of that process.

    Raises:
        CalibrationError: it is not this process's.
    """
    with _plain_world():
        try:
            names = [field.name for field in attrs.fields(Layout)][:-1]
            fields: dict[str, Any] = dict(zip(names, numbers, strict=True))
            known = Layout(**fields, exact=_EXACT)
            leaf = torch.ones(2, 3, device="cpu")
            before = _read(leaf._cdata + known.autograd, 8)
            meta = _read(leaf.requires_grad_()._cdata + known.autograd, 8)
        except ValueError as error:
            raise CalibrationError(str(error)) from error
    if before or not meta:
        raise CalibrationError("AutogradMeta is elsewhere")
    return attrs.evolve(known, plain_meta=_read(meta, 8))


def _plain_keys() -> int:
    """Key bits of dense CPU and CUDA tensors, conjugated and negated ones included."""
    bits = 0
    for name in _PLAIN_KEYS:
        key = getattr(torch._C.DispatchKey, name, None)
        if key is not None:
            bits |= torch._C.DispatchKeySet(key).raw_repr()
    z = torch.empty(2, dtype=torch.complex64, device="cpu")
    for sample in (z, z.conj(), torch._neg_view(z), z.requires_grad_()):
        bits |= torch._C._dispatch_keys(sample).raw_repr()
    for name in (
        "Sparse",
        "SparseCPU",
        "NestedTensorCPU",
        "Python",
        "Functionalize",
        "FuncTorchBatched",
        "Meta",
        "XLA",
    ):
        key = getattr(torch._C.DispatchKey, name, None)
        if key is not None and not torch._C.DispatchKeySet(key).raw_repr() & ~bits:
            raise CalibrationError(f"tensors with dispatch key {name} would pass for plain ones")
    return bits


def _samples() -> list[torch.Tensor]:
    """Tensors that differ in every way a guard can tell."""
    x = torch.ones(4, 6, device="cpu")
    p = torch.nn.Parameter(torch.ones(4, 6, device="cpu"))
    base = torch.zeros(4, 6, device="cpu")
    view = base[1:]
    base.mul_(p)  # the view now requires a gradient through its base
    with torch.inference_mode():
        inference = torch.ones(4, 6, device="cpu")
    return [
        x, x.double(), x.to(torch.bfloat16), x.t(), x[1:], x[:, 2:], x.clone().requires_grad_(), p, p * 2, p.detach(), p[1:],
        torch.ones(6, 4, device="cpu"), torch.ones(4, 6, 1, device="cpu"), torch.ones(24, device="cpu"),
        torch.ones((), device="cpu"), torch.ones(2, 1, 2, 1, 3, device="cpu"), torch.ones(2, 1, 2, 1, 3, 2, device="cpu"),
        torch.ones(2, 1, 2, 1, 3, 2, 1, device="cpu").transpose(0, 4), torch.empty(4, 6, device="meta"), view, inference,
        x.to_sparse(), torch.ones(4, 6, dtype=torch.complex64, device="cpu").conj(),
    ]  # fmt: skip


def describe(t: torch.Tensor) -> TensorMatches:
    """A guard that the tensor itself satisfies, with every field set that the tensor has."""
    strided = t.layout is torch.strided
    return TensorMatches(
        Arg.of(0, "t"), type(t), t.dtype, t.device, t.requires_grad, tuple(t.shape),
        tuple(t.stride()) if strided else None, int(t.storage_offset()) if strided else None, None, t.is_leaf,
    )  # fmt: skip


def _some_samples() -> list[torch.Tensor]:
    """A few of them, which are soon made."""
    x = torch.ones(4, 6, device="cpu")
    wide = torch.ones(4, 6, dtype=torch.float64, device="cpu")
    return [x, x.t(), x[1:], wide, wide[1:], torch.ones(4, 6, device="cpu").requires_grad_()]


def verify(found: Layout, *, again: bool = False) -> None:
    """Test the active layout: each guard of a sample against each sample must answer as the attributes do.

    Args:
        found: the active layout.
        again: it has been tested in another process: a few samples do.

    Raises:
        CalibrationError: an answer differs.
    """
    with _plain_world():
        samples = _some_samples() if again else _samples()
        guards = list(map(describe, samples))
        told = list(map(_ATTRIBUTES, guards))
        for guard, wanted in zip(guards, told, strict=True):
            program = _raw_program(found, guard)
            for t, attributes in zip(samples, told, strict=True):
                expected = all(want is None or want == is_ for want, is_ in zip(wanted, attributes, strict=True))
                if program.check((t,)) != expected:
                    raise CalibrationError(f"{guard} says {not expected} of a tensor where attributes say {expected}")


_ATTRIBUTES = operator.attrgetter(*(f.name for f in attrs.fields(TensorMatches) if f.name not in ("path", "location")))
"""What a guard asks of a tensor; None: it does not."""


def _by_attributes(guard: TensorMatches, t: torch.Tensor) -> bool:
    try:
        return guard.check((t,))
    except RuntimeError as error:  # a sparse tensor has no strides
        if raised_in_handler(error):
            raise
        return False


def _raw_program(found: Layout, guard: TensorMatches) -> Program:
    slow: Callable[[Any], bool] = functools.partial(_by_attributes, guard)
    dtype, device = found.dtype_code(guard.dtype), found.device_code(guard.device)
    spec = None
    if dtype is not None and device is not None and guard.type in found.exact:
        spec = (
            dtype,
            device,
            int(guard.requires_grad),
            int(bool(guard.is_leaf)),
            guard.sizes,
            guard.strides,
            guard.offset,
            None,
        )
    return Program(1, (), ((OPS["CHECK_TENSOR"], 0, 0, 0, guard.type, (slow, spec), 0),), ())
