"""Programs that enter modes inside of a region: inference mode, a default device."""

# mypy: allow-untyped-calls, allow-untyped-defs

from __future__ import annotations

import torch
from torch import nn
from torch_programs import program, stateful

__all__: list[str] = []


# ---------------------------------------------------------------------- inference mode


@program(0)
def some_calls_in_inference_mode(x):
    with torch.inference_mode():
        y = x * 2
        z = y.view(-1)[3:]
        v = x[1:]
    return y, z, z.view(3, 3), z + 1, v, x.sin(), y.is_inference()


@torch.inference_mode()
def _evaluated(x):
    y = x.view(-1)
    z = x.sin()
    z.add_(1)
    print(end="")
    z.mul_(2)
    return y, z, z[0], torch.is_inference_mode_enabled(), torch.is_grad_enabled()


@program(0)
def all_calls_in_inference_mode(x):
    with torch.inference_mode():
        return x.sin() * 2, torch.ones(3), torch.func.vmap(torch.sum)(x)


@program(1)
def a_break_in_inference_mode(x):
    return _evaluated(x), x * 2, torch.is_inference_mode_enabled(), torch.is_grad_enabled()


@program(3)
def inference_mode_and_others(x):
    with torch.no_grad(), torch.inference_mode():
        print(end="")
        y = x * 2
        with torch.enable_grad():
            z, grad = x * 3, torch.is_grad_enabled()
        with torch.inference_mode(False):
            n = x * 7
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        print(end="")
        m = x @ x.t()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.inference_mode():
            print(end="")
            k = x @ x.t()
        h = x @ x.t()
    return y, z, grad, n, m, k, h, x @ x.t(), torch.is_autocast_enabled("cpu")


@program(1)
def an_exception_in_inference_mode(x):
    try:
        with torch.inference_mode():
            y = x * 2
            print(end="")
            raise ValueError
    except ValueError:
        return y, x * 2


@program(0)
def a_generator_in_inference_mode(x):
    def rows():
        with torch.inference_mode():
            yield x * 2
            yield x * 3

    found = rows()
    a = next(found)
    b = x * 4
    c = next(found)
    found.close()
    return a, b, c, x * 5


@program(1)
def an_inference_tensor_in_autograd(x):
    with torch.inference_mode():
        y = x * 2
    return x * y


@program(1)
def a_write_to_an_inference_tensor(x):
    with torch.inference_mode():
        y = x * 2
    y.add_(1)
    return y


@program(0)
def complex_inference_tensors(x):
    with torch.inference_mode():
        y = torch.complex(x, x).conj()
        z = y.imag
    return y, z, x + 1


@stateful(0, "targets_of_a_model_in_inference_mode")
def targets():
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU())

    def f(x):
        with torch.inference_mode():
            target = model(x)
        return ((model(x) - target.clone()) ** 2).mean()

    return f, (torch.randn(3, 4, requires_grad=True),), (model,)


@stateful(0, "a_cache_that_inference_mode_made")
def cache():
    with torch.inference_mode():
        kept = torch.zeros(3, 4)

    def f(x):
        with torch.inference_mode():
            kept.add_(x)
            return kept * 2

    return f, (torch.randn(3, 4, requires_grad=True),), (kept,)


@stateful(1, "a_cache_written_after_other_calls")
def late_cache():
    with torch.inference_mode():
        kept = torch.zeros(3, 4)

    def f(x):
        y = x * 2
        with torch.inference_mode():
            kept.add_(x)
        return y, kept * 2

    return f, (torch.randn(3, 4, requires_grad=True),), (kept,)


# ------------------------------------------------------------------- a default device


@program(3)
def a_default_device_for_a_while(x):
    before = torch.get_default_device()
    torch.set_default_device("meta")
    made = torch.empty(2), torch.nn.functional.softmax(torch.arange(3.0), 0), torch.zeros(2, device="cpu"), x * 2
    inner = torch.get_default_device()
    torch.set_default_device(before)
    after = torch.get_default_device(), torch.as_tensor(x), torch.full((2,), 3.0)
    torch.set_default_device(None)
    return [t.device for t in made], made[2:], inner, after, torch.ones(4) + x


@program(3)
def a_break_under_a_default_device(x):
    torch.set_default_device("meta")
    y = torch.zeros(3).device
    print(end="")
    z = torch.zeros(3).device
    torch.set_default_device(None)
    return y, z, x + torch.ones(4), torch.tensor(2.0), torch.as_tensor(x)


@program(2)
def a_default_device_and_an_exception(x):
    try:
        torch.set_default_device("meta")
        y = torch.empty(3)
        raise ValueError
    except ValueError:
        with torch.device("cpu"):
            z = torch.ones(4)
        return y.device, z
    finally:
        torch.set_default_device(None)


@program(4)
def a_default_device_inside_of_another(x):
    with torch.device("meta"):
        torch.set_default_device("cpu")
        y = torch.ones(3)
        torch.set_default_device(None)
        z = torch.ones(3)
    return y, z.device, torch.ones(4) + x
