"""The metadata service: what a torch call returns, computed once on fake tensors and then looked up."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any, final

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from torchjit_core.expr import Expr
from torchjit_core.forks import caught_warnings
from torchjit_core.location import CodeLocation
from torchjit_core.reasons import GraphBreak, Reason, UserError
from torchjit_core.user_warnings import call_from
from torchjit_fx import breaks
from torchjit_fx.eager_rules.autocast import autocast_on_cpus
from torchjit_fx.eager_rules.dtype_probe import at_capture
from torchjit_fx.eager_rules.functions import function_rule
from torchjit_fx.fakes import FakeFactory
from torchjit_fx.flatten import Arguments, map_raw
from torchjit_fx.leaves import Raw, RawArgs, RawKwargs, SymLeaf, Target, TensorLeaf, Way
from torchjit_fx.modes import TorchModes
from torchjit_fx.node_context import NodeContext
from torchjit_fx.outcomes import Constant, Made, Nested, Outcome, Same, Sym, SymOther, Template, follow, parts
from torchjit_fx.process_state import release_frames
from torchjit_fx.records import DETACHED, TensorRecord, is_structseq
from torchjit_fx.recurrent import RECURRENT, layer_result
from torchjit_fx.symbols.numbers import SymbolicNumbers
from torchjit_fx.versions import Watch
from torchjit_fx.wrapper_values import pieces_of
from torchjit_torch.quiet_fakes import QUIET_FAKES

__all__ = ["MetaCache", "MetaService"]

_PLAIN_RESULTS = (
    int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format
)  # fmt: skip


_OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)


@final
class MetaCache:
    """Outcomes by key. Those without symbols may serve every capture of the process."""

    def __init__(self, limit: int = 50_000) -> None:
        self.limit = limit
        self._outcomes: dict[tuple[Any, ...], Outcome] = {}

    def get(self, key: RawArgs) -> Outcome | None:
        """The outcome under `key`; None also for a key that cannot be hashed."""
        try:
            return self._outcomes.get(key)
        except TypeError:
            return None

    def put(self, key: RawArgs, outcome: Outcome) -> None:
        if len(self._outcomes) >= self.limit:
            self._outcomes.clear()
        try:
            self._outcomes[key] = outcome
        except TypeError:
            pass

    def clear(self) -> None:
        self._outcomes.clear()


@final
class MetaService:
    """Runs calls on fake tensors and describes what they did."""

    def __init__(self, fakes: FakeFactory, modes: TorchModes, numbers: SymbolicNumbers) -> None:
        self.fakes = fakes
        self.modes = modes
        self.numbers = numbers
        self._where: CodeLocation | None = None  # the line of the program whose call is tried

    def fake(self, leaf: Raw) -> Raw:
        """The fake tensor or symbolic number that stands for a leaf, made on demand."""
        if type(leaf) is SymLeaf:
            return leaf.value
        if leaf.fake is None:
            if leaf.alias:
                self._replay(leaf)
            else:
                leaf.fake = self.fakes.make(leaf.record)
        return leaf.fake

    def look(self, leaf: Raw) -> Raw:
        """A fake with the leaf's metadata, for calls that write nothing: a view need not share memory with its base."""
        if type(leaf) is SymLeaf or leaf.fake is not None or not leaf.alias or not leaf.record.symbolic:
            return self.fake(leaf)
        if leaf.stand_in is None or leaf.stand_in[0] is not leaf.record:
            if leaf.record.offset != 0 or leaf.record.conj or leaf.record.neg:
                return self.fake(leaf)
            leaf.stand_in = leaf.record, self.fakes.make(leaf.record)
        return leaf.stand_in[1]

    def _of_its_own(self) -> Callable[[Any], Any]:
        made: dict[int, Any] = {}

        def get(leaf: Raw) -> Raw:
            if type(leaf) is SymLeaf:
                return leaf.value
            if id(leaf) not in made:
                made[id(leaf)] = self.fakes.make(leaf.record)
            return made[id(leaf)]

        return get

    def _replay(self, leaf: TensorLeaf) -> None:
        """Make the fake of a view, and of its siblings, by the call that made it, so that they share memory."""
        step = leaf.step
        args, kwargs = map_raw(step.args, self.fake), map_raw(step.kwargs, self.fake)  # type: ignore[union-attr]
        with self.modes.made_real(step.token):  # type: ignore[union-attr]
            result = self.evaluate(step.target, args, kwargs, leaf.record.symbolic)  # type: ignore[union-attr]
        for sibling in step.results:  # type: ignore[union-attr]
            if sibling.fake is None:
                sibling.fake = self._of_known_sizes(follow(result, sibling.way), sibling.record)
                if sibling.record.requires_grad and not sibling.fake.requires_grad:
                    sibling.fake.requires_grad_()  # the region made it a leaf since

    def _of_known_sizes(self, made: torch.Tensor, record: TensorRecord) -> torch.Tensor:
        """The view that a call gave again, with the record's symbols: for sizes that only the run knows each call makes new ones."""
        if not record.symbolic or tuple(map(self.fakes.expression, made.shape)) == record.sizes:
            return made
        place = [
            n if type(n) is int else self.numbers.sym_int(n) for n in (*record.sizes, *record.strides, record.offset)
        ]
        rank = len(record.sizes)
        with self.fakes.mode, enable_python_dispatcher():
            return made.as_strided(place[:rank], place[rank:-1], place[-1])

    def evaluate(self, target: Target, args: RawArgs, kwargs: RawKwargs, symbolic: bool) -> Raw:
        """Make a call on fakes, under the modes that the process has."""
        if target is copy.deepcopy:  # a fake names its mode, which is not to be copied
            args = (*args, {id(self.fakes.mode): self.fakes.mode})
        with self.fakes.mode, enable_python_dispatcher() if symbolic else contextlib.nullcontext():
            if target in RECURRENT:
                return layer_result(target, args, kwargs)
            if isinstance(target, str):
                return self._call(getattr(args[0], target), args[1:], kwargs)
            return self._call(target, args, kwargs)

    def _call(self, function: Callable[..., Raw], args: RawArgs, kwargs: RawKwargs) -> Raw:
        return function(*args, **kwargs) if self._where is None else call_from(self._where, function, args, kwargs)

    def run(
        self,
        target: Target,
        args: RawArgs,
        kwargs: RawKwargs,
        found: Arguments,
        writes: bool = True,
        own_fakes: bool = False,
        where: CodeLocation | None = None,
    ) -> tuple[Outcome, Any]:
        """Try the call on fakes.

        Args:
            where: the line of the program, which warnings are about.
            writes: it may write its arguments; else stand-ins serve for views.
            own_fakes: new fakes for this call alone: those of the capture remember answers that torch got earlier, and do
                not ask again. If it writes, its arguments must be alone on their memory.

        Returns:
            What it did, and the result over fake tensors.

        Raises:
            GraphBreak: it raised (without a location; the caller adds it).
        """
        declared = _declared_writes(target, args, kwargs)
        writes = writes or any(item is not None for item in declared)
        get = self._of_its_own() if own_fakes else self.fake if writes else self.look
        watch = Watch(function_rule(target).beyond)
        # Calls that resize what they write are refused: torch warns when they run. Copies ask a fake for its address. What
        # the fake of an operator warns of is not the program's to hear: its kernel warns when it runs.
        loud = "out" in kwargs or target is copy.deepcopy or isinstance(target, _OPERATORS)
        quiet = caught_warnings("ignore") if loud else contextlib.nullcontext()
        QUIET_FAKES.depth += 1
        before, self._where = self._where, where
        try:
            # Fakes are made on demand, which replays the calls that made views: that can fail as the call itself can.
            fakes = [get(leaf) for leaf in found.leaves]
            fake_args, fake_kwargs = map_raw(args, get), map_raw(kwargs, get)
            with self.modes.made_real(), quiet:
                result = self._watched(target, fake_args, fake_kwargs, found.symbolic, watch)
        except (GraphBreak, UserError):  # a mark that the operation cannot keep is the user's to see
            raise
        except Exception as error:  # whatever an operation raises on fakes, eager PyTorch has the last word
            release_frames(error)
            if self.numbers.admit(error):
                return self.run(target, args, kwargs, found, writes, own_fakes, where)
            raise GraphBreak(_reason_of(error), f"{_name(target)}: {_first_line(error)}") from error
        finally:
            self.fakes.mode.watch = None
            self._where = before
            QUIET_FAKES.depth -= 1
        # On fakes some composite operations return before they write.
        map_raw(declared, lambda leaf: watch.note(get(leaf)))
        if watch.written and not writes:
            return self.run(
                target, args, kwargs, found, where=where
            )  # its name did not say so: once more, on shared memory
        return self._describe(result, fakes, found.leaves, watch), result

    def _watched(self, target: Target, args: RawArgs, kwargs: RawKwargs, symbolic: bool, watch: Watch) -> Raw:
        """Make a call on fakes, and note what it does. Raises what eager raises."""
        rule = function_rule(target)
        if rule.refuse is not None:
            rule.refuse(args, kwargs)
        if symbolic and (rule.taken_apart or kwargs.get("out") is not None):
            self.fakes.mode.watch = Watch()
            self._ask_without_symbols(target, args, kwargs)
        watch.autocast = autocast_on_cpus()
        self.fakes.mode.watch = watch
        return self.evaluate(target, args, kwargs, symbolic)

    def _ask_without_symbols(self, target: Target, args: RawArgs, kwargs: RawKwargs) -> None:
        """Raise what the call raises with the sizes at capture."""
        with contextlib.suppress(DataDependentOutputException, DynamicOutputShapeException):
            with self.fakes.mode:
                args, kwargs = at_capture(args), at_capture(kwargs)
            self.evaluate(target, args, kwargs, symbolic=False)

    def _describe(self, result: Raw, fakes: list[Raw], leaves: list[TensorLeaf], watch: Watch) -> Outcome:
        storages = [_storage_of(fake, leaf.record) for fake, leaf in zip(fakes, leaves, strict=True)]
        written = tuple(i for i, storage in enumerate(storages) if storage in watch.written)
        inner = {s: i for i, leaf in enumerate(leaves) for s in _storages_inside(fakes[i], leaf.record)}
        if not watch.written.isdisjoint(inner):
            raise GraphBreak(breaks.UNSUPPORTED_TENSOR, "a write to a part of a tensor")
        if any(leaves[i].record.inference for i in written) and not self.modes.inference:
            raise GraphBreak(breaks.META_FAILED, "a write to an inference tensor outside of inference mode")
        changed = self._changed(written, fakes, leaves)
        reader = _ResultReader(self.fakes, fakes, storages, [leaf.record for leaf in leaves])
        for storage, i in inner.items():
            reader.places.setdefault(storage, i)
        reader.follows = self.modes.inference or not watch.retyped
        reader.detached = watch.detached and not self.modes.inference
        template = reader.read(result, ())
        fresh = any(_is_fresh(part, self.numbers.context) for part in parts(template))
        constant = reader.constant or any(map(_is_constant, fakes))
        return Outcome(template, written, changed, watch.random, reader.makes, fresh, constant)

    def _changed(
        self, written: tuple[int, ...], fakes: list[Raw], leaves: list[TensorLeaf]
    ) -> tuple[tuple[int, TensorRecord], ...]:
        """Of the arguments that were written: those that are like something else now."""
        now = ((i, self.fakes.describe_again(fakes[i], leaves[i].record)) for i in written)
        return tuple((i, record) for i, record in now if record is not leaves[i].record)


