"""`torchjit.config`: the process-wide settings.

Every compilation takes a frozen snapshot; no stage reads this object. What a program has set in `torch._dynamo.config` counts
where the setting of the same name is not set here.

    torchjit.config.recompile_limit = 16
    with torchjit.config.patch(automatic_dynamic_shapes=False):
        ...
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterator, Mapping
from typing import Any, final

import attrs

from torchjit.environment import read_environment
from torchjit.exc import UserAttributeError, unknown_name, wrong_type
from torchjit_core.described import Described, described_fields, kind_of
from torchjit_core.kinds import COUNT, FUNCTIONS, LENIENT_SWITCH, SOURCES, number
from torchjit_core.reasons import reason
from torchjit_session import upstream
from torchjit_session.instead import SETTINGS
from torchjit_session.settings import Comparing, Settings
from torchjit_store.settings import StoreSettings

__all__ = ["Config", "Settings", "comparing", "config", "describe_settings", "store_settings"]

BAD_SETTING = reason(
    "TJ-API-061",
    "a setting has a value that it cannot have",
    "The settings of torchjit.config take the types that torchjit.config.Settings gives them.",
    "docs/settings.md lists the settings with their values and defaults.",
)


_ALIASES = {"cache_size_limit": "recompile_limit", "accumulated_cache_size_limit": "accumulated_recompile_limit"}
"""Upstream's older names."""
_FIELDS = {f.name: f for f in attrs.fields(Settings)}
_KINDS = {
    "bool": LENIENT_SWITCH,
    "int": COUNT,
    "float": number("a number of seconds, at least 0", 0, math.inf),
    "str": SOURCES,
    "set[Any]": FUNCTIONS,
}
"""By the annotations of `Settings`."""


def _named(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes by today's names, their values checked.

    Raises:
        UserError: there is no such setting, or it cannot have this value.
    """
    named = {}
    for given, value in changes.items():
        name = _ALIASES.get(given, given)
        if name not in _FIELDS:
            raise unknown_name("setting", given, _FIELDS, UserAttributeError, SETTINGS)
        named[name] = kind_of(_FIELDS[name], _KINDS).check(f"torchjit.config.{given}", value, BAD_SETTING)
    return named


def describe_settings() -> list[Described]:
    """Every setting; what each does is told by the docstring of `Settings`."""
    return described_fields(Settings, _KINDS, "torch._dynamo.config", "at each compilation")


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
        if name.startswith("_") or name not in _FIELDS:
            # AttributeError, so that hasattr and copy work; the message is the helpful one
            raise AttributeError(str(unknown_name("setting", name, _FIELDS, instead=SETTINGS)))
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self._set({name: value})

    def __delattr__(self, name: str) -> None:
        raise UserAttributeError(
            BAD_SETTING, f"torchjit.config.{name} cannot be deleted; assign its default, or use torchjit.config.patch"
        )

    def __dir__(self) -> list[str]:
        return [*_FIELDS, "is_off", "kept", "patch", "snapshot"]

    def _set(self, changes: Mapping[str, Any]) -> None:
        named = _named(changes)
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

    def patch(
        self, first: Mapping[str, Any] | str | None = None, value: Any = None, /, **changes: Any
    ) -> contextlib._GeneratorContextManager[None]:
        """Change settings inside a `with` block or, as a decorator, inside a function.

        As upstream has it: `patch(recompile_limit=2)`, `patch({"recompile_limit": 2})`, `patch("recompile_limit", 2)`.

        Raises:
            UserError: at once: an unknown name, or a value that the setting cannot have; the nearest right ones are told.
        """
        if not isinstance(first, (str, Mapping, type(None))) or (first is None and value is not None):
            raise wrong_type("config.patch", first, "a dict of settings, or keywords")
        given = {**({first: value} if isinstance(first, str) else first or {}), **changes}
        return self._patched(_named(given))

    @contextlib.contextmanager
    def _patched(self, changes: Mapping[str, Any]) -> Iterator[None]:
        with self._restored({name: self._values[name] for name in changes}):
            self._set(changes)
            yield

    def kept(self) -> contextlib.AbstractContextManager[None]:
        """All settings are after a `with` block as before it, whatever the block sets."""
        return self._restored({name: copy.copy(value) for name, value in self._values.items()})

    @contextlib.contextmanager
    def _restored(self, values: Mapping[str, Any]) -> Iterator[None]:
        set_here = self._set_here & values.keys()
        try:
            yield
        finally:
            self._values.update(values)
            self._set_here.difference_update(values.keys() - set_here)
            self._set_here.update(set_here)


config = Config()


def store_settings() -> StoreSettings:
    """Where compiled entries are kept now, and what is done with them."""
    environment, settings = read_environment(), config.snapshot()
    return StoreSettings(
        mode="off" if environment.caches_off or not settings.caches else environment.store or settings.store,
        cache_dir=environment.cache_dir,
        remote=environment.remote_cache,
        secret=None if environment.bundle_key is None else environment.bundle_key.encode(),
        trusts_remote=environment.trust_remote,
    )


def comparing() -> Comparing:
    """How compiled code is compared with eager code now."""
    environment, settings = read_environment(), config.snapshot()
    keeps = settings.caches and not environment.caches_off
    return Comparing(environment.never_slower or settings.never_slower, environment.cache_dir, keeps)


def bundle_secret(key: str | bytes | None) -> bytes | None:
    """What bundles are signed with: what the program says, or TORCHJIT_BUNDLE_KEY, or nothing."""
    return key.encode() if isinstance(key, str) else key or store_settings().secret
