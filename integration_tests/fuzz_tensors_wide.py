"""What users write around tensors, for `fuzz_tensors.py --wide`: training steps, modules with state, functions of autograd, `torch.func`, ...

A program is grown line by line beside eager: most lines that raise are left out, so that there is something to compare. What it
is given lives over all calls; between them the caller changes modules, sizes, dtypes, strides and modes.
"""

from __future__ import annotations

import contextlib
import copy
import io
import random
import re
import types
from collections import deque
from typing import Any

import torch
from torch import nn

__all__ = ["CALLS", "PRELUDE", "World", "write"]

CALLS = 4

EXPRESSIONS = (
    # modules, losses, layers
    "s.model($x)", "s.model($x).pow(2).mean()", "s.ema($x)", "s.model[0]($x)", "s.norm($x)", "s.emb(s.i)", "s.rnn($x[None])[0][0]", "s.att($x[None], $x[None], $x[None])[0][0]", "F.layer_norm($x, ($x.shape[-1],))",
    "F.cross_entropy($x, s.i[:len($x)] % 4)", "F.mse_loss($x, $y)", "F.smooth_l1_loss($x, $y)", "F.binary_cross_entropy_with_logits($x, $y.sigmoid())", "F.kl_div($x.log_softmax(-1), $y.softmax(-1), reduction='batchmean')",
    "F.nll_loss($x.log_softmax(-1), s.i[:len($x)] % 4)", "F.scaled_dot_product_attention($x[None], $y[None], $x[None], is_causal=True)[0]", "F.one_hot(s.i % 5, 5)", "F.gelu($x)", "F.silu($x)", "F.normalize($x, dim=-1)",
    "F.conv1d($x[None], s.kernel)", "F.max_pool1d($x[None], 2)[0]", "F.avg_pool1d($x[None], 2)[0]", "F.interpolate($x[None], scale_factor=2)[0]", "F.pad($x, (1, 0), value=k)", "F.glu($x)", "F.embedding_bag(s.i[None], s.emb.weight)",
    "F.cosine_similarity($x, $y)", "F.batch_norm($x, None, None, training=True)", "F.hardtanh($x)", "F.leaky_relu($x, 0.1)", "F.elu($x)", "F.softplus($x)", "F.log_softmax($x, 0)", "F.group_norm($x, 2)", "F.unfold($x[None, None], 2)[0]",
    "torch.func.functional_call(s.model, {name: value * 2 for name, value in s.model.named_parameters()}, ($x,))", "copy.deepcopy(s.model)($x)", "torch.utils.checkpoint.checkpoint(s.ema[0], $x, use_reentrant=False)",
    "torch.utils.checkpoint.checkpoint(lambda q: q.sin() * w.sum(), $x, use_reentrant=False)", "sum(p.sum() for p in s.model.parameters())", "torch.cat([p.flatten() for p in s.model.parameters()])",
    # functions of autograd, torch.func
    "Square.apply($x)", "Clip.apply($x)", "Both.apply($x, $y)[0]", "Both.apply($x, $y)[1]", "Double.apply($x * 1)", "Straight.apply($x, k)", "torch.func.grad(lambda q: (q ** 2).sum())($x)", "torch.vmap(lambda q: q.sum())($x)",
    "torch.vmap(torch.func.grad(lambda q: q.sin().sum()))($x)", "torch.func.jacrev(lambda q: q.sin())($x[0])", "torch.func.jacfwd(lambda q: q * q)($x[0])", "torch.func.hessian(lambda q: (q ** 3).sum())($x[0])", "torch.func.jvp(torch.sin, ($x,), ($y,))[1]",
    "torch.func.vjp(torch.exp, $x)[1]($y)[0]", "torch.vmap(torch.dot)($x, $y)", "torch.vmap(lambda q, r: q * r, in_dims=(1, None))($x, k)", "torch.func.vmap(s.model[0])($x)", "torch.autograd.grad(($x * w.sum()).sum(), w)[0]",
    "torch.autograd.grad(($x * w.sum()).exp().sum(), w, create_graph=True)[0]", "torch.func.grad_and_value(lambda q: q.cos().sum())($x)[1]", "torch.func.vmap(lambda q: torch.where(q > 0, q, -q))($x)",
    # views and layouts
    "$x.reshape(2, -1)", "$x.unflatten(-1, (2, 2)).permute(1, 0, 2).flatten(1)", "$x.view(*$x.shape[:-1], 2, 2)", "$x.view(-1, 2, 2).transpose(1, 2).reshape(-1, 4)", "torch.einsum('bi,bj->bij', $x, $y)", "torch.einsum('bi,ij->bj', $x, w)",
    "$x.unfold(0, 2, 1)", "$x.as_strided((2, 2), (1, 2))", "$x.contiguous().view(-1)", "$x.expand_as($y)", "$x.broadcast_to(2, *$x.shape)", "torch.broadcast_tensors($x, $y)[0]", "$x.t().contiguous()", "$x[None, :, None]", "$x[..., [0, -1]]", "$x[s.i % 2]",
    "$x[:, s.i % 2]", "$x[s.i % 2, s.i % 2]", "$x[::2, 1::2]", "$x[1:].clone()", "$x[-1:]", "$x[m]", "$x[~m]", "$x[torch.tensor(0)]", "$x[s.i[0]]", "$x.tensor_split(2)[0]", "torch.hstack([$x, $y])", "torch.dstack([$x, $y])", "torch.atleast_2d($x)",
    "torch.rot90($x)", "$x.ravel()", "$x.squeeze(-1)", "torch.tile($x, (2, 1))", "$x.repeat_interleave(2, 0)", "torch.meshgrid($x[0], $y[0], indexing='ij')[0]", "torch.block_diag($x, $y)", "torch.swapdims($x, 0, 1)", "torch.stack(list($x))", "torch.stack([q for q in $x if q.ndim])",
    "$x.to(memory_format=torch.contiguous_format)", "$x[None, None].contiguous(memory_format=torch.channels_last)", "$x.mT", "$x.T", "$x.adjoint()", "$x.detach().clone()", "$x.clone(memory_format=torch.contiguous_format)", "torch.empty_like($x.t()).copy_($x.t())",
    # sizes
    "$x[: $x.shape[0] // 2]", "$x.new_full((len($x) * 2,), k)", "torch.arange($x.shape[0])", "torch.arange($x.shape[0] - 1, -1, -1)", "$x.view($x.shape[0] * 2, -1)", "$x / $x.shape[0]", "$x * len($x)", "$x.new_ones($x.size(0), n)", "torch.eye($x.shape[0])", "torch.ones($x.shape)",
    "torch.linspace(0, 1, $x.shape[0])", "$x.sum() / $x.numel()", "torch.full_like($x, $x.shape[0])", "torch.zeros(len($x) % 3 + 1)", "$x.narrow(0, 0, min(n, $x.shape[0]))", "torch.tensor($x.shape)", "torch.tensor([len($x), n])", "$x.reshape(-1, $x.shape[0])",
    # complex
    "s.c", "s.c * $x", "s.c.conj()", "s.c.abs()", "s.c.angle()", "s.c.real", "s.c.imag", "torch.polar($x.abs(), $y)", "torch.complex($x, $y)", "torch.view_as_complex($x.reshape(-1, 2).contiguous())", "torch.view_as_real(s.c)", "torch.fft.fft($x)", "torch.fft.rfft($x)",
    "torch.fft.irfft(torch.fft.rfft($x), n=4)", "s.c @ s.c.mT.conj()", "s.c.conj().imag", "s.c * 1j", "$x * 1j", "(s.c * s.c.conj()).real", "s.c.conj().resolve_conj()", "s.c.exp()", "s.c.sum()", "torch.fft.fftshift($x)", "s.c == s.c.conj()", "s.c / $x", "s.c.neg()", "s.c.sgn()", "s.c ** 2", "s.c.to(torch.complex128)",
    # integers, bits, dtypes
    "s.i // n", "s.i % -3", "-s.i // 2", "s.i - 3", "(s.i - 3) // 2", "(s.i - 3) % 2", "torch.div(s.i - 3, 2, rounding_mode='trunc')", "torch.div($x, 0.3, rounding_mode='floor')", "torch.fmod($x, 0.7)", "torch.remainder(-$x, 0.7)", "torch.remainder(s.i - 3, s.i + 1)", "s.i << 2", "s.i >> 1", "(s.i - 3) >> 1", "s.i ^ 3", "~s.i",
    "s.i.to(torch.uint8) - 1", "s.i.to(torch.int8) * 100", "s.i.to(torch.uint8) << 7", "s.i.float() ** -1", "2 ** s.i", "s.i ** 2", "s.i.pow(0.5)", "torch.gcd(s.i, s.i + 2)", "s.i / 2", "s.i * 1.5", "s.i + True", "s.i.sum(dtype=torch.int32)", "s.i.cumsum(0)", "s.i.to(torch.int32) * s.i.to(torch.int16)", "s.i.to(torch.uint8) + s.i.to(torch.int8)",
    "torch.iinfo(s.i.dtype).max + s.i", "s.i.to(torch.int16) * 30000", "$x.to(torch.int8)", "$x.bool() | m[0]", "m.sum()", "m.float().mean()", "m & ~m", "m ^ m.flip(0)", "m + m", "m * 3", "m.cumsum(0)", "m.any() & m.all()", "s.i.prod()", "s.i.max() - s.i.min()", "s.i.abs().sqrt()", "s.i.round()", "s.i.floor()", "s.i.sigmoid()",
    "torch.tensor(k, dtype=torch.float64) * $x", "torch.tensor(2) * $x.half()", "$x.bfloat16() + $y.half()", "$x.half() * 1e5", "$x.half() + 1e-4", "$x.bfloat16().sum()", "$x.bfloat16() @ w.bfloat16()", "$x.double().sum(dtype=torch.float32)", "$x.half().mean()", "$x.to(torch.float16).softmax(-1)", "$x.to(s.i.dtype)", "$x.to(w)", "$x.to('cpu', torch.float64)",
    "$x.view(torch.int32)", "$x.view(torch.uint8)", "$x.half().view(torch.int16)", "s.i.view(torch.float64)", "s.i.view(torch.int32)", "m.view(torch.uint8)", "torch.where(m[:, None], $x, 0)", "torch.where(m[:, None], 1, 0.5)", "torch.where($x > 0, s.i[0], 0.5)", "torch.clamp(s.i, 1.5)", "torch.lerp($x, $y, $x.sigmoid())",
    # random numbers
    "torch.rand_like($x)", "torch.randn(3)", "torch.randint(0, 5, $x.shape)", "torch.bernoulli($x.sigmoid())", "F.dropout($x)", "F.dropout($x, 0.3, training=n > 2)", "torch.randperm(4)", "torch.multinomial($x.softmax(-1), 2)", "torch.normal($x, 1.0)", "F.gumbel_softmax($x)", "torch.rand(3, generator=s.g)", "torch.rand(())", "$x + torch.randn_like($x) * 0.1",
    "F.rrelu($x, training=True)", "F.dropout1d($x[None])[0]", "F.alpha_dropout($x)", "torch.empty(3).exponential_()", "torch.empty(3).geometric_(0.5)", "torch.poisson($x.abs())", "torch.randn(2, dtype=torch.float64)", "torch.randint_like($x, 3)", "$x.clone().uniform_()", "$x.clone().random_(0, 9)", "$x.clone().bernoulli_(0.3)", "$x[torch.randperm(len($x))]",
    # selections, order, sums
    "$x.topk(2)[0]", "$x.topk(2)[1]", "$x.sort(descending=True)[1]", "$x.cummax(0)[0]", "$x.logcumsumexp(0)", "$x.logsumexp(-1)", "$x.median()", "$x.median(-1)[0]", "$x.quantile(0.3)", "$x.kthvalue(1)[0]", "torch.searchsorted($x[0].sort()[0].contiguous(), $y[0].contiguous())", "torch.bucketize($x, torch.tensor([0.0, 1.0]))", "torch.bincount(s.i)",
    "$x.scatter_reduce(0, s.i[:2][:, None] % 2, $y, 'amax')", "$x.scatter_add(0, s.i[:2][:, None] % 2, $y)", "$x.index_add(0, s.i % 2, $y[:2])", "$x.index_put((s.i % 2,), $y[:1], accumulate=True)", "$x.amax((0, 1))", "$x.amin(0, keepdim=True)", "$x.std(0)", "torch.var_mean($x, 0)[0]", "$x.nansum()", "$x.diff(dim=0)", "$x.trace()", "$x.argsort()", "$x.unique()",
    "torch.cdist($x, $y)", "torch.histc($x, 3)", "torch.count_nonzero($x)", "$x.cumprod(0)", "$x.count_nonzero(0)", "torch.isclose($x, $y)", "$x.nonzero()", "torch.masked_select($x, $x > 0)", "$x.argmin(0)", "$x.aminmax()[1]", "torch.trapezoid($x)", "torch.isin(s.i, torch.tensor([1, 2]))", "torch.renorm($x, 2, 0, 1.0)", "$x.dist($y)",
    "torch.linalg.norm($x, dim=-1)", "torch.linalg.inv(w)", "torch.linalg.solve(w, $x.t())", "torch.det(w)", "torch.linalg.qr(w)[1].abs()", "torch.linalg.svdvals($x)", "torch.linalg.cholesky(w @ w.t() + torch.eye(4))", "torch.addmm($x, $x, w, beta=k)", "torch.baddbmm($x[None], $x[None], w[None])", "torch.matmul($x, w[0])", "$x.mv(w[0])",
    "torch.triu($x, 1)", "torch.kron($x[0], $y[0])", "torch.logical_xor($x > 0, $y > 0)", "torch.copysign($x, $y)", "torch.hypot($x, $y)", "torch.heaviside($x, $y)", "torch.nextafter($x, $y)", "torch.ldexp($x, s.i[0])", "torch.frexp($x)[0]", "torch.xlogy($x, $y.abs())", "torch.special.erfinv($x.tanh())", "torch.lgamma($x.abs() + 1)", "torch.float_power($x, 2)", "torch.atan2($x, $y)", "$x.fmin($y)", "$x.erf()", "$x.frac()", "$x.logit(eps=0.1)",
    # state, Python
    "s.d['h']", "s.d.get(n, $x)", "s.l[-1] * 2", "s.pair.first", "s.pair._replace(first=$x).first", "[q * 2 for q in ($x, $y)][1]", "max([$x, $y], key=lambda q: q.numel())", "sum([$x, $x])", "{name: value + 1 for name, value in s.d.items()}['h']", "functools.reduce(torch.add, [$x, $x, $y])", "(lambda q, r=2: q * r)($x)", "s.state['step'] + 1", "next(iter(s.model.parameters()))",
    "s.model.state_dict()['0.weight']", "dict(s.model.named_parameters())['0.bias']", "s.model[0].weight.grad", "$x.requires_grad_(False) if not $x.requires_grad else $x", "$x.detach().requires_grad_()", "nn.Parameter($x.detach())", "nn.Linear(4, 2)($x)", "torch.as_tensor([1.0, k])", "torch.tensor($x.tolist())", "float($x.numpy(force=True).sum())", "$x.item() if $x.numel() == 1 else 0",
    "$x.as_subclass(Tagged)", "$x.as_subclass(Tagged) + 1", "type($x).__name__", "torch.is_grad_enabled()", "torch.is_inference_mode_enabled()", "torch.is_autocast_enabled('cpu')", "$x.dtype.is_floating_point", "torch.get_default_dtype()", "$x.__class__ is torch.Tensor",
)  # fmt: skip
STATEMENTS = (
    "s.opt.zero_grad()\n$n = s.model($x).pow(2).mean()\n$n.backward()\ns.opt.step()", "s.model($x).sum().backward()", "s.opt.step()", "s.opt.zero_grad(set_to_none=False)", "s.opt.param_groups[0]['lr'] *= 0.5", "torch.nn.utils.clip_grad_norm_(s.model.parameters(), 0.5)", "s.model(w).sum().backward()\ntorch.nn.utils.clip_grad_value_(s.model.parameters(), 0.1)",
    "for p in s.model.parameters():\n    p.grad = None if p.grad is None else p.grad * 2", "with torch.no_grad():\n    for p in s.model.parameters():\n        p.mul_(0.9)", "with torch.no_grad():\n    for p, q in zip(s.ema.parameters(), s.model.parameters()):\n        p.lerp_(q, 0.1)",
    "with torch.no_grad():\n    for p in s.model.parameters():\n        if p.grad is not None:\n            p -= 0.1 * p.grad", "s.model.train(n > 2)", "s.model.eval()", "s.model.train()", "s.model[0].weight.requires_grad_(False)", "s.model[0].bias.data.fill_(k)", "s.model[0].weight.data = s.model[0].weight.data * 2", "s.model.register_buffer('extra', $x.detach().clone())",
    "s.model.load_state_dict(copy.deepcopy(s.ema.state_dict()))", "s.model.zero_grad()", "s.model.requires_grad_(n > 2)", "s.norm.momentum = 0.5", "s.norm.running_mean.zero_()", "s.norm.eval()\n$n = s.norm($x)\ns.norm.train()", "s.model[0] = nn.Linear(4, 4)", "s.model.scale = k\n$n = $x * s.model.scale", "s.norm.num_batches_tracked += 1",
    "hook = s.model.register_forward_hook(lambda module, given, made: made * 2)\n$n = s.model($x)\nhook.remove()", "hook = s.model[0].register_forward_pre_hook(lambda module, given: (given[0] + 1,))\n$n = s.model($x)\nhook.remove()", "hook = $x.register_hook(lambda g: g * 2)\nhook.remove()", "s.model[0].weight.register_hook(lambda g: g.clamp(-1, 1))", "s.model.register_full_backward_hook(lambda module, gi, go: log(len(gi)))",
    "with torch.autocast('cpu', dtype=torch.bfloat16):\n    $n = s.model($x)\n    $m = $n.float() * 2", "with torch.autocast('cpu', dtype=torch.bfloat16):\n    $n = $x @ w\n    with torch.autocast('cpu', enabled=False):\n        $m = $n.float() @ w", "with torch.autocast('cpu', dtype=torch.float16):\n    $n = F.linear($x, w)\n    $n = $n.softmax(-1)",
    "with torch.inference_mode():\n    $n = s.model($x)\n    $m = $n * 2", "with torch.inference_mode():\n    $n = $x * 2\n$m = $n + 1", "with torch.no_grad():\n    $n = s.model($x)\n$m = $n * w.sum()", "torch.set_grad_enabled(False)\n$n = $x * w.sum()\ntorch.set_grad_enabled(True)", "with torch.set_grad_enabled(n > 2):\n    $n = s.model($x)",
    "with Scaled(s):\n    $n = $x * s.n", "try:\n    with Scaled(s):\n        $n = $x.view(3, 5, 7)\nexcept RuntimeError:\n    $n = $x", "try:\n    $n = $x[n]\nexcept IndexError:\n    $n = $x\nfinally:\n    s.n += 1",
    "$n = $x[1:]\n$n[0].mul_(2)", "$x.view(-1)[::2].add_(1)", "$x.t().mul_(2)", "$x.diagonal().zero_()", "$n, $m = $x.split(2, -1)\n$n.add_($m)", "$n, *rest = $x.unbind()\n$n.mul_(2)", "$n = $x.unsqueeze(0)\n$x.add_(1)\n$m = $n * 2", "$n = $x.expand(2, *$x.shape)\n$x.mul_(2)", "$n = $x.reshape(-1)\n$n[0] = k", "$n = $x.contiguous()\n$n.add_(1)", "$n = $x.to($x.dtype)\n$n.mul_(2)", "$n = $x.clone()\n$n[:, 0], $n[:, 1] = $n[:, 1], $n[:, 0]",
    "$n = torch.zeros(4, 4)\nfor j in range(3):\n    $n[j] = $x[0] * j", "$n = $x.clone()\nfor j in range(len($n)):\n    $n[j] += $n[j - 1]", "$n = $x.clone()\n$n[m] = 0", "$n = $x.clone()\n$n[m] *= 2", "$n = $x.clone()\n$n[s.i % 2] += 1", "$n = $x.clone()\n$n[..., 0] = $y[..., 1]", "$n = $x.clone()\n$n.view(-1)[0] = 5\n$n.t_()", "$x[0], $x[1] = $x[1], $x[0]", "$x[0] = $x[1]", "$x[:2] = $x[1:3]", "$x.copy_($x.flip(0))",
    "$x.index_copy_(0, s.i[:2] % 2, $y[:2])", "$x.index_put_((s.i % 2,), torch.tensor(k), accumulate=True)", "$x.masked_scatter_($x > 0, $y)", "$x.clamp_(-1, 1)", "$x.lerp_($y, 0.5)", "$x.addcmul_($y, $y, value=0.1)", "$x.sub_($y, alpha=2)", "$x.div_(2, rounding_mode='floor')", "$x.round_()", "$x.normal_()", "$x.bernoulli_(0.5)", "$x.sigmoid_()", "F.relu_($x)", "F.relu($x, inplace=True)", "$x.swapaxes_(0, 1)", "$x.fill_diagonal_(3)", "$x.tril_()",
    "s.i += 1", "s.i //= 2", "s.i <<= 1", "s.i %= 3", "s.i &= 1", "s.i[0] = n", "s.c *= 1j", "s.c.imag.mul_(2)", "s.c.real[0] = k", "s.c.conj_physical_()", "s.c.mul_(s.c.conj())", "s.c = s.c.conj()", "$x.view(torch.int32).bitwise_and_(0x7fffffff)", "s.c.add_($x)", "m.logical_not_()", "m[0] = True", "m ^= True",
    "s.d['h'] = s.d['h'] * 0.9 + $x.mean()", "s.d['h'].mul_(0.5)", "s.d.setdefault('new', $x.detach())", "s.d[n] = $x.detach()", "s.l = [q * 2 for q in s.l]", "s.l.append($x.detach())", "s.l[0] += 1", "s.d.update(last=$x.detach())", "s.d.pop('last', None)", "s.l.insert(0, s.l.pop())", "s.state['step'] += 1", "s.state.setdefault('m', torch.zeros_like(w)).lerp_(w, 0.1)", "s.pair = Pair($x.detach(), $y.detach())", "s.pair.first.add_(1)", "s.box.value = $x.detach()", "s.box.value += 1", "s.box.history.append(float($x.sum()))", "s.n += 1", "k = k + n", "s.q.appendleft($x.detach())",
    "torch.manual_seed(n)\n$n = torch.randn(3)", "state = torch.get_rng_state()\n$n = torch.rand(2)\ntorch.set_rng_state(state)\n$m = torch.rand(2)", "with torch.random.fork_rng():\n    torch.manual_seed(3)\n    $n = torch.rand(2)", "torch.nn.init.kaiming_uniform_(w)", "torch.nn.init.normal_(s.model[0].weight)", "s.g.manual_seed(n)",
    "if $x.sum().item() > 0:\n    $n = $x * 2\nelse:\n    $n = $x - 1", "if $x.sum() > 0:\n    $x.mul_(2)", "k = k + float($x.mean())", "n = int($x.abs().sum()) % 3 + 1", "if $x.shape[0] > 3:\n    $n = $x[:3]\nelse:\n    $n = $x * 2", "if s.model.training:\n    $n = F.dropout($x)\nelse:\n    $n = $x", "while $x.norm() > 50:\n    $x.mul_(0.5)", "if torch.isnan($x).any():\n    $n = torch.nan_to_num($x)\nelse:\n    $n = $x.abs()", "$n = [row * 2 for row in $x if row[0] > 0]", "$n = sorted(s.l, key=lambda q: float(q.sum()))[0]", "if $x.is_contiguous():\n    $n = $x.view(-1)\nelse:\n    $n = $x.reshape(-1) * 2", "if $x.requires_grad:\n    $n = $x.detach()\nelse:\n    $n = $x * 3", "$n = $x if $x is $y else $x + $y", "if $x.dtype == torch.float32 and $x.dim() == 2:\n    $n = $x @ w", "for name, p in s.model.named_parameters():\n    log(name, tuple(p.shape), p.requires_grad)", "for j, part in enumerate($x.chunk(2)):\n    s.d[f'part{j}'] = part.detach()",
    "assert $x.shape[-1] > 0", "torch._check($x.shape[0] > 0)", "$x.tag = n\nlog($x.tag)", "log(f'{tuple($x.shape)} {$x.dtype}')", "log($x.shape[0] * 2, $x.stride(), $x.is_contiguous())", "log($x.max().item() > 0)", "log(torch.equal($x, $y), torch.allclose($x, $x))", "log($x.grad_fn is None, $x.requires_grad)", "log(id($x) == id($y), $x is s.l[0])", "log(hash($x) == hash($y), $x in [$x])", "log($x.grad is None, w.grad is None)", "log(len(list(s.model.parameters())), s.model.training)", "log($x._version)", "log(type($x))",
    "$n = torch.add($x, $y, out=torch.empty(0))", "torch.mul($x, 2, out=s.d['h'].new_empty(()))", "$n = torch.empty_like($x)\ntorch.sub($x, 1, out=$n)", "torch.cumsum($x, 0, out=$x)", "torch.clamp($x, 0, 1, out=$x)", "$n, $m = torch.empty(0), torch.empty(0, dtype=torch.int64)\ntorch.max($x, 0, out=($n, $m))", "torch.matmul($x, w.detach(), out=torch.empty(0))", "$n = torch.cat([$x, $y], out=torch.empty(0))", "torch.where($x > 0, $x, $y, out=$x)",
    "def inner(q, r=$x):\n    return q + r\n$n = inner($y)", "class Local(nn.Module):\n    def forward(self, q):\n        return q * 2\n$n = Local()($x)", "total = 0\nfor q in s.l:\n    total = total + q.sum()\n$n = total", "$n = $x\nfor _ in range(n):\n    $n = torch.tanh($n @ w)", "gen = (q * 2 for q in s.l)\n$n = next(gen)", "$n, $m = divmod($x, 2) if False else ($x // 2, $x % 2)", "match $x.dim():\n    case 2:\n        $n = $x.sum(0)\n    case _:\n        $n = $x * 2", "$n = torch.jit.annotate(torch.Tensor, $x) + 1", "with contextlib.suppress(RuntimeError):\n    $n = $x @ $y", "del s.box.value", "s.opt.state.clear()", "$x.backward($y.detach())", "w.grad = None", "w.grad.zero_()", "w.grad += 1", "$x.retain_grad()", "torchjit.graph_break()", "torch._dynamo_never = 0" if False else "s.n = len($x)",
)  # fmt: skip
PRELUDE = """
import contextlib, copy, functools
import torch, torchjit
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.checkpoint
from collections import namedtuple
LOG = []
Pair = namedtuple("Pair", "first second")
def log(*values):
    LOG.append(values)
class Tagged(torch.Tensor):
    pass
class Scaled:
    def __init__(self, s):
        self.s = s
    def __enter__(self):
        self.s.n += 3
    def __exit__(self, *_):
        self.s.n -= 3
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        return 3 * ctx.saved_tensors[0] * g
class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.keep = (x.abs() < 1)
        return x.clamp(-1, 1)
    @staticmethod
    def backward(ctx, g):
        return g * ctx.keep
class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return (x > k).to(x.dtype)
    @staticmethod
    def backward(ctx, g):
        return g * ctx.k, None
class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        ctx.set_materialize_grads(False)
        made = x > y
        ctx.mark_non_differentiable(made)
        return x * y, made, x + y
    @staticmethod
    def backward(ctx, a, _, b):
        x, y = ctx.saved_tensors
        if a is None:
            return b, b
        return a * y + (0 if b is None else b), a * x
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)
    @staticmethod
    def backward(ctx, g):
        return g * 2
"""


