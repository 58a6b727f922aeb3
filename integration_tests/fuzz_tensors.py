"""Random programs of tensors, compiled and plain: views, writes in place, dtypes, grad modes, leaves, `.grad`, indexing, `out=`.

    uv run python integration_tests/fuzz_tensors.py FIRST_SEED COUNT [BACKEND] [--wide]

With `--wide` the programs of `fuzz_tensors_wide.py`: training, modules with state, `torch.func`, with changes between calls. Results, errors, what tensors are (dtype, sizes, strides, flags, who shares memory with whom), all state and the gradients of
a backward pass afterwards must agree. Prints every program that does something else, reduced.
"""

# mypy: no-warn-return-any

from __future__ import annotations

import contextlib
import random
import re
import sys
import types
import warnings
from collections import deque
from pathlib import Path
from typing import Any

import fuzz_tensors_wide as wide
import torch

import torchjit

sys.path.insert(0, str(Path(__file__).parents[1] / "packages/torchjit-vm/tests"))
import vm_language_fuzz as fuzz

__all__ = ["told", "write"]

_CALLS = 3

EXPRESSIONS = (
    "$x + $y", "$x * 2", "$x + 1.5", "$x * True", "$x // 2", "$x % 3", "2 ** $x", "$x ** 2", "1 - $x", "1.5 - $x", "2 / $x", "$x - $y", "$x / $y", "-$x", "$x & $y", "~$x",
    "$x.sum(0)", "$x.sum()", "$x.mean()", "$x.t()", "$x[0]", "$x[..., 1:]", "$x[:, None]", "$x[[0, 1]]", "$x[-1]", "$x[..., ::2]", "$x[$i]", "$x[$x > 0]", "$x[:n]", "$x.view(-1)",
    "$x.reshape(-1)", "$x.flatten()", "$x.expand(2, *$x.shape)", "$x.clone()", "$x.detach()", "$x.contiguous()", "$x.double()", "$x.half()", "$x.int()", "$x.bool()", "$x.float()", "$x.to(torch.complex64)",
    "$x.to($y.dtype)", "$x.type_as($y)", "$x.unsqueeze(0)", "$x.squeeze()", "$x.transpose(0, -1)", "torch.where($x > 0, $x, $y)", "torch.where($x > 0, $x, k)", "torch.cat([$x, $y])", "torch.stack([$x, $x])",
    "$x @ w", "$x.softmax(-1)", "F.relu($x)", "torch.sigmoid($x)", "$x.chunk(2)[0]", "$x.unbind(0)[0]", "$x.split(1)[-1]", "$x.diagonal()", "$x.cumsum(0)", "$x.max()", "$x.max(0)[0]", "$x.argmax()", "$x.sort()[0]",
    "$x > 0", "$x == $y", "$x.real", "$x.flip(0)", "$x.roll(1)", "torch.zeros_like($x)", "torch.ones(3, 4)", "torch.arange(4)", "torch.arange(n, dtype=torch.float32)", "torch.full((3, 4), n)", "torch.full((3, 4), k)",
    "torch.tensor(k)", "torch.tensor([n, 2])", "torch.empty_like($x).fill_(1)", "$x.new_zeros(2)", "$x.masked_fill($x > 0, 1)", "$x.clamp(0, 1)", "$x.abs()", "$x.pow(2).sum()", "torch.maximum($x, $y)",
    "$x.view($x.shape)", "$x.view_as($x)", "$x.data", "$x.alias()" if False else "$x.mT", "$x.narrow(0, 0, 1)", "$x.select(0, 0)", "$x.as_strided((2,), (1,))", "torch.view_as_real($x.to(torch.complex64))", "$x.unflatten(0, (-1, 1))",
    "F.linear($x, w)", "F.dropout($x, 0.5)", "torch.rand(3, 4)", "torch.nn.functional.pad($x, (1, 1))", "$x.prod()", "$x.norm()", "torch.einsum('ij,ij->i', $x, $x)", "$x.tril()", "$x.repeat(2, 1)", "$x.movedim(0, -1)",
    "torch.add($x, $y, alpha=2)", "torch.lerp($x, $y, 0.5)", "torch.addcmul($x, $y, $y)", "torch.square($x)", "$x.var()", "$x.any()", "$x.all()", "$x.isnan()", "$x.sign()", "$x.round()", "$x.log1p()", "torch.nan_to_num($x)",
    "$x.gather(0, $x.argsort(0))", "$x.index_select(0, i)", "$x.take_along_dim($x.argsort(0), 0)", "torch.cross($x, $y, dim=0)", "$x.swapaxes(0, -1)", "$x.squeeze(0)", "torch.outer($x.flatten(), $x.flatten())", "$x.mean(-1, keepdim=True)",
    "$x[n - 1]", "$x[..., n]", "$x[:, n - 1]", "$x[-n]", "$x[None, n - 2]", "$x[n - 2, i]", "$x[n - 1, 1:]", "s.t", "s.l[0]", "s.l[-1]", "s.buf", "w.grad", "$x.grad", "s.w.weight", "s.w($x)", "torch.autograd.grad($x.sum(), w, allow_unused=True)[0]",
)  # fmt: skip
STATEMENTS = (
    "$x.add_($y)", "$x.mul_(2)", "$v += $y", "$v *= k", "$v -= 1", "$v /= 2", "$v //= 2", "$x[0] = $y", "$x[0] = k", "$x[..., 1:] += 1", "$x[$x > 0] = k", "$x[[0, 1]] = 1", "$x[:, 0] = $y", "$x[i] = $y", "$x[..., -1] *= 2",
    "$x.copy_($y)", "$x.zero_()", "$x.fill_(k)", "$x.unsqueeze_(0)", "$x.t_()", "$x.squeeze_()", "$x.transpose_(0, -1)", "$x.requires_grad_()", "$x.requires_grad_(False)", "$x.requires_grad = n > 2", "$x.detach_()",
    "torch.add($x, $y, out=$z)", "torch.mul($x, 2, out=$x)", "torch.sum($x, 0, out=$z)", "$x.grad = None", "$x.grad = torch.ones_like($x)", "$x.sum().backward()", "($x * $y).mean().backward(retain_graph=True)",
    "with torch.no_grad():\n    $x.add_(1)", "with torch.no_grad():\n    $n = $x * 2", "with torch.enable_grad():\n    $n = $x * w.sum()", "with torch.no_grad():\n    $v *= 2\n    $n = $v + w.sum()", "with torch.no_grad():\n    w.sub_(0.1)",
    "with torch.inference_mode():\n    $n = $x + 1", "with torch.autocast('cpu', dtype=torch.bfloat16):\n    $n = $x @ w", "s.t = $x", "s.l.append($x)", "s.l[0] = $x", "s.t += 1", "s.buf += $x.detach().sum()", "s.buf = s.buf + 1", "$x.data.mul_(2)",
    "$x.data = $y", "$x.data.copy_($y.data)", "if n > 2:\n    $x.mul_(3)", "for q in range(n):\n    $v = $v + q", "for q in $x:\n    s.l.append(q * 2)\n    break", "$v, $u = $u, $v", "$x.index_add_(0, i, $y)", "$x.masked_fill_($x > 0, k)", "$x.clamp_(min=0)",
    "$x.exp_()", "$x.uniform_()", "$x.neg_()", "$x.sqrt_()", "$x.scatter_(0, i[:1, None], 1.0)", "$x.register_hook(lambda g: g * 2)", "$x.retain_grad()", "log($x.shape, $x.dtype, $x.requires_grad, $x.is_leaf)", "log($x.grad_fn is None, $x.stride())", "log($x is $y)",
    "log($x.grad is None)", "log($x.is_contiguous(), $x.storage_offset())", "log(round(float($x.sum()), 3))", "log($x.data_ptr() == $y.data_ptr())", "log($x._base is None)", "log($x.tolist())", "log(len($x), $x.ndim, $x.numel())", "log($x.element_size())",
    "try:\n    $n = $x @ $y\nexcept RuntimeError as error:\n    log(type(error))", "try:\n    $x.add_($y)\nexcept RuntimeError as error:\n    log(str(error)[:40])", "try:\n    $x[5] = 1\nexcept IndexError:\n    log('index')", "if ($x > 0).any():\n    $n = $x * 2",
    "while $x.sum() > 100:\n    $v = $v / 10\n    break", "s.w.weight.grad = None", "s.w.zero_grad()", "s.n += n", "k = k + n", "$n = [q * 2 for q in ($x, $y)][1]", "$n, $m = $x.chunk(2) if $x.dim() and $x.shape[0] % 2 == 0 else ($x, $y)",
    "$n = torch.stack([q + 1 for q in $x])", "$n, _ = torch.max($x, 0)", "torch.nn.init.ones_(w)", "$n = s.w($x)", "$n = torch.zeros(3, 4); $n[0] = $x", "$n = $x.clone(); $n[..., 0] = 0; $n.mul_(w.sum())", "$n = $x.detach(); $n.add_(1)", "$n = $x.view(-1); $x.mul_(2)",
    "$n = $x[0]; $n += 1", "$n = $x.expand(2, *$x.shape); $n = $n + 1", "$n = torch.zeros(2, requires_grad=True); $m = $n * 2", "$n = torch.tensor([1.0, 2.0]); $n.requires_grad_(); $m = $n.sum() * $x.sum()", "$n = $x.requires_grad and $x * 2 or $x",
    "$x[n - 1] = $y", "$x[:, n - 1] += 1", "$x[-n, 1] = k", "$n = $x[n - 1]; $n.mul_(2)", "try:\n    $n = $x[n + 1]\nexcept IndexError:\n    log('far')", "s.p = torch.nn.Parameter($x.detach().clone().float())", "$n = s.w.weight.t(); $n = $n * 2", "$n = getattr(s, 'p', w); $n = $n * k", "torchjit.graph_break()",
)  # fmt: skip
PRELUDE = """
import torch, torchjit
import torch.nn.functional as F
LOG = []
def log(*values):
    LOG.append(values)
"""


