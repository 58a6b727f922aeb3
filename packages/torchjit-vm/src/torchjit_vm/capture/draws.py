"""Random numbers of Python: drawn for real at the start of emitted code, in order, and used by the graph as inputs.

At capture nothing is drawn from the program's generators. A call is tried on a generator of its own, which shows the type of
its result and whether the arguments are right; the capture goes on with a number that only the run knows. Where a decision
depends on it, the region ends there.
"""

from __future__ import annotations

import random
from _random import Random as _CRandom
from typing import TYPE_CHECKING, Any, final

import attrs

from torchjit_core.paths import Drawn
from torchjit_vm.capture.builtin_table import Builtin, builtin, method
from torchjit_vm.capture.raw import constant_of, from_raw, is_constant
from torchjit_vm.capture.values import NEW, Obj, Value

if TYPE_CHECKING:
    from torchjit_vm.capture.domain import CaptureDomain
    from torchjit_vm.capture.rebuild import Rebuilder

__all__ = ["Draw", "write_draws"]

_FLOATS = (
    "uniform", "triangular", "normalvariate", "gauss", "lognormvariate", "vonmisesvariate", "gammavariate", "betavariate",
    "paretovariate", "weibullvariate", "expovariate",
)  # fmt: skip
_INTS = ("randint", "randrange")
_MOST_BITS = 62


@final
@attrs.frozen
class Draw:
    """A call of a method of `random.Random`: the function, the generator, and constant arguments."""

    function: Any
    generator: Obj
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def write_draws(domain: CaptureDomain, out: Rebuilder) -> list[str]:
    """The lines that draw, to be run before the graph."""
    lines = []
    for number, draw in enumerate(domain.draws):
        function = out.constant(draw.function, draw.function.__name__)
        texts = [out.expr(draw.generator), *map(out.literal, draw.args)]
        texts += [f"{name}={out.literal(value)}" for name, value in draw.kwargs.items()]
        lines.append(f"{Drawn.of(number)} = {function}({', '.join(texts)})")
    return lines


def _implementation(function: Any) -> Builtin:
    def draw(domain: CaptureDomain, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        generator = args[0] if args else None
        if not (isinstance(generator, Obj) and generator.cls is random.Random and generator.real is not NEW):
            return None
        given = [*args[1:], *kwargs.values()]
        if generator.written or domain.quiet is not None or not all(is_constant(domain, v) for v in given):
            return None
        real = tuple(constant_of(domain, v) for v in args[1:])
        named = {k: constant_of(domain, v) for k, v in kwargs.items()}
        if not all(type(v) in (int, float, type(None)) for v in (*real, *named.values())):
            return None
        try:
            example = function(random.Random(0), *real, **named)
        except Exception:  # the program's error: the real call raises it
            return None
        bounds = _bounds(function.__name__, real, named)
        if type(example) not in (int, float) or (type(example) is int and bounds is None):
            return None
        return _leaf(domain, Draw(function, generator, real, named), example, bounds)

    return draw


def _leaf(domain: CaptureDomain, draw: Draw, example: float, bounds: tuple[int, int] | None) -> Value | None:
    make = getattr(domain.leaves, "computed", None)
    if make is None:
        return None
    payload = make(example, bounds, Drawn.of(len(domain.draws)), domain)
    if payload is None:
        return None
    domain.draws.append(draw)
    domain.mutated_at = domain.vm.step
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
