"""Real objects in boxes, and generators whose bodies the interpreter runs."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any, final

from torchjit_vm.frame import Frame, Raised, delegate_of, finish_delegation

if TYPE_CHECKING:
    from torchjit_vm.interpreter import Interpreter

__all__ = ["Box", "InterpretedGenerator"]


class Box:
    """A real object (the interpreter keeps None for NULL, so objects travel in boxes)."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


@final
class InterpretedGenerator:
    """A generator whose body the interpreter runs; behaves as a generator for C code as well."""

    def __init__(self, vm: Interpreter[Box], frame: Frame[Box]) -> None:
        self._vm = vm
        self._frame: Frame[Box] | None = frame
        self._started = False
        self._running = False
        self._handled: Box | None = None
        function = frame.function
        self.__name__: str = frame.code.code.co_name if function is None else function.value.__name__
        self.__qualname__: str = frame.code.code.co_qualname if function is None else function.value.__qualname__

    @property
    def gi_code(self) -> CodeType | None:
        return None if self._frame is None else self._frame.code.code

    @property
    def gi_running(self) -> bool:
        return self._running

    @property
    def gi_suspended(self) -> bool:
        return self._started and not self._running and self._frame is not None

    @property
    def gi_yieldfrom(self) -> Any:
        if self._frame is None or not self._started or self._running:
            return None
        delegate = delegate_of(self._frame)
        return None if delegate is None else delegate.value

    def __reduce_ex__(self, protocol: object) -> Any:
        raise TypeError("cannot pickle 'generator' object")

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        if self._frame is not None and not self._started and value is not None:
            raise TypeError("can't send non-None value to a just-started generator")
        return self._resume(value, None)

    def throw(self, exception: Any, value: Any = None, traceback: Any = None) -> Any:
        if isinstance(exception, type):
            if not isinstance(value, exception):
                exception = exception() if value is None else exception(value)
            else:
                exception = value
        return self._resume(None, exception)

    def close(self) -> None:
        if self._frame is None or not self._started:
            self._frame = None
            return
        try:
            self.throw(GeneratorExit())
        except (GeneratorExit, StopIteration):
            return
        raise RuntimeError("generator ignored GeneratorExit")

    def __del__(self) -> None:
        if self._frame is not None and self._started and not self._running:
            self.close()

    def _throw_on(self, delegate: Any, thrown: BaseException) -> Any:
        """Throw into the iterator of `yield from`; it may yield, end with StopIteration or raise."""
        self._running = True
        try:
            if isinstance(thrown, GeneratorExit):
                if hasattr(delegate, "close"):
                    delegate.close()
                raise thrown
            if not hasattr(delegate, "throw"):
                raise thrown
            return delegate.throw(thrown)
        finally:
            self._running = False

    def _resume(self, value: Any, thrown: BaseException | None) -> Any:
        frame = self._frame
        if frame is None:
            raise StopIteration if thrown is None else thrown
        if self._running:
            raise ValueError("generator already executing")
        failed: BaseException | None = None
        if thrown is not None and self._started:
            delegate = delegate_of(frame)
            if delegate is not None:
                try:
                    return self._throw_on(delegate.value, thrown)
                except StopIteration as stop:
                    finish_delegation(frame)
                    value, thrown = stop.value, None
                except BaseException as raised_there:
                    failed = raised_there
                if failed is not None:
                    thrown = failed
        if thrown is None:
            frame.stack.append(Box(value))
        else:
            frame.pc -= 1
            frame.stack.append(Box(None))
        self._started = self._running = True
        vm = self._vm
        before = vm.enter_generator(self._handled)
        if thrown is not None:
            vm.domain.chain(Box(thrown), vm.current)
        try:
            result = vm.run(frame, None if thrown is None else Box(thrown))
        except Raised as raised:
            self._frame = None
            error = raised.value.value
            if isinstance(error, StopIteration):
                raise RuntimeError("generator raised StopIteration") from error
            raise error from error.__cause__
        finally:
            self._running = False
            self._handled = vm.leave_generator(before)
        if frame.suspended:
            return result.value
        self._frame = None
        raise StopIteration(result.value)
