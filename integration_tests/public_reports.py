"""Programs after public bug reports of torch.compile, in our own words: each takes a `compile` and returns what it saw.

The number in a name is that of the report in PyTorch's tracker. What a program raises inside is part of what it returns (`raised`).
"""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import collections.abc
import contextlib
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

Compile = Callable[[Any], Any]


def raised(call: Callable[..., Any], *args: Any) -> Any:
    """The result, or the kind of error."""
    try:
        return call(*args)
    except Exception as error:
        kinds = (IndexError, RuntimeError, TypeError, ValueError, AttributeError)
        return next((k.__name__ for k in kinds if isinstance(error, k)), type(error).__name__)


# ------------------------------------------------------------------ identity, classes, containers
def identity_of_attributes_196173(compile: Compile) -> Any:
    class Holder:
        def __init__(self) -> None:
            self.left, self.right = object(), object()
            self.current = self.left
            self.flips = 0

    holder = Holder()

    @compile
    def step(x):
        if holder.current is holder.left:
            holder.current = holder.right
            holder.flips += 1
            return x + 1
        holder.current = holder.left
        return x - 10

    return [step(torch.ones(2)) for _ in range(4)], holder.flips


def list_that_grows_under_iteration_175855(compile: Compile) -> Any:
    @compile
    def f(x):
        values = [x.sum()]

        def growing() -> Iterator[torch.Tensor]:
            for item in values:
                if len(values) < 3:
                    values.append(item + 1)
                yield item

        return torch.stack(list(growing())).sum()

    return f(torch.ones(1))


def list_of_a_class_169253(compile: Compile) -> Any:
    class Model(nn.Module):
        items: list[torch.Tensor] = []

        def forward(self, x):
            Model.items.append(x * 2)

    model = Model()
    forward = compile(model.forward)
    forward(torch.ones(2)), forward(torch.ones(2) * 3)
    return list(Model.items)


def attribute_of_a_class_176851(compile: Compile) -> Any:
    class Factor:
        value = 1.0

    f = compile(lambda x: x * Factor.value)
    seen = []
    for value in (1.0, 10.0, 3.0):
        Factor.value = value
        seen.append(f(torch.tensor([4.0])))
    return seen


def assigned_buffer_115774(compile: Compile) -> Any:
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache = torch.tensor([0, 0])

        def forward(self, x, at):
            self.cache[at] = x
            return self.cache.clone()

    model = Cache()
    fast = compile(model)
    first = fast(torch.tensor([2]), torch.tensor([0]))
    model.cache = torch.tensor([0, 0])
    return first, fast(torch.tensor([1]), torch.tensor([1])), model.cache


def closures_of_a_local_class_197896(compile: Compile) -> Any:
    log: list[int] = []
    counts = {"n": 0}

    @compile
    def f(x):
        class Helper:
            def touch(self, y):
                log.append(y.shape[0])
                counts["n"] += 1
                return y + counts["n"]

        return Helper().touch(x) * 2

    return [f(torch.ones(3)) for _ in range(3)], log, counts


def set_with_its_own_iter_186671(compile: Compile) -> Any:
    class Lying(set):
        def __iter__(self):
            return iter([99])

    f = compile(lambda a, b, x: x + 1 if a == b else x - 1)
    return f({1, 2, 3}, Lying({1, 2, 3}), torch.ones(2)), f({1}, Lying({1, 2, 3}), torch.ones(2))


def tuple_subclass_equality_172666(compile: Compile) -> Any:
    class Pair(tuple):
        pass

    target = Pair([1, -1])
    f = compile(lambda x, p: x + 1 if p != target else x - 1)
    return f(torch.ones(1), Pair([1, -1])), f(torch.ones(1), Pair([1, 2]))


def union_of_protocols_195969(compile: Compile) -> Any:
    @runtime_checkable
    class Named(Protocol):
        name: str

    @runtime_checkable
    class Sized(Protocol):
        size: int

    class Thing:
        def __init__(self, **attributes: Any) -> None:
            self.__dict__.update(attributes)

    f = compile(lambda x, t: x + 1 if isinstance(t, Named | Sized) else x - 1)
    return [f(torch.ones(1), t) for t in (Thing(name="a"), Thing(size=1), Thing(), Thing(name="b"))]