@final
class _ResultReader:
    """Turns a result over fakes into a template."""

    def __init__(
        self, fakes: FakeFactory, arguments: list[Raw], storages: list[int], records: list[TensorRecord]
    ) -> None:
        self.fakes = fakes
        self.arguments = arguments
        self.records = records
        self.storages = storages
        self.places: dict[int, int] = {}
        for i, storage in enumerate(storages):
            self.places.setdefault(storage, i)
        self.count = 0
        self.made: dict[int, Made] = {}
        self.makes = False
        self.constant = False
        self.follows = True  # a view of an inference tensor is one, too
        self.detached = False

    def read(self, value: Raw, way: Way) -> Template:
        if isinstance(value, torch.Tensor):
            return self._tensor(value, way)
        if isinstance(value, torch.SymInt):
            expr = self.fakes.expression(value)
            if isinstance(expr, int):
                return Constant(expr)
            self.makes = True
            return Sym(expr, way)
        if isinstance(value, torch.SymBool | torch.SymFloat):
            self.makes = True
            return SymOther(value, way)
        cls = type(value)
        if isinstance(value, tuple | list) and (
            cls in (tuple, list, torch.Size) or is_structseq(cls) or hasattr(cls, "_fields")
        ):
            return self._sequence(cls, value, way)
        if cls is dict:
            items = tuple(self.read(item, (*way, key)) for key, item in value.items())
            return Nested(dict, items, tuple(value))
        if isinstance(value, _PLAIN_RESULTS):
            return Constant(value)
        raise GraphBreak(breaks.UNSUPPORTED_RESULT, f"a {cls.__name__}")

    def _sequence(self, cls: type, value: Raw, way: Way) -> Template:
        items = tuple(self.read(item, (*way, i)) for i, item in enumerate(value))
        if cls is torch.Size and all(type(item) is Constant for item in items):
            return Constant(torch.Size([item.value for item in items]))  # type: ignore[union-attr]
        return Nested(cls, items)

    def _tensor(self, value: torch.Tensor, way: Way) -> Template:
        for i, argument in enumerate(self.arguments):
            if argument is value:
                return Same(i)
        if id(value) in self.made:
            return self.made[id(value)]
        record = self.fakes.describe(value)
        storage = _storage_of(value, record)
        shares, also = self._shared(value, record, storage)
        if shares is not None and shares >= 0 and self._is_of_inference(storage) and self.follows:
            # Fakes do not say so outside of the mode. There, what was detached may be written to; the tensor itself may not.
            record = self.fakes.records.as_inference(record, DETACHED if self.detached else True)
            if not self.detached and self.records[shares].inference == DETACHED:
                raise GraphBreak(breaks.META_FAILED, "a view of a detached inference tensor")
        self.makes = True
        self.constant = self.constant or _is_constant(value)
        for memory in [storage, *_storages_inside(value, record)]:
            self.places.setdefault(memory, -1 - self.count)
        self.count += 1
        made = self.made[id(value)] = Made(record, shares, way, also)
        return made

    def _shared(self, value: torch.Tensor, record: TensorRecord, storage: int) -> tuple[int | None, tuple[int, ...]]:
        """What a result shares its memory with, see `Made`, and with what else if it consists of several."""
        if record.wrapping is None:
            return self.places.get(storage), ()
        inside = [self.places[s] for s in _storages_inside(value, record) if s in self.places]
        first = inside[0] if inside else None
        return first, tuple(dict.fromkeys(i for i in inside if i != first))

    def _is_of_inference(self, storage: int) -> bool:
        """Is what lies on the memory of arguments a view of an inference tensor?

        Raises:
            GraphBreak: they are of both kinds.
        """
        kinds = {bool(r.inference) for r, other in zip(self.records, self.storages, strict=True) if other == storage}
        if len(kinds) > 1:
            raise GraphBreak(breaks.META_FAILED, "a view of an inference tensor or of another one on its memory")
        return kinds == {True}


