"""A fuzzer for stale results: change anything a compiled function read, call it again, compare with eager.

Two worlds (`staleness_program`, imported twice) suffer the same changes (`staleness_mutations`); one of them is called
through `torchjit.compile`. After each change outputs, exceptions, state and inputs must agree.

    uv run python integration_tests/fuzz_staleness.py --mutations 50000 --seed 0
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import itertools
import math
import random
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

import torchjit
from torchjit_guards import _c

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent))
from staleness_mutations import MUTATIONS, Mutation

_PROGRAM = Path(__file__).with_name("staleness_program.py")
_numbers = itertools.count()
_c.snapshot_after(0)  # at the first hit: most worlds are called once between two changes


class Stale(AssertionError):
    """A compiled call and eager disagree."""


class _Tensor(torch.Tensor):
    """A subclass that does nothing."""


class _Mode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class World:
    """One copy of the program and all that it reads."""

    def __init__(self, entry: str) -> None:
        spec = importlib.util.spec_from_file_location(f"staleness_program_{next(_numbers)}", _PROGRAM)
        assert spec is not None and spec.loader is not None
        self.m = m = importlib.util.module_from_spec(spec)
        sys.modules[m.__name__] = m  # dataclasses look it up
        spec.loader.exec_module(m)
        torch.manual_seed(0)
        self.net = m.Net() if entry == "modules" else nn.Module()
        self.x = torch.linspace(-1, 1, 6).reshape(2, 3)
        self.y = torch.linspace(0, 1, 6).reshape(2, 3)
        self.more: Any = []
        self.options: dict[str, Any] = {"k": 1}
        self.write = False
        self.inner = m.make_closure(0.5)
        self.holder = m.Holder()
        self.method = self.holder.method
        self.measured = m.Measured()
        self.handles: list[Any] = []
        self.ambient: dict[str, Any] = {}
        self.subclass = _Tensor
        self.sub_block = type("SubBlock", (m.Block,), {"factor": 2.5})
        self.sub_measured = type("SubMeasured", (m.Measured,), {"rate": 0.5})
        self.mixin = type("Mixin", (), {"rate": 5.0, "__len__": lambda self: 21})
        members = {**m.Base.__dict__, **m.Block.__dict__}
        self.keep = {n: members[n] for n in ("act", "shift", "kind", "gain", "forward")} | {
            "doubled": m.Measured.doubled, "call": m.Measured.__call__, "len": m.Measured.__len__, "eq": m.Measured.__eq__,
            "getattr": m.Measured.__dict__["__getattr__"], "helper": m.helper.__code__, "method": m.Holder.method,
            "wrapped": m.wrapped.__wrapped__.__code__, "functions": m.functions.__code__,
        }  # fmt: skip
        self.entry: Callable[[Any], Any] = m.ENTRIES[entry]

    def close(self) -> None:
        """Forget the module."""
        sys.modules.pop(self.m.__name__, None)
        sys.modules.pop(self.m.IMPORTED.__name__, None)


# ---------------------------------------------------------------------- calling
@contextlib.contextmanager
def _ambient(state: dict[str, Any]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if state.get("grad") is False:
            stack.enter_context(torch.no_grad())
        if state.get("inference"):
            stack.enter_context(torch.inference_mode())
        if state.get("autocast") is not None:
            stack.enter_context(torch.autocast("cpu", dtype=state["autocast"]))
        if state.get("default_device"):
            stack.enter_context(torch.device(state["default_device"]))
        if state.get("function_mode"):
            stack.enter_context(_Mode())
        if state.get("patch"):
            stack.enter_context(_patched(state["patch"]))
        if state.get("module_hook"):
            handle = nn.modules.module.register_module_forward_hook(_double)
            stack.callback(handle.remove)
        if state.get("deterministic"):
            torch.use_deterministic_algorithms(True, warn_only=True)
            stack.callback(torch.use_deterministic_algorithms, False)
        before = torch.get_default_dtype()
        torch.set_default_dtype(state.get("default_dtype", torch.float32))
        stack.callback(torch.set_default_dtype, before)
        yield


def _double(module: nn.Module, args: Any, out: Any) -> Any:
    return out * 2 if isinstance(out, torch.Tensor) else out


@contextlib.contextmanager
def _patched(name: str) -> Iterator[None]:
    owner: Any = F if name == "softplus" else torch
    before = getattr(owner, name)
    setattr(owner, name, torch.cos)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _call(world: World, function: Callable[[Any], Any]) -> Any:
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with _ambient(world.ambient):
                return function(world)
        except Exception as error:
            return error


def _leaf(value: Any, world: World) -> Any:
    if isinstance(value, torch.Tensor):
        inputs = [world.x, world.y, *world.more]
        data = None
        if value.device.type != "meta":
            data = value.detach().cpu().as_subclass(torch.Tensor).resolve_neg().double().flatten().tolist()
            data = tuple("nan" if math.isnan(n) else round(n, 9) if abs(n) < 1e6 else float(f"{n:.6g}") for n in data)
        place = next((i for i, t in enumerate(inputs) if t is value), None)
        return type(value), value.dtype, str(value.device), tuple(value.shape), value.requires_grad, place, data
    if isinstance(value, float):
        return float, repr(value)
    if isinstance(value, BaseException):
        return type(value).__name__
    if isinstance(value, types.ModuleType | type) or callable(value):
        return type(value).__name__
    return type(value).__name__, repr(value)


def _facts(world: World, out: Any) -> Any:
    """Everything that a call may have produced or changed, as comparable data."""
    state = [*world.net.state_dict(keep_vars=True).values(), world.x, world.y, *world.more]
    leaves, spec = pytree.tree_flatten(out)
    facts = [_leaf(v, world) for v in leaves], [_leaf(v, world) for v in state]
    return str(spec), facts[0], facts[1] + [_leaf(g, world) for g in _gradients(leaves, state)]


def _gradients(leaves: list[Any], state: list[Any]) -> tuple[Any, ...]:
    """Of the results, by everything that asks for them; backward hooks run."""
    results = [v.float().sum() for v in leaves if isinstance(v, torch.Tensor) and v.requires_grad]
    wanted = [t for t in state if isinstance(t, torch.Tensor) and t.is_leaf and t.requires_grad]
    if not results or not wanted:
        return ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.autograd.grad(results, wanted, allow_unused=True)
    except RuntimeError as error:  # what the program did to its inputs forbids it
        return (error,)


def _difference(got: Any, want: Any) -> str:
    if got[0] != want[0]:
        return f"  compiled {got[:2]}\n  eager    {want[:2]}"
    places = zip([*got[1], *got[2]], [*want[1], *want[2]], strict=False)
    return "\n".join(f"  leaf {i}: compiled {a}\n  eager {b}" for i, (a, b) in enumerate(places) if a != b)


# ---------------------------------------------------------------------- running
Step = tuple[str, int]


class Pair:
    """A compiled world and an eager one."""

    def __init__(self, entry: str) -> None:
        self.name = entry
        self.worlds = World(entry), World(entry)
        self.compiled = torchjit.compile(self.worlds[0].entry, backend="eager", recompile_limit=10_000)
        self.mutations = {m.__name__: m for m in MUTATIONS[entry]}

    def step(self, name: str, seed: int) -> None:
        """Change both worlds, call both, compare.

        Raises:
            Stale: they differ.
        """
        for world in self.worlds:
            _mutate(self.mutations[name], world, random.Random(seed))
        self.compare(f"{name} (seed {seed})")

    def compare(self, after: str) -> None:
        """Call both worlds as they are."""
        compiled, eager = self.worlds
        expected = _call(eager, eager.entry)
        want = _facts(eager, expected)
        answer = _call(compiled, self.compiled)
        got = _facts(compiled, answer)
        if isinstance(answer, Exception) and type(expected) is RuntimeError:
            # Two errors in one program: torch's own, which fake tensors let pass, comes after those of Python then.
            return
        if got != want:
            error = answer if isinstance(answer, BaseException) else None
            raise Stale(f"{self.name} after {after}:\n{_difference(got, want)}") from error

    @property
    def specializations(self) -> int:
        """How often the function was captured."""
        return len(self.compiled.compiled.specializations)

    def forget(self) -> None:
        """Drop what was compiled, so that misses stay cheap."""
        self.compiled.compiled.reset()

    def close(self) -> None:
        for world in self.worlds:
            world.close()


def _mutate(change: Mutation, world: World, r: random.Random) -> None:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            change(world, r)
        except (RuntimeError, AttributeError, KeyError, TypeError, IndexError):
            pass  # it does not apply to this state, in either world


def replay(entry: str, steps: Sequence[Step]) -> None:
    """Run a sequence of changes from a fresh pair.

    Raises:
        Stale: a result differs.
    """
    pair = Pair(entry)
    try:
        pair.compare("nothing")
        for name, seed in steps:
            pair.step(name, seed)
    finally:
        pair.close()


def shrink(entry: str, steps: list[Step]) -> list[Step]:
    """The fewest steps found that still fail."""
    size = max(1, len(steps) // 2)
    while True:
        at = 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            try:
                replay(entry, fewer)
                at += size
            except Stale:
                steps = fewer
        if size == 1:
            return steps
        size //= 2


def fuzz(mutations: int, seed: int, entries: Sequence[str] = tuple(MUTATIONS), report: bool = False) -> dict[str, int]:
    """Run so many changes, 60 to a pair of worlds, and return counts of changes and captures.

    Raises:
        Stale: with the shortest failing sequence found.
    """
    r = random.Random(seed)
    done = {"mutations": 0, "captures": 0, "stale": 0}
    while done["mutations"] < mutations:
        entry = entries[r.randrange(len(entries))]
        steps: list[Step] = []
        pair = Pair(entry)
        try:
            pair.compare("nothing")
            names = list(pair.mutations)
            for _ in range(60):
                steps.append((r.choice(names), r.randrange(40)))
                pair.step(*steps[-1])
                done["mutations"] += 1
        except Stale as error:
            done["stale"] += 1
            if report:
                print(error, flush=True)
            fewest = shrink(entry, steps)
            if not report:
                raise Stale(f"{error}\nreplay({entry!r}, {fewest!r})") from error.__cause__
            print(f"replay({entry!r}, {fewest!r})", flush=True)
        finally:
            done["captures"] += pair.specializations
            pair.close()
        if report and done["mutations"] % 1200 < 60:
            print(done, flush=True)
    return done


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mutations", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--entries", nargs="+", default=list(MUTATIONS), choices=list(MUTATIONS))
    options = parser.parse_args()
    start = time.perf_counter()
    with torchjit.config.patch(on_error="raise"):
        gc.freeze()  # what was imported need not be looked at again and again
        done = fuzz(options.mutations, options.seed, options.entries, report=True)
    print(f"{done} in {time.perf_counter() - start:.0f} s, seed {options.seed}")
    return 1 if done["stale"] else 0


if __name__ == "__main__":
    sys.exit(main())
