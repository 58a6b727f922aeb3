"""array.array in captures: against plain execution, in one region; from outside, across breaks, in copies and errors."""

from __future__ import annotations

import array
import copy
from collections.abc import Callable
from typing import Any

import pytest
from vm_compare import check
from vm_lazy import Jit, Num

Array: Any = array.array


class Index:
    def __index__(self) -> int:
        return 1


def attempt(*functions: Callable[[], Any]) -> list[Any]:
    found: list[Any] = []
    for function in functions:
        try:
            result = function()
            found.append((type(result).__name__, repr(result)))
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return found


def constructors(x: Num) -> Any:
    made = attempt(
        lambda: Array("i"), lambda: Array("i", [1, 2]), lambda: Array("d", (1, 2.5)), lambda: Array("i", range(3)),
        lambda: Array("b", b"ab"), lambda: Array("B", bytearray(b"ab")), lambda: Array("h", Array("i", [1, 2])),
        lambda: Array("i", (n * n for n in range(3))), lambda: Array("i", map(abs, [-1, 2])), lambda: Array("i", {1: 2}.keys()),
        lambda: Array("z"), lambda: Array("i", [1.5]), lambda: Array("b", [300]), lambda: Array("i", 3), lambda: Array(),
        lambda: Array("i", "ab"), lambda: Array("f", [0.1]),
    )  # fmt: skip
    return made, x + 1


def items(a: Any) -> Any:
    a[0] = 7
    a[-1] = True
    a[1:3] = Array("i", [8, 9, 10])
    del a[0]
    del a[::2]
    a[Index()] = 5
    first, *rest = a
    return a[0], a[-1], a[1:], a[::-1], a[Index()], first, rest, len(a), bool(a), bool(Array("i")), a


def item_errors(a: Any) -> Any:
    def store(key: Any, value: Any) -> Callable[[], Any]:
        def run() -> None:
            a[key] = value

        return run

    return attempt(
        lambda: a[10], lambda: a["x"], lambda: a[1.5], store(10, 1), store(0, "x"), store(0, 1.5), store(slice(0, 1), [1]),
        store(0, 1 << 40), lambda: a.pop(10), lambda: Array("i").pop(), lambda: a.index(99), lambda: a.remove(99),
        lambda: hash(a), lambda: a.append("x"), lambda: a.insert(0, None), lambda: a.missing, lambda: {a: 1}, lambda: a + [1],
        lambda: a * 1.5, lambda: a * "x", lambda: a < [1], lambda: a + Array("d", [1]), lambda: a.fromlist([1, "x"]), lambda: len(a),
    )  # fmt: skip


def methods(a: Any) -> Any:
    a.append(3)
    a.extend([4, 5])
    a.extend(Array("i", [6]))
    a.insert(1, 9)
    popped = a.pop(), a.pop(0)
    a.remove(9)
    a.reverse()
    a.frombytes(b"\x01\x00\x00\x00")
    a.fromlist([2, 2])
    swapped = a.__copy__()
    swapped.byteswap()
    return popped, a.count(2), a.index(2), a.tolist(), a.tobytes(), a.typecode, a.itemsize, swapped, a


def operators(a: Any, b: Any) -> Any:
    c = a
    c += b
    c *= 2
    d = a + b
    return (
        c is a,
        a,
        d,
        a * 2,
        2 * b,
        b * Index(),
        a == b,
        a != b,
        a < b,
        b <= Array("i", [1, 2, 3]),
        a == [1],
        b == Array("d", b),
    )


def searches(a: Any) -> Any:
    seen = [n for n in a]
    return (
        2 in a, 99 in a, "x" in a, 2.0 in a, None in a, seen, sum(a), max(a), sorted(a), list(reversed(a)), tuple(a),
        dict(enumerate(a)), list(zip(a, a)), [*a], set(a), list(map(str, a)), any(n > 2 for n in a),
    )  # fmt: skip


