"""Patterns over graphs, declared as the expression that they match.

    mm, add = aten_operation(aten.mm.default), aten_operation(aten.add.Tensor)
    a, b, bias = var("a"), var("b"), var("bias")
    product = once(mm(a, b))
    pattern = either(add(product, bias), add(bias, product))

    for found in matches(pattern, node):
        found["bias"]  # a node, or the number that stands there

An operation has one or more spellings: `torch.softmax(x, 1)`, `F.softmax(x, dim=1)` and `x.softmax(1)` are one operation of
torch-level graphs. A pattern is matched from its last node backwards, trying the alternatives of `either` in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, final

import attrs
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import Argument, Target

__all__ = ["Match", "Operation", "Pattern", "aten_operation", "either", "literal", "matches", "number", "once", "var"]

Spelling: TypeAlias = Target
"""A callable (`call_function`) or the name of a method (`call_method`)."""


@final
@attrs.frozen(eq=False)
class Match:
    """A place where a pattern fits.

    Attributes:
        bound: what stands for the pattern's variables.
        nodes: the nodes that the pattern's operations matched, the last one first.
        once: the nodes that nothing outside of the match may use.
    """

    bound: Mapping[str, Argument] = attrs.field(factory=dict)
    nodes: tuple[fx.Node, ...] = ()
    once: tuple[fx.Node, ...] = ()

    def __getitem__(self, name: str) -> Any:
        return self.bound[name]

    def get(self, name: str, default: Argument = None) -> Any:
        """What stands for the variable, or `default` where an alternative without it matched."""
        return self.bound.get(name, default)


class Pattern:
    """What a node, or an argument of a node, may be."""

    def match(self, value: Argument, found: Match) -> Iterator[Match]:
        """All ways in which `value` fits, each as an extension of `found`."""
        raise NotImplementedError  # abstract: every kind of pattern has its own


@final
@attrs.frozen(eq=False)
class _Variable(Pattern):
    name: str
    accepts: Callable[[Argument], bool]

    def match(self, value: Argument, found: Match) -> Iterator[Match]:
        if self.name in found.bound:
            if found.bound[self.name] is value:
                yield found
        elif self.accepts(value):
            yield attrs.evolve(found, bound={**found.bound, self.name: value})


@final
@attrs.frozen(eq=False)
class _Literal(Pattern):
    values: tuple[Argument, ...]

    def match(self, value: Argument, found: Match) -> Iterator[Match]:
        if not isinstance(value, fx.Node) and any(type(value) is type(v) and value == v for v in self.values):
            yield found


@final
@attrs.frozen(eq=False)
class _Either(Pattern):
    options: tuple[Pattern, ...]

    def match(self, value: Argument, found: Match) -> Iterator[Match]:
        for option in self.options:
            yield from option.match(value, found)


@final
@attrs.frozen(eq=False)
class _Once(Pattern):
    inner: Pattern

    def match(self, value: Argument, found: Match) -> Iterator[Match]:
        for extended in self.inner.match(value, found):
            yield attrs.evolve(extended, once=(*extended.once, value)) if isinstance(value, fx.Node) else extended


@final
@attrs.frozen(eq=False)
class _Call(Pattern):
    operation: Operation
    arguments: tuple[Pattern, ...]

    def match(self, value: Argument, found: Match) -> Iterator[Match]:
        if isinstance(value, fx.Node) and (given := self.operation.read(value)) is not None:
            yield from self._arguments(given, 0, attrs.evolve(found, nodes=(*found.nodes, value)))

    def _arguments(self, given: tuple[Argument, ...], position: int, found: Match) -> Iterator[Match]:
        if position == len(given):
            yield found
            return
        for extended in self.arguments[position].match(given[position], found):
            yield from self._arguments(given, position + 1, extended)


_NOTHING = _Literal((None,))


@final
@attrs.frozen(eq=False)
class Operation:
    """Something that graphs compute, in all its spellings. Called with patterns, it is a pattern.

    Attributes:
        parameters: the names of its arguments.
        spellings: for each spelling, the names of its own parameters in order; `_` is one to ignore. A parameter that a call
            does not give is None.
    """

    parameters: tuple[str, ...]
    spellings: Mapping[Spelling, tuple[str, ...]]

    def __call__(self, *arguments: Pattern) -> Pattern:
        rest = len(self.parameters) - len(arguments)
        return _Call(self, (*arguments, *[_NOTHING] * rest))

    def read(self, node: fx.Node) -> tuple[Argument, ...] | None:
        """The arguments if `node` is this operation, else None."""
        own = self.spellings.get(node.target) if node.op in ("call_function", "call_method") else None
        if own is None or len(node.args) > len(own):
            return None
        given = dict(zip(own, node.args, strict=False))
        for name, value in node.kwargs.items():
            name = _SAME_NAME.get(name, name)
            if name not in own or name in given:
                return None
            given[name] = value
        return tuple(given.get(name) for name in self.parameters)


_SAME_NAME = {"input": "x", "self": "x", "other": "y", "mat2": "y", "axis": "dim"}
"""Names that torch has for what the patterns here call x, y and dim."""


def spelled(parameters: str, spellings: Mapping[Spelling, str]) -> Operation:
    """An operation from texts: `spelled("x dim", {torch.softmax: "x dim _", "softmax": "x dim _"})`."""
    split = {key: tuple(text.split()) for key, text in spellings.items()}
    return Operation(tuple(parameters.split()), split)


def aten_operation(func: OpOverload) -> Operation:
    """An aten operator; its parameters are those of the schema, `self` and `other` renamed to x and y."""
    names = tuple(_SAME_NAME.get(a.name, a.name) for a in func._schema.arguments)
    return Operation(names, {func: names})


def var(name: str, accepts: Callable[[Argument], bool] = lambda value: isinstance(value, fx.Node)) -> Pattern:
    """A variable: any node, or what `accepts` takes. The same name twice means the same node."""
    return _Variable(name, accepts)


def number(name: str) -> Pattern:
    """A variable for a Python number."""
    return _Variable(name, lambda value: type(value) in (int, float))


def literal(*values: Argument) -> Pattern:
    """One of these constants, of the same type."""
    return _Literal(values)


def either(*options: Pattern) -> Pattern:
    """The first of these that fits."""
    return _Either(options)


def once(inner: Pattern) -> Pattern:
    """A node that nothing outside of the match uses."""
    return _Once(inner)


def matches(pattern: Pattern, node: fx.Node) -> Iterator[Match]:
    """The ways in which the pattern fits with `node` as its last one."""
    for found in pattern.match(node, Match()):
        inside = set(found.nodes)
        if all(user in inside for single in found.once for user in single.users):
            yield found
