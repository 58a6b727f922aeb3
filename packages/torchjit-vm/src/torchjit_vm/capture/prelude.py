"""The prelude of emitted code: what it makes before the graph runs, above all random numbers of Python, in order.

At capture nothing is drawn from the program's generators. A call is tried on a generator of its own, which shows the type of
its result and whether the arguments are right; the capture goes on with a number that only the run knows. Where a decision
depends on it, the region ends there. Once the region has seeded a generator, its numbers are the same in every call: they
are drawn at capture from a twin, and emitted code only brings the generator to the state of the twin.
"""

from __future__ import annotations

import random
from _random import Random as _CRandom
from collections.abc import Callable, Sequence
from typing import Any

from torchjit_core.paths import Drawn
from torchjit_vm.capture import elements, iteration, lengths, operators, runtime, subscripts
from torchjit_vm.capture.builtin_table import Builtin, builtin, method
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.effect_records import Draw, Part, Prepared, Settled, Step
from torchjit_vm.capture.raw import constant_of, from_raw, is_constant
from torchjit_vm.capture.reading import constant_object
from torchjit_vm.capture.reasons import QUIET
from torchjit_vm.capture.rebuild import Rebuilder
from torchjit_vm.capture.types import type_of
from torchjit_vm.capture.values import NEW, Args, Const, Kwargs, ListValue, Obj, Value

__all__ = ["prepare", "state_of", "write_prelude"]

_FLOATS = (
    "uniform", "triangular", "normalvariate", "gauss", "lognormvariate", "vonmisesvariate", "gammavariate", "betavariate",
    "paretovariate", "weibullvariate", "expovariate",
)  # fmt: skip
_INTS = ("randint", "randrange")
_MOST_BITS = 62
_MOST_PARTS = 64


def write_prelude(domain: CaptureDomain, out: Rebuilder) -> list[str]:
    """The lines that draw, to be run before the graph."""
    lines = []
    for number, step in enumerate(domain.prelude):
        if isinstance(step, Part):
            lines.append(f"{Drawn.of(number)} = {Drawn.of(step.draw)}[{step.index}]")
            continue
        if isinstance(step, Prepared):
            function = out.constant(step.function, step.function.__name__)
            lines.append(f"{Drawn.of(number)} = {function}(*{out.constant(step.args, 'arguments')})")
            continue
        generator = out.expr(step.generator)
        if isinstance(step, Settled):
            set_state = out.constant(random.Random.setstate, "setstate")
            lines.append(f"{set_state}({generator}, {out.constant(step.twin.getstate(), 'state')})")
            continue
        function = out.constant(step.function, step.function.__name__)
        texts = [generator, *map(out.literal, step.args)]
        texts += [f"{name}={out.literal(value)}" for name, value in step.kwargs.items()]
        lines.append(f"{Drawn.of(number)} = {function}({', '.join(texts)})")
    return lines


class SeededGenerators(dict[Obj, random.Random]):
    """Generators whose state is known, to what is drawn from in their place."""


def state_of(domain: CaptureDomain, generator: Obj) -> object:
    """The state of a generator that the region made, or None for another object."""
    twin = domain.of(SeededGenerators).get(generator)
    return None if twin is None else twin.getstate()


# Generators whose state is known.


def _twin(domain: CaptureDomain, generator: Obj) -> random.Random | None:
    """What to draw from at capture, if the region seeded or made the generator."""
    twin = domain.of(SeededGenerators).get(generator)
    if twin is None or generator.real is NEW:
        return twin
    last = domain.prelude[-1] if domain.prelude else None
    if not (isinstance(last, Settled) and last.twin is twin):
        fresh = random.Random()
        fresh.setstate(twin.getstate())
        domain.of(SeededGenerators)[generator] = twin = fresh
        domain.prelude.append(Settled(generator, twin))
    return twin


def _generator(domain: CaptureDomain, args: Args) -> Obj | None:
    """The generator of a call that can be followed; None: the call breaks."""
    found = args[0] if args else None
    if not (isinstance(found, Obj) and found.cls is random.Random) or found.written or domain.barrier is not None:
        return None
    return found if found.real is not NEW or found in domain.of(SeededGenerators) else None


def prepare(domain: CaptureDomain, function: Callable[..., object], args: tuple[object, ...]) -> Drawn:
    """The path of what `function(*args)` gives, which emitted code calls before the graph runs."""
    if domain.barrier is not None:
        raise domain.graph_break(QUIET, function.__name__)
    return Drawn.of(_step(domain, Prepared(function, args)))


def _step(domain: CaptureDomain, step: Step) -> int:
    domain.prelude.append(step)
    domain.mutated_at = domain.vm.step
    return len(domain.prelude) - 1


