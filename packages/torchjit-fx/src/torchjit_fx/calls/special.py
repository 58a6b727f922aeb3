"""Calls that are not simply recorded: constants, ambient state, refusals, symbolic numbers."""

from __future__ import annotations

import contextlib
import enum
import functools
import operator
from typing import Any

import torch
import torch.nn.functional as F

from torchjit_core.expr import Expr
from torchjit_core.guards import Ambient
from torchjit_core.reasons import GraphBreak
from torchjit_fx import breaks
from torchjit_fx.autograd.differentiation import DIFFERENTIATION_CALLS, make_leaf
from torchjit_fx.autograd.functions import INTRINSIC_CALLS
from torchjit_fx.autograd.histories import keep_history
from torchjit_fx.autograd.required_gradients import is_refused_by_mode
from torchjit_fx.calls.creation import DATA_CALLS
from torchjit_fx.calls.default_device import get_default_device, set_default_device
from torchjit_fx.calls.indexing import INDEX_CALLS
from torchjit_fx.calls.legacy import (
    LEGACY_CHECK,
    LEGACY_CONSTRUCTORS,
    VARIABLE,
    construct,
    is_of_legacy_class,
    make_variable,
)
from torchjit_fx.calls.parameters import make_parameter
from torchjit_fx.calls.process_groups import GROUP_CALLS
from torchjit_fx.calls.random_state import RANDOM_STATE_CALLS, is_seeding
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.flatten import Arguments, UnwritableArgument, marker_items
from torchjit_fx.function_modes import asks_for_modes
from torchjit_fx.inference_state import set_inference_mode
from torchjit_fx.intrinsics import enter_range
from torchjit_fx.leaves import InputLeaf, OpaqueLeaf, SymLeaf, TensorLeaf
from torchjit_fx.modes import DEFAULT_DTYPE, GRAD, INFERENCE, MODE_READERS, MODE_SETTERS
from torchjit_fx.numpy.calls import call_arrays, of_tensor
from torchjit_fx.numpy.facts import NUMPY_FUNCTIONS
from torchjit_fx.ownership import CONSTANT_FUNCTIONS, DEVICE_QUESTIONS, REFUSED, STATE_FUNCTIONS, is_shape_question
from torchjit_fx.strictness import breaks_are_errors, set_breaks_are_errors
from torchjit_fx.subclasses import SUBCLASS_CALLS, of_another_class
from torchjit_fx.symbols.arithmetic import ARITHMETIC
from torchjit_fx.symbols.unbacked import SHAPE_QUESTIONS, check_is_size, read_list, read_number
from torchjit_fx.unit_interval import decided

__all__ = ["SPECIAL", "Ranges", "special_call"]