def borrowed_descriptor_190755(compile: Compile) -> Any:
    class Odd:
        push = list.append

    @compile
    def f(x, odd):
        try:
            odd.push(1)
        except TypeError:
            return x - 1
        return x + 1

    @compile
    def bound(x, odd):
        try:
            list.append.__get__(odd, Odd)
        except TypeError as error:
            return x - 1, str(error)
        return x + 1, ""

    return f(torch.ones(1), Odd()), bound(torch.ones(1), Odd())


def own_class_property_174050(compile: Compile) -> Any:
    class Disguised:
        @property
        def __class__(self):
            return int

    f = compile(lambda x, d: x + 1 if isinstance(d, int) else x - 1)
    return f(torch.ones(1), Disguised()), f(torch.ones(1), 3)


def dict_of_a_module_96198(compile: Compile) -> Any:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = 2.0

        def forward(self, x):
            return x + sum(isinstance(v, torch.Tensor) for v in self.__dict__.values()) + self.__dict__["scale"]

    return compile(Model())(torch.ones(2))


# ------------------------------------------------------------------ contexts, errors, modes
def context_object_over_a_break_124900(compile: Compile) -> Any:
    @compile
    def f(x):
        switch = torch.set_grad_enabled(True)
        print(end="")
        with switch:
            y = x + 1
        return y, torch.is_grad_enabled()

    return f(torch.ones(2))


def break_in_a_finally_136033(compile: Compile) -> Any:
    log = []

    @contextlib.contextmanager
    def switched(mode):
        before = torch.is_grad_enabled()
        try:
            print(end="")
            torch._C._set_grad_enabled(mode)
            yield
        finally:
            print(end="")
            log.append(torch.is_grad_enabled())
            torch._C._set_grad_enabled(before)

    @compile
    def f(x):
        with switched(False):
            y = x * 2
        return y, y.requires_grad

    return f(torch.ones(2, requires_grad=True)), log, torch.is_grad_enabled()


def autocast_left_by_an_error_195488(compile: Compile) -> Any:
    @compile
    def f(x, i):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (x @ x).index_select(0, i)

    kinds = [raised(f, torch.ones(4, 4), torch.tensor([99])) for _ in range(3)]
    return (
        kinds,
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        raised(f, torch.ones(4, 4), torch.tensor([1])),
    )


