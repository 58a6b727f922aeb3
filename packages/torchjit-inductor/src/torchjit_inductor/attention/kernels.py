"""Attention with the user's functions of scores in its kernels: what the host program calls."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar, final

import attrs
import torch

from torchjit_core.events import emit
from torchjit_core.expr import Expr
from torchjit_core.turns import others_may_go_on
from torchjit_inductor.assembly.workers import shared_workers
from torchjit_inductor.attention.call import AttentionCall
from torchjit_inductor.attention.formulas import Formulas, attention_formulas
from torchjit_inductor.attention.parted import PartedAttention
from torchjit_inductor.attention.parts import join_text, part_text, scratch_sizes, tiles_of_parts, with_overlap
from torchjit_inductor.attention.sizes import NOTHING, Number, Varying, covers, numbers_of, plain, typical
from torchjit_inductor.attention.text import forward_text, keys_text, queries_text
from torchjit_inductor.attention.writer import AttentionProblem, KernelText, ListLayout, Tiles
from torchjit_inductor.ir.kernel import Buffer
from torchjit_inductor.ir.values import IN_ORDER, PASSES, walk
from torchjit_inductor.lowering.sizes import NotLowered
from torchjit_inductor.lowering.tensors import Strided, TensorMeta
from torchjit_inductor.triton.compile import MachineCode, Recipe, argument_type, compile_text, once
from torchjit_inductor.triton.cuda import ALIGNED, KernelDriver, LaunchSignature, LoadedKernel
from torchjit_inductor.triton.specialisations import LaunchFacts, Specialisations, Variant, launcher_of

T = TypeVar("T")

__all__ = ["AttentionKernels", "argument_types", "attention_problem", "tiles_for"]

_ALIGNMENT = 16
_DEEPEST = 256
"""Elements of a query: more have no tile."""
_BLOCK_TENSORS = 8


def attention_problem(
    call: AttentionCall,
    tensors: Mapping[str, Strided],
    more: Sequence[Strided],
    results: Mapping[str, TensorMeta],
    varying: Varying = NOTHING,
) -> AttentionProblem:
    """What the kernels' texts depend on.

    Args:
        tensors: `query`, `key`, `value`, and for the backward `gradient`.
        more: the block mask's tensors, and what the functions use.
        results: `result`, or `of_query`, `of_key` and `of_value`.
        varying: what is known of sizes that vary.

    Raises:
        NotLowered: there is no kernel for it.
    """
    renamed = varying.renamed

    def numbers(values: Sequence[Expr]) -> tuple[Number, ...]:
        return tuple(plain(v.substitute(renamed)) for v in values)

    query, value = tensors["query"], tensors["value"]
    (batch, _, queries, _), (_, _, keys, _) = numbers(query.sizes), numbers(value.sizes)
    heads, depth, key_heads, width = (_fixed(t.sizes[dim]) for t in (query, value) for dim in (1, 3))
    if max(depth, width) > _DEEPEST:
        raise NotLowered(f"heads of {max(depth, width)} elements")
    strides = {name: numbers(t.strides) for name, t in tensors.items()}
    strides |= {name: numbers(t.strides) for name, t in results.items()}
    lists = _lists(call, more, numbers)
    sizes = (batch, heads, queries, keys)
    outside = more[call.outside :]
    formulas = attention_formulas(call, sizes, outside, renamed)
    _check(formulas)
    buffers = {
        name: Buffer(name, t.dtype, t.device, t.sizes, t.strides) for name, t in formulas.tensors.items()
    }  # fmt: skip
    if "gradient" in tensors and not lists[1]:
        raise NotLowered("a block mask without the query blocks of key blocks")
    return AttentionProblem(
        sizes, key_heads, depth, width, query.dtype, float(call.scale), formulas, buffers, strides,
        min(call.query_block, 1 << 30), min(call.key_block, 1 << 30), *lists, bool(torch.backends.cuda.matmul.allow_tf32), varying,
    )  # fmt: skip


def _fixed(size: Expr) -> int:
    if size.value is None:
        raise NotLowered("heads, or what they hold, are symbolic")
    return size.value


def _check(formulas: Formulas) -> None:
    roots = [v for v in (formulas.score, formulas.mask, formulas.gradient) if v is not None]
    roots += [part for a in formulas.additions for part in (a.place, a.value)]
    for value in walk(*roots):
        if value.op in PASSES | IN_ORDER | {"segment"}:
            raise NotLowered(f"a function of scores with a {value.op}")


def _lists(
    call: AttentionCall, more: Sequence[Strided], numbers: Callable[[Sequence[Expr]], tuple[Number, ...]]
) -> tuple[tuple[ListLayout, ...], tuple[ListLayout, ...]]:
    """The lists of key blocks and those of query blocks, each with a mask first."""
    found: list[ListLayout | None] = []
    for at in range(0, _BLOCK_TENSORS, 2):
        counts, indices = call.blocks[at : at + 2]
        if counts is None or indices is None:
            found.append(None)
            continue
        first, second = more[counts], more[indices]
        if first.dtype != torch.int32 or second.dtype != torch.int32 or len(first.sizes) != 3 or len(second.sizes) != 4:
            raise NotLowered("a block mask of another form")
        batch, heads, _ = numbers(first.sizes)
        found.append(ListLayout(batch, heads, numbers(first.strides), numbers(second.strides)))
    pairs = found[:2], found[2:]
    if found[0] is None:
        raise NotLowered("a block mask without key blocks")
    kept = [() if pair[0] is None else tuple(layout for layout in pair if layout is not None) for pair in pairs]
    return kept[0], kept[1]


# ------------------------------------------------------------------------------------------------- the choice of tiles

# Measured on an H200 (docs/benchmarks/gpu.md): causal, 4 x 16 heads of 4096 in bfloat16.
_FORWARD = {
    # bytes of an element, depth: rows, columns, warps, stages
    (2, 64): (Tiles(128, 128, 4, 3), Tiles(128, 64, 8, 3), Tiles(128, 64, 4, 2)),
    (2, 128): (Tiles(128, 64, 4, 2), Tiles(64, 64, 4, 2)),
    (2, 256): (Tiles(64, 32, 4, 3), Tiles(64, 32, 4, 2)),
    (4, 64): (Tiles(64, 32, 4, 2),),
    (4, 128): (Tiles(64, 32, 4, 2),),
    (4, 256): (Tiles(32, 16, 4, 2),),
}
_QUERIES = {
    (2, 64): (Tiles(64, 128, 4, 3), Tiles(128, 64, 4, 2), Tiles(64, 64, 4, 2)),
    (2, 128): (Tiles(64, 64, 4, 2), Tiles(64, 32, 4, 2)),
    (2, 256): (Tiles(64, 32, 8, 2),),
    (4, 64): (Tiles(64, 32, 4, 1),),
    (4, 128): (Tiles(32, 32, 4, 1),),
    (4, 256): (Tiles(16, 16, 4, 1),),
}
_KEYS = {
    (2, 64): (Tiles(64, 64, 4, 3), Tiles(64, 64, 4, 2)),
    (2, 128): (Tiles(64, 64, 4, 2), Tiles(64, 32, 4, 2)),
    (2, 256): (Tiles(64, 32, 8, 2),),
    (4, 64): (Tiles(32, 32, 4, 1),),
    (4, 128): (Tiles(32, 32, 4, 1),),
    (4, 256): (Tiles(16, 16, 4, 1),),
}
_LAST = Tiles(32, 32, 4, 1), Tiles(16, 16, 4, 1)
"""For machines with little shared memory."""
TABLES = {"attention": _FORWARD, "attention_of_queries": _QUERIES, "attention_of_keys": _KEYS}


def tiles_for(kind: str, p: AttentionProblem) -> list[Tiles]:
    """The choices for a kernel, the best first.

    Raises:
        NotLowered: blocks have sizes that no tile divides.
    """
    deep = max(p.depth, p.width)
    column = next(n for n in (64, 128, 256) if deep <= n)
    by_key = kind == "attention_of_keys"
    held, walked = (p.key_block, p.query_block) if by_key else (p.query_block, p.key_block)
    lengths = (p.sizes[3], p.sizes[2]) if by_key else (p.sizes[2], p.sizes[3])
    found: dict[Tiles, None] = {}
    for tiles in (*TABLES[kind][p.dtype.itemsize, column], *_LAST):
        rows, columns = (
            _divided(tile, block, length, p.varying)
            for tile, block, length in zip((tiles.rows, tiles.columns), (held, walked), lengths, strict=True)
        )
        if min(rows, columns) >= 16:
            found[attrs.evolve(tiles, rows=rows, columns=columns)] = None
    if not found:
        raise NotLowered(f"blocks of {held} x {walked}")
    return list(found)


def _divided(tile: int, block: int, length: Number, varying: Varying) -> int:
    """The largest power of two up to `tile` that divides a block of the lists; no more than a short side needs."""
    cut, usual = not covers(block, length), typical(length, varying)
    while tile > 16 and (tile >= 2 * usual or (cut and block % tile)):
        tile //= 2
    return 0 if cut and block % tile else tile


# ---------------------------------------------------------------------------------------------------------- launching


@final
class AttentionKernels:
    """Compiles and launches kernels of attention.

    Args:
        driver: of the machine.
        arch: compute capability of a device.
        threads: how many kernels are compiled at once.
    """

    def __init__(self, driver: KernelDriver, arch: Callable[[torch.device], int], threads: int) -> None:
        self._driver, self._arch = driver, arch
        self._pool = ThreadPoolExecutor(threads)
        self._codes: dict[tuple[object, ...], Future[MachineCode]] = {}
        self._few: dict[tuple[object, ...], PartedAttention] = {}
        self._overlapping: dict[PartedAttention, Callable[[bool, bool], PartedAttention]] = {}

    def forward(
        self, p: AttentionProblem, call: AttentionCall, device: torch.device
    ) -> Callable[..., tuple[torch.Tensor, ...]]:
        """A function of (query, key, value, more..., and what the kernels get of sizes that vary) that gives what the operator gives."""
        (launch, *join), parts = self._forward_launchers(p, device)
        lists, used = _list_positions(call, 0), _used(p, call)
        options = {"dtype": torch.float32, "device": device}
        arguments = p.varying.arguments
        rows_of = numbers_of(arguments, p.sizes[:3])
        strides_of = numbers_of(arguments, p.strides["result"])
        scratch_of = numbers_of(arguments, scratch_sizes(p, parts))

        def attention(
            query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any
        ) -> tuple[torch.Tensor, ...]:
            more, numbers = _parted(rest, len(arguments))
            rows = rows_of(*numbers)
            result = torch.empty_strided((*rows, p.width), strides_of(*numbers), dtype=query.dtype, device=device)
            total, largest = torch.empty(rows, **options), torch.empty(rows, **options)  # type: ignore[call-overload]
            inputs = [t.data_ptr() for t in (query, key, value, *[more[n] for n in (*lists, *used)])]
            results = [t.data_ptr() for t in (result, total, largest)]
            if not join:
                launch(*inputs, *results, *numbers)
            else:
                sizes = scratch_of(*numbers)
                scratch = torch.empty(sum(sizes), **options)  # type: ignore[call-overload]
                held = [scratch.data_ptr() + place for place in (0, 4 * sizes[0], 4 * (sizes[0] + sizes[1]))]
                launch(*inputs, *held, *numbers)
                join[0](*held, *results, *numbers)
            return result, total, largest

        return attention

    def backward(
        self, p: AttentionProblem, call: AttentionCall, device: torch.device
    ) -> Callable[..., tuple[torch.Tensor, ...]]:
        """A function of (query, key, value, more..., total, gradient, shift, and what the kernels get of sizes that vary) that gives what the
        operator gives."""
        kinds = {"attention_of_queries": queries_text, "attention_of_keys": keys_text}
        texts = [[write(p, tiles) for tiles in tiles_for(kind, p)] for kind, write in kinds.items()]
        of_query, of_key = self._launchers(texts, p, device)
        lists, turned, used = _list_positions(call, 0), _list_positions(call, 4), _used(p, call)
        arguments = p.varying.arguments
        strides_of = [numbers_of(arguments, p.strides[n]) for n in ("of_query", "of_key", "of_value")]
        added = list(dict.fromkeys(a.tensor for a in p.formulas.additions))
        options = {"dtype": torch.float32, "device": device}

        def attention_backward(
            query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any
        ) -> tuple[torch.Tensor, ...]:
            tensors, numbers = _parted(rest, len(arguments))
            more, (total, gradient, shift) = _parted(tensors, 3)
            made = [
                torch.empty_strided(t.shape, strides(*numbers), dtype=t.dtype, device=device)
                for t, strides in zip((query, key, value), strides_of, strict=True)
            ]
            first, last = (query, key, value), (*[more[n] for n in used], total, gradient, shift)
            of_query(*[t.data_ptr() for t in (*first, *[more[n] for n in lists], *last, made[0])], *numbers)
            sums = {n: torch.zeros(more[call.outside + n].shape, **options) for n in added}  # type: ignore[call-overload]
            tensors = (*first, *[more[n] for n in turned], *last, *made[1:], *sums.values())
            of_key(*[t.data_ptr() for t in tensors], *numbers)
            for n, _ in call.score.others:
                like = more[call.outside + n]
                found = sums[n] if n in sums else torch.zeros(like.shape, **options)  # type: ignore[call-overload]
                made.append(found.to(like.dtype))
            return tuple(made)

        return attention_backward

    def of_few_queries(self, p: AttentionProblem, device: torch.device) -> PartedAttention:
        """What computes a call whose rows are worth several programs each.

        Raises:
            NotLowered: they are not, or Triton cannot compile it.
        """
        tiles = tiles_of_parts(p)
        parts = tiles[0].parts if tiles else 1
        if parts < 2:
            raise NotLowered("programs enough without cutting rows")
        texts = [part_text(p, each) for each in tiles], [join_text(p, parts)]
        first, join = self._compiled(texts, p, device)
        types = tuple(argument_types(first, p).items())

        def parted(early: bool, releases: bool) -> PartedAttention:
            # One object for equal blocks of a model: they are seen to be equal by that.
            key = (first, join, types, device, p.sizes, p.width, p.strides["result"], early, releases)
            found = self._few.get(key)
            if found is None:
                found = self._few[key] = self._parted((first, join), p, parts, device, early, releases)
                self._overlapping[found] = parted
            return found

        return parted(False, False)

    def overlapping(self, op: Any, early: bool, releases: bool) -> PartedAttention | None:
        """See `triton.overlap.Others`."""
        found = self._overlapping.get(op) if isinstance(op, PartedAttention) else None
        return None if found is None else found(early, releases)

    def _parted(
        self, texts: tuple[KernelText, KernelText], p: AttentionProblem, parts: int, device: torch.device,
        early: bool, releases: bool,
    ) -> PartedAttention:  # fmt: skip
        first, join = texts
        if early or releases:
            first, join = with_overlap(first, True), with_overlap(join, releases)
        part = self._storable_launcher(first, p, device, early)
        last = self._storable_launcher(join, p, device, early or releases)
        scratch: Any = scratch_sizes(p, parts)
        sizes: Any = (*p.sizes[:3], p.width)
        strides: Any = p.strides["result"]
        return PartedAttention(part, last, scratch, sizes, strides, p.dtype)

    def _storable_launcher(
        self, text: KernelText, p: AttentionProblem, device: torch.device, early: bool
    ) -> Callable[..., None]:
        """A launcher of a kernel of fixed sizes, as those of other kernels are.

        Args:
            early: see `Overlap`.
        """
        assert isinstance(text.programs, int) and not text.numbers
        index, types, tiles = device.index or 0, argument_types(text, p), text.tiles
        emit("kernel", name=text.name, language="triton", source=text.source, origins=[], graph="")
        facts = LaunchFacts(text.name, index, len(text.parameters), 0, text.programs, False, (), early)

        def base(aligned: bool, wide: bool) -> Recipe:
            return Recipe(
                text.source, text.name, tuple(types.items()), frozenset(types) if aligned else frozenset(), self._arch(device),
                tiles.warps, tiles.stages,
            )  # fmt: skip

        def compile(variant: Variant) -> MachineCode:
            return self._code(text, p, variant.aligned, device)

        return launcher_of(Specialisations(facts, self._driver, base, compile))

    def _forward_launchers(self, p: AttentionProblem, device: torch.device) -> tuple[list[Callable[..., None]], int]:
        """One kernel, or one for parts of the keys and one that joins them, and the number of parts."""
        tiles = tiles_of_parts(p)
        parts = tiles[0].parts if tiles else 1
        if parts > 1:
            try:
                texts = [part_text(p, each) for each in tiles], [join_text(p, parts)]
                return self._launchers(texts, p, device), parts
            except NotLowered:
                tiles = []  # a device with little shared memory
        return self._launchers([[forward_text(p, each) for each in (*tiles, *tiles_for("attention", p))]], p, device), 1

    def _launchers(
        self,
        texts: Sequence[Sequence[KernelText]],
        p: AttentionProblem,
        device: torch.device,
    ) -> list[Callable[..., None]]:
        """For each kernel, given by texts of which the first that fits is taken, a function of addresses.

        They are compiled now: what Triton cannot compile has no kernel.

        Raises:
            NotLowered: it cannot, or no tiles fit.
        """
        return [self._launcher(each, p, device) for each in self._compiled(texts, p, device)]

    def _compiled(
        self, texts: Sequence[Sequence[KernelText]], p: AttentionProblem, device: torch.device
    ) -> list[KernelText]:
        """See `_launchers`: the texts that are taken."""
        pending = [self._pool.submit(self._fitting, each, p, device) for each in texts]
        try:
            with others_may_go_on():
                return [future.result() for future in pending]
        except NotLowered:
            raise
        except Exception as error:  # whatever Triton raises: the operator still computes the call
            raise NotLowered(f"{type(error).__name__}: {error}") from error

    def _fitting(self, texts: Sequence[KernelText], p: AttentionProblem, device: torch.device) -> KernelText:
        """The first text whose tiles fit into the device's shared memory."""
        limit = _shared_memory(device.index or 0)
        for text in texts:
            if self._code(text, p, True, device).shared <= limit:
                return text
        raise NotLowered("no tiles that fit into shared memory")

    def _launcher(self, text: KernelText, p: AttentionProblem, device: torch.device) -> Callable[..., None]:
        index = device.index or 0
        emit("kernel", name=text.name, language="triton", source=text.source, origins=[], graph="")
        lock = threading.Lock()
        made: dict[bool, LoadedKernel] = {}

        def load(aligned: bool) -> LoadedKernel:
            with lock:
                if aligned not in made:
                    made[aligned] = self._driver.load(self._code(text, p, aligned, device), index)
                return made[aligned]

        launch: Callable[..., None] | None = None

        def first(*arguments: int) -> None:
            nonlocal launch
            if launch is None:
                launch = self._bound(load, index, text, p.varying)
            launch(*arguments)

        return first

    def _bound(
        self, load: Callable[[bool], LoadedKernel], index: int, text: KernelText, varying: Varying
    ) -> Callable[..., None]:
        count = len(text.parameters)
        if isinstance(text.programs, int) and text.programs and not text.numbers:
            signature = LaunchSignature(count, text.programs)
            quick = self._driver.launcher(lambda which: load(which == ALIGNED), index, signature)
            if quick is not None:
                return quick
        driver, programs_of = self._driver, numbers_of(varying.arguments, [text.programs])

        def launch(*arguments: int) -> None:
            (programs,) = programs_of(*arguments[count:])
            if programs:
                load(all(a % _ALIGNMENT == 0 for a in arguments[:count]))(programs, driver.stream(index), *arguments)

        return launch

    def _code(self, text: KernelText, p: AttentionProblem, aligned: bool, device: torch.device) -> MachineCode:
        arch = self._arch(device)
        arguments = argument_types(text, p)
        key = (text.source, tuple(arguments.items()), aligned, text.tiles, arch)
        make = functools.partial(
            compile_text, text.source, text.name, arguments, frozenset(text.parameters) if aligned else frozenset(), arch=arch,
            num_warps=text.tiles.warps, num_stages=text.tiles.stages, by=shared_workers().assemble,
        )  # fmt: skip
        return once(self._codes, key, make)