def _refuse_backward(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """`backward()`; with `create_graph`, what was recorded so far is differentiated twice."""
    inputs = kwargs.get("inputs")
    keep_history(domain, inputs if isinstance(inputs, tuple | list) else [inputs])
    domain.needs_history |= True in (kwargs.get("create_graph"), *args[3:4])
    return _refuse(domain, fn, args, kwargs, capture)


def _refuse_retaining(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    keep_history(domain, args[:1])
    return _refuse(domain, fn, args, kwargs, capture)


def _refuse(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    raise GraphBreak(REFUSED[fn], getattr(fn, "__qualname__", repr(fn)), capture.location())


def _type(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """`x.type(dtype)` is a cast; `x.type()` a string that fakes do not know."""
    if len(args) + len(kwargs) > 1:
        return NotImplemented
    return _refuse(domain, fn, args, kwargs, capture)


class Ranges(list[str]):
    """Of the profiler, that the region enters."""

    def __init__(self, domain: CallDomain) -> None:
        super().__init__()


def _enter_range(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> None:
    (name,) = args
    ranges = domain.of(Ranges)
    if type(name) is str and name not in ranges:
        ranges.append(name)


def _read_mode(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    key = MODE_READERS[fn](*args, **kwargs)
    _guard_mode(domain, key, capture)
    return domain.modes.read(key)


_ALWAYS_GUARDED = frozenset({GRAD, INFERENCE, ("autocast", "cpu"), ("autocast", "cuda"), DEFAULT_DTYPE})


def _guard_mode(domain: CallDomain, key: Any, capture: Any) -> None:
    """Attention kernels, the types and the cache of autocast ... are guarded where a program reads or sets them."""
    if key not in _ALWAYS_GUARDED:
        domain.modes.read(key)
        initial = domain.modes.initial(key)
        capture.guard(Ambient("_".join(key), domain.modes.reader(key), initial, capture.location()))


_DEFAULT_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _is_condition(value: Any) -> bool:
    return type(value) is SymLeaf and isinstance(value.value, torch.SymBool)


def _set_mode(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    args = tuple([domain.numbers.truth(a) if _is_condition(a) else a for a in args])
    key, value = MODE_SETTERS[fn](*args, **kwargs)
    _guard_mode(domain, key, capture)
    if key is DEFAULT_DTYPE:
        if value not in _DEFAULT_DTYPES:
            raise GraphBreak(breaks.NOT_CAPTURABLE, f"set_default_dtype({value})", capture.location())
        domain.modes.write(key, value)  # no step, see `default_dtype`
        return None
    if key == GRAD:
        _set_grad(domain, key, value, capture)
    elif domain.modes.read(key) != value:
        domain.modes.write(key, value)
        domain.recorder.add_mode_change(fn, args, (key, value), capture)
    return None


def _set_strictness(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """No step: nothing in the graph depends on it, but how the capture ends does."""
    key, value = ("strict",), bool(args[0])
    before = domain.modes.read(key)
    capture.guard(Ambient("error_on_graph_break", breaks_are_errors, domain.modes.initial(key), capture.location()))
    domain.modes.write(key, value)
    capture.set_state("breaks_are_errors", value)
    return before


def _set_inference(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """A graph runs in one mode, see `inference`; its grad mode may change."""
    if domain.recorder.scope is not None:
        raise GraphBreak(breaks.MODE_OBJECT, f"inference_mode({args[0]})", capture.location())
    _set_grad(domain, INFERENCE, domain.numbers.truth(args[0]) if _is_condition(args[0]) else args[0], capture)


def _set_grad(domain: CallDomain, key: Any, value: bool, capture: Any) -> None:
    """Set one of the two modes that say whether autograd records; where it makes a difference, in the graph too."""
    before = domain.modes.graph_grad
    domain.modes.write(key, value)
    now = domain.modes.graph_grad
    if now is not before:
        domain.recorder.add_mode_change(torch._C._set_grad_enabled, (now,), (GRAD, now), capture)


def _nest_autocast(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    domain.modes.nesting += 1 if fn is torch.autocast_increment_nesting else -1
    # No step: only the value that this returns has an effect, on whether Python clears the cache.
    base = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return base + domain.modes.nesting


def _clear_autocast_cache(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    domain.recorder.add_mode_change(fn, (), (("clear",), object()), capture)


def _evaluate(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """A function of constants. Over leaves it is asked of the fakes like any other."""
    args = (*args, *kwargs.values())
    if fn is torch.is_tensor or fn is torch.overrides.is_tensor_like:
        return bool(args) and isinstance(args[0], TensorLeaf | OpaqueLeaf)
    if fn is torch.Size and args:
        return capture.new_object(torch.Size, args[0]) if _holds_leaf(args) else torch.Size(*args)
    if asks_for_modes(fn) and (capture.state("intercepted") or _ask_for_classes(args, capture)):
        return True
    if fn is torch.get_default_device and domain.modes.device_changed:
        return get_default_device(domain)
    if _holds_leaf(args):
        if fn in (torch.result_type, torch.can_cast, torch.promote_types):
            return NotImplemented
        return False  # the questions about torch functions and transforms: a leaf is a plain tensor
    try:
        with domain.modes.made_real() if domain.modes.default_changed else contextlib.nullcontext():
            result = fn(*args[: len(args) - len(kwargs)], **kwargs)
        if fn in STATE_FUNCTIONS:
            _guard_state(fn, args, kwargs, result, capture)
        if fn in DEVICE_QUESTIONS and torch.cuda.is_available() and not _names_a_device(args):
            _guard_state(torch.cuda.current_device, (), {}, torch.cuda.current_device(), capture)
        return result
    except Exception as error:  # the run for real shows the program its own error
        raise GraphBreak(breaks.META_FAILED, f"{fn}: {error}", capture.location()) from error


def _guard_state(fn: Any, args: Any, kwargs: Any, result: Any, capture: Any) -> None:
    """`fn(*args)` gave `result`, and must again; the last of `args` are those of `kwargs`."""
    name = fn.__name__ + (f"({', '.join(map(str, args))})" if args else "")
    read = functools.partial(fn, *args[: len(args) - len(kwargs)], **kwargs) if args else fn
    capture.guard(Ambient(name, read, result, capture.location()))


def _names_a_device(args: Any) -> bool:
    """Is a GPU given by its number? `device="cuda"` means the current one."""
    if not args or args[0] is None or isinstance(args[0], bool):
        return False
    return isinstance(args[0], int) or torch.device(args[0]).index is not None


def _ask_for_classes(args: Any, capture: Any) -> bool:
    """Is one of the tensors, or of those in sequences, of a class that sees calls now?"""
    if not capture.state("subclasses") or capture.state("dispatch_off"):
        return False
    items = [item for arg in args for item in (arg if isinstance(arg, tuple | list) else (arg,))]
    return any(map(of_another_class, items))


def _holds_leaf(args: Any) -> bool:
    try:
        found = Arguments(args, {})
    except UnwritableArgument as error:
        return isinstance(error.args[0], OpaqueLeaf)
    return bool(found.leaves or found.sym)


def _size(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """`size()` and `size(d)`."""
    leaf = args[0]
    if not isinstance(leaf, TensorLeaf):
        return NotImplemented
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if not leaf.record.symbolic:
        if dim is None:
            return torch.Size(leaf.record.sizes)  # type: ignore[arg-type]
        if type(dim) is int and -len(leaf.record.sizes) <= dim < len(leaf.record.sizes):
            return leaf.record.sizes[dim]
        return NotImplemented
    if dim is None:
        return capture.new_object(
            torch.Size, [domain.dimension(leaf, i, capture) for i in range(len(leaf.record.sizes))]
        )
    if type(dim) is int and -len(leaf.record.sizes) <= dim < len(leaf.record.sizes):
        return domain.dimension(leaf, dim % len(leaf.record.sizes), capture)
    return NotImplemented


def _dropout(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """Outside of training the input itself; torch 2.11 makes a copy of fakes with symbolic sizes."""
    given = dict(zip(("input", "p", "training"), args, strict=False)) | kwargs
    probability, training = given.get("p", 0.5), given.get("training", given.get("train", True))
    known = type(probability) in (int, float) and 0 <= probability <= 1
    plain = fn in (F.dropout, torch.dropout) and not given.get("inplace")
    if plain and probability == 1 and training is True and isinstance(given.get("input"), TensorLeaf):
        # Nothing is drawn; tracers of torch draw what they then multiply by zero.
        record = given["input"].record
        zero = domain.recorder.call(torch.zeros, ((),), {"dtype": record.dtype, "device": record.device}, capture)
        return domain.recorder.call(torch.mul, (given["input"], zero), {}, capture)
    return (
        given["input"] if training is False and known and isinstance(given.get("input"), TensorLeaf) else NotImplemented
    )


def _new(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """`x.new(size)`: it tells a torch.Size, which a graph holds as a tuple, from other sequences, which are data."""
    given: Any = args[1] if len(args) == 2 and not kwargs else None
    sizes: Any = given if isinstance(given, torch.Size) else None
    marked = marker_items(given)
    if marked is not None and given.type is torch.Size:
        sizes = marked
    if sizes is None:
        return NotImplemented
    return domain.recorder.call(torch.Tensor.new_empty, (args[0], tuple(sizes)), {}, capture)


def _length(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    leaf = args[0]
    if not isinstance(leaf, TensorLeaf) or not leaf.record.sizes:
        return NotImplemented
    return domain.dimension(leaf, 0, capture)


def _rank(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    return len(args[0].record.sizes) if isinstance(args[0], TensorLeaf) else NotImplemented


def _offset(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """Calls that see where a tensor begins in its storage; inputs are recorded as beginning at zero."""
    leaf = args[0] if args else kwargs.get("input")
    storage = leaf.storage if isinstance(leaf, TensorLeaf) else None
    roots = [leaf] if storage is None else storage.leaves
    if isinstance(leaf, TensorLeaf):
        domain.recorder.selections.refuse_place(leaf, capture)
    for root in roots:
        if isinstance(root, InputLeaf):
            if root.real.storage_offset() != 0:
                raise GraphBreak(breaks.STORAGE_OFFSET, f"{root.path}", capture.location())
            capture.guard(root.begins_at(capture.location()))
    return NotImplemented


def _elements(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """`torch.Size.numel` over symbolic sizes."""
    product: Any = 1
    for n in marker_items(args[0]) or args[0]:
        symbolic = type(n) is SymLeaf or type(product) is SymLeaf
        product = domain.call(operator.mul, (product, n), {}, capture) if symbolic else product * n
    return product


def _number(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """Python's own conversions: of tensors they read data, of symbolic numbers the domain decides."""
    number = args[0]
    if isinstance(number, TensorLeaf):
        known = decided(number) if fn in (bool, operator.truth, operator.not_) else None
        if known is not None:
            return known is not (fn is operator.not_)
        if fn is complex:
            raise GraphBreak(breaks.DATA_DEPENDENT, f"{fn.__name__}() of a tensor", capture.location())
        number = read_number(domain, number, f"{fn.__name__}() of a tensor", capture)
        if type(number) in (int, float, bool):
            return fn(number)
    if isinstance(number, SymLeaf):
        return domain.numbers.convert(fn, number, lambda f, a: domain.recorder.call(f, a, {}, capture))
    return NotImplemented


def _item(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    if len(args) == 1 and isinstance(args[0], TensorLeaf):
        return read_number(domain, args[0], f"Tensor.{fn.__name__}", capture)
    return _refuse(domain, fn, args, kwargs, capture)


def _tolist(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    if len(args) == 1 and isinstance(args[0], TensorLeaf):
        known = domain.known.tensor(args[0], capture)
        if known is not None:
            return known.tolist()
        if domain.settings.capture_scalar_outputs:
            return read_list(domain, args[0], capture)
    return _refuse(domain, fn, args, kwargs, capture)


def _squeeze(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """The rank of the result must not depend on a size that only the run knows."""
    leaf = args[0] if args else None
    if isinstance(leaf, TensorLeaf) and leaf.record.symbolic:
        for size in leaf.record.sizes:
            if isinstance(size, Expr) and domain.numbers.context.is_fresh(size.symbols):
                raise GraphBreak(breaks.DATA_DEPENDENT, "whether squeeze removes a dimension", capture.location())
    return NotImplemented


def _arithmetic(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """Python arithmetic on numbers of which one is a float that varies: no tensor is involved, so no fake is asked."""
    if kwargs or not any(type(a) is SymLeaf and isinstance(a.value, torch.SymFloat) for a in args):
        return NotImplemented
    if not all(type(a) in (SymLeaf, int, float, bool) for a in args):
        return NotImplemented
    return domain.arithmetic(fn, args, capture)


def _equality(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """`tensor == None`: torch knows no such comparison, so Python compares the two objects."""
    for leaf, other in (args, args[::-1]):
        if isinstance(leaf, TensorLeaf) and _is_incomparable(other):
            return fn is operator.ne
    return _arithmetic(domain, fn, args, kwargs, capture)


def _is_incomparable(other: Any) -> bool:
    if isinstance(other, enum.Enum):
        return type(other).__eq__ in (object.__eq__, str.__eq__)
    return other is None or type(other) in (str, bytes, type)


def _requires_grad(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """`requires_grad_()`: on a tensor that the region made, or where it changes nothing, as on what a frozen layer gave."""
    wanted = kwargs.get("requires_grad", args[1] if len(args) > 1 else True)
    if isinstance(args[0], TensorLeaf) and is_refused_by_mode(domain, args[0], wanted):
        return _refuse(domain, fn, args, kwargs, capture)
    if isinstance(args[0], TensorLeaf) and args[0].record.requires_grad is wanted:
        return args[0]
    if isinstance(args[0], TensorLeaf) and wanted is True:
        return make_leaf(domain, args[0], capture)
    return _refuse(domain, fn, args, kwargs, capture)


def _text(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """`str`, `repr`, `format`: of a tensor they print its data; a symbolic number is fixed to its value."""
    if isinstance(args[0], SymLeaf):
        return fn(domain.concrete(args[0], capture), *args[1:])
    raise GraphBreak(breaks.DATA_DEPENDENT, f"{fn.__name__}() of a tensor", capture.location())


def _one_row(domain: CallDomain, fn: Any, args: Any, kwargs: Any, capture: Any) -> Any:
    """`multilabel_margin_loss` of one row is a number, reduced or not; on fakes, not reduced, torch gives it a dimension."""
    given = dict(zip(("input", "target", "size_average", "reduce", "reduction"), args, strict=False)) | kwargs
    deprecated = given.get("size_average") is not None or given.get("reduce") is not None
    whole = given.get("reduce") is False if deprecated else given.get("reduction") == "none"
    leaf = given.get("input")
    if not whole or not isinstance(leaf, TensorLeaf) or len(leaf.record.sizes) > 1:
        return NotImplemented
    return domain.recorder.call(fn, (leaf, given.get("target")), {"reduction": "sum"}, capture)


def _table() -> dict[Any, Any]:
    table: dict[Any, Any] = dict.fromkeys(REFUSED, _refuse)
    table.update(dict.fromkeys(MODE_READERS, _read_mode))
    table.update(dict.fromkeys(MODE_SETTERS, _set_mode))
    table.update(dict.fromkeys(CONSTANT_FUNCTIONS, _evaluate))
    table[torch.Tensor.requires_grad_] = _requires_grad
    table[torch.nn.Parameter] = make_parameter
    table[torch.Tensor.backward] = table[torch.autograd.backward] = _refuse_backward
    table[torch.Tensor.retain_grad] = _refuse_retaining
    table.update(dict.fromkeys((str, repr, ascii, format), _text))
    table.update(INTRINSIC_CALLS)
    table.update(SUBCLASS_CALLS)
    table[enter_range] = _enter_range
    table.update(INDEX_CALLS)
    table.update(DATA_CALLS)
    table.update(GROUP_CALLS)
    table.update(DIFFERENTIATION_CALLS)
    table.update(RANDOM_STATE_CALLS)
    table[torch.autocast_increment_nesting] = table[torch.autocast_decrement_nesting] = _nest_autocast
    table[torch.clear_autocast_cache] = _clear_autocast_cache
    table[torch.Tensor.type] = _type
    table[torch.Tensor.numpy] = table[torch.Tensor.__array__] = of_tensor
    table.update(dict.fromkeys((F.dropout, torch.dropout, F.alpha_dropout, F.feature_alpha_dropout), _dropout))
    table[torch.Tensor.size] = _size
    table[torch.Tensor.new] = _new
    table[torch.Tensor.dim] = table[torch.Tensor.ndimension] = _rank
    table[torch.Size.numel] = _elements
    table[len] = table[torch.Tensor.__len__] = _length
    table[torch.Tensor.storage_offset] = table[torch.Tensor.as_strided] = table[torch.as_strided] = _offset
    table.update(dict.fromkeys((int, float, bool, complex, operator.index, operator.truth, operator.not_), _number))
    table[float.__float__] = _number
    table[torch._check_is_size] = check_is_size
    table[set_breaks_are_errors] = _set_strictness
    table[torch.set_default_device] = set_default_device
    table[set_inference_mode] = _set_inference
    table[torch.Tensor.item] = _item
    table[torch.Tensor.tolist] = _tolist
    table[torch.Tensor.squeeze] = table[torch.squeeze] = _squeeze
    table.update(dict.fromkeys(ARITHMETIC, _arithmetic))
    table[operator.eq] = table[operator.ne] = _equality
    table[F.multilabel_margin_loss] = _one_row
    table.update(dict.fromkeys(LEGACY_CONSTRUCTORS, construct))
    table[VARIABLE] = make_variable
    table[LEGACY_CHECK] = is_of_legacy_class
    return table


def special_call(fn: Any) -> Any:
    """The handler of a callable, or None."""
    if id(fn) in NUMPY_FUNCTIONS:
        return call_arrays
    found = SPECIAL.get(is_seeding if is_seeding(fn) else fn)
    return SHAPE_QUESTIONS[fn.__name__] if found is None and is_shape_question(fn) else found


SPECIAL: dict[Any, Any] = _table()
"""Callable -> handler(domain, fn, args, kwargs, capture), which may give NotImplemented: then the call is recorded."""
