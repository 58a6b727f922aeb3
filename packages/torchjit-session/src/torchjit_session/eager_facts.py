"""What is to be known of a region's graphs to let calls of it run as eager code: how much memory that may need, and which program it is."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, final

import attrs
import torch

from torchjit_core.showing import shortened

__all__ = ["EagerFacts", "facts_of", "free_bytes"]


@final
@attrs.frozen
class EagerFacts:
    """Of the graphs of an entry; they go to disk with it.

    Attributes:
        nbytes: of the results of all operations together: eager code, whose backward is yet to come, needs no more.
        program: a digest of the graphs, and of the kinds and sizes of their inputs.
        devices: where its tensors are.
        product: of the sizes that vary, as they were at capture.
        degree: how often the same one of them is a size of one tensor, at most.
    """

    nbytes: int
    program: str
    devices: tuple[str, ...]
    product: int = 1
    degree: int = 1

    def nbytes_at(self, product: int) -> int:
        """Not much less than eager code may need where varying sizes multiply to this: each may have grown alone."""
        return int(self.nbytes * max(product / max(self.product, 1), 1.0) ** self.degree)


def facts_of(graphs: Iterable[torch.fx.GraphModule]) -> EagerFacts:
    """The facts; a size that varies counts as it was at capture."""
    nbytes, degree, devices = 0, 1, set()
    sizes: dict[str, int] = {}
    digest = hashlib.sha256()
    for graph in graphs:
        digest.update(graph.code.encode())
        for node in graph.graph.nodes:
            for tensor in _tensors(node.meta.get("val")):
                devices.add(tensor.device.type)
                if node.op == "placeholder":
                    digest.update(_described(tensor).encode())
                    sizes.update(_varying(tensor))
                else:
                    nbytes += _nbytes(tensor)
                    degree = max(degree, _degree(tensor))
    return EagerFacts(nbytes, digest.hexdigest(), tuple(sorted(devices)), math.prod(sizes.values()), degree)


_SYMBOL = re.compile(r"\b([a-z]\d+)\b(?:\*\*(\d+))?")
"""A symbol in the text of a size, and its power."""


def _varying(tensor: torch.Tensor) -> Iterable[tuple[str, int]]:
    """The symbols among its sizes, with what they were."""
    for size in tensor.shape:
        if type(size) is not int and _SYMBOL.fullmatch(str(size)):
            yield str(size), _hint(size)


def _degree(tensor: torch.Tensor) -> int:
    found: Counter[str] = Counter()
    for size in tensor.shape:
        if type(size) is not int:
            for name, power in _SYMBOL.findall(str(size)):
                found[name] += int(power or 1)
    return max(found.values(), default=1)


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return (value,)
    if isinstance(value, (tuple, list)):
        return (item for item in value if isinstance(item, torch.Tensor))
    return ()


def _described(tensor: torch.Tensor) -> str:
    sizes = [str(size) for size in tensor.shape]
    return shortened(f"{tensor.dtype} {tensor.device} {sizes} {tensor.requires_grad};", 400)


def _nbytes(tensor: torch.Tensor) -> int:
    count = tensor.element_size()
    for size in tensor.shape:
        count *= _hint(size)
    return count


def _hint(size: Any) -> int:
    """A size as it was at capture; 1 of one that nobody knew."""
    node = getattr(size, "node", None)
    hint = size if node is None else getattr(node, "hint", None)
    return hint if isinstance(hint, int) else 1


def free_bytes(devices: Iterable[str]) -> int | None:
    """What may still be allocated where it is scarcest; None: nobody knows."""
    found = [free for device in devices if (free := _free_of(device)) is not None]
    return min(found, default=None)


def _free_of(device: str) -> int | None:
    if device == "cpu":
        return min((n for n in (_available(), _left_in_group()) if n is not None), default=None)
    if device == "cuda":
        free, _total = torch.cuda.mem_get_info()
        return int(free) + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return None


def _available() -> int | None:
    """Of the machine, on Linux."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _left_in_group() -> int | None:
    """Of the container that this process is in, if it has a limit."""
    folder = Path("/sys/fs/cgroup")
    try:
        return int((folder / "memory.max").read_text()) - int((folder / "memory.current").read_text())
    except (OSError, ValueError):  # no limit, or an older kernel
        return None
