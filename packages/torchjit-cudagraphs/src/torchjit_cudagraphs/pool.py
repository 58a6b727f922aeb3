"""The memory that all recordings of a device share, and the rule that keeps what is in use from being overwritten.

A recording writes to fixed addresses of the pool. What it may write to is everything that was not in use when it was
captured; what was in use and stayed so is its `kept` set. So there is one rule, with no order of calls in it:

    a recording may be replayed when every block in use now is in its `kept` set.

Blocks are in use while a storage that was handed out for them lives, which reference counts tell.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, TypeVar, final

import attrs
import torch

from torchjit_cudagraphs.driver import Capture, GraphDriver, Ground, TorchGraphDriver
from torchjit_cudagraphs.liveness import StorageRef, expired

__all__ = ["Block", "GraphPool", "PooledTensor", "mark_step_begin", "pool_of", "release_pools"]

T = TypeVar("T")

Block = tuple[int, int]
"""Address and size in bytes, as the allocator counts them."""


@final
@attrs.frozen(eq=False)
class PooledTensor:
    """How to make a tensor over memory of the pool again, after its object was let go."""

    block: Block
    nbytes: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@final
@attrs.frozen(eq=False)
class _End:
    """The pool after a capture or a replay."""

    state: Any
    blocks: dict[int, int]


@final
class GraphPool:
    """The pool of one device: one capture or replay at a time.

    Attributes:
        driver: the device.
        lock: hold it from the question whether a recording may be replayed to the end of its replay.
        closed: no captures any more, because one failed; replays go on.
    """

    def __init__(self, driver: GraphDriver) -> None:
        self.driver = driver
        self.lock = threading.RLock()
        self.closed = False
        # Several storages may lie over one block.
        self._live: list[tuple[int, StorageRef, Block]] = []
        self._permanent: set[Block] = set()
        self._end: _End | None = None
        self._ground: set[int] = set()
        self._stream: int | None = None
        # Recordings whose owner is gone. Their memory may still be seen through outputs.
        self._orphans: list[Callable[[], None]] = []

    # ------------------------------------------------------------------ what is in use
    def blocks_in_use(self) -> set[Block]:
        """The blocks with a living storage, and those that a library keeps for itself."""
        self._forget_dead()
        return {block for _, _, block in self._live} | self._permanent

    def admits(self, kept: frozenset[Block]) -> bool:
        """May a recording with this `kept` set be replayed now?"""
        self._forget_dead()
        return (not self._live or all(block in kept for _, _, block in self._live)) and (
            not self._permanent or self._permanent <= kept
        )

    def _forget_dead(self) -> None:
        if self._live:
            self._live = [entry for entry in self._live if not expired(entry[0])]
        if not self._live and self._orphans:
            self._orphans.clear()

    def storages_in(self, blocks: Set[Block]) -> frozenset[int]:
        """Ids of the living storages that lie in some of these blocks."""
        self._forget_dead()
        return frozenset(cdata for cdata, _, block in self._live if block in blocks)

    def block_of(self, tensor: torch.Tensor) -> Block | None:
        """The block in use under a tensor, or None when its memory is not the pool's."""
        if not self._live:
            return None
        address = tensor.untyped_storage().data_ptr()
        return next((block for cdata, _, block in self._live if block[0] == address and not expired(cdata)), None)

    def lend(self, block: Block, storage: Any) -> Any:
        """`storage` lies over a block, which is in use while the storage lives."""
        ref = StorageRef(storage)
        self._live.append((ref.cdata, ref, block))
        return storage

    # ------------------------------------------------------------------ inputs that lie in the pool
    def describe(self, tensor: torch.Tensor) -> PooledTensor | None:
        """How to make `tensor` again, if its memory is a block in use."""
        block = self.block_of(tensor)
        if block is None:
            return None
        storage = tensor.untyped_storage()
        return PooledTensor(
            block, storage.nbytes(), tensor.dtype,
            tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset()),
        )  # fmt: skip

    def again(self, described: Sequence[PooledTensor]) -> list[torch.Tensor]:
        """The described tensors, over their blocks as they are; those over one block share a storage."""
        storages: dict[Block, Any] = {}
        made = []
        for d in described:
            if d.block not in storages:
                storages[d.block] = self.lend(d.block, self.driver.storage_maker(d.block[0], d.nbytes)())
            made.append(self.driver.tensor_maker(d.dtype, d.size, d.stride, d.offset)(storages[d.block]))
        return made

    # ------------------------------------------------------------------ captures and replays
    def capture(self, run: Callable[[], T], adopt: Mapping[Block, StorageRef]) -> Capture[T]:
        """Capture `run` on the ground of what is in use now. `settle` must follow.

        Args:
            run: the work.
            adopt: storages over blocks in use that nobody but the arguments of `run` holds: when one dies during the
                capture, what follows may use its memory.

        Raises:
            Exception: as the driver's. The pool is closed then.
        """
        end = self._end
        used = {address for address, _ in self.blocks_in_use()}
        self._ground = used - {address for address, _ in adopt}
        try:
            if end is None:
                if used:
                    raise AssertionError("blocks are in use and nothing was ever recorded")
                return self.driver.capture(run, Ground())
            if not used <= set(end.blocks):
                raise AssertionError("blocks are in use that the last recording does not know of")
            dead = [address for address in end.blocks if address not in used]
            return self.driver.capture(run, Ground(end.state, dead, [ref.cdata for ref in adopt.values()]))
        except BaseException:
            self.close()
            raise

    def settle(
        self, capture: Capture[Any], results: Mapping[int, StorageRef], survivors: Mapping[int, StorageRef]
    ) -> frozenset[Block]:
        """After a capture: the allocator forgets the pool's blocks, and this object remembers them.

        Args:
            capture: what was captured.
            results: by address, the living storages that own a block which the capture allocated.
            survivors: likewise, the adopted storages that are still alive.

        Returns:
            The blocks that a replay leaves alone.
        """
        owners = {**results, **survivors}
        # Memory that a library allocated during the capture and keeps (a workspace): nobody else may ever write to it.
        self._permanent |= {(a, n) for a, n in capture.blocks.items() if a not in self._ground and a not in owners}
        lasting = {a for a, _ in self._permanent}
        rest = [a for a in capture.blocks if a not in owners and a not in lasting]
        self.driver.disown([ref.cdata for ref in owners.values()], rest)
        self._end = _End(capture.state, dict(capture.blocks))
        return frozenset((a, n) for a, n in capture.blocks.items() if a not in results)

    def replayed(self, state: Any, blocks: dict[int, int]) -> None:
        """A recording was replayed, at whose capture's end the pool looked so."""
        if self._end is None or self._end.state is not state:
            self._end = _End(state, blocks)

    def on_current_stream(self) -> None:
        """Order what follows after the pool's earlier work on other streams."""
        stream = self.driver.stream()
        if stream != self._stream:
            if self._stream is not None:
                self.driver.order_after(self._stream)
            self._stream = stream

    # ------------------------------------------------------------------ ends
    def close(self) -> None:
        """No more captures here."""
        self.closed = True

    def bury(self, replays: Sequence[Callable[[], None]]) -> None:
        """Keep recordings that nobody will replay, and with them the memory, until no output of the pool lives."""
        with self.lock:
            self._forget_dead()
            if self._live:
                self._orphans.extend(replays)

    def idle(self) -> bool:
        """Is nothing of the pool in use?"""
        with self.lock:
            self._forget_dead()
            return not self._live


