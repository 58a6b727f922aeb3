"""Calls of modules inside a compiled model: hooks, overridden methods and patched classes, against eager."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections import Counter
from pathlib import Path

import pytest
import torch

import torchjit
import torchjit_core.collector


class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, scale=1.0):
        return self.linear(x).sin() * scale


class Outer(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x, scale=2.0) + self.inner(x)


def is_same(compiled, model, x):
    torch.testing.assert_close(compiled(x), model(x))


def test_plain_calls_are_one_graph_without_torchs_frames():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    model = Outer(Inner())
    is_same(torchjit.compile(model, backend=backend, fullgraph=True), model, torch.randn(2, 4))
    traces = [node.meta["stack_trace"] for node in graphs[0].graph.nodes if "stack_trace" in node.meta]
    assert traces
    assert all("in Inner.forward" in trace or "in Outer.forward" in trace for trace in traces)
    assert not any("in Module._call_impl" in trace for trace in traces)


@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_a_hook_that_comes_later_and_goes_again_is_seen(register):
    model, x = Outer(Inner()), torch.randn(2, 4)
    compiled = torchjit.compile(model, backend="eager")
    is_same(compiled, model, x)
    before = model(x)
    hook = (lambda m, a, out: out + 1) if register == "register_forward_hook" else (lambda m, a: (a[0] + 1,))
    handle = getattr(model.inner, register)(hook)
    is_same(compiled, model, x)
    assert not torch.equal(before, model(x))
    handle.remove()
    is_same(compiled, model, x)


def test_a_global_hook_that_comes_later_is_seen():
    model, x = Outer(Inner()), torch.randn(2, 4)
    compiled = torchjit.compile(model, backend="eager")
    is_same(compiled, model, x)
    handle = torch.nn.modules.module.register_module_forward_hook(
        lambda m, a, out: out * 3 if isinstance(m, Inner) else None
    )
    try:
        is_same(compiled, model, x)
    finally:
        handle.remove()
    is_same(compiled, model, x)


def test_forward_and_call_impl_that_are_replaced_are_seen(monkeypatch):
    model, x = Outer(Inner()), torch.randn(2, 4)
    compiled = torchjit.compile(model, backend="eager")
    is_same(compiled, model, x)
    model.inner.forward = lambda x, scale=1.0: x * scale  # on the instance
    is_same(compiled, model, x)
    del model.inner.forward
    monkeypatch.setattr(Inner, "_call_impl", lambda self, x, scale=1.0: self.forward(x, scale=scale) - 5, raising=False)
    is_same(compiled, model, x)
    monkeypatch.undo()
    monkeypatch.setattr(Inner, "forward", lambda self, x, scale=1.0: x - scale)
    is_same(compiled, model, x)


def test_call_impl_whose_code_is_replaced_is_seen(monkeypatch):
    model, x = Outer(Inner()), torch.randn(2, 4)
    compiled = torchjit.compile(model, backend="eager")
    is_same(compiled, model, x)

    def changed(self, *args, **kwargs):
        return self.forward(*args, **kwargs) + 7

    original = torch.nn.Module._call_impl.__code__
    torch.nn.Module._call_impl.__code__ = changed.__code__
    try:
        is_same(compiled, model, x)
        fresh = torchjit.compile(model, backend="eager")
        is_same(fresh, model, x)
    finally:
        torch.nn.Module._call_impl.__code__ = original
    is_same(compiled, model, x)


def test_a_module_without_its_init_raises_as_in_eager():
    class Broken(torch.nn.Module):
        def __init__(self):
            pass

        def forward(self, x):
            return x

    holder = [Broken()]

    def f(x):
        return holder[0](x)

    with pytest.raises(AttributeError) as wanted:
        f(torch.ones(2))
    with pytest.raises(AttributeError) as found:
        torchjit.compile(f, backend="eager")(torch.ones(2))
    assert str(found.value) == str(wanted.value)


def test_a_break_below_two_module_calls_resumes_in_each():
    class Breaking(torch.nn.Module):
        def forward(self, x):
            y = x.sin()
            torchjit.graph_break("here")
            return y.cos()

    model, x = Outer(Inner()), torch.randn(2, 4)
    model.inner.linear = torch.nn.Sequential(torch.nn.Linear(4, 4), Breaking())
    compiled = torchjit.compile(model, backend="eager")
    is_same(compiled, model, x)
    is_same(compiled, model, x)


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_as_it_was_after_a_capture(on):
    seen = []

    def backend(gm, inputs):
        seen.append(gc.isenabled())
        return gm.forward

    before = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        torchjit.compile(lambda x: x.sin(), backend=backend)(torch.ones(2))
        assert gc.isenabled() is on
        assert seen == [on]
    finally:
        (gc.enable if before else gc.disable)()


def left_by_a_capture():
    """How many objects a capture makes, and those of them that only the collector finds."""
    layers = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.LayerNorm(4)) for _ in range(20)]

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(layers)

        def forward(self, x):
            for layer in self.layers:
                x = layer(x) * getattr(layer, "absent", 1)
                try:
                    x = x + self.offset
                except AttributeError:
                    x = x + 1
            return x

    model, x = Net(), torch.randn(2, 4)
    torchjit.compile(model, backend="eager")(x)
    torchjit.reset()
    compiled = torchjit.compile(model, backend="eager")
    gc.collect()
    gc.collect()  # what the finalizers of the first one let go
    gc.disable()
    try:
        before = len(gc.get_objects())
        compiled(x)
        made = len(gc.get_objects()) - before
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = Counter(str(type(o)) for o in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    return made, left


def test_a_capture_leaves_next_to_no_cycles():
    """The collector does not look at what a capture made (`collector.py`), so none of it may need the collector to go. In a process of
    its own: tests before this one leave objects that die late."""
    program = """
