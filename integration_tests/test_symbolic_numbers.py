"""Numbers that changed between calls are symbols in the graph; Python's own operations on them give what Python gives."""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchjit

EXPRESSIONS = [
    '"a %s" % n', '"a %s" % (n + 1)', '"%s %r" % (n, n * 2)', '"{}".format(n)', 'f"{n!r:>4}"', "str(n + 1)", "repr((n, 1))",
    'f"{[n]}"', '"%5.2f" % (n / 2)', '"ab"[:n]', '"abcdef"[n % 3]', "[1, 2, 3][n % 3]", "[*range(5)][n:]", '"x" * n',
    "[1] * n", "list(range(n))", "{n: 1}", "n in [1, 2]", '"abcdef".find("a", n)', "{1: 2}.get(n)", "divmod(n, 2)",
    "hex(n)", "round(n / 3, 2)", "min(n, 3)", "sum([n, 1])", "bool(n)", "isinstance(n, int)", "type(n).__name__", "hash(n)",
    "{n, 2}", "n is 3", "n is None", "n == 3", "n is not True", 'n if n > 3 else "s"', "max([1, 2, n])", "abs(-n)", "float(n)",
    "n ** 2", "n & 1", "pow(n, 2, 5)", "n / 2", "-n % 3", "sorted([3, n, 1])", "(n, 1) < (3, 2)", "[n] == [3]", "n in {3: 1}",
    "slice(n)", "range(n)", "dict(a=n)", "n.real", 'format(n, "x")', "any([n])", "not n", "n and 1", "n or 1", "n.numerator",
    "math.sqrt(n)", "math.floor(n / 2)", "math.gcd(n, 4)", "operator.add(n, 1)", "copy.copy(n)", "copy.deepcopy([n])",
    "int(n * 0.5)", "math.floor(float(n) * 0.75)", "math.ceil(n * -0.25)", "int(-1.5 * n)", "int(n * 0.1)", "round(n * 0.5)", "int(n * 0.5 * 3.0)",
]  # fmt: skip


def _outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        value = function(*args)[1]
    except Exception as error:
        return repr(error)
    return type(value), value


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_like_python(expression: str) -> None:
    """As an int argument, as a size, and as a float: the same value of the same type, or the same exception."""
    namespace: dict[str, Any] = {"math": math, "operator": operator, "copy": copy}
    source = (
        f"def ints(x, n): return x + n, {expression}\ndef sizes(x, n): n = x.shape[0]; return x + n, {expression}\n"
    )
    exec(compile(source, "<numbers>", "exec"), namespace)
    cases = [("ints", (2, 3, 4, 7, 1, 0)), ("sizes", (2, 3, 5, 1)), ("ints", (2.5, 3.0, 4.25, 0.0))]
    for name, numbers in cases:
        function = namespace[name]
        torchjit.reset()
        compiled = torchjit.compile(function, backend="eager")
        for number in numbers:
            x = torch.ones(int(number))
            assert _outcome(compiled, x, number) == _outcome(function, x, number), (name, number)


@pytest.mark.parametrize("mode", ["bicubic", "bilinear", "nearest", "area"])
@pytest.mark.parametrize("scale", [2, 0.5, 1.5])
def test_images_that_are_scaled_have_any_size(mode: str, scale: float) -> None:
    """What a size times 2.0, 0.5 or 1.5 is rounded to varies with the size."""

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, scale_factor=scale, mode=mode)

    compiled = torchjit.compile(scaled, backend="eager", dynamic=True)
    for n in (12, 15, 18, 31):
        x = torch.arange(3.0 * n * 9).reshape(1, 3, n, 9)
        assert torch.equal(compiled(x), scaled(x))
    assert len(compiled.compiled.stats.regions) == 1, compiled.compiled.stats.recompiles


def test_rounded_products_of_huge_ints_are_pythons() -> None:
    def halved(x: torch.Tensor, n: int) -> tuple[torch.Tensor, int]:
        return x + 1, int(n * 0.5)

    compiled = torchjit.compile(halved, backend="eager")
    for n in (6, 9, 2**60 + 3, 2**60 + 7):
        assert compiled(torch.ones(1), n)[1] == int(n * 0.5)