class _Doubling(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 2 if func is torch.Tensor.view else out


def function_mode_outside_115741(compile: Compile) -> Any:
    f = compile(lambda x: x.view(-1) + 1)
    before = f(torch.ones(2, 2))
    with _Doubling():
        inside = f(torch.ones(2, 2))
    return before, inside, f(torch.ones(2, 2))


def function_mode_over_a_break_182317(compile: Compile) -> Any:
    @compile
    def f(x):
        with _Doubling():
            y = x.view(-1)
            print(end="")
            if y.sum() > 100:
                raise ValueError("large")
            z = y.view(2, 2)
        return z + 1

    return f(torch.ones(2, 2)), raised(f, torch.ones(2, 2) * 99), torch._C._len_torch_function_stack()


def subclass_with_a_function_176679(compile: Compile) -> Any:
    class Scaled(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            out = super().__torch_function__(func, types, args, kwargs or {})
            return out * 10 if func is torch.add else out

    f = compile(lambda a, b: torch.add(a, b).as_subclass(torch.Tensor) + 1)
    return f(torch.ones(2).as_subclass(Scaled), torch.ones(2))


def unpack_hooks_wait_for_the_backward_113263(compile: Compile) -> Any:
    log = []

    def unpack(x):
        log.append("unpack")
        return x

    f = compile(lambda a, b: (a * b).sin())
    a, b = torch.ones(5, requires_grad=True), torch.full((5,), 2.0, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, unpack):
        y = f(a, b)
    early = list(log)
    y.sum().backward()
    return early, bool(log), a.grad, b.grad


def hooks_that_move_what_is_saved_130972(compile: Compile) -> Any:
    f = compile(lambda a: a * a)
    x = torch.arange(5.0).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (t.device, t.cpu()), lambda p: p[1].to(p[0])):
        y = f(x)
    y.sum().backward()
    return x.grad


def checkpoint_of_a_function_144035(compile: Compile) -> Any:
    f = compile(lambda x, w, v: F.relu(F.relu(x @ w) @ v))
    torch.manual_seed(0)
    x, w, v = (torch.randn(4, 4, requires_grad=True) for _ in range(3))
    for _ in range(2):
        checkpoint(f, x, w, v, use_reentrant=False).sum().backward()
    return x.grad, w.grad, v.grad


# ------------------------------------------------------------------ checks and dtypes of operators
def negative_positions_185885(compile: Compile) -> Any:
    f = compile(lambda x, i, s: torch.index_add(x, 0, i, s).clamp_max(1.0))
    return raised(f, torch.zeros(4, 3), torch.tensor([0, -1]), torch.ones(2, 3)), raised(
        f, torch.zeros(4, 3), torch.tensor([0, 1]), torch.ones(2, 3)
    )


def select_out_of_range_183769(compile: Compile) -> Any:
    @compile
    def f(x):
        base = x.unsqueeze(1)
        return torch.cat([base.select(1, 0), base.select(1, 1)], -1)

    return raised(f, torch.arange(12.0).reshape(3, 4))


def negative_row_of_an_embedding_183608(compile: Compile) -> Any:
    f = compile(lambda i, w: F.embedding(i, w))
    return raised(f, torch.tensor([2, -2, 4]), torch.randn(5, 2)), raised(f, torch.tensor([2, 5]), torch.randn(5, 2))


def computed_index_out_of_range_111952(compile: Compile) -> Any:
    f = compile(lambda x: x[torch.tensor([1]) + 1])
    return raised(f, torch.zeros(2)), raised(f, torch.zeros(3))


def losses_of_mixed_dtypes_197098(compile: Compile) -> Any:
    p, t = torch.full((4,), 0.5, dtype=torch.bfloat16), torch.full((4,), 0.25, dtype=torch.bfloat16)
    weighted = compile(lambda p, t, w: F.binary_cross_entropy(p, t, weight=w))
    huber = compile(lambda a, b: F.huber_loss(a, b))
    return weighted(p, t, torch.ones(4)), huber(p, t.float()), huber(p, t.half())


def ldexp_of_mixed_dtypes_197091(compile: Compile) -> Any:
    f = compile(torch.ldexp)
    return (
        f(torch.ones(3, dtype=torch.bool), torch.ones(3).half()),
        f(torch.tensor([1, 2, 3]), torch.ones(3).bfloat16()),
        f(torch.ones(3).half(), torch.ones(3)),
    )


def product_of_mixed_dtypes_177630(compile: Compile) -> Any:
    f = compile(torch.matmul)
    return raised(f, torch.ones(2, 3, 4).half(), torch.ones(2, 4, 5)), raised(
        f, torch.ones(2, 3, 4), torch.ones(2, 4, 5)
    )


def attention_with_a_double_mask_171191(compile: Compile) -> Any:
    @compile
    def f(q, k, v, mask):
        weights = torch.bmm(q, k.transpose(1, 2)) + mask
        return torch.bmm(weights.softmax(-1), v)

    q = torch.ones(2, 3, 4)
    return raised(f, q, q, q, torch.zeros(2, 3, 3, dtype=torch.float64)), raised(f, q, q, q, torch.zeros(2, 3, 3))


def logits_loss_with_a_weight_171282(compile: Compile) -> Any:
    f = compile(lambda x, t, w: torch.ops.aten.binary_cross_entropy_with_logits(x, t, w, None, 2))
    x = torch.linspace(-1, 1, 24).reshape(2, 2, 6).bfloat16()
    return raised(f, x, (x > 0).bfloat16(), torch.ones(6)), f(x, (x > 0).bfloat16(), None)


def dtype_of_normal_112449(compile: Compile) -> Any:
    f = compile(lambda dtype: torch.normal(2.0, 3.0, (10, 10), dtype=dtype))
    return [(f(d).dtype, f(d).shape) for d in (torch.float64, torch.float16, torch.float32)]


def size_given_to_the_old_constructor_196467(compile: Compile) -> Any:
    f = compile(lambda x: torch.Tensor(F.linear(x, torch.ones(4, 10)).size()).shape)
    new = compile(lambda x: (x.new(x.size()).shape, torch.LongTensor(x.size()).shape, x.new(tuple(x.size())).shape))
    old = compile(lambda n: torch.Tensor(n, 2).shape)
    return [(f(torch.randn(n, 10)), new(torch.randn(n, 10)), old(n)) for n in (1, 3, 5)]


def default_dtype_119162(compile: Compile) -> Any:
    f = compile(lambda x: (x * torch.ones(4)).dtype)
    before = f(torch.ones(4))
    torch.set_default_dtype(torch.float64)
    try:
        return before, f(torch.ones(4))
    finally:
        torch.set_default_dtype(torch.float32)


# ------------------------------------------------------------------ memory, threads
def inputs_are_freed_155778(compile: Compile) -> Any:
    f = compile(lambda x: x.sin().sum())
    freed = []
    gc.disable()
    try:
        for n in (3, 3, 5):
            x = torch.ones(n, requires_grad=True)
            dead = weakref.ref(x)
            f(x).backward()
            del x
            freed.append(dead() is None)
    finally:
        gc.enable()
    return freed


def input_of_a_function_without_a_graph_116143(compile: Compile) -> Any:
    f = compile(lambda y: None)
    x = torch.ones(3)
    dead = weakref.ref(x)
    f(x)
    del x
    gc.collect()
    return dead() is None


def traced_module_is_freed_129901(compile: Compile) -> Any:
    module = nn.Linear(4, 6)
    traced = torch.fx.symbolic_trace(module)
    dead = weakref.ref(traced)
    compile(traced)(torch.ones(2, 4))
    del traced, module
    gc.collect()
    return dead() is None


def disabled_part_keeps_nothing_149834(compile: Compile) -> Any:
    class Inner(nn.Module):
        @torch.compiler.disable
        def forward(self, x, x0):
            return x * 1

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x, x0):
            return x + self.inner(x, x0)

    model = compile(Outer())
    dead = []
    with torch.inference_mode():
        for _ in range(4):
            x = torch.ones(3)
            y = model(x, x)
            dead.append(weakref.ref(x))
            del x
    gc.collect()
    return y.clone(), [d() is None for d in dead]


