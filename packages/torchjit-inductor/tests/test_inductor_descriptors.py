"""Operands of products that come through descriptors (TMA): which can, and what the launchers encode and pass."""

from __future__ import annotations

import ctypes
from typing import Any

import attrs
import pytest
import torch

from torchjit_inductor.lowering.contractions import MatrixProduct
from torchjit_inductor.triton import cuda
from torchjit_inductor.triton.compile import MachineCode
from torchjit_inductor.triton.contraction import contraction, key_of, plan_of
from torchjit_inductor.triton.cuda import LoadedKernel
from torchjit_inductor.triton.descriptors import Descriptor, OperandTiles
from torchjit_inductor.triton.product_kernel import product_kernel
from torchjit_inductor.triton.tile_choices import ProductKey, TileChoice, candidates

BF, DEVICE = torch.bfloat16, torch.device("cuda", 0)
TILES = OperandTiles("right", BF, 8, (256, 4096), 4104, True, tile=(128, 64))
CODE = MachineCode(
    "k", b"", "", threads=128, shared=64, parameters=10, descriptors=(Descriptor(1, TILES, (128, 64), swizzle=3),)
)

LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
)  # fmt: skip
ENCODE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(ctypes.c_uint32), *[ctypes.c_int] * 4,
)  # fmt: skip


class Driver:
    """Stands in for the driver: a map is the number of the encoding, a launch notes what its parameters point to."""

    def __init__(self) -> None:
        self.encoded: list[tuple[Any, ...]] = []
        self.launched: list[list[int]] = []
        self.refuses = False
        self.encode, self.launch = ENCODE(self._encode), LAUNCH(self._launch)

    def _encode(self, place: int, kind: int, rank: int, address: int, *rest: Any) -> int:
        sizes, strides, box, steps, *options = rest
        assert place % 64 == 0
        if self.refuses:
            return 1
        self.encoded.append(
            (kind, rank, address, sizes[0], sizes[1], strides[0], box[0], box[1], steps[0], steps[1], *options)
        )
        ctypes.memset(place, len(self.encoded), 128)
        return 0

    def _launch(self, function: int, *rest: Any) -> int:
        pointers = rest[-2]
        wide = [ctypes.c_uint64.from_address(pointers[n]).value for n in (0, 1, 5, 6, 7, 8, 9)]
        narrow = [ctypes.c_uint32.from_address(pointers[n]).value for n in (3, 4)]
        (mapped,) = set(ctypes.string_at(pointers[2], 128))
        self.launched.append([*wide[:2], mapped, *narrow, *wide[2:]])
        return 0


def _launchers(driver: Driver) -> list[Any]:
    """Of one kernel with two addresses and a descriptor of the second: through C, and through ctypes."""

    def load(code: int) -> LoadedKernel:
        return LoadedKernel(driver.launch, 5, CODE, lambda error, retry: None, driver.encode)

    def place(function: Any) -> int:
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    fast = cuda.c_launcher(place(driver.launch), load, 0, cuda.LaunchSignature(2, 9), lambda: place(driver.encode))
    slow = load(1)
    return [lambda *a: slow(9, 0, *a), *([] if fast is None else [fast])]


def test_descriptors_are_encoded_and_passed_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_raw_stream", lambda device: 0)
    for number in range(len(_launchers(Driver()))):
        driver = Driver()
        launch = _launchers(driver)[number]
        launch(16, 4096)
        launch(32, 4096)
        launch(16, 8192)
        # bfloat16, two dimensions, 16 bytes further, columns before rows, bytes from row to row, swizzled by 128 bytes
        first = (9, 2, 4112, 4096, 256, 8208, 64, 128, 1, 1, 0, 3, 2, 0)
        assert driver.encoded[0] == first and driver.encoded[-1] == (*first[:2], 8208, *first[3:])
        assert [r[:2] for r in driver.launched] == [[16, 4096], [32, 4096], [16, 8192]]
        assert all(r[3:] == [256, 4096, 4104, 1, 0, 0, 0] for r in driver.launched)
        assert [r[2] for r in driver.launched] == ([1, 2, 3] if number == 0 else [1, 1, 2])  # C keeps the last one
        driver.refuses = True
        with pytest.raises(RuntimeError, match="encoding a descriptor for k"):
            launch(16, 4096)


def _key(product: MatrixProduct) -> ProductKey:
    kernel, buffers = product_kernel(product)
    found = contraction(kernel, buffers)
    assert found is not None
    key = key_of(kernel, found, buffers)
    assert key is not None
    plan = plan_of(kernel, found, TileChoice(64, 32, 128, 4, 3, descriptors=True), buffers)
    assert bool(plan.operands) == key.described
    if plan.operands:
        assert [o.tile for o in plan.operands] == [
            (128, 64) if plan.operands[0].turned else (64, 128), (32, 128) if plan.operands[1].turned else (128, 32)
        ]  # fmt: skip
    return key


def test_rows_of_described_operands_are_whole_units_of_16_bytes() -> None:
    plain = MatrixProduct(BF, DEVICE, 1, 512, 64, 256, (0, 64, 1), (0, 256, 1))
    turned = attrs.evolve(plain, left_strides=(0, 1, 512), right_strides=(0, 1, 64))
    wider = attrs.evolve(plain, left_strides=(0, 72, 1))
    assert all(_key(p).described for p in (plain, turned, wider))
    uneven = attrs.evolve(plain, left_strides=(0, 68, 1))
    batches = attrs.evolve(plain, batch=2, left_strides=(512 * 64, 64, 1), right_strides=(64 * 256, 256, 1))
    assert not any(_key(p).described for p in (uneven, batches))


def test_choices_with_descriptors_are_tried_where_operands_can_be_described() -> None:
    key = ProductKey("bfloat16", 1, 8192, 8192, 8192, True, False, described=True)
    found = [c for c in candidates(key, 8) if c.descriptors]
    assert found and found == candidates(key, 8)[-len(found) :] and any(c.persistent for c in found)
    assert len(candidates(key, 8)) == 6 + len(found) and not any(c.persistent for c in candidates(key, 8)[:6])
    assert not any(c.descriptors for c in candidates(attrs.evolve(key, described=False), 8))
    assert all(c.depth == 128 for c in candidates(attrs.evolve(key, dtype="float8_e4m3fn"), 8) if c.descriptors)
