"""Functionalization as a graph pass: writes become new values, views of what was written are made again.

Each storage that the graph writes to has a *root* (the tensor that was there first), its current value, and a version.
A view is known by its parent and the operator. A write computes the new value of the written tensor, then scatters it
from view to parent up to the root, and raises the version. A read of a view whose version is behind replays the view
operators from the root's current value.

The pass runs only when the trace met an operator with a mutable argument.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, final

import attrs
import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import OpOverload
from torch.fx.node import map_arg

from torchjit_aot.functional_variants import functional_variant
from torchjit_aot.graph_writer import GraphWriter
from torchjit_aot.joint import JointGraph, version_moved
from torchjit_aot.overlap import byte_range, is_dense, overlaps_partly
from torchjit_aot.refusals import FUNCTIONALIZE, SHARED_STORAGE
from torchjit_aot.scatter import scatter
from torchjit_core.reasons import GraphBreak
from torchjit_torch.layouts import is_static, overlaps_itself, storage_key
from torchjit_torch.operators import functional_form, is_random, is_view, writes_to

__all__ = ["functionalize"]

aten = torch.ops.aten
_SILENT_WRITES = frozenset({aten._native_batch_norm_legit.default})
"""Eager PyTorch calls `native_batch_norm` here, which does not move the version counters of the running statistics."""


_COPYING_SCATTERS = frozenset(
    {
        aten.slice.Tensor,
        aten.select.int,
        aten.diagonal.default,
        aten.as_strided.default,
        aten.split.Tensor,
        aten.split_with_sizes.default,
        aten.unsafe_split.Tensor,
        aten.unsafe_split_with_sizes.default,
        aten.unbind.int,
    }
)
"""Views of a part: writing through them makes a new tensor for the whole."""


@final
@attrs.define(eq=False)
class _Storage:
    """A storage that is written to.

    Attributes:
        root: the old node that was there first.
        value: the root's current value.
        version: the number of writes until now.
        packed: the root has gaps in memory; its values and their views here have none, in the same order of strides.
        resized: the root's metadata since it was given as `out=` without elements; None as long as it is the root's own.
    """

    root: fx.Node
    value: fx.Node
    version: int = 0
    packed: bool = False
    resized: torch.Tensor | None = None


@final
@attrs.define(eq=False)
class _View:
    """A view into a written storage."""

    parent: fx.Node
    func: OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    index: int | None
    value: fx.Node
    version: int


def functionalize(joint: JointGraph) -> JointGraph:
    """The joint graph free of writes; with what is `mutated`, and whose versions move.

    Raises:
        GraphBreak: a write or view without a functional form, or a written input that shares its storage.
    """
    if not joint.written:
        return joint
    with joint.fake_mode, enable_python_dispatcher(), torch.no_grad():
        return _Functionalizer(joint).run()


@final
class _Functionalizer:
    def __init__(self, joint: JointGraph) -> None:
        self.joint = joint
        self.writer = GraphWriter()
        self.env: dict[fx.Node, fx.Node] = {}
        self.storages: dict[int, _Storage] = {}
        self.views: dict[fx.Node, _View] = {}
        self.written = self._written_storages()
        self.silent: set[int] = set()
        self.loud: set[int] = set()

    def _written_storages(self) -> set[int]:
        found: set[int] = set()
        for node in self.joint.graph.nodes:
            for argument in writes_to(node.target) if node.op == "call_function" else ():
                for target in _written_nodes(node, argument):
                    found.add(storage_key(target.meta["val"]))
        return found

    def run(self) -> JointGraph:
        for node in self.joint.graph.nodes:
            self.writer.source = node
            if node.op == "placeholder":
                self._placeholder(node)
            elif node.op == "call_function" and writes_to(node.target):
                self._write_op(node)
            else:
                self._plain(node)
        return self._finish()

    # ---------------------------------------------------------------- reading

    def _key(self, node: fx.Node) -> int | None:
        val = node.meta.get("val")
        if isinstance(val, torch.Tensor):
            key = storage_key(val)
            return key if key in self.written else None
        return None

    def read(self, node: fx.Node) -> fx.Node:
        """The new node that has the value of `node` now."""
        key = self._key(node)
        if key is None or key not in self.storages:
            return self.env[node]
        storage = self.storages[key]
        view = self.views.get(node)
        if view is None:
            return storage.value if node is storage.root else self.env[node]
        if view.version != storage.version:
            view.value = self._replay(view, self.read(view.parent), storage)
            view.version = storage.version
        return view.value

    def _replay(self, view: _View, parent: fx.Node, storage: _Storage) -> fx.Node:
        args = map_arg(view.args, self.read)
        if view.func is aten.as_strided.default:
            args = self._relative(args, storage)
        made = self.writer.call(view.func, (parent, *args), map_arg(dict(view.kwargs), self.read))
        return made if view.index is None else self.writer.call(operator.getitem, (made, view.index))

    def _relative(self, args: Any, storage: _Storage) -> Any:
        """`as_strided` counts from the start of the storage; the root's copies start at their first element."""
        offset = storage.root.meta["val"].storage_offset()
        if len(args) > 2 and args[2] is not None and type(offset) is int and offset:
            return (*args[:2], args[2] - offset)
        return args

    # ---------------------------------------------------------------- nodes

    def _placeholder(self, node: fx.Node) -> None:
        made = self.writer.placeholder(node)
        self.env[node] = made
        key = self._key(node)
        if key is None:
            return
        if key in self.storages:
            raise GraphBreak(SHARED_STORAGE, node.name)
        packed = not is_dense(node.meta["val"])
        if packed:
            _refuse_overlap(node)
            made = self.writer.call(aten.clone.default, (made,))
        self.storages[key] = _Storage(node, made, packed=packed)

    def _plain(self, node: fx.Node) -> None:
        func, key = node.target, self._key(node)
        if key in self.storages and self.storages[key].packed:  # its strides are not those of the trace
            made = self.writer.call(func, map_arg(node.args, self.read), map_arg(node.kwargs, self.read))
        else:
            made = self.writer.copy(node, self.read)
        self.env[node] = made
        if key is None:
            return
        whole, index = (node.args[0], node.args[1]) if func is operator.getitem else (node, None)
        assert isinstance(whole, fx.Node)
        parent = whole.args[0] if whole.args else None
        if isinstance(parent, fx.Node) and self._key(parent) == key:
            # also for operators that share storage without saying so, such as _unsafe_view
            self._add_view(node, whole, index, made, key)
        else:
            self._add_root(node, made, key)

    def _add_view(self, node: fx.Node, call: fx.Node, index: Any, made: fx.Node, key: int) -> None:
        parent, *args = call.args
        assert isinstance(parent, fx.Node) and isinstance(call.target, OpOverload)
        if key not in self.storages:
            raise GraphBreak(FUNCTIONALIZE, f"{node.name} is a view of an unknown storage")
        storage = self.storages[key]
        if storage.packed and call.target is aten.as_strided.default:
            raise GraphBreak(FUNCTIONALIZE, f"as_strided of {storage.root.name}, which has gaps in memory")
        self.views[node] = _View(parent, call.target, tuple(args), call.kwargs, index, made, storage.version)

    def _add_root(self, node: fx.Node, made: fx.Node, key: int) -> None:
        if key in self.storages:
            # an operator that returned its argument's storage without saying so
            raise GraphBreak(FUNCTIONALIZE, f"{node.target} returned an undeclared alias")
        if not is_dense(node.meta["val"]):
            raise GraphBreak(FUNCTIONALIZE, f"{node.name} is written to and has gaps or overlaps in memory")
        self.storages[key] = _Storage(node, made)

    # ---------------------------------------------------------------- writing

    def _write_op(self, node: fx.Node) -> None:
        func = node.target
        assert isinstance(func, OpOverload)
        targets = [_written_nodes(node, argument) for argument in writes_to(func)]
        self._refuse_partial_overlap(node, targets)
        if func is aten.copy_.default:
            target, value = node.args[0], node.args[1]
            assert isinstance(target, fx.Node)
            self._assign(func, target, self._copied(value, target))
            self.env[node] = self.read(target)
            return
        functional = _out_of_place(node) or functional_variant(func)
        if functional is None or not _has_functional_values(func, targets):
            raise GraphBreak(FUNCTIONALIZE, str(func))
        made = self._functional_call(node, functional, targets)
        fresh = sum(1 for r in func._schema.returns if r.alias_info is None)
        results = self._results(node, made, fresh, len(targets))
        for written, result in zip(targets, results[fresh:], strict=True):
            self._assign_all(func, written, result, is_list=isinstance(result.meta["val"], (tuple, list)))
        alone = fresh == 1 and len(func._schema.returns) == 1
        self.env[node] = results[0] if alone else made
        # A new tensor beside what is written, as that of `rrelu_with_noise`, can be written to later.
        if alone and (key := self._key(node)) is not None:
            self._add_root(node, results[0], key)

    def _functional_call(self, node: fx.Node, functional: OpOverload, targets: Sequence[Sequence[fx.Node]]) -> fx.Node:
        """The call that computes what the node writes, and what it returns beside."""
        func = node.target
        assert isinstance(func, OpOverload)
        written = writes_to(func)
        kwargs = {k: v for k, v in node.kwargs.items() if k not in written and (k != "generator" or v is not None)}
        kwargs.update(_missing_defaults(func, functional, len(node.args), kwargs))
        if functional._schema.name in _IN_THE_DTYPE_OF_OUT and func is not functional and kwargs.get("dtype") is None:
            kwargs["dtype"] = targets[0][0].meta["val"].dtype
        return self.writer.call(functional, map_arg(node.args, self.read), map_arg(kwargs, self.read))

    def _results(self, node: fx.Node, made: fx.Node, fresh: int, written: int) -> list[fx.Node]:
        """The `fresh` results of a functional call, then what is written."""
        if not fresh and written == 1:
            return [made]
        results = [self.writer.call(operator.getitem, (made, i)) for i in range(fresh + written)]
        return [*(self._as_recorded(result, node) for result in results[:fresh]), *results[fresh:]]

    def _as_recorded(self, result: fx.Node, node: fx.Node) -> fx.Node:
        """The result of the functional operator, contiguous as that of the one that writes (`rrelu_with_noise`)."""
        have, want = result.meta["val"], node.meta["val"]
        if not isinstance(have, torch.Tensor) or not isinstance(want, torch.Tensor) or have.is_contiguous():
            return result
        if not want.is_contiguous():
            return result
        return self.writer.call(aten.clone.default, (result,), {"memory_format": torch.contiguous_format})

    def _refuse_partial_overlap(self, node: fx.Node, targets: Sequence[Sequence[fx.Node]]) -> None:
        """Eager PyTorch raises where an operator writes to a part of what it reads."""
        places = {n: byte_range(n.meta["val"]) for n in node.all_input_nodes if self._key(n) is not None}
        for target in (n for group in targets for n in group if n in places):
            key, (begin, end) = self._key(target), places[target]
            for other, (other_begin, other_end) in places.items():  # of lists, there may be many
                near = begin < other_end and other_begin < end and self._key(other) == key
                if near and overlaps_partly(target.meta["val"], other.meta["val"]):
                    raise GraphBreak(FUNCTIONALIZE, f"{node.target} reads a part of what it writes to")

    def _assign_all(self, func: OpOverload, targets: Sequence[fx.Node], value: fx.Node, *, is_list: bool) -> None:
        for i, target in enumerate(targets):
            self._assign(func, target, self.writer.call(operator.getitem, (value, i)) if is_list else value)

    def _copied(self, value: Any, target: fx.Node) -> fx.Node:
        """The tensor that `target.copy_(value)` reads; a number is one of its own dtype, converted as any tensor is."""
        sample = value.meta["val"] if isinstance(value, fx.Node) else value
        if isinstance(sample, torch.Tensor):
            return self.read(value)
        kinds: tuple[tuple[Any, torch.dtype], ...] = (
            ((bool, torch.SymBool), torch.bool),
            ((int, torch.SymInt), torch.int64),
            ((float, torch.SymFloat), torch.float64),
            (complex, torch.complex128),
        )
        dtype = next(dtype for kind, dtype in kinds if isinstance(sample, kind))
        given = self.read(value) if isinstance(value, fx.Node) else value
        return self.writer.call(
            aten.scalar_tensor.default, (given,), {"dtype": dtype, "device": target.meta["val"].device}
        )

    def _assign(self, func: OpOverload, target: fx.Node, value: fx.Node) -> None:
        """`target` now holds `value`: cast and expand it, keep the strides, scatter it up to the root."""
        key = self._key(target)
        assert key is not None
        (self.silent if func in _SILENT_WRITES else self.loud).add(key)
        storage = self.storages[key]
        if isinstance(value.meta["val"], torch.Tensor) and _resizes(func, target, value):
            self._resize(target, value, storage)
            return
        given = value
        value = self._fit(value, target, storage)
        # a value that is only another name of an existing tensor would make two results share memory
        owned = (func is not aten.copy_.default or value is not given) and not is_view(value.target)
        chain: list[tuple[fx.Node, fx.Node]] = []  # (view, the parent's present value)
        at = target
        while at in self.views:
            chain.append((at, self.read(self.views[at].parent)))
            at = self.views[at].parent
        for node, parent in chain:
            view = self.views[node]
            args = map_arg(view.args, self.read)
            owned = owned or view.func in _COPYING_SCATTERS
            value = scatter(self.writer, parent, value, view.func, args, view.index)
        storage.value = self._with_strides(value, storage.root, owned=owned)
        storage.version += 1

    def _resize(self, target: fx.Node, value: fx.Node, storage: _Storage) -> None:
        """`target` had no elements and was given as `out=`: torch gives it the shape and the strides of the value."""
        if (
            target is not storage.root
            or target.op == "placeholder"
            or any(self._key(v) == self._key(target) for v in self.views)
        ):
            raise GraphBreak(FUNCTIONALIZE, f"{target.name} is resized and is not a tensor of its own")
        dtype = target.meta["val"].dtype
        if value.meta["val"].dtype != dtype:
            value = self.writer.call(aten._to_copy.default, (value,), {"dtype": dtype})
        elif is_view(value.target):
            value = self.writer.call(aten.clone.default, (value,))
        storage.value, storage.resized = value, value.meta["val"]
        storage.version += 1

    def _fit(self, value: fx.Node, target: fx.Node, storage: _Storage) -> fx.Node:
        have, want = value.meta["val"], target.meta["val"]
        if target is storage.root and storage.resized is not None:
            want = storage.resized
        if have.dtype != want.dtype or have.device != want.device:
            if have.device != want.device:
                return self.writer.call(aten.copy.default, (self.read(target), value))
            value = self.writer.call(aten._to_copy.default, (value,), {"dtype": want.dtype})
        if tuple(have.shape) != tuple(want.shape):
            sizes = [self._size(target, dim, n) for dim, n in enumerate(want.shape)]
            value = self.writer.call(aten.expand.default, (value, sizes))
        return value

    def _size(self, target: fx.Node, dim: int, value: Any) -> Any:
        if isinstance(value, int):
            return value
        return self.writer.call(aten.sym_size.int, (self.read(target), dim), value=value)

    def _with_strides(self, value: fx.Node, root: fx.Node, *, owned: bool) -> fx.Node:
        storage = self.storages[storage_key(root.meta["val"])]
        have, want = value.meta["val"], (storage.value if storage.packed else root).meta["val"]
        if storage.resized is not None:
            want = storage.resized
        if tuple(have.stride()) != tuple(want.stride()) and want.numel() != 0:
            return self.writer.call(aten.copy.default, (storage.value, value))
        return value if owned else self.writer.call(aten.clone.default, (value,))

    # ---------------------------------------------------------------- the end

    def _finish(self) -> JointGraph:
        joint, read = self.joint, self.read
        mutated, versions_move = {}, set(joint.versions_move)
        for i, node in enumerate(joint.inputs):
            key = self._key(node)
            if key is not None and self.storages[key].version:
                mutated[i] = self.storages[key].value
                if key in self.loud and version_moved(joint.sources[i].value):
                    versions_move.add(i)
        for node, _ in joint.constants:
            key = self._key(node)
            if key is not None and self.storages[key].version:
                raise GraphBreak(FUNCTIONALIZE, "a constant tensor is written to")
        placeholders = attrs.evolve(joint, slots=(), grads=()).moved(self.env.__getitem__, self.writer.graph)
        return attrs.evolve(
            placeholders,
            slots=tuple(read(s) if isinstance(s, fx.Node) else s for s in joint.slots),
            grads=tuple(read(g) if g is not None else None for g in joint.grads),
            mutated=mutated,
            versions_move=frozenset(versions_move),
            written=False,
        )


