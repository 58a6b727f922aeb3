"""Indices, lengths, masks and time steps held in tensors: made of constants, so that they are known, or rows taken by a number that is not."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

from typing import Any

import torch
from torch_programs import program, stateful

__all__: list[str] = []


# ---------------------------------------------------------------------- made of constants
@program(0, grad=False)
def time_steps(x):
    steps = torch.linspace(49, 0, 5).long()
    for t in steps:
        x = x * float(t) + steps[1].item()
    for i, t in enumerate(reversed(torch.linspace(0, 1, 4))):
        if t > 0.5:
            x = x + t.item() + i
    return x


@program(0, (50,), (3, 4))
def time_steps_that_index(table, x):
    steps = torch.arange(49, 0, -10)
    for i, t in enumerate(steps):
        x = x * table[t] + table[steps[i + 1]] if i + 1 < len(steps) else x
    return x


@program(0, (6, 3))
def lengths_in_a_tensor(x):
    lengths = torch.tensor([3, 1, 2])
    rows = torch.repeat_interleave(torch.arange(3), lengths)
    sums = torch.zeros(3, 3).index_add(0, rows, x)
    mask = lengths[:, None] > torch.arange(3)
    repeated = x.repeat_interleave(torch.tensor([1, 2, 0, 1, 1, 1]), 0)
    return sums, mask.nonzero(), rows.unique(), x[rows == 1], x[rows > 5], repeated, x.split(lengths.tolist())


@program(0, (6, 3))
def several_results_that_are_known(x):
    rows = torch.tensor([0, 2, 2, 1, 0, 0])
    kinds, places, counts = rows.unique(return_inverse=True, return_counts=True)
    i, j = (rows[:, None] == kinds).nonzero(as_tuple=True)
    mask = torch.tensor([[True, False, True]]).expand(6, 3)
    counts.add_(1)
    return x[i, j], kinds, places, counts, x[mask], torch.bincount(rows), x[:, mask[0]], x[rows == 0, 1], rows[rows > 0]


@program(0, (6, 3))
def masks_beside_other_indices(x):
    mask = torch.tensor([True, False, True])
    return x[None, :, mask], x[1, mask], x[:, mask] * 2, x[torch.tensor([True, False, False, True, True, False]), 1:]


@program(2, (6, 3))
def masks_without_dimensions(x):
    return x[torch.tensor(True)], x[torch.tensor(False)]


@program(1, (6, 3))
def a_mask_of_another_length(x):
    return x[torch.tensor([True, False, True])]


@program(1, grad=False)
def a_mask_that_is_written(x):
    mask = torch.tensor([True, False, True])
    mask[x.shape[0] - 1] = False
    return x[mask]


# ---------------------------------------------------------------------- rows taken by a number
def _row(most_breaks: int) -> Any:
    return program(most_breaks, (50, 2), (3, 2), (), grad=False)


@program(0, (50, 2), (3, 2), ())
def rows_with_gradients(table, x, t):
    i = (t.detach().abs() * 10).long()
    return table[-i - 1] * x + table[i].sin()


@_row(0)
def rows_in_a_loop(table, x, t):
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        for k in range(2):
            x = table[(t.abs() * 10 + k).long()] * x
    return x


@_row(1)
def a_row_that_leaves(table, x, t):
    row = table[(t.abs() * 10).long()]
    return row * x, row[:1]


@_row(1)
def a_row_that_is_written(table, x, t):
    row = table[(t.abs() * 10).long()]
    row.add_(1)
    return table * 2


@_row(1)
def a_table_that_is_written(table, x, t):
    row = table[(t.abs() * 10).long()]
    table.mul_(2)
    return row * x


@_row(2)
def a_made_table_that_is_written(table, x, t):
    made, i = table + 1, (t.abs() * 10).long()
    row = made[i]
    made[i] = 5
    return row * x, made


@_row(2)
def the_place_of_a_row(table, x, t):
    row = table[(t.abs() * 10).long()]
    return row * x, row.storage_offset() > 0


@_row(0)
def a_row_that_is_not_there(table, x, t):
    return table[(t.abs() * 0).long() + 99] * x


@_row(1)
def a_row_that_is_not_there_and_expected(table, x, t):
    def inner():
        with torch.no_grad():
            return table[(t.abs() * 0).long() + 99]

    try:
        row = inner()
    except IndexError:
        row = x + 1
    return row * x


@stateful(1, "a row of memory that is written by another name")
def _():
    base = torch.randn(50, 2)

    def f(a, b, t):
        row = a[(t.abs() * 10).long()]
        b.mul_(3)
        return row * 2

    return f, (base, base.view(100), torch.randn(())), ()