def texts(a: Any) -> Any:
    return (
        repr(a),
        str(a),
        f"{a}",
        f"{a!r:>40}",
        f"{a!a}",
        repr([a, Array("d", [float("nan")])]),
        " ".join([str(a)] * 2),
    )


def copies(a: Any) -> Any:
    one, two = copy.copy(a), copy.deepcopy([a, a])
    one.append(1)
    two[0].append(2)
    return one, two, two[0] is two[1], a


def kinds(a: Any) -> Any:
    import collections.abc

    return isinstance(a, Array), isinstance(a, collections.abc.MutableSequence), type(a) is Array, a is a, callable(a)


def held(a: Any, box: dict[str, Any]) -> Any:
    box["a"], box["new"] = a, Array("d", [1.5, float("inf")])
    box["new"][0] = 2.5
    iterator = iter(a)
    next(iterator)
    return [a, a], iterator


def written_then_undone(a: Any) -> Any:
    a.append(4)
    a.pop()
    return len(a)


PROGRAMS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (constructors, (Num(1),)), (items, (Array("i", range(6)),)), (item_errors, (Array("i", [1, 2, 3]),)),
    (methods, (Array("i", [1, 2]),)), (operators, (Array("i", [1, 2]), Array("i", [3]))), (searches, (Array("i", [3, 1, 2]),)),
    (texts, (Array("i", [1, 2]),)), (copies, (Array("i", [1, 2]),)), (kinds, (Array("i"),)), (held, (Array("i", [1, 2, 3]), {})),
    (written_then_undone, (Array("i", [1]),)),
]  # fmt: skip


@pytest.mark.parametrize(("program", "args"), PROGRAMS, ids=[p.__name__ for p, _ in PROGRAMS])
def test_as_plain_python(program: Callable[..., Any], args: tuple[Any, ...]) -> None:
    jit = check(program, *args)
    assert [(b.reason.id, b.detail) for c in jit.captured for b in c.breaks] == []


def broken(a: Any, x: Num) -> Any:
    b = Array("d", [1.0])
    a.append(1)
    iterator = iter(a)
    next(iterator)
    print(float(x) > 1)
    a.append(2)
    b.extend(Array("d", a))
    return a, b, list(iterator), x + a[0]


def test_across_a_break() -> None:
    jit = check(broken, Array("i", [5]), Num(2.0))
    assert sum(len(c.breaks) for c in jit.captured) > 0


def total(a: Any, x: Num) -> Any:
    return x * sum(a), a.typecode


def test_guards_compare_what_was_read() -> None:
    """Equal contents hit; another content, another typecode of the same bytes and another class miss."""
    jit = Jit(total)
    for a in (
        Array("i", [1, 2]),
        Array("i", [1, 2]),
        Array("i", [1, 3]),
        Array("I", [1, 2]),
        Array("f", [0.0]),
        [1, 2],
    ):
        if isinstance(a, list):
            with pytest.raises(AttributeError, match="'list' object has no attribute 'typecode'"):
                jit(a, Num(2.0))
            continue
        result, code = jit(a, Num(2.0))
        assert (result.value, code) == (2.0 * sum(a), a.typecode)
    assert len(jit.captured) == 5


def aliased(a: Any, b: Any) -> Any:
    a.append(1)
    return len(b), a is b


def test_aliases() -> None:
    jit = Jit(aliased)
    one, other = Array("i"), Array("i")
    assert jit(one, one) == (1, True)
    assert jit(one, other) == (0, False)
    assert jit(other, other) == (1, True)
    assert (one, other) == (Array("i", [1, 1]), Array("i", [1]))


class Words(array.array):  # type: ignore[type-arg]
    def __getitem__(self, key: Any) -> Any:
        return "word"


def derived(a: Any) -> Any:
    return a[0], len(a), Array.__getitem__(a, 0)


def test_derived_classes_keep_their_methods() -> None:
    assert Jit(derived)(Words("i", [1])) == ("word", 1, 1)
