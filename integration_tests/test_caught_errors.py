"""Errors that hang on what is in a tensor, in a `try` of the program: one graph, and plain Python where it raises."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compare import assert_same
from torch import nn

import torchjit

BACKENDS = ("eager", "aot_eager", "inductor")
GOOD, BAD = torch.tensor([0, 2]), torch.tensor([1, 9])


def own_kind(log, x, i):
    log.append("before")
    try:
        y = x[i] * 2
        log.append("found")
    except IndexError as error:
        log.append(str(error))
        y = x[:2]
    else:
        log.append("else")
    return y + 1


def broad_and_nested(log, x, i):
    try:
        try:
            y = x.gather(0, i[:, None])
        except KeyError:
            log.append("not this one")
            y = x
        finally:
            log.append("finally")
    except:  # noqa: E722
        log.append("broad")
        y = x.sum()
    return y


def raises_another(log, x, i):
    try:
        return F.embedding(i, x).exp()
    except Exception as error:
        log.append("caught")
        raise ValueError("no row") from error


def with_a_block(log, x, i):
    with contextlib.suppress(IndexError), torch.no_grad():
        log.append("in")
        x = x.index_select(0, i) * 3
    log.append(torch.is_grad_enabled())
    return x.sin()


def nobody_needs_it(log, x, i):
    try:
        x[i]
        x.T[..., i]
        F.cross_entropy(x[:2], i)
    except (IndexError, RuntimeError) as error:
        log.append(str(error))
    return x * 2


def constant_rows(log, x, i):
    try:
        y = torch.zeros(4).expand(4, 4)[i] + torch.ones(4, 4).gather(1, i[:, None])
    except (IndexError, RuntimeError) as error:
        log.append(str(error))
        y = x
    return y


def metadata_alone(log, x, i):
    try:
        y = torch.zeros_like(torch.linalg.cholesky(x.detach() @ x.detach().T + (5 - i.max()) * torch.eye(4)))
    except torch.linalg.LinAlgError as error:
        log.append(str(error))
        y = x
    return y


def rows_changed(log, x, i):
    y = x * 1
    try:
        y[i] = 0.0
        y = y.index_add(0, i, x[:2])
    except (IndexError, RuntimeError) as error:
        log.append(str(error))
    return y


def in_a_loop(log, x, i):
    for k in range(3):
        try:
            y = x[i // (k + 1)]
            break
        except IndexError:
            log.append(k)
            continue
    else:
        y = x
    return y


def a_row(log, x, i):
    try:
        y = x[i.max()] + x[i[0]]
    except IndexError as error:
        log.append(str(error))
        y = x.sum(0)
    return y * 2


def _callee(log, x, i):
    log.append("callee")
    return x[i]


def in_a_callee(log, x, i):
    y = x * 2
    try:
        y = _callee(log, y, i)
    except IndexError:
        y = _callee(log, y, i.clamp(0, 3))
    return y


def ignored_classes(log, x, i):
    try:
        return F.cross_entropy(x[:2], torch.where(i < 2, i, -100))
    except IndexError:
        log.append("unlikely")
        return x.sum()


def probabilities(log, x, i):
    odds = x.detach().sigmoid() + i.max() // 9
    try:
        loss = F.binary_cross_entropy(input=odds * 1.0, target=odds)
        torch.bernoulli(odds, p=0.5)
        return torch.bernoulli(odds) * x + loss + torch.zeros(4, 4).bernoulli_(odds)
    except RuntimeError as error:
        log.append(str(error))
        return x * 2


def drawn(log, x, i):
    try:
        torch.bernoulli(x.sigmoid() + i.max() // 9)
        return torch.bernoulli(x.sigmoid())
    except RuntimeError:
        log.append("caught")
        return torch.rand(2)


def elements(log, x, i):
    try:
        y = x.take(i - 9) + torch.take(x, index=i * 2 - 2)
        return y + x.flatten().index_fill(0, i - 4, 1.0).put(i, y, accumulate=True)[:2]
    except IndexError as error:
        log.append(str(error))
        return x * 2


def bags(log, x, i):
    try:
        return F.embedding_bag(i, x, torch.tensor([0]), mode="mean") + F.embedding(input=i, weight=x)
    except RuntimeError as error:
        log.append(str(error))
        return x * 2


def one_of(log, x, i):
    try:
        rows = F.one_hot(i, 4) + F.one_hot(i, num_classes=x.shape[0])
        torch.zeros_like(F.one_hot(i, 9))
        return rows.float() @ x.detach() + F.multi_margin_loss(x[:2], i)
    except RuntimeError as error:
        log.append(str(error))
        return x * 2


ONE_GRAPH = [
    own_kind, broad_and_nested, raises_another, with_a_block, nobody_needs_it, constant_rows, metadata_alone, rows_changed, a_row,
    in_a_loop, in_a_callee, ignored_classes, bags,
]  # fmt: skip


def written_before(log, x, i):
    x.add_(1)
    log.append("written")
    try:
        return x[i]
    except IndexError:
        return x


def not_known_to_raise_in_a_graph(log, x, i):
    try:
        return torch.take_along_dim(x, i + 7)
    except RuntimeError:
        log.append("caught")
        return x


def outcome(f, log, x, i):
    x = x.detach().clone().requires_grad_(x.requires_grad)
    torch.manual_seed(0)
    try:
        result = f(log, x, i)
    except Exception as error:
        return type(error), str(error), repr(error.__cause__), log, x.detach()
    if result.requires_grad:
        result.sum().backward()
    return result.detach(), x.grad, log, x.detach()


def compare(program, compiled, x, i):
    logs: Any = [], []
    wanted, found = (outcome(f, log, x, i) for f, log in zip((program, compiled), logs, strict=True))
    assert_same(found, wanted)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", ONE_GRAPH, ids=lambda p: p.__name__)
def test_one_graph(program, backend):
    compiled = torchjit.compile(program, backend=backend, fullgraph=True, dynamic=False)
    x = torch.randn(4, 4, requires_grad=backend != "aot_eager" and program is not rows_changed)
    for k, i in enumerate((GOOD, BAD, GOOD, BAD, GOOD)):
        compare(program, compiled, x, i)
        assert bool(torchjit.counters["rerun"]) == (k > 0 and program is not ignored_classes)
    assert len(compiled.compiled.specializations) == 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [written_before, not_known_to_raise_in_a_graph], ids=lambda p: p.__name__)
def test_a_break_where_the_code_may_not_run_again(program, backend):
    compiled = torchjit.compile(program, backend=backend)
    x = torch.randn(4, 4)
    for i in (GOOD, BAD, GOOD):
        compare(program, compiled, x, i)
    assert [b.reason.id for s in compiled.compiled.specializations for b in s.breaks] == ["TJ-FX-026"]
    with pytest.raises(torchjit.exc.Unsupported, match="TJ-FX-026"):
        torchjit.compile(program, backend=backend, fullgraph=True)([], x, GOOD)


@pytest.mark.parametrize("program", [probabilities, drawn, elements, one_of], ids=lambda p: p.__name__)
def test_what_few_programs_catch_breaks_the_graph(program):
    compiled = torchjit.compile(program, backend="aot_eager", dynamic=False)
    x = torch.randn(4, 4)
    for i in (GOOD, BAD, GOOD):
        compare(program, compiled, x, i)
    assert {b.reason.id for s in compiled.compiled.specializations for b in s.breaks} == {"TJ-FX-026"}


def test_sizes_that_vary():
    compiled: Any = torchjit.compile(own_kind, backend="inductor", dynamic=True)
    for rows in (4, 6, 12):
        for i in (GOOD, BAD, GOOD + 1):
            compare(own_kind, compiled, torch.randn(rows, 5), i)
    assert len(compiled.compiled.specializations) == 1


class Looks(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(4, 3)
        self.failed = torch.zeros(())

    def forward(self, i):
        try:
            y = self.rows(i)
        except IndexError:
            self.failed = self.failed + 1
            y = self.rows(i.clamp(0, 3))
        return y * 2


def test_errors_again_and_again_break_the_graph():
    model = Looks()
    twin = copy.deepcopy(model)
    compiled = torchjit.compile(model, backend="eager")
    for k in range(6):
        for i in (GOOD, BAD):
            compiled(i).sum().backward()
            twin(i).sum().backward()
            assert model.failed == twin.failed == k + (i is BAD)
    torch.testing.assert_close(model.rows.weight.grad, twin.rows.weight.grad)
    assert sum(torchjit.counters["rerun"].values()) == 3
    assert sum(torchjit.counters["graph_break"].values()) == 1


def test_a_specialisation_stays_where_the_limit_has_no_room_for_another():
    compiled: Any = torchjit.compile(own_kind, backend="eager", recompile_limit=1)
    for _ in range(3):
        for i in (GOOD, BAD):
            compare(own_kind, compiled, torch.ones(4, 4), i)
    assert sum(torchjit.counters["rerun"].values()) == 3 and len(compiled.entries()) == 1


def test_a_backend_of_somebody_else():
    compiled = torchjit.compile(own_kind, backend=lambda gm, example_inputs: gm)
    for i in (GOOD, BAD):
        compare(own_kind, compiled, torch.randn(4, 4), i)
    assert sum(torchjit.counters["graph_break"].values()) == 1


def test_arguments_by_name():
    """Of operations that may raise, where nothing catches it."""

    def program(x, i):
        loss = F.cross_entropy(input=x, target=i) + F.binary_cross_entropy(input=x.sigmoid(), target=x.sigmoid())
        return F.embedding(input=i, weight=x) * loss

    x = torch.randn(2, 3)
    compiled = torchjit.compile(program, backend="eager", fullgraph=True)
    assert_same(compiled(x, torch.tensor([0, 1])), program(x, torch.tensor([0, 1])))