def _storage_of(fake: torch.Tensor, record: TensorRecord) -> int:
    """Its memory; of a tensor that consists of others, which has none, the tensor itself."""
    return fake.untyped_storage()._cdata if record.wrapping is None else id(fake)


def _storages_inside(fake: torch.Tensor, record: TensorRecord) -> list[int]:
    if record.wrapping is None:
        return []
    return [piece.untyped_storage()._cdata for piece in pieces_of(fake, record.wrapping)]


def _is_fresh(part: Template, context: NodeContext) -> bool:
    """Does this part of a result depend on a number that only the run knows?"""
    if type(part) is Made:
        sizes = (*part.record.sizes, *part.record.strides, part.record.offset)
        return any(context.is_fresh(n.symbols) for n in sizes if isinstance(n, Expr))
    if type(part) is Sym:
        return context.is_fresh(part.expr.symbols)
    if type(part) is not SymOther:
        return False
    expression: Any = part.value.node.expression
    return bool(expression.from_run if isinstance(part.value, torch.SymFloat) else context.is_fresh(expression.symbols))


def _is_constant(fake: Raw) -> bool:
    """Is there a value to read? Not in `torch.tensor([])`."""
    known = getattr(fake, "constant", None)
    return known is not None and known.numel() > 0


def _declared_writes(target: Target, args: RawArgs, kwargs: RawKwargs) -> Raw:
    """The arguments that are written by convention: `out=`, and the first one of a function called `name_`."""
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__") and len(args) > 0
    return [kwargs.get("out"), args[0] if in_place else None]


def _reason_of(error: Exception) -> Reason:
    if isinstance(error, DynamicOutputShapeException):
        return breaks.DYNAMIC_SHAPE
    if isinstance(error, DataDependentOutputException):
        return breaks.DATA_DEPENDENT
    return breaks.META_FAILED


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:300]


def _name(target: Callable[..., Any] | str) -> str:
    """As the program has it: `torch.nonzero` is a method of a hidden class, and some functions choose between others in a local one."""
    if isinstance(target, str):
        return target
    name = str(getattr(target, "__qualname__", None) or repr(target))
    module = getattr(target, "__module__", None) or "torch"
    hidden = name.startswith("_VariableFunctionsClass.") or ("<locals>" in name and module.startswith("torch."))
    return f"{module.replace('torch.functional', 'torch')}.{target.__name__}" if hidden else name
