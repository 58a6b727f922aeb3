"""The C of vectors: conversions between all types, transposed operands, sums in several vectors, shared halves."""

from __future__ import annotations

import re
import shutil
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from inductor_testing import check, compiled, flat, sample

DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64,
)  # fmt: skip
EXACT = {"rtol": 0, "atol": 0}


def c_text(graph: Any) -> str:
    return "\n".join(k.source for k in graph.kernels)


@pytest.mark.parametrize(
    ("source", "vector_bytes"), [*((t, None) for t in DTYPES), (torch.int16, 32), (torch.bfloat16, 32)], ids=str
)
def test_conversions_to_every_type(source: torch.dtype, vector_bytes: int | None) -> None:
    # 61 columns: full vectors and a partial one. Numbers that every target holds: what C does with others is undefined.
    low = 0 if source in (torch.uint8, torch.bool) else -100
    x = sample(5, 61, dtype=source, low=low, high=100)
    targets = [t for t in DTYPES if t != torch.uint8 or not x.to(torch.float64).lt(0).any()]
    check(lambda x: [x.to(t) for t in targets if t != source], (x,), tol=EXACT, vector_bytes=vector_bytes)


@pytest.mark.parametrize("vector_bytes", [None, 32])
@pytest.mark.parametrize("source", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_floats_of_8_bits_are_converted_as_they_are_read(source: torch.dtype, vector_bytes: int | None) -> None:
    every = torch.arange(256, dtype=torch.uint8).view(source)
    x = every[every.float().isfinite()][:230].reshape(10, 23)  # full vectors and a partial one
    targets = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        return [y for t in targets for y in (x.to(t), x.t().to(t) * 1, x[:, ::3].to(t) * 1, x[:, 0].to(t) * 1)]

    graph = compiled(fn, (x,), vector_bytes=vector_bytes)
    assert "aten__to_copy" not in graph.source
    check(fn, (x,), tol=EXACT, vector_bytes=vector_bytes)
    check(lambda x: F.pad(x.float(), (1, 2)), (x,), tol=EXACT, vector_bytes=vector_bytes)


@pytest.mark.parametrize("source", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_every_float_of_8_bits(source: torch.dtype) -> None:
    """Infinity, NaN and signs of zero, too; also where the processor flushes denormal numbers."""
    every = torch.arange(256, dtype=torch.uint8).view(source)
    graph = compiled(lambda x: [x.float(), x[:250].view(25, 10).t().float()], (every,))
    for flushes in (False, True):
        if not torch.set_flush_denormal(flushes) and flushes:
            continue  # not on this processor
        try:
            got = flat(graph(every))
        finally:
            torch.set_flush_denormal(False)
        for found, right in zip(got, (every.float(), every[:250].view(25, 10).t().float())):
            torch.testing.assert_close(found, right, rtol=0, atol=0, equal_nan=True)
            assert torch.equal(torch.signbit(found)[~right.isnan()], torch.signbit(right)[~right.isnan()])


@pytest.mark.parametrize("value", [-0.0, 0.0, float("inf"), float("nan"), -1.5])
def test_a_number_in_all_lanes_keeps_its_sign(value: float) -> None:
    rows = torch.full((3, 1), value)
    graph = compiled(lambda x, r: x + r, (torch.full((3, 40), -0.0), rows))
    out = flat(graph(torch.full((3, 40), -0.0), rows))[0]
    expected = torch.full((3, 40), -0.0) + rows
    assert torch.equal(torch.signbit(out), torch.signbit(expected))
    torch.testing.assert_close(out, expected, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(40, 1000), (3, 2, 17), (4, 31, 129)], ids=str)
def test_columns_are_summed_in_long_runs_of_memory(shape: tuple[int, ...]) -> None:
    x = sample(*shape, dtype=torch.bfloat16)

    def once(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.float().sum(-2), x.float().amax(-2)]

    def twice(x: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.var_mean(x.float(), -2))

    check(once, (x,))
    check(twice, (x,))

    # One pass has a wide tile of accumulators; several passes over few rows go one vector at a time.
    for fn, tile in ((once, "64"), (twice, "1")):
        text = c_text(compiled(fn, (sample(40, 1000, dtype=torch.bfloat16),), vector_bytes=16))
        assert set(re.findall(r"vf32 t\d+\[(\d+)\]", text)) == {tile}


TURNED = [(64, 64), (33, 47), (7, 100), (100, 7), (513, 31), (32, 16)]


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        *((d, shape) for d in (torch.bfloat16, torch.float32) for shape in TURNED),
        *((d, shape) for d in (torch.bool, torch.int8, torch.float16, torch.int64) for shape in TURNED[:2]),
    ],
    ids=str,
)
def test_transposed_operands(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    x, y = sample(*shape, dtype=dtype), sample(*shape[::-1], dtype=dtype, seed=1)

    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [torch.where(y > 0, x.t(), y).contiguous(), x.t().contiguous()]

    check(fn, (x, y), tol=EXACT)


def test_a_transposed_operand_is_read_in_tiles() -> None:
    x, y = sample(128, 96, dtype=torch.bfloat16), sample(96, 128, dtype=torch.bfloat16)
    graph = check(lambda x, y: (x.t() + y).contiguous(), (x, y))
    assert "transpose_tile<W>(full" in c_text(graph)
    assert "lanes<" not in c_text(graph)


def test_a_masked_operand_is_not_read_in_tiles() -> None:
    # Below the padding a tile would lie outside of the tensor.
    check(lambda x, y: F.pad(x, (3, 5)).t() + y, (sample(40, 33), sample(41, 40)), tol=EXACT)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        *((d, size) for d in (torch.float32, torch.bfloat16) for size in (16, 100, 127, 128, 1000, 40000)),
        *((d, size) for d in (torch.int64, torch.float64) for size in (127, 1000)),
    ],
    ids=str,
)
def test_sums_and_extremes_in_several_vectors(size: int, dtype: torch.dtype) -> None:
    x = sample(3, size, dtype=dtype)
    tol = {"rtol": 1e-2, "atol": 1e-1} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-3}
    check(lambda x: [x.sum(1), x.amax(1), x.amin(1), (x * x).sum(1), (x > 0).any(1), (x > -9).all(1)], (x,), tol=tol)