def _written_nodes(node: fx.Node, argument: int | str) -> list[fx.Node]:
    if isinstance(argument, str):
        value = node.kwargs.get(argument)
    else:
        value = node.args[argument] if argument < len(node.args) else None
        if value is None and isinstance(node.target, OpOverload):
            value = node.kwargs.get(node.target._schema.arguments[argument].name)
    if isinstance(value, fx.Node):
        return [value]
    return [v for v in value if isinstance(v, fx.Node)] if isinstance(value, (tuple, list)) else []


def _has_functional_values(func: OpOverload, targets: Sequence[Sequence[fx.Node]]) -> bool:
    """Does an operator out of place give what this one writes? Random numbers are drawn in another order out of place."""
    return all(targets) and (not is_random(func) or all(t.meta["val"].is_contiguous() for ts in targets for t in ts))


def _resizes(func: OpOverload, target: fx.Node, value: fx.Node) -> bool:
    """Does an operator with `out=` give a tensor without elements another shape?"""
    have, want = value.meta["val"].shape, target.meta["val"].shape
    if target.meta["val"].numel() != 0 or tuple(have) == tuple(want):
        return False
    return any(isinstance(argument, str) for argument in writes_to(func))


def _out_of_place(node: fx.Node) -> OpOverload | None:
    """The operator that computes what a node writes and returns it.

    That of `random_(low, high)` is called `random.from`, which no code can spell; `randint_like` draws the same numbers.
    """
    func: Any = node.target
    if func is not _RANDOM_FROM:
        return functional_form(func)
    given = len(node.args) == 3 and node.args[2] is not None and node.kwargs.get("generator") is None
    return aten.randint_like.low_dtype if given else None


_RANDOM_FROM = getattr(aten.random_, "from")  # a keyword
_IN_THE_DTYPE_OF_OUT = frozenset(f"aten::{name}" for name in ("sum", "prod", "nansum", "mean", "cumsum", "cumprod"))
"""They convert their input to the dtype of `out=`, in place to that of the tensor, before they add up."""


def _refuse_overlap(node: fx.Node) -> None:
    """Look at an input with gaps.

    Raises:
        GraphBreak: some of its elements share memory with each other, or strides are symbolic.
    """
    val = node.meta["val"]
    if not is_static(val) or overlaps_itself(val.shape, val.stride()):
        raise GraphBreak(FUNCTIONALIZE, f"{node.name} is written to and may overlap itself in memory")


def _missing_defaults(
    func: OpOverload, functional: OpOverload, given: int, kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments that `func` has a default for and the functional operator has not (`bernoulli_`'s p)."""
    defaults = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
    return {
        a.name: defaults[a.name]
        for a in functional._schema.arguments[given:]
        if a.name not in kwargs and not a.has_default_value() and a.name in defaults
    }