class _Box:
    pass


class World:
    """What a program of a seed is given, over all its calls, and what happens between them."""

    def __init__(self, seed: int, namespace: dict[str, Any]) -> None:
        self.r = random.Random(seed)
        torch.manual_seed(seed)
        r = self.r
        s = self.s = types.SimpleNamespace()
        layers = [
            nn.Linear(4, 4),
            r.choice(
                [nn.ReLU(), nn.Dropout(0.5), nn.LayerNorm(4), nn.BatchNorm1d(4), nn.GELU(), nn.ReLU(inplace=True)]
            ),
            nn.Linear(4, 4),
        ]
        s.model, s.norm, s.emb = nn.Sequential(*layers), nn.BatchNorm1d(4), nn.Embedding(64, 4)
        s.ema = copy.deepcopy(s.model)
        s.rnn, s.att = nn.GRU(4, 4, batch_first=True), nn.MultiheadAttention(4, 2, batch_first=True)
        made = r.choice(["SGD", "Adam", "AdamW", "RMSprop"])
        options: dict[str, Any] = (
            {"momentum": 0.9} if made == "SGD" else {"eps": 0.1}
        )  # else the sign of noise is a step
        s.opt = getattr(torch.optim, made)(s.model.parameters(), lr=0.1, **options)
        s.kernel = None
        s.t, s.l, s.buf = torch.ones(3, 4), [torch.ones(2), torch.full((2,), 0.5)], torch.zeros(())
        s.d, s.state, s.n = {"h": torch.zeros(())}, {"step": torch.zeros(())}, 0
        s.i = torch.arange(4)
        s.c = torch.randn(3, 4, dtype=torch.complex64)
        s.g = torch.Generator().manual_seed(seed)
        s.pair = namespace["Pair"](torch.ones(2), torch.zeros(2))
        s.box = _Box()
        s.box.value, s.box.history = torch.ones(2), []
        s.q = deque([torch.ones(1)], maxlen=3)
        self.w = nn.Parameter(
            torch.eye(4) + torch.linspace(0.4, 0.6, 16).view(4, 4)
        )  # no two alike: which one is sorted first is free
        self.shape_seed, self.kind = r.randrange(10**6), r.randrange(5)
        self.wraps = [r.choice(["plain"] * 6 + ["no_grad", "autocast", "inference"]) for _ in range(CALLS)]

    def arguments(self, call: int) -> dict[str, Any]:
        """Those of a call: other sizes, layouts and dtypes in some."""
        r = random.Random(self.shape_seed * 31 + call)
        g = torch.Generator().manual_seed(self.shape_seed + call)
        rows = 3 if call < 1 or self.kind < 2 else r.choice([2, 3, 4, 5, 6])
        layout = (
            "plain" if call < 1 else r.choice(["plain", "plain", "plain", "double", "transposed", "sliced", "offset"])
        )
        base = torch.randn(2 * rows, 4, generator=g)
        a, b = base[:rows], base[rows:].clone()
        if layout == "double":
            a = a.double()
        elif layout == "transposed":
            a = a.t().contiguous().t()
        elif layout == "sliced":
            a = torch.cat([a, a], 1)[:, :4]
        elif layout != "offset":
            a = a.clone()
        if r.random() < 0.3:
            a.requires_grad_()
        elif r.random() < 0.2:
            a = a.clone().requires_grad_() * 1.0
        if r.random() < 0.15:
            b = a
        self.s.kernel = torch.ones(2, rows, 2, dtype=a.dtype)
        return {"a": a, "b": b, "w": self.w, "i": torch.tensor([0, 1]), "m": torch.arange(rows) > 0,
                "n": r.choice([1, 2, 3, 3]), "k": r.choice([0.5, 1.5, 2, -1.0]), "s": self.s}  # fmt: skip

    def around(self, call: int) -> Any:
        """The mode that the caller is in."""
        made = {
            "no_grad": torch.no_grad,
            "inference": torch.inference_mode,
            "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False),
        }
        return made.get(self.wraps[call], contextlib.nullcontext)()

    def change(self) -> None:
        """What the caller does between calls."""
        s, r = self.s, self.r
        changes: list[Any] = [
            lambda: None,
            lambda: None,
            lambda: s.model.eval(),
            lambda: s.model.train(),
            lambda: setattr(s, "model", copy.deepcopy(s.model)),
            lambda: setattr(s.model[0], "bias", None),
            lambda: s.model.requires_grad_(False),
            lambda: s.model[0].weight.data.mul_(0.5),
            lambda: setattr(s.model[0], "weight", nn.Parameter(torch.ones(4, 4))),
            lambda: s.model.append(nn.Tanh()),
            lambda: setattr(s.model[1], "p", 0.1),
            lambda: setattr(s.model[1], "eps", 0.1),
            lambda: s.model.double(),
            lambda: s.model.float(),
            lambda: s.model.zero_grad(),
            lambda: s.model.load_state_dict(s.ema.state_dict(), strict=False),
            lambda: s.opt.zero_grad(),
            lambda: s.opt.param_groups[0].update(lr=0.01),
            lambda: s.opt.param_groups[0].update(weight_decay=0.1),
            lambda: s.d.update(h=torch.ones(2)),
            lambda: s.d.update(other=1),
            lambda: s.l.append(torch.zeros(2)),
            lambda: s.l.clear() or s.l.append(torch.ones(2, dtype=torch.float64)),
            lambda: setattr(s, "n", s.n + 1),
            lambda: setattr(s, "i", torch.arange(4, dtype=torch.int32)),
            lambda: setattr(s, "i", torch.arange(5)),
            lambda: setattr(s, "c", torch.ones(3, 4, dtype=torch.complex128)),
            lambda: setattr(s, "t", s.l[0]),
            lambda: s.norm.eval(),
            lambda: setattr(s.norm, "track_running_stats", False),
            lambda: s.model.register_forward_hook(lambda module, given, made: made * 2),
            lambda: s.model[0].weight.register_hook(lambda g: g * 2),
            lambda: setattr(s.box, "value", torch.zeros(3)),
            lambda: setattr(self.w, "grad", None),
            lambda: self.w.requires_grad_(not self.w.requires_grad),
            lambda: torch.nn.utils.parametrizations.weight_norm(s.model[2]) if hasattr(s.model[2], "weight") else None,
        ]  # fmt: skip
        for _ in range(r.choice([0, 1, 1, 2])):
            with contextlib.suppress(Exception):  # both worlds do the same
                r.choice(changes)()


