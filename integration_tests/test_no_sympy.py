"""What a capture does not import: sympy takes longer than the rest of a second compilation, distributed tensors as long as a small one."""

from __future__ import annotations

import os
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


_FIXED = """
import sys
import torch, torch.nn.functional as F, torchjit
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out, self.up = torch.nn.RMSNorm(16), *(torch.nn.Linear(16, n) for n in (48, 16, 16))
    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, 2, 8).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, 16)
        return x + self.up(F.silu(self.out(y)).relu().clamp(max=3))[:, -1:].expand(b, t, 16)
model = torch.nn.Sequential(*(Block() for _ in range(3)))
x = torch.randn(2, 5, 16)
with torch.no_grad():
    found, wanted = torchjit.compile(model, dynamic=False, on_error="raise")(x), model(x)
assert "torch.distributed.tensor" not in sys.modules
assert "sympy" not in sys.modules
assert torch.allclose(found, wanted, atol=1e-5, rtol=1e-4)
"""


def test_a_program_of_torch_alone_imports_nothing_of_distributed_tensors() -> None:
    done = forked.run([sys.executable, "-c", _FIXED], env={**os.environ, "TORCHJIT_STORE": "off"})
    assert done.returncode == 0, done.stderr
