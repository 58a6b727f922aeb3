"""What a break or a recompilation tells: the line to write, and which line costs most. The cures are tried."""

# mypy: allow-untyped-calls, allow-untyped-defs

import logging
import sys

import numpy as np
import pytest
import torch

import torchjit
from torchjit.compiler import compilation_of
from torchjit.inspection import describe
from torchjit_core.reasons import find_reason
from torchjit_report.cures import cures
from torchjit_report.time_lost import SWITCH_SECONDS

NUMBERS = torch.tensor([1.0, -2.0, 3.0])


def prints(x):
    y = x.sin()
    print("half way")
    return y.cos()


def reads_item(x):
    return x * x.sum().item()


def reads_float(x):
    return x * float(x.sum())


def reads_list(x):
    return x + x.tolist()[0]


def masks(x):
    return x[x > 0] + 1


def nonzero(x):
    return x.nonzero() + 1


def unique(x):
    return x.unique() * 2


def branches(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


def writes(x):
    sys.stdout.write("")
    return x.sin()


def asked_for(x):
    torchjit.graph_break("the tokenizer is not ready")
    return x + 1


@torchjit.disable(reason="it talks to a server")
def remote(x):
    return x + 1


def calls_disabled(x):
    return remote(x).cos()


def told_for(function):
    told = torchjit.explain(function)(NUMBERS)
    assert told.graph_break_count == 1, str(told)
    return told


@pytest.mark.parametrize("function", [reads_item, reads_float, reads_list, masks, nonzero, unique])
def test_the_setting_that_a_break_names_removes_it(function):
    told = told_for(function)
    (line,) = [h.partition(": ")[2] for h in told.breaks[0].hints if "torchjit.config." in h]
    setting, value = line.removeprefix("torchjit.config.").split(" = ")
    assert value == "True"
    with torchjit.config.patch(**{setting: True}):
        assert torchjit.explain(function)(NUMBERS).graph_break_count == 0
    assert line in str(told)


def test_print_names_the_line_that_lets_it_run_later(capsys):
    told = told_for(prints)
    hint = told.breaks[0].hints[0]
    assert hint.endswith("torchjit.config.reorderable_logging_functions.add(print)")
    assert not any("allow_in_graph" in h for h in told.breaks[0].hints)
    torchjit.config.reorderable_logging_functions.add(print)
    try:
        assert torchjit.explain(prints)(NUMBERS).graph_break_count == 0
    finally:
        torchjit.config.reorderable_logging_functions.remove(print)
    assert capsys.readouterr().out == "half way\n" * 2


def test_streams_and_branches_have_cures_of_their_own():
    assert "print" in told_for(writes).breaks[0].hints[0]
    hints = told_for(branches).breaks[0].hints
    assert "torch.where" in hints[0]
    assert "torch.cond" in hints[1]


def draws(x):
    return x + 1 if np.random.rand() < 2 else x


def test_random_numbers_of_numpy_are_named_as_such():
    (told,) = told_for(draws).breaks
    assert "draws a random number" in str(told) and "torch.rand" in told.hints[0] and "tensor of" not in str(told)


def scales_rows(x):
    return torch.stack([row * 2 for row in x])


def test_a_loop_over_a_varying_number_of_rows_says_so_and_the_other_spelling_unrolls_it():
    fast = torchjit.compile(scales_rows, backend="eager")
    for rows in (4, 6, 5):
        fast(torch.ones(rows, 2))
    (told,) = fast.compiled.stats.breaks
    assert told.reason_id == "TJ-FX-032" and any("x.unbind(0)" in hint for hint in told.hints)
    unrolled = torchjit.compile(lambda x: torch.stack([row * 2 for row in x.unbind(0)]), backend="eager")
    for rows in (4, 6, 5):
        unrolled(torch.ones(rows, 2))
    assert not unrolled.compiled.stats.breaks
    assert "compute all rows at once" in unrolled.compiled.stats.recompiles[-1].advice


def halves(x):
    yield x[:1] * 2
    yield x[1:] * 2


def test_a_generator_function_is_named_and_what_iterates_over_it_is_one_graph():
    with pytest.warns(RuntimeWarning, match="TJ-VM-042.*halves"):
        assert len(list(torchjit.compile(halves, on_error="eager")(NUMBERS))) == 2
    assert torchjit.explain(lambda x: torch.cat(list(halves(x))))(NUMBERS).graph_break_count == 0


def test_words_of_the_program_appear():
    assert "the tokenizer is not ready" in str(told_for(asked_for))
    assert "it talks to a server" in str(told_for(calls_disabled))


def test_a_reason_without_cures_of_its_own_keeps_its_hints():
    for id in ("TJ-VM-002", "TJ-FX-009"):
        why = find_reason(id)
        assert cures(why, "some_library.function") == why.hints


@pytest.mark.parametrize(("function", "line"), [(prints, "functions.add(print)"), (masks, "output_shape_ops = True")])
def test_full_graphs_name_the_same_cure(function, line):
    with pytest.raises(torchjit.exc.Unsupported) as caught:
        torchjit.compile(function, backend="eager", fullgraph=True)(NUMBERS)
    assert line in str(caught.value)


def test_continuations_have_the_line_where_they_begin():
    told = told_for(prints)
    first = prints.__code__.co_firstlineno
    assert [r.function for r in told.regions] == ["prints", f"prints (continuation at line {first + 2})"]


def in_a_loop(x):
    for _ in range(3):
        x = x + 1
        print("", end="")
    print("", end="")
    return x.sum().item()


def test_lines_are_grouped_and_ranked_by_time():
    compiled = torchjit.compile(in_a_loop, backend="eager")
    for _ in range(4):
        compiled(NUMBERS)
    told = describe(compilation_of(compiled))
    first = in_a_loop.__code__.co_firstlineno
    found = {o.location.lineno - first: o for o in told.obstacles}
    assert sorted(found) == [3, 4, 5]
    assert (found[3].count, found[4].count, found[5].count) == (12, 4, 4)
    assert [o.seconds for o in told.obstacles] == sorted((o.seconds for o in told.obstacles), reverse=True)
    assert all(o.seconds >= o.count * SWITCH_SECONDS for o in told.obstacles)
    assert str(told).count("in_a_loop\n") == 3


def five_and_one(x):
    for _ in range(5):
        torchjit.graph_break("cheap")
    torchjit.graph_break("dear")
    for _ in range(150):
        x = x.sin() + 1
    return x


def test_one_break_before_much_code_costs_more_than_many_before_little():
    torchjit.explain(five_and_one)(NUMBERS)  # what a process does once is in no figure below
    runs = []
    for _ in range(3):
        told = torchjit.explain(five_and_one)(NUMBERS)
        cheap, dear = sorted(told.obstacles, key=lambda o: o.location.lineno)
        assert "cheap" in cheap.texts[0] and "dear" in dear.texts[0] and dear.count < cheap.count
        runs.append((cheap, dear))
        texts = [o.texts[0].strip() for o in told.obstacles]
        assert str(told).index(texts[0]) < str(told).index(texts[1])
        assert [o["seconds"] for o in told.as_dict()["obstacles"]] == [o.seconds for o in told.obstacles]
    # A collection of garbage, or another process, may cost a capture more than all of its own work: the least of three.
    assert min(dear.seconds for _, dear in runs) > min(cheap.seconds for cheap, _ in runs)
    assert min(dear.lost.compiling for _, dear in runs) > min(cheap.lost.compiling for cheap, _ in runs)
    assert "compiling" in str(runs[0][1].lost)


def test_calls_make_a_break_costly():
    def often(x):
        y = x + 1
        torchjit.graph_break("often")
        return y * 2

    compiled = torchjit.compile(often, backend="eager")
    costs = []
    for calls in (1, 2000):
        for _ in range(calls):
            compiled(NUMBERS)
        (obstacle,) = compilation_of(compiled).stats.obstacles
        costs.append(obstacle)
    assert costs[0].lost.compiling == costs[1].lost.compiling
    assert costs[1].count >= 2000 and costs[1].seconds - costs[0].seconds >= 1990 * SWITCH_SECONDS
    assert f"{costs[1].lost.switches:,} times" in str(costs[1])


def test_a_recompile_costs_what_it_took_and_stands_among_the_breaks():
    def scale(x, kind):
        torchjit.graph_break("first")
        for _ in range(150 * (kind == "long")):
            x = x + 1
        return x * len(kind)

    compiled = torchjit.compile(scale, backend="eager")
    for kind in ("a", "long"):
        compiled(NUMBERS, kind)
    told = compilation_of(compiled).stats
    assert sorted(o.kind for o in told.obstacles) == ["Break", "Recompile"]
    missed = next(o for o in told.obstacles if o.kind == "Recompile")
    assert missed.lost.compiling == sum(r.seconds for r in told.regions if r.recompile) and not missed.lost.switches


def test_recompiles_of_one_line_are_one_entry():
    def scale(x, kind):
        return x * len(kind)

    compiled = torchjit.compile(scale, backend="eager")
    for kind in ("a", "bb", [1], "x" * 4000):
        compiled(NUMBERS, kind)
    told = describe(compilation_of(compiled))
    assert sum(o.count for o in told.obstacles if o.kind == "Recompile") == len(told.recompiles) == 3
    assert max(map(len, str(told).splitlines())) < 1200
    assert all(len(g) <= 240 for r in told.regions for g in r.guards)


def test_tensors_are_not_printed():
    table = {"weights": torch.full((50,), 0.8125), "pair": (torch.ones(2), 3)}

    def lookup(x, extra=None):
        y = x * table["weights"].sum() + table["pair"][1]
        return y if extra is None else y + 1

    compiled = torchjit.compile(lookup, backend="eager")
    compiled(NUMBERS)
    compiled(NUMBERS, [NUMBERS] * 3)
    table["weights"] = table["weights"].double()
    compiled(NUMBERS)
    told = describe(compilation_of(compiled))
    text = str(told) + "".join(g for r in told.regions for g in r.guards)
    assert "0.8125" not in text
    assert "tensor([" not in text


def asks_for_a_logger(x):
    logging.getLogger("asked").debug("x")
    return x.sin()


def test_a_function_that_is_left_to_python_is_told_with_its_module():
    with pytest.raises(torchjit.exc.Unsupported, match=r"left to Python: logging\.getLogger") as info:
        torchjit.compile(asks_for_a_logger, backend="eager", fullgraph=True)(NUMBERS)
    assert info.value.reason.id == "TJ-VM-003" and info.value.hints