_pools: dict[torch.device, GraphPool] = {}
_closed: list[GraphPool] = []
_pools_lock = threading.Lock()


def pool_of(device: torch.device) -> GraphPool:
    """The pool of a CUDA device, made when first asked for; a new one after a capture in the old one failed."""
    index = device.index if device.index is not None else torch.cuda.current_device()
    key = torch.device("cuda", index)
    with _pools_lock:
        pool = _pools.get(key)
        if pool is None or pool.closed:
            if pool is not None:
                _closed.append(pool)
            _closed[:] = [old for old in _closed if not old.idle()]
            pool = _pools[key] = GraphPool(TorchGraphDriver(key))
        return pool


def mark_step_begin() -> None:
    """Tell that a step of a loop begins. Results are protected while they are held, so nothing depends on it; memory
    that waited for results to be dropped is looked after at once."""
    with _pools_lock:
        for pool in (*_pools.values(), *_closed):
            pool.idle()


def release_pools() -> None:
    """Give the memory of all pools back, except of those whose outputs are still held: they follow at a later call."""
    with _pools_lock:
        candidates = [*_pools.values(), *_closed]
        _pools.clear()
        _closed[:] = [pool for pool in candidates if not pool.idle()]
        some = bool(candidates)
        del candidates
    if some:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