@builtin(random.Random)
def _make(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    seed = args[0] if args else None
    if len(args) != 1 or kwargs or domain.barrier is not None or not _is_seed(domain, seed):
        return None  # one that the operating system seeds is made for real
    made = Obj(random.Random)
    value = constant_of(domain, args[0])
    twin = random.Random()
    operators.compute(domain, twin.seed, value)
    domain.of(SeededGenerators)[made] = twin
    return made


def _is_seed(domain: CaptureDomain, value: Value | None) -> bool:
    return value is not None and is_constant(domain, value) and type(constant_of(domain, value)) in _SEEDS


_SEEDS = (int, float, str, bytes, bool)


@builtin(random.Random.seed)
def _seed(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    generator = _generator(domain, args)
    names = ("a", "version")
    if generator is None or len(args) > 3 or not set(kwargs) <= set(names[len(args) - 1 :]):
        return None
    given = dict(zip(names, args[1:], strict=False)) | kwargs
    if not all(is_constant(domain, v) for v in given.values()):
        return None
    real = {k: constant_of(domain, v) for k, v in given.items()}
    if real.get("a") is None:
        if generator.real is NEW:
            return None
        domain.of(SeededGenerators).pop(generator, None)
        _step(domain, Draw(random.Random.seed, generator, (), real))
        return Const(None)
    if type(real["a"]) not in _SEEDS:
        return None
    return _settle(domain, generator, lambda twin: twin.seed(**real))


@builtin(random.Random.getstate)
def _get_state(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    generator = _generator(domain, args)
    if generator is None or generator.real is not NEW:
        return None
    return constant_object(domain, domain.of(SeededGenerators)[generator].getstate())


@builtin(random.Random.setstate)
def _set_state(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
    generator = _generator(domain, args)
    if generator is None or len(args) != 2 or not is_constant(domain, args[1]):
        return None
    known = constant_of(domain, args[1])
    return _settle(domain, generator, lambda twin: twin.setstate(known))


def _settle(domain: CaptureDomain, generator: Obj, change: Callable[[random.Random], None]) -> Value | None:
    """Bring a generator to a state that is the same in every call."""
    twin = random.Random()
    operators.compute(domain, change, twin)
    domain.of(SeededGenerators)[generator] = twin
    domain.mutated_at = domain.vm.step
    if generator.real is not NEW:
        _step(domain, Settled(generator, twin))
    return Const(None)


# Numbers.


def _implementation(function: Any) -> Builtin:
    def draw(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
        generator = _generator(domain, args)
        given = [*args[1:], *kwargs.values()]
        if generator is None or not all(is_constant(domain, v) for v in given):
            return None
        real = tuple(constant_of(domain, v) for v in args[1:])
        named = {k: constant_of(domain, v) for k, v in kwargs.items()}
        if not all(type(v) in (int, float, type(None)) for v in (*real, *named.values())):
            return None
        twin = _twin(domain, generator)
        if twin is not None:
            domain.mutated_at = domain.vm.step
            return operators.compute(domain, lambda: function(twin, *real, **named))
        try:
            example = function(random.Random(0), *real, **named)
        except Exception:  # the program's error: the real call raises it
            return None
        bounds = _bounds(function.__name__, real, named)
        if type(example) not in (int, float) or (type(example) is int and bounds is None):
            return None
        return _leaf(domain, Draw(function, generator, real, named), example, bounds)

    return draw


def _leaf(domain: CaptureDomain, step: Step, example: float, bounds: tuple[int, int] | None) -> Value | None:
    make = getattr(domain.leaves, "computed", None)
    if make is None:
        return None
    payload = make(example, bounds, Drawn.of(len(domain.prelude)), domain)
    if payload is None:
        return None
    _step(domain, step)
    return from_raw(domain, payload)


def _bounds(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, int] | None:
    """Between which numbers an integer result lies; None if that is not known, or one is negative."""
    if kwargs or not args or not all(type(a) is int for a in args):
        return None
    if name == "getrandbits":
        return (0, (1 << args[0]) - 1) if 0 <= args[0] <= _MOST_BITS else None
    if name == "randint":
        lower, upper = args
    else:
        values = range(*args)
        lower, upper = min(values), max(values)
    return (lower, upper) if lower >= 0 and upper < 1 << _MOST_BITS else None


for _name in (*_FLOATS, *_INTS):
    _function = vars(random.Random)[_name]
    builtin(_function)(_implementation(_function))
for _name in ("random", "getrandbits"):
    method(_name, _CRandom)(_implementation(vars(_CRandom)[_name]))


# Choices from sequences. Which positions are drawn depends on the length alone.


def _numbers(domain: CaptureDomain, value: Value) -> list[Any] | None:
    """The items of a sequence of numbers of one type that a number of the graph can stand for."""
    if not is_constant(domain, value):
        return None
    items = list(constant_of(domain, value))
    kinds = {type(v) for v in items}
    if len(items) > 1 << 16 or kinds not in ({int}, {float}):
        return None
    return items if kinds == {float} or 0 <= min(items) <= max(items) < 1 << _MOST_BITS else None


def _drawn_list(domain: CaptureDomain, step: Draw, numbers: Sequence[Any], count: int) -> list[Value] | None:
    """The items of a list that is drawn for real, each a number of the graph."""
    if count > _MOST_PARTS or getattr(domain.leaves, "computed", None) is None:
        return None
    bounds = (min(numbers), max(numbers)) if type(numbers[0]) is int else None
    before = len(domain.prelude)
    draw = _step(domain, step)
    found = [_leaf(domain, Part(draw, i), numbers[0], bounds) for i in range(count)]
    if None in found:
        del domain.prelude[before:]
        return None
    return [v for v in found if v is not None]


def _population(domain: CaptureDomain, value: Value) -> int | None:
    """The length of a sequence of C, whose items may be anything; None for another one."""
    cls = type_of(domain, value)
    if not issubclass(cls, (list, tuple, str, bytes, range)) or cls.__getitem__ not in _ITEMS:
        return None
    return domain.index(lengths.length(domain, value))


_ITEMS = tuple(c.__getitem__ for c in (list, tuple, str, bytes, range))


def _choosing(function: object, *names: str) -> Callable[[Callable[..., Value | None]], Builtin]:
    """Register what a method does; it gets generator and arguments by position, the missing ones None."""

    def register(implementation: Callable[..., Value | None]) -> Builtin:
        def run(domain: CaptureDomain, args: Args, kwargs: Kwargs) -> Value | None:
            generator = _generator(domain, args)
            rest = args[1:]
            if generator is None or len(rest) > len(names) or not set(kwargs) <= set(names[len(rest) :]):
                return None
            given = dict(zip(names, rest, strict=False)) | kwargs
            if names[0] not in given:
                return None
            return implementation(domain, generator, *(given.get(n) for n in names))

        builtin(function)(run)
        return run

    return register


@_choosing(random.Random.choice, "seq")
def _choice(domain: CaptureDomain, generator: Obj, seq: Value) -> Value | None:
    length = _population(domain, seq)
    if length is None:
        return None
    twin = _twin(domain, generator)
    if twin is not None:
        domain.mutated_at = domain.vm.step
        chosen = operators.compute(domain, twin.choice, range(length))
        return subscripts.getitem(domain, seq, chosen)
    numbers = _numbers(domain, seq)
    if not numbers:
        return None
    bounds = (min(numbers), max(numbers)) if type(numbers[0]) is int else None
    return _leaf(domain, Draw(random.Random.choice, generator, (tuple(numbers),)), numbers[0], bounds)


@_choosing(random.Random.shuffle, "x")
def _shuffle(domain: CaptureDomain, generator: Obj, x: Value) -> Value | None:
    if not (isinstance(x, ListValue) and x.cls is list):
        return None
    length = len(elements.items(domain, x))
    twin = _twin(domain, generator)
    if twin is not None:
        order = list(range(length))
        twin.shuffle(order)
        target = elements.change(domain, x)
        target[:] = [target[i] for i in order]
        return Const(None)
    numbers = _numbers(domain, x)
    if not numbers:
        return None
    step = Draw(runtime.shuffled, generator, (tuple(numbers),))
    found = _drawn_list(domain, step, numbers, length)
    if found is None:
        return None
    elements.change(domain, x)[:] = found
    return Const(None)


@_choosing(random.Random.sample, "population", "k")
def _sample(domain: CaptureDomain, generator: Obj, population: Value, k: Value | None) -> Value | None:
    length = _population(domain, population)
    if length is None or k is None or not is_constant(domain, k):
        return None
    count = constant_of(domain, k)
    return _several(
        domain, generator, population, length, lambda g, items: g.sample(items, count), "sample", {"k": count}
    )


@_choosing(random.Random.choices, "population", "weights", "cum_weights", "k")
def _choices(
    domain: CaptureDomain,
    generator: Obj,
    population: Value,
    weights: Value | None,
    cum_weights: Value | None,
    k: Value | None,
) -> Value | None:
    length = _population(domain, population)
    given = {"weights": weights, "cum_weights": cum_weights, "k": k}
    named = {name: v for name, v in given.items() if v is not None}
    if length is None or not all(is_constant(domain, v) for v in named.values()):
        return None
    real = {name: constant_of(domain, v) for name, v in named.items()}
    return _several(domain, generator, population, length, lambda g, items: g.choices(items, **real), "choices", real)


def _several(
    domain: CaptureDomain,
    generator: Obj,
    population: Value,
    length: int,
    draw: Callable[[random.Random, Any], list[object]],
    name: str,
    kwargs: dict[str, object],
) -> Value | None:
    twin = _twin(domain, generator)
    if twin is not None:
        domain.mutated_at = domain.vm.step
        chosen = operators.compute(domain, lambda: tuple(draw(twin, range(length))))
        indices = iteration.items_of(domain, chosen)
        return ListValue([subscripts.getitem(domain, population, i) for i in indices])
    numbers = _numbers(domain, population)
    if not numbers or not all(type(v) in (int, float, list, tuple, type(None)) for v in kwargs.values()):
        return None
    try:
        example = draw(random.Random(0), numbers)
    except Exception:  # the real call raises it
        return None
    step = Draw(vars(random.Random)[name], generator, (tuple(numbers),), kwargs)
    found = _drawn_list(domain, step, numbers, len(example))
    return None if found is None else ListValue(found)
