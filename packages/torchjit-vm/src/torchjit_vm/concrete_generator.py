"""Real objects in boxes, and generators whose bodies the interpreter runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any, final

from torchjit_vm.decode import CLOSE_RETURNS, THROWN_AS_IS, WARNS_OF_THROW
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


_THREE = "the (type, exc, tb) signature of throw() is deprecated, use the single-arg signature instead."


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

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("__name__", "__qualname__") and not isinstance(value, str):
            raise TypeError(f"{name} must be set to a string object")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if name in ("__name__", "__qualname__"):
            raise TypeError(f"{name} must be set to a string object")
        object.__delattr__(self, name)

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
    def gi_yieldfrom(self) -> object:
        if self._frame is None or not self._started or self._running:
            return None
        delegate = delegate_of(self._frame)
        return None if delegate is None else delegate.value

    def __reduce_ex__(self, protocol: object) -> Any:
        raise TypeError("cannot pickle 'generator' object")

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> object:
        return self.send(None)

    def send(self, value: object) -> object:
        if self._frame is not None and not self._started and value is not None:
            raise TypeError("can't send non-None value to a just-started generator")
        return self._resume(value, None)

    def throw(self, exception: object, *more: object) -> object:
        if more and WARNS_OF_THROW:
            warnings.warn(_THREE, DeprecationWarning, stacklevel=2)
        value = more[0] if more else None
        if isinstance(exception, type) and issubclass(exception, BaseException):
            given, exception = exception, value
            if not isinstance(value, given):
                values = value if isinstance(value, tuple) else () if value is None else (value,)
                try:
                    exception = given(*values)
                except BaseException as failed:
                    exception = failed
            if not isinstance(exception, BaseException):
                kind = type(exception).__name__
                text = f"calling {given!r} should have returned an instance of BaseException, not {kind}"
                exception = TypeError(text)  # which the generator sees
        elif not isinstance(exception, BaseException):
            kind = type(exception).__name__
            raise TypeError(f"exceptions must be classes or instances deriving from BaseException, not {kind}")
        elif value is not None:
            raise TypeError("instance exception may not have a separate value")
        return self._resume(None, exception)

    def close(self) -> object:
        if self._frame is None or not self._started:
            self._frame = None
            return None
        leaving = GeneratorExit()
        self._vm.domain.chain(Box(leaving), self._vm.current)
        try:
            self.throw(leaving)
        except GeneratorExit:
            return None
        except StopIteration as stop:
            return stop.value if CLOSE_RETURNS else None
        raise RuntimeError("generator ignored GeneratorExit")

    def __del__(self) -> None:
        if self._frame is not None and self._started and not self._running:
            self.close()

    def _throw_on(self, delegate: object, thrown: BaseException) -> object:
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

    def _resume(self, value: object, thrown: BaseException | None) -> object:
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
        started, self._started, self._running = self._started or thrown is None, True, True
        vm = self._vm
        before = vm.enter_generator(self._handled)
        left: BaseException | None = None
        if thrown is not None:
            vm.domain.chain(Box(thrown), vm.handled)  # not what the caller handles: nothing raises it here
        try:
            result = vm.run(frame, None if thrown is None else Box(thrown))
        except Raised as raised:
            left = raised.value.value
        finally:
            self._running = False
            self._handled = vm.leave_generator(before)
        if left is not None:
            self._frame = self._handled = None
            if isinstance(left, StopIteration) and (started or not THROWN_AS_IS):
                error = RuntimeError("generator raised StopIteration")
                error.__context__ = left
                raise error from left
            context = left.__context__
            try:
                raise left
            finally:
                left.__context__ = context  # not what the interpreter itself is handling
        if frame.suspended:
            return result.value
        self._frame = self._handled = None
        raise StopIteration(result.value)
