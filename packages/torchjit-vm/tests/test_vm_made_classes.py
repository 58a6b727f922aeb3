"""Classes that a region makes: their identity, and that nothing of the capture's own stays behind."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from vm_lazy import Jit, Num

from torchjit_core.reasons import GraphBreak


class Base:
    """What the classes below extend."""

    def value(self) -> Any:
        return 1


def test_each_call_makes_its_own_class() -> None:
    def program(x: Any) -> Any:
        class Made(Base):
            held = x

            def again(self) -> type:
                return __class__  # type: ignore[name-defined,no-any-return]

        return Made, Made(), Made().again()

    jit = Jit(program)
    (first, one, again), (second, two, _) = jit(Num(1)), jit(Num(2))
    assert jit.breaks == [] and len(jit.captured) == 1
    assert first is not second and type(one) is first is again and type(two) is second
    assert (first.held.value, second.held.value) == (1, 2)


def test_members_of_a_made_enum_belong_to_it() -> None:
    def program(x: Any) -> Any:
        import enum  # noqa: PLC0415  the statement is part of the program

        class Color(enum.Enum):
            RED = 1
            BLUE = 2

        return Color, Color.RED, [Color.BLUE], x + 1

    jit = Jit(program)
    color, red, (blue,), _ = jit(Num(1))
    assert jit.breaks == [] and color.RED is red and color(2) is blue


@pytest.mark.usefixtures("older_objects_rest")
def test_the_twin_is_forgotten() -> None:
    def program(x: Any) -> Any:
        class Made(Base):
            def value(self) -> Any:
                return super().value() + x

        return Made().value()

    gc.collect()
    before = len(Base.__subclasses__())
    jit = Jit(program)
    jit(Num(1))
    jit(Num(1))
    gc.collect()
    assert len(jit.captured) == 1 and len(Base.__subclasses__()) == before


def test_a_change_of_the_base_is_seen() -> None:
    class Parent:
        def value(self) -> Any:
            return 1

    def program(x: Any) -> Any:
        class Made(Parent):
            pass

        return Made().value() + x

    jit = Jit(program)
    assert jit(Num(1)).value == 2
    Parent.value = lambda self: 10  # type: ignore[method-assign]
    assert jit(Num(1)).value == 11
    assert len(jit.captured) == 2


def test_what_cannot_be_followed_breaks_at_the_statement() -> None:
    def program(x: Any) -> Any:
        class Meta(type):
            def mro(cls) -> list[type]:
                return super().mro()

        class Made(metaclass=Meta):
            held = x

        return Made.held + 1

    jit = Jit(program)
    assert jit(Num(1)).value == 2
    assert set(jit.breaks) == {"TJ-VM-011"}
    with pytest.raises(GraphBreak, match="mro"):
        Jit(program, fullgraph=True)(Num(1))
