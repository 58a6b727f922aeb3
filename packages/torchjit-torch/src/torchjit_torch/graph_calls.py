"""Graphs that are called as they are, operator by operator, in a form that goes to disk: their generated code, and what it names."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, final

from torch import fx, nn

__all__ = ["GraphCall", "attribute_of"]

_NOTES = "__torchjit_"
"""Globals of generated code whose names begin so are read by whoever finds its frames."""


@final
class GraphCall:
    """What calls a graph.

    Args:
        gm: called as its `forward` is. Its code is generated at the first call, or when this is stored.

    Attributes:
        gm: as above; None in a process that the graph comes to from disk.
    """

    def __init__(self, gm: fx.GraphModule) -> None:
        self.gm: fx.GraphModule | None = gm
        self._stored: Mapping[str, Any] = {}
        self._restored: types.MethodType | None = None
        self._forward: Callable[..., Any] = gm.forward

    def __call__(self, *inputs: Any) -> Any:
        return self._forward(*inputs)

    @property
    def __globals__(self) -> dict[str, Any]:
        """Of the generated code."""
        names: dict[str, Any] = (self._restore().__func__ if self.gm is None else _generated(self.gm)).__globals__
        return names

    def __stored_state__(self) -> Mapping[str, object]:
        if self.gm is None:
            return self._stored
        names = _generated(self.gm).__globals__
        text = self.gm.code
        read = {name: names[name] for name in sorted(set(_names_in(compile(text, "", "exec")))) if name in names}
        notes = {name: value for name, value in names.items() if name.startswith(_NOTES)}
        return {"text": text, "names": {**read, **notes}, "attributes": _attributes(self.gm)}

    def __restore_state__(self, state: Mapping[str, Any]) -> None:
        self.gm, self._stored, self._restored = None, state, None
        self._forward = self._first

    def _first(self, *inputs: Any) -> Any:
        self._forward = self._restore()
        return self._forward(*inputs)

    def _restore(self) -> types.MethodType:
        """The function, of what was stored."""
        if self._restored is None:
            names: dict[str, Any] = dict(self._stored["names"])
            exec(compile(self._stored["text"], "<torchjit graph>", "exec", dont_inherit=True), names)
            self._restored = types.MethodType(names["forward"], _owner(self._stored["attributes"]))
        return self._restored


def _generated(gm: fx.GraphModule) -> types.FunctionType:
    _ = gm.code  # of a lazy module it is generated now
    return type(gm).forward  # type: ignore[return-value]


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


def attribute_of(gm: nn.Module | None, node: fx.Node) -> Any:
    """What a `get_attr` or `call_module` node names: an attribute of the module of its graph, or of one inside.

    Raises:
        AttributeError: there is none.
    """
    return operator.attrgetter(str(node.target))(gm)


def _attributes(gm: fx.GraphModule) -> dict[str, object]:
    """What the graph's nodes take of its module, by their dotted names. Graphs inside are called likewise."""
    found: dict[str, object] = {}
    for node in gm.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            value = attribute_of(gm, node)
            found[node.target] = GraphCall(value) if isinstance(value, fx.GraphModule) else value
    return found


def _owner(attributes: Mapping[str, object]) -> types.SimpleNamespace:
    owner = types.SimpleNamespace()
    for name, value in attributes.items():
        *way, last = name.split(".")
        place = owner
        for part in way:
            if not hasattr(place, part):
                setattr(place, part, types.SimpleNamespace())
            place = getattr(place, part)
        setattr(place, last, value)
    return owner