import test_module_calls as t
for imported in ("torchjit", "torch._dynamo"):
    __import__(imported)
    made, left = t.left_by_a_capture()
    print(made, left.total(), left.most_common(9))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parent
    )
    for line in done.stdout.splitlines():
        made, left, _ = line.split(" ", 2)
        assert int(made) > 5000  # of which a few hundred per layer are the graph and the guards
        assert int(left) < 600, done.stdout


def test_cycles_do_not_wait_for_ever(monkeypatch):
    """Objects that are filed as old without being looked at are looked at after so many of them."""
    monkeypatch.setattr(torchjit_core.collector, "_DUE", 1_000)

    class Node:
        pass

    refs = []
    for i in range(12):
        node = Node()
        node.itself = node
        refs.append(weakref.ref(node))
        del node
        torchjit.compile(lambda x, i=i: x.sin() + i, backend="eager")(torch.ones(2))
        torchjit.reset()
    assert sum(ref() is not None for ref in refs) < 9


def test_what_the_program_froze_stays_frozen():
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        torchjit.compile(lambda x: x.sin(), backend="eager")(torch.ones(2))
        assert gc.get_freeze_count() >= frozen - 1000  # some may have died
    finally:
        gc.unfreeze()


def _traced():
    return torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()))


class Traced(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = _traced()

    def forward(self, x):
        return self.inner(x) * 2


class Generated(torch.fx.GraphModule):
    """A class with a call of its own."""

    def __call__(self, x):
        return super().__call__(x + 1)


@pytest.mark.parametrize("hooked", [False, True])
def test_graph_modules_are_captured(hooked):
    own, outer, called = _traced(), Traced(), _traced()
    called = Generated(called, called.graph)
    for module in (own, outer.inner, called) if hooked else ():
        module.register_forward_hook(lambda module, args, result: result * 3)
        module.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    for model in (own, outer, called):
        is_same(torchjit.compile(model, backend="eager", fullgraph=True), model, torch.randn(2, 4))
