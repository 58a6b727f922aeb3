"""Programs with NumPy arrays that a region makes: name -> (function of a 3x4 tensor, breaks allowed)."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

from typing import Any

import numpy as np
import torch


class Holder:
    pass


def stored(x):
    holder = Holder()
    holder.a = np.arange(3)
    holder.b = holder.a[1:]
    holder.a[2] = 7
    return holder.a, holder.b, np.shares_memory(holder.a, holder.b)


def written(x):
    a = np.zeros((3, 4), dtype=np.float32)
    a[0] = 1.5
    a[:, 1] += 2
    a.sort(axis=1)
    np.fill_diagonal(a, 9)
    return torch.from_numpy(a) * x, a


def shared(x):
    a = np.ones(4, dtype=np.float32)
    half = a[2:]
    t = torch.from_numpy(a)
    t.add_(x[0])
    half += 1
    a[0] = 5
    return t * 1, a, half, a.sum()


def shared_with_tensor(x):
    t = x * 2
    a = t.numpy()
    a[0] = 3
    t[1] = 4
    return t, a, a.T, a[:, 0]


def written_input(x):
    y = x.clone()
    x.numpy()[0] += 10
    return x + y


def grid(x):
    h, w = x.shape
    ys, xs = np.meshgrid(np.linspace(0, 1, h), np.linspace(-1, 1, w), indexing="ij")
    grid = np.stack([ys, xs], axis=-1).astype(np.float32).reshape(-1, 2)
    return torch.tensor(grid).sum(1).view(h, w) * x


def window(x):
    w = np.hanning(x.shape[-1])
    w = w / w.sum()
    return x * torch.as_tensor(w, dtype=x.dtype)


def sinusoids(x):
    position = np.arange(3)[:, None]
    angle = position / np.power(10000, 2 * (np.arange(4)[None] // 2) / 4)
    angle[:, 0::2] = np.sin(angle[:, 0::2])
    angle[:, 1::2] = np.cos(angle[:, 1::2])
    return x + torch.FloatTensor(angle)


def loop(x):
    total = 0.0
    for row in np.arange(6.0).reshape(2, 3):
        for value in row:
            total += value
    return x * total


def branches(x):
    a = np.array([1, 2, 3])
    if a.sum() > 5 and len(a) == 3 and (a == a).all() and 2 in a:
        return x * float(a.mean()), a.shape, a.dtype == np.int64, a.ndim, int(a[0]), a.tolist()
    return x


def indexes(x):
    a = np.array([2, 0])
    mask = np.array([True, False, True])
    return x[a], x[mask], x[:, a], x[a, 1], x[[int(i) for i in a]]


def assigned(x):
    y = x.clone()
    y[np.array([0, 2])] = 1
    y[np.array([False, True, False])] = 2
    return y


def derived(x):
    a = x.numpy()
    b = np.sin(a) * 2 + np.exp(-a) / (1 + np.abs(a))
    c = np.where(b > 0, b, np.float32(0.5))
    return torch.from_numpy(c), b.sum(), b.mean(axis=0), c.dtype, c.shape, np.maximum(a, 0) @ a.T


def promotes(x):
    a = x.numpy()
    i = (a > 0).astype(np.int64) + np.arange(4)
    return (
        a * 2,
        a * np.float64(2),
        a + np.arange(4),
        a + i,
        i / 2,
        i * True,
        -i,
        a.sum(dtype=np.float64),
        i.mean(),
        a > 1,
        i**2,
    )


def reductions(x):
    a = x.numpy()
    return (
        a.sum(), a.max(axis=1), a.min(), a.std(), a.var(axis=0, ddof=1), a.argmax(), a.argmin(axis=1), a.prod(axis=-1),
        a.cumsum(axis=1), a.mean(keepdims=True), (a > 0).all(), (a > 0).any(axis=0), np.sum(a, axis=(0, 1)),
    )  # fmt: skip


def shapes(x):
    a = x.numpy()
    return (
        a.reshape(4, 3), a.reshape((2, -1)), a.T, a.transpose(1, 0), a.ravel(), a.flatten(), a[None], np.expand_dims(a, 0),
        np.concatenate([a, a], axis=1), np.stack([a, a + 1]), a[1:], a[:, ::2], a[..., -1], a[0, 1], a[[0, 2]], np.squeeze(a[None]),
        np.swapaxes(a, 0, 1), a.copy(),
    )  # fmt: skip


def masks(x):
    a = x.numpy().copy()
    a[a > 0] = 0
    a[1, 1:3] = a[0, :2]
    a *= 2
    return a


def scalars(x):
    a = x.numpy()
    s = a.sum()
    s += 1
    return (
        s,
        s * 2,
        s * np.float64(2),
        np.sqrt(np.abs(s)),
        a - s,
        type(s),
        isinstance(s, np.floating),
        a.max() - a.min(),
    )


def aliases(x):
    a = x.numpy()
    r = a.reshape(-1)
    same = np.asarray(a)
    r[0] = 8
    copied = a.astype(np.float32)
    a[0, 1] = 9
    return a, r, same is a, same, copied


def nested(x):
    def scaled(t):
        return np.clip(t.numpy(), -1, 1) * np.array([1, 2, 3, 4], dtype=np.float32)

    return torch.from_numpy(scaled(x) - scaled(x * 2))


def made_from_tensor(x):
    return np.asarray(x) + 1, np.array(x), np.array(x) is x


def kept_by_break(x):
    a = np.arange(4.0, dtype=np.float32)
    t = x + torch.from_numpy(a)
    torch._dynamo  # noqa: B018  # an attribute
    print(end="")
    a[0] = 5
    return t, a


def double(x):
    w = np.linspace(0, 1, 4)
    return x.double() @ torch.from_numpy(w), w


def matrices(x):
    m = np.eye(4) + np.ones((4, 4))
    inverse = np.linalg.inv(m)
    values, vectors = np.linalg.eigh(m)
    return x.double() @ torch.tensor(inverse), np.round(values, 3), np.abs(vectors).shape


def padded(x):
    a = np.pad(x.numpy(), 1)
    return torch.from_numpy(a)


def unique(x):
    a = x.numpy() > 0
    return np.unique(a), np.nonzero(a)


PROGRAMS: dict[str, tuple[Any, int]] = {
    **{f.__name__: (f, 0) for f in (
        written, shared, shared_with_tensor, written_input, grid, window, loop, branches, indexes, assigned, derived, promotes, reductions,
        shapes, masks, scalars, aliases, nested, made_from_tensor, double, matrices,
    )},
    "stored": (stored, 1),
    "sinusoids": (sinusoids, 1),  # the legacy constructor
    "kept by a break": (kept_by_break, 2),  # a write beside a tensor that may lie there
    "padded": (padded, 1),
    "unique": (unique, 2),
    "zeros of a size": (lambda x: torch.from_numpy(np.zeros(x.shape, dtype=np.float32)) + x, 0),
    "returned": (lambda x: (np.arange(3), np.ones(2, dtype=np.int8), x), 0),
    "returned alone": (lambda x: np.arange(3)[::-1], 0),
    "strings": (lambda x: np.array(["a", "b"]), 0),
    "dates": (lambda x: np.array(["2020-01-01"], dtype="datetime64[D]"), 0),
    "fortran": (lambda x: np.asfortranarray(np.ones((2, 3))), 0),
    "broadcast": (lambda x: np.broadcast_to(np.arange(3), (2, 3)), 0),
    "requires grad": (lambda x: torch.from_numpy(np.ones(3)).requires_grad_().mul(2).sum(), 0),
    "tensor in an array": (lambda x: torch.tensor(np.ones(3), requires_grad=False) * 2, 0),
    "other dtype": (lambda x: torch.as_tensor(np.arange(3), dtype=torch.float32) + torch.tensor(np.arange(3)), 0),
    "integer division": (lambda x: (x.numpy().astype(np.float64) // 2, (x > 0).numpy() * 7 % 3), 0),
    "division by data": (lambda x: (x > 0).numpy().astype(np.int64) // (x < 9).numpy(), 1),
    "negative step": (lambda x: x.numpy()[::-1], 1),
    "number beside array": (lambda x: x.reshape(3, 2, 2).numpy()[0, :, [1, 0]], 1),
    "cast in place": (lambda x: np.arange(3).__iadd__(1), 1),
    "gradients": (lambda x: x.detach().numpy() * 2 + (x * 2).detach().numpy(), 0),
}  # fmt: skip

FAILING: dict[str, Any] = {
    "grad": lambda x: x.requires_grad_().numpy(),
    "cast": lambda x: operator_iadd(np.arange(4), x.numpy()),
    "shape": lambda x: x.numpy() + np.ones(5),
    "constant shape": lambda x: np.ones(3) + np.ones(4),
    "truth": lambda x: bool(np.ones(3)),
    "bfloat16": lambda x: x.bfloat16().numpy(),
    "index": lambda x: x.numpy()[7],
    "read only": lambda x: np.broadcast_to(np.arange(3), (2, 3)).__setitem__(0, 1),
    "half written": lambda x: half_written(),
}


def operator_iadd(a, b):
    a += b
    return a


def half_written():
    a = np.array([1.0, 2.0])
    try:
        a += np.array([1.0, 2.0, 3.0])
    except ValueError:
        a[0] = 7
    raise KeyError(a.tolist())
