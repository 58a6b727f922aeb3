"""Numbers that are members of enums or lie in tensors, and comparisons of tensors with what is no number."""

# mypy: allow-untyped-defs

from __future__ import annotations

import enum

import torch
import torch.nn.functional as F
from torch_programs import program

__all__: list[str] = []


class Dim(enum.IntEnum):
    ROW = 0
    COLUMN = 1


class Bit(enum.IntFlag):
    ONE = 1


class Reduction(enum.StrEnum):
    MEAN = "mean"


class Kind(enum.Enum):
    A = object()


@program(0, grad=False)
def members_of_enums_as_arguments(x):
    indexed = x[Dim.COLUMN], x[:, Dim.COLUMN], x[Dim.COLUMN :], x.transpose(Dim.ROW, Dim.COLUMN), x.sum(Dim.COLUMN)
    shaped = x.view(3, Dim.COLUMN, 4), x.reshape((Dim.COLUMN, 12)), torch.ones(Dim.COLUMN, 2), x.size(Dim.COLUMN)
    loss = F.mse_loss(x, x * 2, reduction=Reduction.MEAN)
    return (
        indexed,
        shaped,
        loss,
        x * Dim.COLUMN,
        x == Dim.COLUMN,
        (x != Bit.ONE).sum(),
        torch.cat([x, x], dim=Dim.COLUMN),
    )


@program(0)
def comparisons_that_torch_does_not_know(x):
    y = x if x != None else x * 2  # noqa: E711
    return y * 3, x == None, None == x, x == "a", x != Kind.A, Kind.A == x, x == Reduction.MEAN  # noqa: E711


@program(1)
def a_number_that_is_none(x):
    try:
        return x * Kind.A
    except TypeError as error:
        return x * 2, type(error).__name__


@program(0, grad=False)
def full_of_a_number_in_a_tensor(x):
    total, place = x.sum(), x.argmax()
    like = (
        x.new_full((2,), total),
        torch.full_like(x, total),
        x.new_full((2,), place),
        torch.full((x.shape[0],), place > 3),
    )
    return (
        torch.full((2, 3), total),
        torch.full((2,), place),
        like,
        torch.full((2,), fill_value=place, dtype=torch.float32),
    )


@program(3)
def full_of_a_number_that_may_not_fit(x):
    total = x.detach().sum()
    return torch.full((2,), total, dtype=torch.int64), torch.full((2,), total.double()), torch.full((2,), x.sum())


@program(0)
def full_of_a_known_number(x):
    return torch.full((2,), torch.tensor(3)) + x[0, :2]