def argument_types(text: KernelText, p: AttentionProblem) -> dict[str, str]:
    """Triton's name of each parameter's type."""
    found = {name: argument_type(_dtype_of(name, p)) for name in text.parameters}
    return found | dict.fromkeys(text.numbers, "i64" if p.varying.wide else "i32")


def _dtype_of(parameter: str, p: AttentionProblem) -> torch.dtype:
    if parameter.startswith(("counts", "indices")):
        return torch.int32
    if (
        parameter in ("total", "largest", "shift")
        or parameter.startswith("of_outside")
        or parameter.endswith("_of_parts")
    ):
        return torch.float32
    if parameter.startswith("in"):
        return list(p.formulas.tensors.values())[int(parameter[2:])].dtype
    return p.dtype


def _parted(values: Sequence[T], count: int) -> tuple[Sequence[T], Sequence[T]]:
    """Without the last ones, and these."""
    return values[: len(values) - count], values[len(values) - count :]


def _list_positions(call: AttentionCall, first: int) -> list[int]:
    return [n for n in call.blocks[first : first + 4] if n is not None]


def _used(p: AttentionProblem, call: AttentionCall) -> list[int]:
    """Positions among `more` of what the formulas read."""
    return [call.outside + int(name.removeprefix("outside")) for name in p.formulas.tensors]


def _shared_memory(index: int) -> int:
    properties: Any = torch.cuda.get_device_properties(index) if torch.cuda.is_available() else None
    return int(getattr(properties, "shared_memory_per_block_optin", 227 << 10))
