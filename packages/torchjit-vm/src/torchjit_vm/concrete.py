"""A domain that executes for real: the oracle that the interpreter is compared with CPython by."""

from __future__ import annotations

import builtins
import inspect
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType
from typing import Any, TypeVar

from torchjit_vm.binding import bind, import_from_real
from torchjit_vm.concrete_callers import CALLER_FUNCTIONS
from torchjit_vm.concrete_generator import Box, interpreted_generator
from torchjit_vm.concrete_statements import class_pattern, raised_by, unpacking
from torchjit_vm.decode import Decoded, decode
from torchjit_vm.domain import Domain
from torchjit_vm.frame import Completion, Frame, Raised
from torchjit_vm.interpreter import Interpreter
from torchjit_vm.type_labels import type_label

__all__ = ["Box", "ConcreteDomain", "execute", "interpret"]

V = TypeVar("V")

_CO_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


_F = Frame[Box]


def _real(function: Callable[..., object]) -> Callable[..., Any]:
    """Turn exceptions of real execution into exceptions of the interpreted program."""

    def run(self: ConcreteDomain, *args: object) -> Any:
        try:
            return function(self, *args)
        except Raised:
            raise
        except BaseException as error:
            if isinstance(error.__context__, Raised):
                error.__context__ = None
            handled = self.vm.current
            if handled is not None and handled.value is not error and error.__context__ is None:
                error.__context__ = handled.value
            raise Raised(Box(error)) from None

    run.__name__ = function.__name__
    return run


