"""Sizes that vary need no sympy: importing it takes longer than the rest of a second compilation."""

from __future__ import annotations

import sys

import forked

_PROGRAM = """
import sys
import torch, torch.nn.functional as F, torchjit
assert "sympy" not in sys.modules
net, norm, conv = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Conv2d(3, 4, 3)
def block(x):
    y = F.gelu(norm(net(x))) * x.shape[0]
    return torch.cat([y, x[: x.shape[0] // 2 + 1]]).view(-1, 2, 4).permute(1, 0, 2).reshape(2, -1).softmax(-1)
def attention(x):
    y = x.view(x.shape[0], 2, 4).transpose(0, 1)
    return F.scaled_dot_product_attention(y, y, y).masked_fill(torch.arange(x.shape[0])[:, None] > 5, 0.0)
def image(x):
    n = x.shape[0]
    return F.max_pool2d(conv(F.pad(x.new_ones(1, 3, n, n), (1, n, 0, 1))), 2).sum() * x
def rows(x):
    return torch.stack(x.chunk(2, 1)).cumsum(1).flip(0).expand(2, x.shape[0], 4).sort(1)[0] / x.shape[0] ** 0.5
def small(x):
    return F.gelu(x[: x.shape[0] // 2]) * x.shape[0]
def check(function, backend, train):
    compiled = torchjit.compile(function, backend=backend, on_error="raise")
    for size in (6, 9, 12):
        x = torch.randn(size, 8, requires_grad=train)
        with torch.set_grad_enabled(train):
            found, wanted = compiled(x), function(x)
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
        if train:
            grad, = torch.autograd.grad(found.square().sum(), x)
            torch.testing.assert_close(grad, torch.autograd.grad(wanted.square().sum(), x)[0], atol=1e-3, rtol=1e-3)
    assert "sympy" not in sys.modules, (function, backend, train)
check(small, "inductor", True)
check(rows, "eager", False)
for function in (block, attention, image):
    check(function, "eager", True)
"""


def test_varying_sizes_need_no_sympy() -> None:
    done = forked.run([sys.executable, "-c", _PROGRAM])
    assert done.returncode == 0, done.stderr
