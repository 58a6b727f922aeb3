"""A graph that raises for what is in its tensors: the region's own code runs in its place, so that all is as in plain Python."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import contextlib
import copy
import random
import signal
import traceback
import types
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchjit
from torchjit_core.writing import NEVER, WRITES_FROM

BACKENDS = ("eager", "aot_eager", "inductor")
GOOD, BAD = torch.tensor([0, 2]), torch.tensor([1, 9])
LOG: list[Any] = []


def in_the_middle(box, x, i):
    box.count += 1
    box.log.append("before")
    y = x[i] * 2
    box.log.append("after")
    box.count += 10
    return y


def nothing_but_the_graph(box, x, i):
    return x[i].sin()


def in_a_loop(box, x, i):
    y = x.sum()
    for k in range(3):
        box.log.append(k)
        y = y + x[i + 3 * (k == 1)].sum()
        box.last = k
    return y


@contextlib.contextmanager
def noted(box, what):
    box.log.append(f"enter {what}")
    try:
        yield
    finally:
        box.log.append(f"leave {what}")


def in_blocks(box, x, i):
    with noted(box, "outer"), torch.no_grad():
        try:
            box.log.append("try")
            y = x[i].exp()
        finally:
            box.log.append(("finally", torch.is_grad_enabled()))
    return y + 1


def _callee(box, x, i):
    box.log.append("callee")
    return F.embedding(i, x)


def below_a_callee(box, x, i):
    box.seen = i
    return _callee(box, x, i).sum() + 1


def behind_a_break(box, x, i):
    y = x + 1
    box.log.append("first")
    torchjit.graph_break()
    box.log.append("second")
    return _callee(box, y, i) * 2


def _broken_callee(box, x, i):
    box.log.append("in")
    y = x.exp()
    torchjit.graph_break()
    box.log.append("again")
    return y[i]


def behind_a_break_in_a_callee(box, x, i):
    try:
        return _broken_callee(box, x, i) + 1
    except IndexError as error:
        box.log.append(str(error))
        raise KeyError("k") from error


def with_random_numbers(box, x, i):
    y = F.dropout(x, 0.5, training=True)
    box.log.append("drawn")
    return y[i] + torch.rand(2, 1)


def with_reports(box, x, i):
    warnings.warn(f"about to look up {box.count}", stacklevel=1)
    y = x[i] * 2
    warnings.warn("looked up", stacklevel=1)
    return y


def with_other_dtypes(box, x, i):
    box.log.append("in")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.T
        return y[i].float()


def factorised(box, x, i):
    box.count += 1
    return torch.linalg.cholesky(x @ x.T - i.max() * torch.eye(4))


@torch.library.custom_op("graphs_that_raise::looked_up", mutates_args=())
def looked_up(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    LOG.append("looked up")
    return x[i]


@looked_up.register_fake
def _(x, i):
    return x.new_empty((i.shape[0], x.shape[1]))


def outcome(f, box, x, i):
    """What a call gives and leaves behind."""
    before = torch.random.get_rng_state()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result = f(box, x, i)
        except Exception as error:
            entries = [(e.name, e.line) for e in traceback.extract_tb(error.__traceback__)][1:]
            result = (type(error), str(error), entries, repr(error.__context__), repr(error.__cause__))
    state = torch.random.get_rng_state()
    torch.random.set_rng_state(before)
    return result, vars(box), state, [(str(w.message), w.lineno) for w in warned]


def compare(program, backend, graphs=None):
    torchjit.reset()
    compiled = torchjit.compile(program, backend=backend, dynamic=False)
    boxes = [types.SimpleNamespace(count=0, last=None, log=[], seen=None) for _ in range(2)]
    x = torch.randn(4, 4)
    for i in (GOOD, GOOD, BAD, GOOD, BAD):
        boxes[1] = copy.deepcopy(boxes[0])
        wanted, found = (outcome(f, box, x, i) for f, box in zip((program, compiled), boxes, strict=True))
        assert str(found) == str(wanted) or torch.allclose(found[0], wanted[0])
        for a, b in zip(found[1:], wanted[1:], strict=True):
            assert str(a) == str(b)
    if graphs is not None:
        assert compiled.compiled.stats.graph_count == graphs
    return compiled


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "program",
    [
        in_the_middle, nothing_but_the_graph, in_a_loop, in_blocks, below_a_callee, behind_a_break, behind_a_break_in_a_callee,
        with_random_numbers, with_reports, with_other_dtypes, factorised,
    ],
    ids=lambda p: p.__name__,
)  # fmt: skip
def test_errors_and_effects_are_those_of_plain_python(program, backend):
    compare(program, backend)
    assert torchjit.counters["rerun"]


REFUSED = {
    "bincount": lambda x, i: torch.bincount(2 - i, minlength=9),
    "cholesky_ex": lambda x, i: torch.linalg.cholesky_ex(x @ x.T + (5 - i.max()) * 99 * torch.eye(4), check_errors=True)[0],
    "floor_divide": lambda x, i: i // (i - 9),
    "fmod": lambda x, i: torch.fmod(i, i - 9),
    "histc": lambda x, i: torch.histc(torch.where(i.max() > 5, x * float("inf"), x)),
    "inv_ex": lambda x, i: torch.linalg.inv_ex(torch.eye(4) * (9 - i.max()), check_errors=True)[0],
    "masked_scatter_": lambda x, i: torch.zeros(4, 4).masked_scatter_((x == x) & (i.max() > 5), x[:2]),
    "matrix_power": lambda x, i: torch.linalg.matrix_power(torch.eye(4) * (9 - i.max()), -2),
    "multi_margin_loss": lambda x, i: F.multi_margin_loss(x[:2], i),
    "normal": lambda x, i: torch.normal(x, 5.0 - i.max() + x * 0),
    "poisson": lambda x, i: torch.poisson(x * 0 + 5.0 - i.max()),
    "quantile": lambda x, i: torch.quantile(x, i / 4),
    "remainder": lambda x, i: i % (i - 9),
    "repeat_interleave": lambda x, i: x[:2].repeat_interleave(2 - i, dim=0),
    "segment_reduce": lambda x, i: torch.segment_reduce(x, "sum", lengths=torch.stack([2 + i.max(), 2 - i.max()])),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("backend", BACKENDS)
def test_whatever_raises_behind_random_numbers(backend, name):
    def program(box, x, i):
        y = F.dropout(x.abs() + 1, 0.5)
        box.log.append("drawn")
        y = REFUSED[name](y, i)
        box.log.append("done")
        return y

    compare(program, backend)


def counted(box, x, i):
    box.count += 1
    return x[i]


def test_a_compiled_function_inside_of_another_one():
    inner = torchjit.compile(in_the_middle, backend="eager")

    def outer(box, x, i):
        box.count += 100
        return inner(box, x, i) + 1

    compare(outer, "eager")


def written_before(box, x, i):
    x.add_(1)
    return x[i]


def drawn_before(box, x, i):
    return x[i] * random.random()


def with_an_operator_of_ours(box, x, i):
    return looked_up(x, i)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [written_before, drawn_before, with_an_operator_of_ours], ids=lambda p: p.__name__)
def test_what_has_happened_does_not_happen_again(program, backend):
    compiled = torchjit.compile(program, backend=backend)
    box, x = types.SimpleNamespace(), torch.zeros(4, 4)
    compiled(box, x, GOOD)
    LOG.clear()
    with pytest.raises((IndexError, RuntimeError)):
        compiled(box, x, BAD)
    assert x[0, 0] == 2 * (program is written_before)
    assert len(LOG) == (program is with_an_operator_of_ours)
    # There all that is written is written at the end of the graph.
    assert bool(torchjit.counters["rerun"]) == (program is written_before and backend == "aot_eager")


def ours(program, raises):
    """`program` compiled by what counts as a backend of the package, whose graphs run `raises` first."""

    def backend(gm, example_inputs):
        def run(*inputs):
            raises()
            return gm(*inputs)

        return run

    backend.__module__ = "torchjit.backends"
    return torchjit.compile(program, backend=backend)


def test_a_signal_handler_does_not_make_code_run_again():
    def handler(number, frame):
        raise RuntimeError("time is over")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        for program in (counted, nothing_but_the_graph):
            box = types.SimpleNamespace(count=0)
            with pytest.raises(RuntimeError, match="time is over"):
                ours(program, lambda: signal.raise_signal(signal.SIGUSR1))(box, torch.ones(4, 4), GOOD)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not torchjit.counters["rerun"]


class OwnError(RuntimeError):
    pass


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), OwnError(), RuntimeError("CUDA error: device-side assert triggered")], ids=repr
)
def test_errors_that_no_operation_raises(error):
    def raises():
        raise error

    for program in (counted, nothing_but_the_graph):
        with pytest.raises(type(error)) as raised:
            ours(program, raises)(types.SimpleNamespace(count=0), torch.ones(4, 4), GOOD)
        assert raised.value is error
    assert not torchjit.counters["rerun"]


def test_tensors_that_a_hook_was_given():
    x = torch.randn(4, 4, requires_grad=True)
    compiled = torchjit.compile(lambda box, x, i: (x * x)[i], backend="eager")
    given = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: given.append(t) or t, lambda t: t):
        for i in (GOOD, BAD):
            with contextlib.suppress(IndexError):
                compiled(None, x, i)
    assert not torchjit.counters["rerun"]


def test_a_graph_that_raises_alone():
    def raises():
        raise RuntimeError("a defect of the backend")

    box, x = types.SimpleNamespace(count=0), torch.ones(4, 4)
    with pytest.raises(RuntimeError, match="a defect"):
        ours(counted, raises)(box, x, GOOD)
    with torchjit.config.patch(on_error="eager"):
        compiled = ours(counted, raises)
        box.count = 0
        for _ in range(2):
            assert compiled(box, x, GOOD).shape == (2, 4)
        with pytest.warns(RuntimeWarning, match="TJ-API-023"):
            compiled(box, x, GOOD)
        assert compiled(box, x, GOOD).shape == (2, 4)
    assert box.count == 4


def test_a_backend_of_somebody_else():
    compiled = torchjit.compile(counted, backend=lambda gm, example_inputs: gm)
    box, x = types.SimpleNamespace(count=0), torch.ones(4, 4)
    compiled(box, x, GOOD)
    with pytest.raises(IndexError):
        compiled(box, x, BAD)
    assert box.count == 1 and not torchjit.counters["rerun"]


WRITES = {
    "another shape": lambda x, i: x.__setitem__(i, x + 1),
    "onto itself": lambda x, i: x.scatter_(0, i[:, None], x),
    "a row further": lambda x, i: x[1:].add_(x[:-1]),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("backend", ("eager", "aot_eager"))
@pytest.mark.parametrize("dynamic", (False, True))
def test_what_eager_refuses_to_write_is_not_in_a_graph(backend, name, dynamic):
    """Its code may not run again: other tensors have been written."""
    write = WRITES[name]

    def program(box, x, other, i):
        other.add_(1)
        box.count += 1
        write(x, i)
        box.count += 1

    seen = []
    for function in (program, torchjit.compile(program, backend=backend, dynamic=dynamic)):
        box, x, other = types.SimpleNamespace(count=0), torch.arange(12.0).view(3, 4), torch.zeros(2)
        with pytest.raises(RuntimeError) as caught:
            function(box, x, other, GOOD)
        seen.append((box.count, x.tolist(), other.tolist(), str(caught.value)))
    assert seen[0] == seen[1]


FAULTS = [
    KeyError("buf7"),
    AttributeError("'NoneType' object has no attribute 'data_ptr'"),
    NameError("buf3"),
    ImportError("gone"),
]


def raising_fault(error):
    """As a host program raises it: from generated code."""
    space = {WRITES_FROM: NEVER, "error": error}
    exec("def raises():\n    raise error", space)
    return space["raises"]


@pytest.mark.parametrize("error", FAULTS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("program", [counted, nothing_but_the_graph])
def test_a_fault_of_a_compiled_graph_never_reaches_the_program(program, error):
    """The region's own code runs in its place, the entry is dropped, and it is told once."""
    box, x = types.SimpleNamespace(count=0), torch.ones(4, 4)
    want = program(types.SimpleNamespace(count=0), x, GOOD)
    with torchjit.config.patch(on_error="eager"):
        compiled = ours(program, raising_fault(error))
        with pytest.warns(RuntimeWarning, match="TJ-API-049"):
            assert torch.equal(compiled(box, x, GOOD), want)
        assert not compiled.compiled.root.door.entries()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(3):
                assert torch.equal(compiled(box, x, GOOD), want)
    assert box.count in (0, 4)
    with pytest.raises(torchjit.exc.InvalidIR, match="TJ-API-049") as raised:
        ours(program, raising_fault(error))(box, x, GOOD)
    assert raised.value.__cause__ is error


def test_a_fault_behind_a_write_is_told_as_ours():
    def writes(x, i):
        x.add_(1)
        return x[i]

    x = torch.ones(4, 4)
    space = {WRITES_FROM: 2, "error": KeyError("buf1"), "x": x}
    exec("def raises():\n    x.add_(1)\n    raise error", space)
    with torchjit.config.patch(on_error="eager"):
        compiled = ours(writes, space["raises"])
        with pytest.raises(torchjit.exc.InvalidIR, match="after it had written to an input") as raised:
            compiled(x, GOOD)
    assert type(raised.value.__cause__) is KeyError


def test_a_programs_own_key_error_is_its_own():
    """From a handler's frame, or code that the program registered: no fault of a graph."""

    def raises():
        raise KeyError("the program's")

    with torchjit.config.patch(on_error="eager"):
        compiled = ours(counted, raises)
        with pytest.raises(KeyError, match="the program's"):
            compiled(types.SimpleNamespace(count=0), torch.ones(4, 4), GOOD)