def write(seed: int) -> str:
    """The program of a seed: `program(a, b, w, i, m, n, k, s)`."""
    r = random.Random(seed)
    names = ["a", "b", "a", "b", "w", "m", "s.t", "s.buf", "i"]
    lines: list[str] = []
    count = 0

    def text(template: str) -> str:
        nonlocal count
        made: dict[str, str] = {}

        def part(found: re.Match[str]) -> str:
            nonlocal count
            letter = found[1]
            if letter in made and letter not in "y":
                return made[letter]
            if letter in "nm":
                count += 1
                made[letter] = f"t{count}"
            elif letter in "vu":
                made[letter] = r.choice([q for q in names if "." not in q and q != "w"])
            elif letter == "i":
                made[letter] = r.choice(["i", "n - 1", "m", "..., 0"])
            else:
                made[letter] = r.choice(names[-6:] if r.random() < 0.6 else names)
            return made[letter]

        result = re.sub(r"\$([a-z])\b", part, template)
        names.extend(made[q] for q in "nm" if q in made)
        return result

    for _ in range(r.randint(2, 9)):
        if r.random() < 0.5:
            made = f"t{count + 1}"
            count += 1
            lines += [f"{made} = {text(r.choice(EXPRESSIONS))}"]
            names.append(made)
        else:
            lines += text(r.choice(STATEMENTS)).split("\n")
    fresh = [q for q in dict.fromkeys(names) if q.startswith("t")]
    body = "\n".join("    " + line for line in lines)
    return f"{PRELUDE}def program(a, b, w, i, m, n, k, s):\n{body}\n    return [{', '.join([*fresh, 'a'])}]\n"