def write(seed: int, old: tuple[tuple[str, ...], tuple[str, ...]]) -> str:
    """The program of a seed: `program(a, b, w, i, m, n, k, s)`. `old`: the templates of the other programs, used too."""
    r = random.Random(seed)
    names = ["a", "b", "a", "b", "a", "w"]
    lines: list[str] = []
    count = 0
    trial = _Trial(seed)
    for _ in range(r.randint(3, 14)):
        for _ in range(6):
            expression = r.random() < 0.5
            ours, theirs = (EXPRESSIONS, old[0]) if expression else (STATEMENTS, old[1])
            template = r.choice(ours if r.random() < 0.75 else theirs)
            text, made, number = _filled(f"$n = {template}" if expression else template, names, count, r)
            if trial.runs(text) or r.random() < 0.02:
                lines, count = [*lines, *text.split("\n")], number
                names += [*made, *made]
                break
    trial.end()
    return _program(lines, names)


class _Trial:
    """The program so far, run line by line. What a line does before it raises stays."""

    def __init__(self, seed: int) -> None:
        self.names: dict[str, Any] = {}
        self.grad = torch.is_grad_enabled()
        exec(PRELUDE, self.names)
        self.names |= World(seed, self.names).arguments(0)

    def runs(self, text: str) -> bool:
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(text, self.names)
        except Exception:  # whatever eager refuses: this line is left out of the program
            return False
        return True

    def end(self) -> None:
        torch.set_grad_enabled(self.grad)


def _filled(template: str, names: list[str], count: int, r: random.Random) -> tuple[str, list[str], int]:
    found: dict[str, str] = {}
    new: list[str] = []

    def part(match: re.Match[str]) -> str:
        nonlocal count
        letter = match[1]
        if letter not in found:
            if letter in "nm":
                count += 1
                found[letter] = f"t{count}"
                new.append(found[letter])
            elif letter in "vu":
                found[letter] = r.choice([q for q in names if "." not in q and q != "w"])
            elif letter == "i":
                found[letter] = r.choice(["i", "n - 1", "m", "..., 0"])
            else:
                found[letter] = r.choice(names[-5:] if r.random() < 0.5 else names)
        return found[letter]

    return re.sub(r"\$([a-z])\b", part, template), new, count


def _program(lines: list[str], names: list[str]) -> str:
    fresh = [q for q in dict.fromkeys(names) if re.fullmatch(r"t\d+", q)]
    body = "\n".join("    " + line for line in [*[f"{q} = None" for q in fresh], *lines])
    return f"{PRELUDE}def program(a, b, w, i, m, n, k, s):\n{body}\n    return [{', '.join([*fresh, 'a'])}]\n"
