"""Texts of numbers that vary between calls, as training loops print them: no specialisation for each number."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import logging

import pytest
import torch
from torch.autograd import Variable

import torchjit
from torchjit.inspection import describe


def compiled(function, **options):
    return torchjit.compile(function, backend="eager", **options)


def regions(function) -> int:
    return len(describe(function.compiled).regions)


FORMS = {
    "f-string": lambda x, n: f"step {n} of {n * 2:5d}, {n!r:>4} {len(x)}",
    "format": lambda x, n: f"step {n} of {n * 2:5d}, {n!s} {n + 1}",
    "percent": lambda x, n: "step %d of %5d, %s %.2f" % (n, n * 2, n, n + 0.5),  # noqa: UP031
    "one percent": lambda x, n: "step %04d" % n,  # noqa: UP031
    "str and sum": lambda x, n: "step " + str(n) + "/" + repr(n + 1),
    "str of a text": lambda x, n: str(f"{n}") + f"[{f'{n:3}':>6}]",
    "in a container": lambda x, n: {"name": [f"layer{n}", (str(n), n)]},
}


OF_FLOATS = ("str and sum", "str of a text", "in a container")


@pytest.mark.parametrize("number, form", [(int, f) for f in FORMS] + [(float, f) for f in OF_FLOATS])
def test_a_text_that_leaves_the_region_fixes_no_number(number: type, form: str) -> None:
    def program(x, n):
        return x + n, FORMS[form](x, n)

    run = compiled(program)
    x = torch.randn(3)
    for n in range(2, 9):
        want, have = program(x, number(n)), run(x, number(n))
        assert torch.equal(have[0], want[0])
        assert have[1] == want[1]
    assert regions(run) == 2


def test_a_text_that_the_region_looks_at_fixes_what_it_was_made_of() -> None:
    table = {"3x4": 2.0, "4x4": 3.0, "5x4": 5.0}
    module = torch.nn.ModuleDict({f"layer{n}": torch.nn.Linear(2, 2) for n in range(6)})

    def program(x, n):
        name = f"layer{n}"
        text = f"{n}x{x.shape[1] * 2}"
        y = module[name](x) * table.get(text, 1.0)
        return y + 1 if name.endswith("4") or text == "3x4" else y, name, text.upper(), len(text), [text] * 2

    run = compiled(program)
    x = torch.randn(3, 2)
    for n in (2, 3, 4, 5, 3):
        want, have = program(x, n), run(x, n)
        assert torch.equal(have[0], want[0])
        assert have[1:] == want[1:]


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_loop_that_prints(dynamic: bool | None, capsys: pytest.CaptureFixture[str]) -> None:
    def train(x, first, scale):
        total = 0.0
        for index in range(6):
            step = first + index
            loss = (x * step * scale).sum()
            total += loss.item()
            print(f"step {step:3d}: loss {total:.4f}, lr {scale * step:.2e}", "epoch %d" % first, sep=" | ")  # noqa: UP031
        return total

    run = compiled(train, dynamic=dynamic)
    x = torch.randn(4)
    want = [train(x, n, n / 8) for n in range(1, 7)]
    said = capsys.readouterr().out
    assert [run(x, n, n / 8) for n in range(1, 7)] == want
    assert capsys.readouterr().out == said
    count = regions(run)
    run(x, 30, 0.3)
    assert regions(run) == count


def test_reports_and_errors(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("texts_of_numbers")

    def program(x, n):
        logger.warning(f"at {n}")
        if n > 5:
            raise ValueError(f"{n} is too many")
        return x * n

    run = compiled(program)
    for n in (1, 2, 3, 4, 7, 8):
        if n > 5:
            with pytest.raises(ValueError, match=f"^{n} is too many$"):
                run(torch.ones(2), n)
        else:
            run(torch.ones(2), n)
    assert [r.getMessage() for r in caplog.records] == [f"at {n}" for n in (1, 2, 3, 4, 7, 8)]


def test_what_may_raise_for_its_value_raises_where_plain_python_does() -> None:
    def program(x, n):
        seen = []
        try:
            seen.append("%c" % n)  # noqa: UP031
            seen.append("%d" % (n / x.shape[0]))  # noqa: UP031
            seen.append(f"{n:c}")
        except (OverflowError, ValueError) as error:
            seen.append(type(error).__name__)
        return x + 1, seen

    run = compiled(program)
    for n in (70, 71, 2**21, 72):
        assert run(torch.ones(2), n)[1] == program(torch.ones(2), n)[1]


def test_lists_that_a_comprehension_fills_across_breaks_are_one_specialisation() -> None:
    def program(x):
        return [row.sum().item() for row in x], [x[k].sum().item() * k for k in range(len(x))]

    run = compiled(program)
    x = torch.randn(12, 3)
    assert run(x) == program(x)
    assert regions(run) <= 9


def test_rows_of_a_tensor_with_symbolic_sizes_are_iterated_in_the_graph() -> None:
    def program(pairs):
        left, right = pairs
        return left * 2 + sum(row.sum() for row in pairs) + right

    run = compiled(program, dynamic=True)
    for n in (3, 5, 4):
        pairs = torch.randn(2, n)
        torch.testing.assert_close(run(pairs), program(pairs))
    assert not [b for r in describe(run.compiled).regions for b in r.breaks]


def test_a_variable_is_the_tensor_without_its_history() -> None:
    def program(x):
        y = Variable(x * 2)
        y.add_(1)
        return y * x, Variable(torch.ones(3), requires_grad=False)

    x = torch.randn(3, requires_grad=True)
    assert [b.reason_id for b in torchjit.explain(program)(x).breaks] == ["TJ-FX-007"] * 2
    have, want = compiled(program)(x), program(x)
    assert torch.equal(have[0], want[0])
    (grad,) = torch.autograd.grad(have[0].sum(), x)
    assert torch.equal(grad, torch.autograd.grad(want[0].sum(), x)[0])
    kept = compiled(lambda x: Variable(x))(x)
    assert not kept.requires_grad
    assert kept.data_ptr() == x.data_ptr()