def _arguments(kind: int, call: int, r: random.Random) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(kind)
    rows = 3 if call < 2 else 4
    base = torch.randn(2 * rows, 4, generator=generator)
    a = (
        base[:rows],
        base[:rows].clone(),
        base[:rows].clone().requires_grad_(),
        base[:rows].clone().requires_grad_() * 1.0,
    )[kind % 4]
    b = (
        base[rows:],
        base[rows:].clone(),
        a,
        a.detach(),
        torch.randn(4),
        torch.randint(0, 5, (rows, 4), generator=generator),
    )[kind // 4 % 6]
    s = types.SimpleNamespace(
        t=torch.ones(rows, 4), l=[a, torch.ones(2)], buf=torch.zeros(()), n=0, w=torch.nn.Linear(4, 4)
    )
    return {
        "a": a, "b": b, "w": torch.nn.Parameter(torch.eye(4) + 0.5), "i": torch.tensor([0, 1]), "m": torch.arange(rows) > 0,
        "n": (2, 3, 3)[call], "k": (0.5, 1.5, 2)[call], "s": s,
    }  # fmt: skip


_STATE = ("_parameters", "_buffers", "_modules")


def _describe(value: Any, seen: dict[int, int], memory: dict[int, int] | None) -> Any:
    if isinstance(value, torch.Tensor):
        if id(value) in seen:
            return "seen", seen[id(value)]
        seen[id(value)] = len(seen)
        try:
            flags = value.requires_grad, value.is_leaf, value.is_inference()
        except RuntimeError as error:  # one of several views of a tensor that was written since
            return type(error)
        storage = value.untyped_storage()
        shared = None if memory is None else memory.setdefault(storage.data_ptr() or storage._cdata, len(memory))
        grad = None if not value.is_leaf and not value.retains_grad else value.grad
        kind = type(value).__name__, str(value.dtype), tuple(value.shape), value.stride(), flags, shared
        return kind, _copy(value), _describe(grad, seen, None)
    if type(value) is float:  # sums are rounded otherwise
        return torch.tensor(value)
    if isinstance(value, list | tuple | deque):
        return [_describe(item, seen, memory) for item in value]
    if isinstance(value, dict):
        return {key: _describe(item, seen, memory) for key, item in value.items()}
    if isinstance(value, torch.optim.Optimizer):
        return _describe(value.state_dict(), seen, memory)
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if hasattr(value, "__dict__") and not callable(value) or isinstance(value, torch.nn.Module):
        return _describe({k: v for k, v in vars(value).items() if not k.startswith("_") or k in _STATE}, seen, memory)
    return value.__qualname__ if callable(value) else repr(value)


def _copy(value: torch.Tensor) -> torch.Tensor:
    try:
        return value.detach().as_subclass(torch.Tensor).clone()
    except RuntimeError:  # its `.data` was an inference tensor's
        return torch.tensor(value.tolist(), dtype=value.dtype)


_LOOSE = {"rtol": 2e-3, "atol": 2e-4}
"""Steps of training, one after the other."""
_OF_16_BITS = {"rtol": 2e-2, "atol": 2e-2}
"""Eager sums gradients of norms in 16 bits where its operands are. `atol`: of the largest element."""


def _same(want: Any, got: Any, where: str, **tolerance: float) -> str | None:
    """Where two descriptions differ."""
    if isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor):
        if tolerance == _OF_16_BITS and want.is_floating_point():
            largest = float(want.double().nan_to_num(posinf=0, neginf=0).abs().max()) if want.numel() else 0.0
            tolerance = {**tolerance, "atol": max(_LOOSE["atol"], tolerance["atol"] * largest)}
        try:
            torch.testing.assert_close(got, want, equal_nan=True, **tolerance)
        except AssertionError:
            return f"{where}: want {want} got {got}"
        return None
    if isinstance(want, dict) and isinstance(got, dict) and list(want) == list(got):
        return next((d for k in want if (d := _same(want[k], got[k], f"{where}.{k}", **tolerance))), None)
    if any(isinstance(t, str) and t.startswith("one of the variables needed for gradient") for t in (want, got)):
        return None  # what a graph saves for its backward may be something else, of which an old value is needed or not
    if want == "backward" and isinstance(got, str) and got.startswith(("Trying to backward", "TJ-AOT-009")):
        return None  # a graph is one node of autograd, so the way back leads through all that it was given; no second derivatives
    if got == "backward" and isinstance(want, str) and want.startswith("Trying to backward"):
        return None  # and what a node of eager's has freed, the graph may not need
    if isinstance(want, list | tuple) and type(want) is type(got) and len(want) == len(got):
        return next(
            (
                d
                for j, (p, q) in enumerate(zip(want, got, strict=True))
                if (d := _same(p, q, f"{where}[{j}]", **tolerance))
            ),
            None,
        )
    if isinstance(want, list) and isinstance(
        got, list
    ):  # the first difference tells more than that there are more or fewer
        pairs = enumerate(zip(want, got, strict=False))
        found = next((d for j, (p, q) in pairs if (d := _same(p, q, f"{where}[{j}]", **tolerance))), None)
        return found or f"{where}: {len(want)} and {len(got)} items"
    return (
        None if type(want) is type(got) and want == got else f"{where}: want {repr(want)[:400]} got {repr(got)[:400]}"
    )