class ConcreteDomain:
    """`Domain[Box]`: Python functions are interpreted, everything else is executed by CPython.

    A domain of one's own may extend it: override what is of interest, and give back a subclass of `Box` that says
    more about the object than its value. Such boxes travel through variables, arguments and results; what is put
    into a container or a closure is the bare object.
    """

    vm: Interpreter[Box]

    def attach(self, vm: Interpreter[Box]) -> None:
        self.vm = vm

    def constants(self, code: Decoded) -> list[Box]:
        found: list[Box] | None = code.boxed.get(ConcreteDomain)
        if found is None:
            found = code.boxed[ConcreteDomain] = [Box(c) for c in code.code.co_consts]
        return found

    def constant(self, value: object) -> Box:
        return Box(value)

    def step_limit(self, vm: Interpreter[Box]) -> int:
        raise RuntimeError("step limit reached")

    def nested_error(self, error: Exception, vm: Interpreter[Box]) -> None:
        """Nothing to note."""

    def check_init(self, result: Box) -> None:
        if result.value is not None:
            raise self.error(TypeError, f"__init__() should return None, not '{type_label(type(result.value))}'")

    def error(self, type: type[BaseException], message: str, name: str | None = None) -> Raised:
        error: Any = type(message)
        if name is not None:
            error.name = name
        made = Box(error)
        self.chain(made, self.vm.current)
        return Raised(made)

    # Names.

    def load_global(self, frame: _F, name: str) -> Box:
        return self._lookup(name, frame.globals)

    def _lookup(self, name: str, *namespaces: Mapping[str, object]) -> Box:
        for namespace in namespaces:
            if name in namespace:
                return Box(namespace[name])
        scope = namespaces[-1].get("__builtins__", builtins)
        scope = scope if isinstance(scope, dict) else vars(scope)
        if name in scope:
            return Box(scope[name])
        error = self.error(NameError, f"name '{name}' is not defined")
        error.value.value.name = name
        raise error

    def store_global(self, frame: _F, name: str, value: Box) -> None:
        frame.globals[name] = value.value

    def delete_global(self, frame: _F, name: str) -> None:
        if name not in frame.globals:
            raise self.error(NameError, f"name '{name}' is not defined")
        del frame.globals[name]

    def load_name(self, frame: _F, name: str, namespace: Box) -> Box:
        return self._lookup(name, namespace.value, frame.globals)

    def store_name(self, frame: _F, name: str, value: Box) -> None:
        self.namespace_of(frame)[name] = value.value

    def delete_name(self, frame: _F, name: str) -> None:
        if name not in self.namespace_of(frame):
            raise self.error(NameError, f"name '{name}' is not defined")
        del self.namespace_of(frame)[name]

    def setup_annotations(self, frame: _F) -> None:
        self.namespace_of(frame).setdefault("__annotations__", {})

    def namespace_of(self, frame: _F) -> dict[str, object]:
        if frame.namespace is None:
            raise self.error(SystemError, "no locals")
        found: dict[str, object] = frame.namespace.value
        return found

    def make_cell(self, content: Box | None) -> Box:
        return Box(CellType() if content is None else CellType(content.value))

    def cell_get(self, cell: Box) -> Box | None:
        try:
            return Box(cell.value.cell_contents)
        except ValueError:
            return None

    def cell_set(self, cell: Box, content: Box | None) -> None:
        if content is None:
            del cell.value.cell_contents
        else:
            cell.value.cell_contents = content.value

    # Operators.

    @_real
    def unary(self, function: Callable[..., object], value: Box) -> Box:
        return Box(function(value.value))

    @_real
    def binary(self, function: Callable[..., object], left: Box, right: Box) -> Box:
        return Box(function(left.value, right.value))

    compare = binary

    def is_(self, left: Box, right: Box) -> bool:
        return left.value is right.value

    @_real
    def contains(self, container: Box, item: Box) -> Box:
        return Box(item.value in container.value)

    @_real
    def truth(self, value: Box) -> bool:
        return bool(value.value)

    @_real
    def not_(self, value: Box) -> Box:
        return Box(not value.value)

    @_real
    def setitem(self, container: Box, key: Box, value: Box) -> None:
        container.value[key.value] = value.value

    @_real
    def delitem(self, container: Box, key: Box) -> None:
        del container.value[key.value]

    # Attributes.

    @_real
    def load_attr(self, value: Box, name: str) -> Box:
        return Box(getattr(value.value, name))

    @_real
    def store_attr(self, value: Box, name: str, content: Box) -> None:
        setattr(value.value, name, content.value)

    @_real
    def delete_attr(self, value: Box, name: str) -> None:
        delattr(value.value, name)

    @_real
    def load_special(self, value: Box, name: str) -> Box:
        cls = type(value.value)
        found = inspect.getattr_static(cls, name, None)
        if found is None:
            missed = " (missed __exit__ method)" if name == "__exit__" else ""
            raise TypeError(f"'{type_label(cls)}' object does not support the context manager protocol{missed}")
        return Box(found.__get__(value.value, cls) if hasattr(found, "__get__") else found)

    @_real
    def load_super_attr(self, super_type: Box, cls: Box, self_: Box, name: str) -> Box:
        return Box(getattr(super_type.value(cls.value, self_.value), name))

    # Containers.

    def build_list(self, items: list[Box]) -> Box:
        return Box([b.value for b in items])

    def build_tuple(self, items: list[Box]) -> Box:
        return Box(tuple(b.value for b in items))

    @_real
    def build_set(self, items: list[Box]) -> Box:
        return Box({b.value for b in items})

    @_real
    def build_map(self, pairs: list[tuple[Box, Box]]) -> Box:
        return Box({k.value: v.value for k, v in pairs})

    def build_slice(self, parts: list[Box]) -> Box:
        return Box(slice(*(b.value for b in parts)))

    def build_string(self, parts: list[Box]) -> Box:
        return Box("".join(b.value for b in parts))

    def list_append(self, target: Box, item: Box) -> None:
        target.value.append(item.value)

    @_real
    def list_extend(self, target: Box, iterable: Box) -> None:
        if not hasattr(type(iterable.value), "__iter__") and not hasattr(type(iterable.value), "__getitem__"):
            raise TypeError(f"Value after * must be an iterable, not {type_label(type(iterable.value))}")
        target.value.extend(iterable.value)

    def list_to_tuple(self, value: Box) -> Box:
        return Box(tuple(value.value))

    @_real
    def set_add(self, target: Box, item: Box) -> None:
        target.value.add(item.value)

    @_real
    def set_update(self, target: Box, iterable: Box) -> None:
        target.value.update(iterable.value)

    @_real
    def map_add(self, target: Box, key: Box, value: Box) -> None:
        target.value[key.value] = value.value

    @_real
    def dict_update(self, target: Box, other: Box) -> None:
        if not hasattr(other.value, "keys"):
            raise TypeError(f"'{type_label(type(other.value))}' object is not a mapping")
        target.value.update(other.value)

    @_real
    def dict_merge(self, target: Box, other: Box, function: Box) -> None:
        if not hasattr(other.value, "keys"):
            kind = type_label(type(other.value))
            raise TypeError(f"{_shown(function.value)}() argument after ** must be a mapping, not {kind}")
        given: dict[Any, object] = {}
        given.update(other.value)  # which knows when it asks a subclass of dict for its keys
        for key, value in given.items():
            if key in target.value:
                raise TypeError(f"{_shown(function.value)}() got multiple values for keyword argument '{key}'")
            target.value[key] = value

    @_real
    def unpack(self, value: Box, count: int) -> Sequence[Box]:
        return [Box(item) for item in unpacking(count)(value.value)]

    @_real
    def unpack_ex(self, value: Box, before: int, after: int) -> Sequence[Box]:
        return [Box(item) for item in unpacking(before, after)(value.value)]

    @_real
    def format(self, value: Box, conversion: int, spec: Box | None) -> Box:
        converted = (lambda v: v, str, repr, ascii)[conversion](value.value)
        return Box(converted if conversion and spec is None else format(converted, "" if spec is None else spec.value))

    # Iteration and generators.

    @_real
    def iter(self, value: Box) -> Box:
        return Box(iter(value.value))

    @_real
    def next(self, iterator: Box) -> Box | None:
        try:
            return Box(next(iterator.value))
        except StopIteration:
            return None

    @_real
    def send(self, receiver: Box, value: Box) -> tuple[bool, Box]:
        try:
            if value.value is None:
                return False, Box(next(receiver.value))
            return False, Box(receiver.value.send(value.value))
        except StopIteration as stop:
            return True, Box(stop.value)

    # Coroutines run for real; these are for code that somebody runs by hand.

    @_real
    def get_awaitable(self, value: Box, given_by: str | None) -> Box:
        return Box(value.value if inspect.iscoroutine(value.value) else type(value.value).__await__(value.value))

    @_real
    def aiter(self, value: Box) -> Box:
        return Box(aiter(value.value))

    @_real
    def anext(self, iterator: Box) -> Box:
        awaited = anext(iterator.value)
        return Box(awaited if inspect.iscoroutine(awaited) else type(awaited).__await__(awaited))

    def ends_async_for(self, exception: Box) -> bool:
        return isinstance(exception.value, StopAsyncIteration)

    def make_generator(self, frame: _F) -> Box:
        return Box(interpreted_generator(self.vm, frame))

    # Calls and functions.

    @_real
    def call(self, function: Box, args: list[Box], kwargs: dict[str, Box]) -> Box | _F:
        real = function.value
        kind = type(real)
        if kind is MethodType:
            return self.call(Box(real.__func__), [Box(real.__self__), *args], kwargs)  # type: ignore[no-any-return]
        if kind is FunctionType and not real.__code__.co_flags & _CO_ASYNC:
            code = decode(real.__code__)
            if not code.has_groups:
                return self._enter(real, code, args, kwargs)
        # isinstance() would ask the object for its __class__
        if issubclass(kind, type) and kind.__call__ is type.__call__ and type(real.__init__) is FunctionType:
            return self._construct(real, args, kwargs)
        positional = [b.value for b in args]
        keywords = {k: b.value for k, b in kwargs.items()}
        special = CALLER_FUNCTIONS.get(real) if kind is BuiltinFunctionType or kind is type else None
        return Box(real(*positional, **keywords) if special is None else special(self, positional, keywords))

    def _construct(self, cls: Any, args: list[Box], kwargs: dict[str, Box]) -> Box | _F:
        """A call of a class whose `__init__` is Python code."""
        positional = [b.value for b in args]
        keywords = {k: b.value for k, b in kwargs.items()}
        made = cls.__new__(cls, *positional, **keywords)
        if cls not in type(made).__mro__:
            return Box(made)
        init: Any = type(made).__init__
        if type(init) is not FunctionType or decode(init.__code__).has_groups:
            init(made, *positional, **keywords)
            return Box(made)
        instance = Box(made)
        frame = self._enter(init, decode(init.__code__), [instance, *args], kwargs)
        frame.completion, frame.instead = Completion.PUSH_INSTEAD, instance
        return frame

    def _enter(self, function: FunctionType, decoded: Decoded, args: Sequence[Box], kwargs: dict[str, Box]) -> _F:
        if len(self.vm.frames) >= sys.getrecursionlimit():
            raise RecursionError("maximum recursion depth exceeded")
        code = function.__code__
        slots = [v if isinstance(v, Box) else Box(v) for v in bind(function, args, kwargs)]
        rest = code.co_argcount + code.co_kwonlyargcount
        if code.co_flags & inspect.CO_VARARGS:
            slots[rest] = Box(tuple(b.value for b in slots[rest].value))
            rest += 1
        if code.co_flags & inspect.CO_VARKEYWORDS:
            slots[rest] = Box({k: b.value for k, b in slots[rest].value.items()})
        return self.vm.new_frame(
            decoded,
            list(slots),
            [Box(c) for c in function.__closure__ or ()],
            function.__globals__,
            Box(function),
        )

    @_real
    def call_ex(self, function: Box, args: Box, kwargs: Box | None) -> Box | _F:
        if not any(hasattr(type(args.value), name) for name in ("__iter__", "__getitem__")):
            name = _shown(function.value)
            raise TypeError(f"{name}() argument after * must be an iterable, not {type_label(type(args.value))}")
        keywords = {} if kwargs is None else {k: Box(v) for k, v in dict(kwargs.value).items()}
        return self.call(function, [Box(v) for v in tuple(args.value)], keywords)  # type: ignore[no-any-return]

    def make_function(self, frame: _F, code: Box) -> Box:
        real: CodeType = code.value
        # A function cannot be made without its closure, so cells are put in when they come.
        closure = tuple(CellType() for _ in real.co_freevars)
        return Box(FunctionType(real, frame.globals, real.co_name, None, closure or None))

    def set_function_attribute(self, function: Box, flag: int, value: Box) -> None:
        real = function.value
        if flag == 1:
            real.__defaults__ = value.value
        elif flag == 2:
            real.__kwdefaults__ = value.value
        elif flag == 4:
            flat = value.value
            real.__annotations__ = dict(zip(flat[::2], flat[1::2], strict=True)) if type(flat) is tuple else flat
        else:
            made = FunctionType(real.__code__, real.__globals__, real.__name__, real.__defaults__, value.value)
            made.__kwdefaults__, made.__annotations__ = real.__kwdefaults__, real.__annotations__
            function.value = made

    def build_class(self) -> Box:
        return Box(builtins.__build_class__)

    def keywords(self, names: Box) -> tuple[str, ...]:
        found: tuple[str, ...] = names.value
        return found

    # Imports.

    @_real
    def import_name(self, frame: _F, name: str, fromlist: Box, level: Box) -> Box:
        return Box(__import__(name, frame.globals, None, fromlist.value, level.value))

    @_real
    def import_from(self, module: Box, name: str) -> Box:
        return Box(import_from_real(module.value, name))

    # Exceptions.

    def make_raise(self, exception: Box, cause: Box | None) -> Box:
        return Box(raised_by(exception.value) if cause is None else raised_by(exception.value, cause.value))

    def chain(self, exception: Box, handled: Box | None) -> None:
        if handled is None or handled.value is exception.value or not isinstance(handled.value, BaseException):
            return
        # An exception that is raised again deeper in its own chain is taken out of the chain there.
        link, seen = handled.value, {id(handled.value)}
        while link.__context__ is not None and id(link.__context__) not in seen:
            if link.__context__ is exception.value:
                link.__context__ = None
                break
            link = link.__context__
            seen.add(id(link))
        exception.value.__context__ = handled.value

    @_real
    def exception_matches(self, exception: Box, type: Box) -> bool:
        types = type.value if isinstance(type.value, tuple) else (type.value,)
        if not all(isinstance(t, builtins.type) and issubclass(t, BaseException) for t in types):
            raise TypeError("catching classes that do not inherit from BaseException is not allowed")
        return isinstance(exception.value, types)

    def exception_triple(self, exception: Box) -> list[Box]:
        error = exception.value
        return [Box(type(error)), exception, Box(error.__traceback__)]

    def assertion_error(self) -> Box:
        return Box(AssertionError)

    def stop_iteration_error(self, exception: Box) -> Box:
        if not isinstance(exception.value, StopIteration):
            return exception
        error = RuntimeError("generator raised StopIteration")
        error.__cause__ = error.__context__ = exception.value
        return Box(error)

    # Pattern matching.

    def match_sequence(self, value: Box) -> bool:
        return bool(type(value.value).__flags__ & (1 << 5))

    def match_mapping(self, value: Box) -> bool:
        return bool(type(value.value).__flags__ & (1 << 6))

    @_real
    def match_keys(self, value: Box, keys: Box) -> Box | None:
        missing = object()
        found = tuple(value.value.get(k, missing) for k in keys.value)
        return None if any(v is missing for v in found) else Box(found)

    @_real
    def match_class(self, value: Box, cls: Box, count: int, names: Box) -> Box | None:
        found = class_pattern(count, names.value)(value.value, cls.value)
        return None if found is None else Box(found)

    @_real
    def length(self, value: Box) -> Box:
        return Box(operator.length_hint(value.value) if not hasattr(value.value, "__len__") else len(value.value))


def _shown(function: object) -> str:
    """How messages name what is called (`_PyObject_FunctionStr`); its `repr` may be code of the program, so it is only
    asked for then."""
    name = getattr(function, "__qualname__", None)
    if name is None:
        return str(function)
    module = getattr(function, "__module__", None)
    return name if module in (None, "builtins") else f"{module}.{name}"


def execute(domain: Domain[V], function: Callable[..., object], *args: V, **kwargs: V) -> V:
    """Call a real function with values of a domain, and interpret it over that domain.

    Returns:
        The value that the function returns.

    Raises:
        Raised: the program raised; `value` is the exception, a value of the domain.
    """
    vm: Interpreter[V] = Interpreter(domain)
    return vm.call(domain.constant(function), list(args), kwargs)


def interpret(function: Callable[..., object], *args: object, **kwargs: object) -> Any:
    """Call `function` with every Python function in it interpreted.

    Raises:
        Whatever the function raises.
    """
    vm: Interpreter[Box] = Interpreter(ConcreteDomain())
    try:
        return vm.call(Box(function), [Box(a) for a in args], {k: Box(v) for k, v in kwargs.items()}).value
    except Raised as raised:
        error: BaseException = raised.value.value
    raise error