@pytest.mark.parametrize("at", [0, 15, 16, 63, 64, 199])
def test_a_nan_is_the_largest_wherever_it_is(at: int) -> None:
    x = sample(2, 200)
    x[1, at] = float("nan")
    check(lambda x: [x.amax(1), x.amin(1), x.sum(1)], (x,))


def test_a_value_is_rounded_once_for_its_store_and_for_its_readers() -> None:
    x = sample(4, 64)
    y = sample(4, 64, seed=1)

    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        a, b = (x * y).bfloat16(), (x + y).bfloat16()
        return [torch.cat([a, b], 1), a.float() - x * y]

    graph = check(fn, (x, y), tol=EXACT)
    # The reader needs the rounded number; the store rounds by itself.
    assert len(re.findall("round_bf16v", c_text(graph))) <= 1


def test_halves_that_read_the_same_are_one_loop() -> None:
    def rope(q: torch.Tensor, s: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        a, b = q[..., :24], q[..., 24:]
        return torch.cat([a * s - b * d, a * d + b * s], -1)

    q, s, d = sample(2, 5, 48), sample(5, 24), sample(5, 24, seed=1)
    graph = check(rope, (q, s, d), kernels=1)
    assert c_text(graph).count("auto body") == 1

    x, y = sample(5, 24), sample(5, 24, seed=1)
    graph = check(lambda x, y: torch.cat([x + 1, y * 2], 1), (x, y), kernels=1, tol=EXACT)
    assert c_text(graph).count("auto body") == 2


def test_a_loss_reads_one_element_of_a_row() -> None:
    x, target = sample(6, 3000), torch.tensor([0, 2999, 13, 7, 7, 150])

    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return -F.log_softmax(x, 1).gather(1, target[:, None]).mean()

    graph = check(loss, (x, target), tol={"rtol": 1e-5, "atol": 1e-6})
    assert "(6, 3000)" not in graph.source, "log_softmax is stored"


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("shape", [(), (37,)], ids=["number", "vector"])
def test_integers_wrap_around(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """To a C compiler x + 1 > x holds for every signed x, unless it is told otherwise."""
    x = torch.full(shape, torch.iinfo(dtype).max, dtype=dtype)
    check(
        lambda x: [x + 1 > x, -(-x - 2) < 0, x * 2 // 2 == x, x.abs() + 1, (x + x).sum() > 0],
        (x,),
        aten=None,
        tol=EXACT,
    )


@pytest.mark.parametrize("vector_bytes", [None, 16])
def test_positions_by_vectors(vector_bytes: int | None) -> None:
    """The first of equals, the first NaN before all numbers; rows in full and partial vectors, in parts, along and across."""
    generator = torch.Generator().manual_seed(3)

    def numbers(dtype: torch.dtype, *shape: int) -> torch.Tensor:
        return torch.randint(0, 5, shape, generator=generator).to(dtype)

    def nan(*shape: int) -> torch.Tensor:
        made = numbers(torch.float32, *shape)
        made.view(-1)[torch.randint(0, made.numel(), (shape[0],), generator=generator)] = float("nan")
        return made

    lowest = [torch.full((2, 200), -float("inf")), torch.full((2, 90), -128, dtype=torch.int8)]
    dtypes = DTYPES if vector_bytes is None else (torch.float32, torch.int8)
    inputs = [numbers(d, 3, 77) for d in dtypes if d != torch.bool]
    inputs += [*lowest, nan(7, 131), nan(2, 9000), nan(5, 65, 40), nan(5, 40, 65).mT]

    def fn(*xs: torch.Tensor) -> list[torch.Tensor]:
        return [made for x in xs for made in (x.argmax(1), x.argmin(1), x.max(0)[1], x.argmax(0), x.argmin())]

    graph = compiled(fn, inputs, vector_bytes=vector_bytes)
    for got, want in zip(graph(*inputs), fn(*inputs), strict=True):
        assert torch.equal(got, want)
    assert "keep_better<true>(full" in c_text(graph)


@pytest.mark.parametrize("compiler", [None, "g++-13", "g++-14"])
@pytest.mark.parametrize(
    ("rows", "columns", "padding"), [(24, 24, 2), (24, 24, 1), (5, 24, 1), (24, 20, 2), (30, 40, 3)]
)
def test_parts_of_constants(rows: int, columns: int, padding: int, compiler: str | None) -> None:
    """GCC 13 and 14 took the first element of what pads a row for the first one of the row's last part (see `build._flags`)."""
    if compiler is not None and shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    least, x = torch.full((1,), -1.1), sample(rows, columns)
    check(lambda a, x: F.pad(a <= x, (0, padding, 1, 0), value=True), (least, x), tol=EXACT, compiler=compiler)


@pytest.mark.parametrize("columns", [64, 13, 200])
@pytest.mark.parametrize("accumulate", [True, False])
def test_rows_are_scattered_by_vectors_of_columns(columns: int, accumulate: bool) -> None:
    # Messages along the edges of a graph: an edge's row is added as it lies in memory, not a column of all edges at a time.
    rows, to = sample(30, columns), torch.randint(0, 9, (30,)) if accumulate else torch.randperm(30)
    source = torch.randint(0, 30, (30,))

    def fn(rows: torch.Tensor, source: torch.Tensor, to: torch.Tensor) -> torch.Tensor:
        made = torch.zeros(30, rows.shape[1])
        return made.index_put((to,), rows[source], accumulate)

    check(fn, (rows, source, to), tol=EXACT)
    (scatter,) = (k.source for k in compiled(fn, (rows, source, to)).kernels if "bounded" in k.source)
    assert "bounded_lanes" not in scatter and "ld<vf32>(full, p1" in scatter


@pytest.mark.parametrize("columns", [64, 61, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.uint8, torch.bool, torch.int64])
def test_whole_vectors_of_gathered_and_scattered_elements(dtype: torch.dtype, columns: int) -> None:
    """They are written out, without a loop over lanes; the last ones of a row, or too few for a vector, go one by one."""
    x = sample(5, 80, dtype=dtype, low=0, high=9)
    places = torch.stack([torch.randperm(80, generator=torch.Generator().manual_seed(n))[:columns] for n in range(5)])
    new = sample(5, columns, dtype=dtype, low=0, high=9, seed=1)

    def fn(x: torch.Tensor, places: torch.Tensor, new: torch.Tensor) -> list[torch.Tensor]:
        return [x.gather(1, places), x.flip(1), x.roll(3, 1), x.scatter(1, places, new), x[:, places[0] - 80]]

    check(fn, (x, places, new), tol=EXACT, aten=None)


@pytest.mark.parametrize("wrong", [80, -81, 1 << 40])
@pytest.mark.parametrize("at", [0, 37, 60])
def test_a_place_outside_in_any_lane_is_an_error(wrong: int, at: int) -> None:
    x, places = sample(2, 80), torch.arange(61)
    graph = compiled(lambda x, places: x[:, places], (x, places))
    broken = places.clone()
    broken[at] = wrong
    with pytest.raises(IndexError, match=f"index {wrong} is out of bounds for dimension"):
        graph(x, broken)
    assert torch.equal(flat(graph(x, places - 80))[0], x[:, places])


@pytest.mark.parametrize("columns", [64, 61, 200])
@pytest.mark.parametrize("vector_bytes", [16, None])
def test_running_sums(columns: int, vector_bytes: int | None) -> None:
    """In steps over the lanes where that rounds to what eager has, else one by one."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.uint8, torch.bool):
        x = sample(3, columns, dtype=dtype, low=0, high=9)
        check(lambda x: x.cumsum(-1), (x,), vector_bytes=vector_bytes)
    x = sample(3, columns)
    x[0, 5], x[1, 7], x[1, 30], x[2, :] = float("nan"), float("inf"), -float("inf"), -0.0
    check(lambda x: [x.cumsum(-1), x.cumprod(-1)], (x,), vector_bytes=vector_bytes)
    text = c_text(compiled(lambda x: [x.cumsum(-1), x.cumprod(-1)], (x,), vector_bytes=vector_bytes))
    assert "add_lanes(full" in text and "scan_lanes(full" in text


def test_many_sums_of_a_few_neighbours_are_written_out() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int32, torch.bool):
        x = sample(70, 60, 2, 64, 2, dtype=dtype, low=0, high=9)[:1].expand(70, 60, 2, 64, 2).contiguous()
        check(lambda x: [x.sum((2, 4)), x.sum((2, 4), keepdim=True), (x * 2).sum(-1)], (x,))
    x = sample(4096, 3)
    graph = check(lambda x: [x.mean(-1), x.sum(-1, keepdim=True) * x], (x,))
    assert "fold_lanes" not in c_text(graph)
    check(lambda x: [x.mean(-1), x.sum(-1)], (sample(4096, 5),))  # a loop


@pytest.mark.parametrize("pad", [(1, 2), (-1, 2), (2, -1), (-1, -2), (-1, -1, -1, -1), (0, -3, 2, 0)], ids=str)
def test_pads_test_only_what_may_lie_outside(pad: tuple[int, ...]) -> None:
    x = sample(3, 9, 40)
    graph = check(lambda x: F.pad(x, pad, value=2.5), (x,), tol=EXACT)
    assert max(pad) > 0 or "?" not in c_text(graph)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("bend", [0.5, 1.0, 2.5])
def test_bent_losses_are_one_kernel(dtype: torch.dtype, bend: float) -> None:
    x, y = sample(40, 61, dtype=dtype), sample(40, 61, dtype=dtype, seed=1)
    for reduction in ("mean", "sum", "none"):
        check(lambda x, y: F.smooth_l1_loss(x, y, beta=bend, reduction=reduction), (x, y), kernels=1)
        check(lambda x, y: F.huber_loss(x, y, delta=bend, reduction=reduction), (x, y), kernels=1)
    check(lambda x, y: F.smooth_l1_loss(x, y, beta=0.0), (x, y), kernels=1)


@pytest.mark.parametrize("vector_bytes", [None, 16, 32])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [64, 61])
def test_rows_read_backwards(dtype: torch.dtype, columns: int, vector_bytes: int | None) -> None:
    x = sample(7, columns, dtype=dtype)
    check(lambda x: [x.flip(1), x.flip(0, 1).to(torch.float64)], (x,), tol=EXACT, vector_bytes=vector_bytes)


def test_rows_read_backwards_are_read_by_vectors() -> None:
    (kernel,) = compiled(lambda x: x.flip(1), (sample(7, 64),)).kernels
    assert "ld_reversed" in kernel.source and "lanes<" not in kernel.source, kernel.source


@pytest.mark.parametrize("vector_bytes", [None, 16, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64], ids=str)
def test_extremes_of_short_rows(dtype: torch.dtype, vector_bytes: int | None) -> None:
    """In each lane in turns, and beside NaN."""
    x = torch.zeros(40, 20, dtype=dtype)
    x[torch.arange(40), torch.arange(40) % 20] = 3
    x[torch.arange(40), (torch.arange(40) * 7 + 3) % 20] = -5
    if dtype.is_floating_point:
        x[20:][torch.arange(20), (torch.arange(20) * 3) % 20] = torch.nan
    check(lambda x: [x.amax(1), x.amin(1), x.sum(1), *x.max(1)], (x,), tol=EXACT, vector_bytes=vector_bytes)


@pytest.mark.parametrize(
    ("fn", "rows", "lanes"),
    [
        (torch.add, 1024, 8),
        (torch.add, 64, 8),
        (torch.add, 8, 16),  # which a cache holds
        (lambda x, y: (((x + y) * x - y) * y + 1) * x - 2, 1024, 8),
        (lambda x, y: (((x + y) * x - y) * y + 1) * x - 2, 64, 16),  # which computes
        (lambda x, y: torch.sigmoid(x) + y, 1024, 16),
        (lambda x, y: x.gather(1, y.long()), 1024, 8),  # integers of 64 bits
        (lambda x, y: x.roll(3, 1) + y, 64, 16),  # which is not walked through
        (lambda x, y: [x.bfloat16(), y.t()], 1024, 16),  # which converts
        (lambda x, y: x.amax(1) + y[:, 0], 1024, 16),
    ],
)
def test_what_waits_for_memory_has_shorter_vectors(fn: Any, rows: int, lanes: int) -> None:
    """Two large tensors that are added: with 64 bytes a vector it took 1.13 to 1.2 times as long."""
    x, y = sample(rows, 2051), sample(rows, 2051, low=0, high=1)
    graph = check(fn, (x, y), vector_bytes=64)
    assert f"VECTOR_TYPES({lanes})" in c_text(graph)


def _causal(x: torch.Tensor) -> torch.Tensor:
    rows, columns = (torch.arange(n) for n in x.shape[-2:])
    return x.masked_fill(columns > rows[:, None] + 2, -torch.inf) * 2


def _below(k: int) -> Any:
    return lambda x: x.tril(k) + 1


def _above(k: int) -> Any:
    return lambda x: x.triu(k)


@pytest.mark.parametrize(("vector_bytes", "columns"), [(None, 1029), (16, 300), (32, 256)])
@pytest.mark.parametrize(
    "fn",
    [
        _causal,
        *map(_below, (-300, -17, 0, 5, 299, 5000)),
        *map(_above, (-300, -1, 0, 16, 400)),
        lambda x: x.flip(-1).tril(3),
        lambda x: x.tril(2).triu(-2),  # two places in each row
        lambda x: torch.where(torch.arange(x.shape[-1]) == torch.arange(x.shape[-2])[:, None] + 3, x, -x),
        lambda x: torch.where(torch.arange(x.shape[-2])[:, None] - torch.arange(x.shape[-1]) < 9, x, -x),
        lambda x: x.mT.contiguous().mT.tril(),
    ],
)
def test_triangles(fn: Any, columns: int, vector_bytes: int | None) -> None:
    x = sample(2, 40, columns)
    check(fn, (x,), tol=EXACT, vector_bytes=vector_bytes)


def test_pieces_beside_the_border_of_a_triangle_have_no_conditions() -> None:
    graph = compiled(lambda x: x.tril(1), (sample(40, 512),), vector_bytes=32)
    before, at, behind = c_text(graph).split("auto body =")[1:]
    assert ("ld<" in before, "<=" in before.split("};")[0]) == (True, False)
    assert ("ld<" in at, "<=" in at.split("};")[0]) == (True, True)
    assert "ld<" not in behind


def test_a_position_out_of_bounds_behind_the_border_is_an_error() -> None:
    x, places = sample(40, 512), torch.zeros(40, 512, dtype=torch.int64)
    places[0, 500] = 512
    graph = compiled(lambda x, i: x.gather(1, i).tril(), (x, places))
    with pytest.raises((IndexError, RuntimeError)):
        graph(x, places)