def _run(function: Any, names: dict[str, Any], seed: int, world: wide.World | None) -> list[Any]:
    found: list[Any] = []
    r = random.Random(seed)
    kind = r.randrange(24)
    for call in range(_CALLS if world is None else wide.CALLS):
        torch.manual_seed(call)
        given = _arguments(kind, call, r) if world is None else world.arguments(call)
        names["LOG"].clear()
        result: Any = None
        try:
            with contextlib.nullcontext() if world is None else world.around(call):
                result = function(**given)
            outcome: Any = "returned"
        except Exception as error:
            outcome = type(error).__name__, str(error).split("\n", 1)[0]
        grad = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        state = _describe([result, given, list(names["LOG"])], {}, {})
        drawn = torch.get_rng_state().tolist()
        roots = [t for t in result or () if isinstance(t, torch.Tensor) and t.requires_grad and not t.is_inference()]
        after: Any = None
        if roots:
            try:
                torch.autograd.backward([t.sum() if not t.is_complex() else t.abs().sum() for t in roots])
                after = "backward"
            except Exception as error:
                after = str(error).split("\n", 1)[0][:60]
        found.append([outcome, state, grad, drawn, after])
        if after not in (None, "backward"):
            break  # what it has added to gradients before it raised is no promise
        found[-1].append(_describe([result, given], {}, {}))
        if world is not None:
            world.change()
    return found


