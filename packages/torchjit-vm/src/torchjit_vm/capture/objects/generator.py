"""Generators and coroutines; in emitted code they are called anew if they have not started, else stand where the interpreted one does."""

from __future__ import annotations

import inspect
import types
from typing import final

from torchjit_vm.assembly import suspended_function
from torchjit_vm.capture import runtime
from torchjit_vm.capture.domain import CaptureDomain
from torchjit_vm.capture.emit import FrameValues, live_behind
from torchjit_vm.capture.iteration import kind_of
from torchjit_vm.capture.rebuild import Rebuilder
from torchjit_vm.capture.type_slots import TypeSlots, register
from torchjit_vm.capture.values import CellValue, GeneratorValue, Value
from torchjit_vm.region import Region

__all__ = ["StartedGenerator"]


@final
class StartedGenerator(Exception):
    """A generator that has started is alive at the end of a region."""

    def __init__(self, generator: GeneratorValue) -> None:
        super().__init__()
        self.generator = generator


def _rebuild(out: Rebuilder, value: GeneratorValue) -> str:
    """A real generator that gives what the interpreted one has yet to give.

    Raises:
        StartedGenerator: no such one can be made.
    """
    frame = value.frame
    function = frame.function
    if value.finished:
        name, qualname = frame.code.code.co_name, frame.code.code.co_qualname
        return out.assign(f"{out.runtime(runtime.exhausted)}({name!r}, {qualname!r})")
    if value.started:
        return _suspended(out, value)
    if function is None:
        raise StartedGenerator(value)
    if value.original is not None:
        original, args, kwargs = value.original
        texts = [out.expr(a) for a in args] + [f"{k}={out.expr(v)}" for k, v in kwargs.items()]
        return out.assign(f"{out.runtime(original)}({', '.join(texts)})")
    code = frame.code.code
    slots = [out.domain.cell_get(v) if type(v) is CellValue else v for v in frame.fast]
    texts = []
    for i in range(code.co_argcount):
        texts.append(_argument(out, value, slots[i]))
    at = code.co_argcount + code.co_kwonlyargcount
    if code.co_flags & inspect.CO_VARARGS:
        texts.append("*" + _argument(out, value, slots[at]))
        at += 1
    for i in range(code.co_argcount, code.co_argcount + code.co_kwonlyargcount):
        texts.append(f"{code.co_varnames[i]}={_argument(out, value, slots[i])}")
    if code.co_flags & inspect.CO_VARKEYWORDS:
        texts.append("**" + _argument(out, value, slots[at]))
    if code.co_varnames[:1] == (".0",):
        raise StartedGenerator(value)
    return out.assign(f"{out.expr(function)}({', '.join(texts)})")


def _suspended(out: Rebuilder, value: GeneratorValue) -> str:
    """A real generator that stands where the interpreted one does."""
    frame = value.frame
    code, at = frame.code, frame.pc - 1
    # In `early`: it holds itself, and a real one cannot be made before its contents.
    if kind_of(value) == "coroutine":
        raise StartedGenerator(value)
    if value.running or value.original is not None or value in out.early or code.names[at] != "YIELD_VALUE":
        raise StartedGenerator(value)
    held = FrameValues(out, frame, live_behind(frame))
    region = Region(
        code=code.code,
        globals=frame.globals,
        offset=code.offsets[at],
        stack=(*(t is not None for t in held.stack), True),
        locals=tuple(held.locals),
        cells=tuple(held.cells),
        handled=value.handled is not None,
    )
    slots = [*(t for t in held.stack if t is not None), "None", *held.locals.values(), *held.cells.values()]
    if value.handled is not None:
        slots.append(out.expr(value.handled))
    made = out.constant(suspended_function(region), f"suspended_{code.code.co_name}_{region.offset}")
    return out.assign(f"{out.runtime(runtime.suspended)}({', '.join([made, *slots])})")


def _argument(out: Rebuilder, value: GeneratorValue, content: Value | None) -> str:
    if content is None:
        raise StartedGenerator(value)
    return out.expr(content)


def _iter(domain: CaptureDomain, self: GeneratorValue) -> Value:
    if kind_of(self) == "coroutine":
        raise domain.error(TypeError, "'coroutine' object is not iterable")
    return self


def _type(domain: CaptureDomain, self: GeneratorValue) -> type:
    if self.original is not None:
        return self.original[0] if isinstance(self.original[0], type) else type(iter(int, 1))
    coroutine = self.frame.code.code.co_flags & inspect.CO_COROUTINE
    return types.CoroutineType if coroutine else types.GeneratorType


register(GeneratorValue, TypeSlots(iter=_iter, type_of=_type, rebuild=_rebuild))
