"""A call of the program, and the registry of rules for calls that are not simply recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, final

import attrs

from torchjit_core.reasons import GraphBreak, Reason
from torchjit_fx.domain_protocol import CallDomain
from torchjit_fx.leaves import Function, Raw, RawArgs, RawKwargs
from torchjit_fx.protocols import CaptureContext

__all__ = ["Call", "CallRule", "CallRules", "call_rule"]


@final
@attrs.frozen(eq=False)
class Call:
    """One call of the program.

    Attributes:
        function: what is called; of a method, the function in the class.
        args, kwargs: raw.
        domain: of the capture.
        capture: the interpreter, which knows the place in the program.
    """

    function: Any
    args: RawArgs
    kwargs: RawKwargs
    domain: CallDomain
    capture: CaptureContext

    @property
    def name(self) -> str:
        """What messages call the function."""
        return str(getattr(self.function, "__name__", None) or self.function)

    def named(self, *names: str) -> RawKwargs:
        """The arguments by name, if the first parameters are called so."""
        return dict(zip(names, self.args, strict=False)) | self.kwargs

    def record(self, function: Function, args: RawArgs, kwargs: RawKwargs | None = None) -> Raw:
        """Record another call in the place of this one.

        Raises:
            GraphBreak: it cannot be in a graph.
        """
        return self.domain.recorder.call(function, args, kwargs or {}, self.capture)

    def do(self, function: Function, args: RawArgs, kwargs: RawKwargs | None = None) -> Raw:
        """Do another call, with its own rule, in the place of this one.

        Raises:
            GraphBreak: it cannot be in a graph.
        """
        return self.domain.call(function, args, kwargs or {}, self.capture)

    def plainly(self) -> Raw:
        """Do this call, whose errors the program does not catch or a test in the graph finds."""
        return self.domain.call_plainly(self.function, self.args, self.kwargs, self.capture)

    def broken(self, reason: Reason, detail: str) -> GraphBreak:
        """A break of the graph at this call, to be raised."""
        return GraphBreak(reason, detail, self.capture.location())


CallRule: TypeAlias = "Callable[[Call], Raw]"
"""Gives the raw result of a call; NotImplemented: it is recorded as any other."""


@final
class CallRules:
    """Rules by callable. As a decorator it registers the function below it."""

    def __init__(self) -> None:
        self._rules: dict[Any, CallRule] = {}

    def __call__(self, *functions: Raw, on: type | tuple[type, ...] | None = None) -> Callable[[CallRule], CallRule]:
        """Register the rule below for calls of these.

        Args:
            functions: as the program calls them; of methods, the functions in the class.
            on: the rule is about calls whose first argument is one of these; others are recorded.

        Raises:
            ValueError: one of them has a rule.
        """

        def register(rule: CallRule) -> CallRule:
            registered = rule if on is None else _only(on, rule)
            for function in functions:
                if function in self._rules:
                    raise ValueError(f"{function} has two rules")
                self._rules[function] = registered
            return rule

        return register

    def rest(self, functions: Any, rule: CallRule) -> None:
        """Register a rule for those of the functions that have none."""
        for function in functions:
            self._rules.setdefault(function, rule)

    def get(self, function: object) -> CallRule | None:
        """The rule of a callable."""
        return self._rules.get(function)


def _only(on: type | tuple[type, ...], rule: CallRule) -> CallRule:
    def checked(call: Call) -> Raw:
        return rule(call) if call.args and isinstance(call.args[0], on) else NotImplemented

    return checked


call_rule = CallRules()
"""The rules of calls that are given no array of NumPy."""
