"""The interpreter's loop: frames on an explicit stack, exceptions, generators, nested runs for callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any, Generic, TypeVar, final

from torchjit_vm.decode import Decoded, decode
from torchjit_vm.domain import Domain
from torchjit_vm.frame import NULL, Completion, Frame, Raised, Signal

__all__ = ["Interpreter"]

V = TypeVar("V")

_MOST_TRACEBACKS = 64


@final
class Interpreter(Generic[V]):
    """Interprets canonical instructions over the values of a domain.

    Calls of Python functions push a frame and stay in one loop, so that `frames` shows every active frame. What calls
    back from inside an instruction (a sort key, a property read by `hasattr`) runs in a nested loop (`call`).

    Attributes:
        domain: gives instructions their meaning.
        frames: the active frames, outermost first, those of nested loops included.
        handled: the exception being handled, or None.
        inherited: what the resumer of the current generator is handling, or None.
        nesting: how many loops are active.
        step: instructions run so far by the outermost loop.
        limit: the step at which `domain.step_limit` is called.
        left: the frame that an exception left last.
        tracebacks: of the latest exceptions, the frames that each came through and the index of the instruction, innermost first;
            kept if a domain sets it, for it keeps frames alive.
        deep: the number of frames above which `on_deep` is called, before each further one runs.
        trace: called with the frame and the index of each instruction before it runs, if set.
    """

    def __init__(
        self, domain: Domain[V], *, limit: int = 1 << 62, trace: Callable[[Frame[V], int], None] | None = None
    ) -> None:
        self.domain = domain
        self.frames: list[Frame[V]] = []
        self.handled: V | None = None
        self.inherited: V | None = None
        self.nesting = 0
        self.step = 0
        self.limit = limit
        self.left: Frame[V] | None = None
        self.tracebacks: dict[V, list[tuple[Frame[V], int]]] | None = None
        self.deep = 1 << 62
        self.on_deep: Callable[[], object] | None = None
        self.trace = trace
        self._codes: dict[Decoded, CodeType] = {}  # keeps alive what has run: frames, generators and reports name it
        domain.attach(self)

    def new_frame(
        self,
        code: CodeType | Decoded,
        arguments: list[V | None],
        closure: list[V],
        globals: dict[str, object],
        function: V | None = None,
    ) -> Frame[V]:
        """A frame at the entry of a code object.

        Args:
            code: the code object.
            arguments: one per argument slot, in the order of `co_varnames`.
            closure: one cell per free variable.
            globals: the module dict.
            function: the function, for people and for `super()`.
        """
        decoded = code if isinstance(code, Decoded) else decode(code)
        fast: list[V | None] = arguments
        fast.extend([None] * (len(decoded.locals) - len(fast) - len(closure)))
        fast.extend(closure)
        frame = Frame(decoded, fast, self.domain.constants(decoded), globals, function)
        frame.born = self.step
        if self.trace is not None:
            frame.instrs = self._traced(decoded, self.trace)
        if decoded not in self._codes:
            self._codes[decoded] = decoded.code
        return frame

    def interpreted(self) -> Iterable[CodeType]:
        """The code objects that frames were made for."""
        return self._codes.values()

    @property
    def current(self) -> V | None:
        """The exception being handled here, or by whoever resumed this generator."""
        return self.inherited if self.handled is None else self.handled

    def enter_generator(self, handled: V | None) -> tuple[V | None, V | None]:
        """Switch to the exception state of a generator; the result goes to `leave_generator`."""
        before = self.handled, self.inherited
        self.inherited = self.current
        self.handled = handled
        return before

    def leave_generator(self, before: tuple[V | None, V | None]) -> V | None:
        """Switch back; returns what the generator is handling."""
        handled = self.handled
        self.handled, self.inherited = before
        return handled

    def exception_state(self) -> tuple[V | None, V | None, Frame[V] | None]:
        """What is being handled here, and what an exception left last, for `restore_exception_state`."""
        return self.handled, self.inherited, self.left

    def restore_exception_state(self, state: tuple[V | None, V | None, Frame[V] | None]) -> None:
        """Let it be as it was, where an interpretation ended in the middle of a handler."""
        self.handled, self.inherited, self.left = state

    def forget(self) -> None:
        """Let go of the values that the interpreter holds."""
        self.frames.clear()
        self.on_deep = None
        self.tracebacks = None
        self.left = self.handled = self.inherited = None

    def run(self, frame: Frame[V], thrown: V | None = None, *, again: bool = False) -> V:
        """Run a frame, and those that it calls, until it returns or yields.

        Args:
            frame: the frame.
            thrown: an exception to raise at the instruction at `frame.pc` instead of running it.
            again: its traceback has an entry for the frame.

        Raises:
            Raised: an exception of the program leaves the frame.
        """
        base = len(self.frames)
        self.frames.append(frame)
        self.nesting += 1
        try:
            if thrown is not None:
                frame.pc += 1
                instead = self._unwind(thrown, base, again)
                if instead is not None:
                    return instead
            while True:
                try:
                    return self._loop(base)
                except Raised as raised:
                    instead = self._unwind(raised.value, base, raised.again)
                    if instead is not None:
                        return instead
        except Exception as error:
            if self.nesting > 1:
                self.domain.nested_error(error, self)
                del self.frames[base:]
            raise
        finally:
            self.nesting -= 1

    def _traced(self, code: Decoded, trace: Callable[[Frame[V], int], None]) -> list[tuple[Any, Any]]:
        """The instructions, each of which calls `trace` first."""

        def run(vm: Interpreter[V], frame: Frame[V], argument: Any) -> Any:
            handler, own = argument
            trace(frame, frame.pc - 1)
            return handler(vm, frame, own)

        return [(run, instruction) for instruction in code.instrs]

    def _loop(self, base: int) -> V:
        frames = self.frames
        frame = frames[-1]
        instrs = frame.instrs
        outermost = base == 0
        while True:
            handler, argument = instrs[frame.pc]
            frame.pc += 1
            if outermost:
                self.step += 1
                if self.step >= self.limit:
                    self.limit = self.domain.step_limit(self)
            signal = handler(self, frame, argument)
            if signal is None:
                continue
            if type(signal) is Frame:
                frames.append(signal)
                if len(frames) > self.deep and self.on_deep is not None:
                    self.on_deep()
                frame = signal
                frame.handled = self.handled
                instrs = frame.instrs
                continue
            result = frame.result
            frames.pop()
            if len(frames) == base:
                if signal is Signal.GENERATOR:
                    frame.result = NULL
                return result
            returned, frame = frame, frames[-1]
            instrs = frame.instrs
            if returned.completion is Completion.PUSH:
                frame.stack.append(result)
            elif returned.completion is not Completion.DISCARD:
                frame.stack.append(self._result(returned, result))
                if returned.completion is Completion.PUSH_THEN_NULL:
                    frame.stack.append(NULL)

    def _unwind(self, exception: V, base: int, again: bool) -> V | None:
        """Find the handler of an exception, dropping frames on the way.

        With `again` the first frame gets no further entry in the traceback.

        Returns:
            None, or what the run gives, if the exception left its first frame and something stands in for that.

        Raises:
            Raised: no handler within this run.
        """
        frames = self.frames
        places = self._places(exception)
        while len(frames) > base:
            frame = frames[-1]
            if places is not None and not again:
                places.append((frame, frame.pc - 1))
            again = False
            row = frame.code.handler_of(frame.pc - 1)
            if row is not None:
                del frame.stack[row.depth :]
                if row.lasti:
                    frame.stack.append(self.domain.constant(frame.code.offsets[frame.pc - 1] // 2))
                frame.stack.append(exception)
                frame.pc = row.target
                return None
            self.left = frames.pop()
            if frame.on_raise is not None:
                try:
                    instead = frame.on_raise(exception)
                except Raised as raised:
                    exception, instead = raised.value, None
                    places = self._places(exception)
                if instead is not None:
                    return self._stand_in(frame, instead, base)
        raise Raised(exception)

    def _stand_in(self, left: Frame[V], instead: V | Frame[V], base: int) -> V | None:
        """Go on with a value, or a frame, in the place of a frame that was left; the value if that ends the run."""
        frames = self.frames
        if type(instead) is Frame:
            instead.completion, instead.handled = left.completion, self.handled
            frames.append(instead)
            return None
        value = instead
        if len(frames) == base:
            return value
        if left.completion is not Completion.DISCARD:
            frames[-1].stack.append(value)
        if left.completion is Completion.PUSH_THEN_NULL:
            frames[-1].stack.append(NULL)
        return None

    def passed(self, exception: V, frame: Frame[V]) -> None:
        """Note that an exception came through a frame that did not get to handle it."""
        places = self._places(exception)
        if places is not None:
            places.append((frame, max(frame.pc - 1, 0)))

    def depth(self, exception: V) -> int:
        """How many frames the exception has come through."""
        return len((self.tracebacks or {}).get(exception, ()))

    def rewind(self, exception: V, depth: int) -> None:
        """Let its traceback be the one that it had when it had come through `depth` frames."""
        del (self.tracebacks or {}).get(exception, [])[depth:]

    def _places(self, exception: V) -> list[tuple[Frame[V], int]] | None:
        if self.tracebacks is None:
            return None
        places = self.tracebacks.get(exception)
        if places is None:
            if len(self.tracebacks) >= _MOST_TRACEBACKS:
                self.tracebacks.clear()
            places = self.tracebacks[exception] = []
        return places

    def call(self, function: V, args: list[V], kwargs: dict[str, V] | None = None) -> V:
        """Call and wait for the result, in a nested loop if it is Python code.

        Raises:
            Raised: the call raised.
        """
        result = self.domain.call(function, args, kwargs or {})
        return self.finish(result)

    def finish(self, result: V | Frame[V]) -> V:
        """If `result` is a frame, run it in a nested loop."""
        if type(result) is not Frame:
            return result  # type: ignore[return-value,unused-ignore]  # mypy narrows by type() only on some versions
        frame: Frame[V] = result
        return self._result(frame, self.run(frame))

    def _result(self, frame: Frame[V], returned: V) -> V:
        """What a call of a frame gives."""
        if frame.completion is Completion.PUSH_INSTEAD:
            self.domain.check_init(returned)
        return frame.instead if frame.completion in (Completion.PUSH_INSTEAD, Completion.REPLACE) else returned
