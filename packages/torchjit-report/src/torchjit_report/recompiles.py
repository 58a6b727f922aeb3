"""Why a call did not match what was compiled, as data: the guard, the value now and then, and what would avoid it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import final

import attrs

from torchjit_core.guards import (
    Ambient,
    ClassAttrIs,
    DictContains,
    DictKeys,
    Different,
    Guard,
    IdIs,
    InstanceLacks,
    LengthIs,
    Miss,
    MroIs,
    SameObject,
    SymbolicCondition,
    TensorMatches,
    TypeIs,
    ValueEquals,
)
from torchjit_core.location import CodeLocation
from torchjit_core.showing import shortened
from torchjit_core.size_sources import source_of

__all__ = ["Recompile", "advice", "ranked", "recompile_of"]


@final
@attrs.frozen
class Recompile:
    """One miss.

    Attributes:
        function: the region that was compiled again.
        guard: the guard that failed, as text.
        expected: what was there when the specialisation was made.
        actual: what this call brought.
        location: the line of the program that relied on it, if one did.
        advice: what would avoid the recompilation.
        about: the place or the setting that changed: misses about one thing are one cause.
    """

    function: str
    guard: str
    expected: str
    actual: str
    location: CodeLocation | None
    advice: str
    about: str

    def __str__(self) -> str:
        where = f"\n    {self.location.render()}".replace("\n", "\n    ") if self.location else ""
        text = f"{self.function}: {self.guard}: expected {self.expected}, got {self.actual}"
        return f"{text}{where}\n    avoid it: {self.advice}"


def recompile_of(function: str, miss: Miss) -> Recompile:
    """The miss of a region."""
    guard, expected, actual = map(shortened, (str(miss.guard or miss.text), miss.expected, miss.actual))
    return Recompile(
        function, guard, expected, actual, miss.location, advice(miss, inside="(continuation" in function), _about(miss)
    )


def ranked(missed: Sequence[Recompile]) -> str:
    """The causes of misses, the most frequent first, each with its last change and how to avoid it."""
    last = {m.about: m for m in missed}
    count = Counter(m.about for m in missed)
    told = [
        f"{about} ({n}x, last: expected {last[about].expected}, got {last[about].actual})"
        for about, n in count.most_common(5)
    ]
    avoid = dict.fromkeys(last[about].advice for about, _ in count.most_common(5))
    return f"{'; '.join(told)}. To avoid it: {'; '.join(avoid)}"


def _about(miss: Miss) -> str:
    guard = miss.guard
    match guard:
        case None:
            return miss.text
        case TensorMatches():
            return f"{guard.path}: {miss.expected.rpartition(' ')[0]}"
        case Ambient():
            return guard.name
        case ClassAttrIs():
            return f"{guard.cls.__qualname__}.{guard.name}"
        case _:
            path = getattr(guard, "path", None)
            return str(guard) if path is None else str(path)


def advice(miss: Miss, *, inside: bool = False) -> str:
    """What keeps a guard like this from failing. `inside`: of a continuation, whose values are not what the program passed."""
    guard: Guard | None = miss.guard
    match guard:
        case TensorMatches():
            return _tensor_advice(miss, inside)
        case SymbolicCondition():
            return _size_advice(str(guard))
        case ValueEquals():
            return _value_advice(guard)
        case DictKeys():
            return "pass the same keys, in one order (of **kwargs: the same keyword arguments in each call), or compile one callable per set of keys"
        case DictContains() if not guard.present:
            return "nothing if the first call makes the entry (the state of an optimizer, a cache): it is there from then on; else make it before that call"
        case LengthIs() if str(guard.path) == "args":
            return "give the same arguments by position in each call; an optional one as None, or by its name"
        case LengthIs():
            return "pass a tensor in the place of a list whose length varies, or fill lists up to few lengths"
        case DictContains():
            return _KEPT_CONSTANT
        case TypeIs():
            return "pass objects of one type"
        case IdIs():
            return "keep the object: make it once, outside of what is called again and again"
        case ClassAttrIs() | MroIs() | InstanceLacks():
            return "do not patch classes or objects between calls"
        case Ambient():
            return "call under one setting (grad mode, autocast, default dtype, modes), or warm up under each"
        case SameObject() | Different():
            return "pass the same object at the same places, or always different ones"
        case _:
            return "keep what the guard names as it was"


_KEPT_CONSTANT = "keep the value constant, or compile one callable per value"


def _value_advice(guard: ValueEquals) -> str:
    if guard.value is None:
        return "nothing if it is either left out or given: that is one compilation each; else always pass a tensor"
    if type(guard.value) not in (int, float):
        return _KEPT_CONSTANT
    named = f'name it, torchjit.config.dynamic_sources = "{source_of(guard.path)}"'
    return f"nothing if one compilation for all further numbers will do (it becomes an input); else pass it as a tensor, or {named}, or compile with dynamic=True"


def _size_advice(condition: str) -> str:
    if re.match(r"s\d+ == \d+\b", condition):
        return (
            "the line needs this size as a number (a loop that is unrolled over it, a list of that length): compute all rows at once, "
            "fill up to few sizes, or keep the loop out of the region"
        )
    if re.match(r"f\d+ == ", condition):
        return (
            "the line takes this number as a constant (a probability, an eps, a text, a size): nothing if it has few values; else pass a tensor "
            "and compute with it, or keep the line out of the region"
        )
    return (
        "a size or a number left the range that the program was compiled for: branch on it less, or compile per range"
    )


def _tensor_advice(miss: Miss, inside: bool) -> str:
    size = re.match(r"size\((\d+)\)", miss.expected)
    if size is not None and inside:
        return "mark the dimension of the argument that it comes from, torchjit.mark_dynamic(tensor, dim), or compile with dynamic=True"
    if size is not None and isinstance(miss.guard, TensorMatches):
        path, dim = miss.guard.path, size[1]
        return (
            f"mark the dimension, torchjit.mark_dynamic({path}, {dim}), or name it, "
            f'torchjit.config.dynamic_sources = "{source_of(path)}:{dim}", or compile with dynamic=True'
        )
    if miss.expected.startswith("stride"):
        return (
            "pass tensors that lie in memory alike, or compile with dynamic=True; nothing if they are slices of something wider: "
            "the width becomes an input"
        )
    if miss.expected.startswith("number of dimensions"):
        return "reshape inputs to one number of dimensions"
    if miss.expected.startswith("requires_grad"):
        return "call under torch.no_grad() or detach inputs consistently"
    if miss.expected.endswith("inference mode"):
        return "make inputs, and call, in inference mode always or never"
    return f"convert inputs before the call: {miss.expected} was compiled"