def many_calls_through_a_disabled_function_148460(compile: Compile) -> Any:
    @torch.compiler.disable
    def apart(x):
        return x.sin()

    @compile
    def f(x):
        for _ in range(3):
            x = x * apart(x)
        return x

    out = f(torch.ones(3))
    gc.collect()
    before = sum(isinstance(o, torch.Tensor) for o in gc.get_objects())
    for _ in range(30):
        out = f(torch.ones(3))
    gc.collect()
    return out, sum(isinstance(o, torch.Tensor) for o in gc.get_objects()) - before


def two_threads_136833(compile: Compile) -> Any:
    f = compile(lambda x: (x.sin() * x).sum(-1))
    results: dict[int, torch.Tensor] = {}

    def work(n: int) -> None:
        results[n] = f(torch.ones(n, 4))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2, 6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return [results[n] for n in sorted(results)]


class _GradMode:
    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        self.before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(self.mode)

    def __exit__(self, *exc: object) -> None:
        torch._C._set_grad_enabled(self.before)


def generator_begun_inside_a_manager_134030(compile: Compile) -> Any:
    seen: list[Any] = []

    def values(x):
        seen.append(torch.is_grad_enabled())
        try:
            torch.set_default_dtype(torch.float64)
            yield x + torch.ones(3)
        finally:
            torch.set_default_dtype(torch.float32)

    @compile
    def f(x):
        made = values(x)
        with _GradMode(False):
            y = next(made)
        made.close()
        return y, torch.zeros(2)

    return [f(torch.ones(3)) for _ in range(2)], seen, torch.get_default_dtype()


def class_replaced_by_another_119715(compile: Compile) -> Any:
    class Holder:
        def __init__(self, x: Any) -> None:
            self.x = x

    space: dict[str, Any] = {"Holder": Holder}

    def f(x):
        held = space["Holder"](5)
        return x + (held.x if type(held) is Holder else held)

    compiled = compile(f)
    first = compiled(torch.ones(2))
    space["Holder"] = float
    return first, compiled(torch.ones(2))


PROGRAMS = {
    name: value
    for name, value in list(globals().items())
    if isinstance(value, collections.abc.Callable) and name.rsplit("_", 1)[-1].isdigit()  # type: ignore[arg-type]
}
