"""`PassThrough`: a method that passes its arguments on is not interpreted, unless something is in the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, cast

import pytest

from torchjit_core.region import RegionCode
from torchjit_vm import Captured, CapturePolicy, PassThrough, Region, capture

WATCHERS: dict[str, Any] = {}


def asked() -> bool:
    return False


class Base:
    replaced: Any = None

    def __init__(self) -> None:
        self.hooks: dict[str, Any] = {}

    def __call__(self, x: int, *, by: int = 1) -> Any:
        return self.start(x, by=by)

    def start(self, *args: Any, **kwargs: Any) -> Any:
        if self.replaced is not None:
            return self.replaced(*args, **kwargs)
        if asked() or self.hooks or WATCHERS:
            return "watched", self.work(*args, **kwargs)
        return self.work(*args, **kwargs)

    def work(self, x: int, *, by: int) -> Any:
        return x * 10 + by


RULE = PassThrough(Base.start.__code__, "work", ("replaced",), ("hooks",), ("WATCHERS",), (("asked",),))


class Nothing:
    """A leaf handler without leaves."""

    leaf_types: tuple[type, ...] = ()

    def wants(self, obj: object, path: object) -> bool:
        return False

    def handles(self, fn: object) -> bool:
        return False

    def compile_region(self, leaves: Sequence[object], context: object) -> RegionCode:
        return RegionCode(target=None)


def taken(function: Callable[..., Any], *slots: Any, rule: PassThrough | None = RULE) -> Captured:
    handler: Any = Nothing()
    substitutes: dict[Any, object] = {} if rule is None else {Base.start: rule}
    return capture(
        Region.of_function(cast(FunctionType, function)),
        slots,
        leaves=handler,
        compiler=handler,
        continuations=lambda region: lambda *args: None,
        policy=CapturePolicy(substitutes=substitutes),
    )


def program(obj: Any, x: int) -> Any:
    return obj(x, by=2), obj(x)


def result_of(captured: Captured, *slots: Any) -> Any:
    return captured.target(*[path.resolve(slots) for path in captured.gather])


def texts(captured: Captured) -> set[str]:
    return {str(guard) for guard in captured.guards}


def test_the_result_and_the_guards_are_those_of_the_original() -> None:
    obj = Base()
    short, full = taken(program, obj, 4), taken(program, obj, 4, rule=None)
    assert result_of(short, obj, 4) == result_of(full, obj, 4) == program(obj, 4)
    assert texts(short) == texts(full)


def hooked(obj: Base, patch: pytest.MonkeyPatch) -> None:
    obj.hooks["a"] = 1


def replaced(obj: Base, patch: pytest.MonkeyPatch) -> None:
    obj.replaced = max


def watched(obj: Base, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(WATCHERS, "a", 1)


def answered(obj: Base, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(globals(), "asked", lambda: True)


def other_work(obj: Base, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Base, "work", lambda self, x, by: x - by)


def other_code(obj: Base, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Base.start, "__code__", (lambda self, x, by: (x, by)).__code__)


CHANGES = [hooked, replaced, watched, answered, other_work, other_code]


def by_keyword(obj: Any, x: int) -> Any:
    return obj.start(x, by=3)


def positional(obj: Any, x: int) -> Any:
    return obj.start(x, 3) if obj.replaced is not None else obj.start(x, by=3)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_is_in_the_way_is_seen_by_guards_and_by_a_new_capture(
    change: Callable[[Base, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    single = positional if change is replaced else by_keyword
    obj = Base()
    before = taken(single, obj, 4)
    assert all(guard.check((obj, 4)) for guard in before.guards)
    change(obj, monkeypatch)
    assert not all(guard.check((obj, 4)) for guard in before.guards)
    assert result_of(taken(single, obj, 4), obj, 4) == single(obj, 4)
