"""Real objects in boxes, and generators whose bodies the interpreter runs."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from torchjit_vm.frame import Frame, Raised, delegate_of, finish_delegation

if TYPE_CHECKING:
    from torchjit_vm.interpreter import Interpreter

__all__ = ["Box", "interpreted_generator"]


class Box:
    """A real object (the interpreter keeps None for NULL, so objects travel in boxes)."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


def interpreted_generator(vm: Interpreter[Box], frame: Frame[Box]) -> object:
    """A real generator whose body the interpreter runs: what `send`, `throw` and `close` say is CPython's own."""
    generator: Any = _body(vm, frame)
    code, function = frame.code.code, frame.function
    generator.__name__ = code.co_name if function is None else function.value.__name__
    generator.__qualname__ = code.co_qualname if function is None else function.value.__qualname__
    return generator


def _body(vm: Interpreter[Box], frame: Frame[Box]) -> Generator[object, object, object]:
    handled: Box | None = None
    value: object = None
    thrown: BaseException | None = None
    while True:
        waits = False
        if thrown is not None and (delegate := delegate_of(frame)) is not None:
            waits, value, thrown = _throw_on(frame, delegate.value, thrown)
        if not waits:
            handled, value = _resume(vm, frame, handled, value, thrown)
            if not frame.suspended:
                return value
        thrown = None
        try:
            value = yield value
        except BaseException as error:
            if isinstance(error, GeneratorExit):  # which `close` raises where it is called
                vm.domain.chain(Box(error), vm.current)
            thrown = error


def _throw_on(frame: Frame[Box], delegate: Any, thrown: BaseException) -> tuple[bool, object, BaseException | None]:
    """Throw into the iterator of `yield from`: does it give an item, the item or its result, what it raises."""
    try:
        if isinstance(thrown, GeneratorExit):
            if hasattr(delegate, "close"):
                delegate.close()
        elif hasattr(delegate, "throw"):
            return True, delegate.throw(thrown), None
    except StopIteration as stop:
        finish_delegation(frame)
        return False, stop.value, None
    except BaseException as error:
        return False, None, error
    return False, None, thrown


def _resume(
    vm: Interpreter[Box], frame: Frame[Box], handled: Box | None, value: object, thrown: BaseException | None
) -> tuple[Box | None, object]:
    """Run to the next `yield`, or to the end; what the generator is handling then, and what it gives."""
    frame.stack.append(Box(value if thrown is None else None))
    before = vm.enter_generator(handled)
    left: BaseException | None = None
    if thrown is not None:
        frame.pc -= 1
        vm.domain.chain(Box(thrown), vm.handled)  # not what the caller handles: nothing raises it here
    try:
        result = vm.run(frame, None if thrown is None else Box(thrown))
    except Raised as raised:
        left = raised.value.value
    finally:
        handled = vm.leave_generator(before)
    if left is None:
        return handled, result.value
    context = left.__context__
    try:
        raise left
    finally:
        left.__context__ = context  # not what the interpreter itself is handling
