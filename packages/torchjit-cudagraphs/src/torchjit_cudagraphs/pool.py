"""The memory that all recordings of a device share, and the rule that keeps what is in use from being overwritten.

A recording writes to fixed addresses of the pool. What it may write to is everything that was not in use when it was
captured; what was in use and stayed so is its `kept` set. So there is one rule, with no order of calls in it:

    a recording may be replayed when every block in use now is in its `kept` set.

Blocks are in use while a storage that was handed out for them lives, which reference counts tell.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, TypeVar, final

import attrs
import torch

from torchjit_cudagraphs.driver import Capture, GraphDriver, Ground, TorchGraphDriver
from torchjit_cudagraphs.liveness import Block, Lent, LentOnce, StorageRef

__all__ = ["Block", "GraphPool", "PooledTensor", "mark_step_begin", "pool_of", "release_pools", "retire"]

T = TypeVar("T")


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
        self._live: list[Lent] = []
        self._permanent: set[Block] = set()
        self._end: _End | None = None
        self._ground: set[int] = set()
        self._stream: int | None = None
        self._recordings: weakref.WeakSet[Any] = weakref.WeakSet()
        # Recordings whose owner is gone. Their memory may still be seen through outputs.
        self._orphans: list[Callable[[], None]] = []

    # ------------------------------------------------------------------ what is in use
    def blocks_in_use(self) -> set[Block]:
        """The blocks with a living storage, and those that a library keeps for itself."""
        self._forget_dead()
        return {lent.block for lent in self._live} | self._permanent

    def admits(self, kept: frozenset[Block]) -> bool:
        """May a recording with this `kept` set be replayed now?"""
        self._forget_dead()
        return (not self._live or all(lent.block in kept for lent in self._live)) and (
            not self._permanent or self._permanent <= kept
        )

    def _forget_dead(self) -> None:
        if self._live:
            self._live = [lent for lent in self._live if not lent.idle()]
        if not self._live and self._orphans:
            self._orphans.clear()

    def lent_in(self, blocks: Set[Block]) -> list[Lent]:
        """What is in somebody's hands of these blocks."""
        self._forget_dead()
        return [lent for lent in self._live if lent.block in blocks]

    def block_of(self, tensor: torch.Tensor) -> Block | None:
        """The block in use under a tensor, or None when its memory is not the pool's."""
        if not self._live:
            return None
        address = tensor.untyped_storage().data_ptr()
        return next((lent.block for lent in self._live if lent.block[0] == address and not lent.idle()), None)

    def lend(self, block: Block, storage: Any) -> Any:
        """`storage` lies over a block, which is in use while the storage lives."""
        self._live.append(LentOnce(block, storage))
        return storage

    def lend_all(self, storages: Sequence[Lent]) -> None:
        """These storages were handed out."""
        self._live += storages

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
    def belongs(self, recording: Any) -> None:
        """`recording` was made in this pool."""
        self._recordings.add(recording)

    def lost(self, recording: Any) -> None:
        """`recording` will not be replayed again."""
        self._recordings.discard(recording)

    def unused(self) -> bool:
        """Was something recorded, and is no recording left that could be replayed?"""
        return self._end is not None and not self._recordings

    def close(self) -> None:
        """No more captures here. What is recorded keeps the memory."""
        self.closed = True
        self.driver.release()

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
_pools_lock = threading.RLock()  # a finalizer may come in between


def pool_of(device: torch.device) -> GraphPool:
    """The pool of a CUDA device, made when first asked for; a new one after a capture in the old one failed."""
    index = device.index if device.index is not None else torch.cuda.current_device()
    key = torch.device("cuda", index)
    with _pools_lock:
        pool = _pools.get(key)
        if pool is None or pool.closed:
            if pool is not None:
                _closed.append(pool)
            _forget_idle()
            pool = _pools[key] = GraphPool(TorchGraphDriver(key))
        return pool


def retire(pool: GraphPool) -> None:
    """Give a pool's memory back, as far as no output holds it, if no recording is left in it. The next one gets a new pool."""
    if pool.unused():
        pool.close()
        with _pools_lock:
            for key in [key for key, known in _pools.items() if known is pool]:
                del _pools[key]
                _closed.append(pool)
            _forget_idle()


def _forget_idle() -> None:
    """Give the memory of closed pools back whose outputs are gone."""
    rest = [pool for pool in _closed if not pool.idle()]
    if len(rest) < len(_closed):
        _closed[:] = rest
        torch.cuda.empty_cache()


def mark_step_begin() -> None:
    """Tell that a step of a loop begins. Results are protected while they are held, so nothing depends on it; memory
    that waited for results to be dropped is looked after at once."""
    with _pools_lock:
        for pool in _pools.values():
            pool.idle()
        _forget_idle()


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