_SIXTEEN = re.compile("float16|half|autocast")


def difference(source: str, name: str, backend: str) -> str | None:
    """What a compiled program does otherwise than a plain one; None if nothing."""
    seed, broad = int(re.sub(r"\D", "", name) or 0), "wide" in name
    runs = []
    for compiled in (False, True):
        names: dict[str, Any] = {}
        exec(compile(source, name, "exec"), names)
        function = names["program"]
        world = wide.World(seed, names) if broad else None
        if compiled:
            options = {"emulate_precision_casts": True} if broad and backend == "inductor" else None
            dynamic = (None, True, False)[seed % 3]
            function = torchjit.compile(function, backend=backend, dynamic=dynamic, on_error="raise", options=options)
        runs.append(_run(function, names, seed, world))
    small = broad and (_SIXTEEN.search(source.split("def program")[1]) or "autocast" in wide.World(seed, names).wraps)
    tolerance = {} if not broad else _OF_16_BITS if small else _LOOSE
    for call, (want, got) in enumerate(zip(*runs, strict=False)):
        ended = min(len(want), len(got))  # see `_run`
        found = _same(want[:ended], got[:ended], f"run[{call}]", **tolerance)
        if found is not None or len(want) != len(got):
            return found
    return None


def told(source: str, name: str, backend: str = "eager") -> str | None:
    """What differs, or the error that the compiler itself raised."""
    torchjit.reset()
    return fuzz.told(lambda: difference(source, name, backend), 30)


def main() -> int:
    """Status 1 if something differs."""
    warnings.simplefilter("ignore")
    broad = "--wide" in sys.argv
    first, count, *chosen = [a for a in sys.argv[1:] if a != "--wide"]
    differing = 0
    for seed in range(int(first), int(first) + int(count)):
        backend = chosen[0] if chosen else ("eager", "aot_eager")[seed % 2]
        name = f"<tensors {seed}{' wide' if broad else ''}>"
        source = wide.write(seed, (EXPRESSIONS, STATEMENTS)) if broad else write(seed)
        found = told(source, name, backend)
        if found is not None:
            differing += 1
            small = fuzz.reduced(source, name, lambda text, file, b=backend: told(text, file, b), 15)
            reduced = told(fuzz.head(source) + small, name, backend)
            print(f"=== seed {seed} {backend}\n{small}\n{reduced}"[:2500] + f"\nbefore: {found[:300]}", flush=True)
    print(f"{count} programs, {differing} differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
