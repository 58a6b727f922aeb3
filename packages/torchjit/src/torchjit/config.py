"""`torchjit.config`: the process-wide settings.

Every compilation takes a frozen snapshot; no stage reads this object. What a program has set in `torch._dynamo.config` counts
where the setting of the same name is not set here.

    torchjit.config.recompile_limit = 16
    with torchjit.config.patch(automatic_dynamic_shapes=False):
        ...
"""

from __future__ import annotations

import contextlib
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal, final

import attrs

from torchjit import upstream
from torchjit.exc import UserError, unknown_name
from torchjit_core.reasons import reason

__all__ = ["Config", "Settings", "config"]

BAD_SETTING = reason(
    "TJ-API-061",
    "a setting has a value that it cannot have",
    "The settings of torchjit.config take the types that torchjit.config.Settings gives them.",
    "See the docstring of torchjit.config.Settings.",
)


@final
@attrs.frozen
class Settings:
    """A snapshot of the settings.

    Attributes:
        recompile_limit: specialisations of one region after which it runs eagerly (upstream's name and default).
        accumulated_recompile_limit: the same for all regions of one code object together (upstream's name and default).
        automatic_dynamic_shapes: a size that changed between calls becomes a symbol.
        capture_scalar_outputs: `.item()` becomes a symbol in the graph rather than a graph break.
        capture_dynamic_output_shape_ops: `nonzero` and its kind stay in the graph.
        large_capture_nodes, large_capture_seconds: a capture that reaches one of these warns once and names the loop that it unrolls.
        unroll_limit: instructions interpreted in one region before it is given up.
        capture_calls_at_breaks: functions that Python calls during a graph break are captured too.
        on_error: what an error inside torchjit does: `eager` runs the user's code as it is and warns once, `raise`
            shows it.
        reorderable_logging_functions: functions that only report, such as `print`, whose calls inside a region are made at
            its end, in order, rather than break the graph (upstream's name and default). Warnings and records of
            `logging` are always treated so where that cannot be told from the outside.
        caches: keep kernels on disk between processes.
        disable: compile nothing: what has no specialisation runs as it is (upstream's name).
        suppress_errors: errors of a backend that the program passed do not reach it either, where nothing else says what
            they do: a warning, and the code runs as it is (upstream's name).
    """

    recompile_limit: int = 8
    accumulated_recompile_limit: int = 256
    automatic_dynamic_shapes: bool = True
    capture_scalar_outputs: bool = False
    capture_dynamic_output_shape_ops: bool = False
    large_capture_nodes: int = 10_000
    large_capture_seconds: float = 30.0
    unroll_limit: int = 1_000_000
    capture_calls_at_breaks: bool = True
    on_error: Literal["eager", "raise"] = "eager"
    reorderable_logging_functions: set[Any] = attrs.field(factory=set, hash=False)
    caches: bool = True
    disable: bool = False
    suppress_errors: bool = False


_ALIASES = {"cache_size_limit": "recompile_limit", "accumulated_cache_size_limit": "accumulated_recompile_limit"}
"""Upstream's older names."""
_NAMES = tuple(f.name for f in attrs.fields(Settings))


def _named(changes: dict[str, Any]) -> dict[str, Any]:
    return {_ALIASES.get(name, name): value for name, value in changes.items()}


_KINDS = typing.get_type_hints(Settings)


def _checked(name: str, value: Any) -> Any:
    """The value of a setting, of the setting's type.

    Raises:
        UserError: it cannot have this value.
    """
    kind = _KINDS[name]
    if kind is bool:
        good, wanted = isinstance(value, bool), "True or False"
    elif kind is int:
        value = value if isinstance(value, bool) else getattr(value, "__index__", lambda: value)()
        good, wanted = type(value) is int and value >= 0, "an int of at least 0"
    elif kind is float:
        good, wanted = (
            isinstance(value, (int, float)) and type(value) is not bool and value >= 0,
            "a number, at least 0",
        )
    elif typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        good, wanted = any(type(value) is type(c) and value == c for c in choices), " or ".join(map(repr, choices))
    elif typing.get_origin(kind) is set:
        value = set(value) if isinstance(value, (list, tuple, frozenset)) else value
        good, wanted = isinstance(value, set), "a set"
    else:
        return value
    if not good:
        raise UserError(BAD_SETTING, f"torchjit.config.{name} = {value!r}, want {wanted}")
    return value


@final
class Config:
    """The settings as attributes; unknown names are refused."""

    _values: dict[str, Any]
    _set_here: set[str]

    def __init__(self) -> None:
        object.__setattr__(self, "_values", attrs.asdict(Settings()))
        object.__setattr__(self, "_set_here", set())

    def __getattr__(self, name: str) -> Any:
        name = _ALIASES.get(name, name)
        if name.startswith("_") or name not in _NAMES:
            # AttributeError, so that hasattr and copy work; the message is the helpful one
            raise AttributeError(str(unknown_name("setting", name, _NAMES)))
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self._set({name: value})

    def __dir__(self) -> list[str]:
        return [*_NAMES, "is_off", "kept", "patch", "snapshot"]

    def _set(self, changes: dict[str, Any]) -> None:
        named = _named(changes)
        for name, value in named.items():
            if name not in _NAMES:
                raise unknown_name("setting", name, _NAMES)
            named[name] = _checked(name, value)
        self._values.update(named)
        self._set_here.update(named)

    def snapshot(self) -> Settings:
        """The settings now, frozen."""
        theirs = upstream.settings()
        if not theirs:
            return Settings(**self._values)
        return Settings(**self._values | {name: v for name, v in theirs.items() if name not in self._set_here})

    def is_off(self) -> bool:
        """Is nothing to be compiled?"""
        return bool(self._values["disable"] if "disable" in self._set_here else upstream.setting("disable"))

    @contextlib.contextmanager
    def patch(
        self, first: Mapping[str, Any] | str | None = None, value: Any = None, /, **changes: Any
    ) -> Iterator[None]:
        """Change settings inside a `with` block or, as a decorator, inside a function.

        As upstream has it: `patch(recompile_limit=2)`, `patch({"recompile_limit": 2})`, `patch("recompile_limit", 2)`.

        Raises:
            UserError: an unknown name; the nearest ones are told.
        """
        changes = {**({first: value} if isinstance(first, str) else first or {}), **changes}
        before, set_before = dict(self._values), set(self._set_here)
        self._set(changes)
        try:
            yield
        finally:
            for name in _named(changes):
                self._values[name] = before[name]
                if name not in set_before:
                    self._set_here.discard(name)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """All settings are after a `with` block as before it, whatever the block sets."""
        values = {name: set(value) if isinstance(value, set) else value for name, value in self._values.items()}
        set_here = set(self._set_here)
        try:
            yield
        finally:
            self._values.update(values)
            self._set_here.clear()
            self._set_here.update(set_here)


config = Config()
