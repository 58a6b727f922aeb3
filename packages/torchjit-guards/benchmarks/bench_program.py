"""What a guard program costs per call: 12 blocks of (Linear, GELU, LayerNorm), everything looked up and gathered.

Run: python packages/torchjit-guards/benchmarks/bench_program.py
Prints nanoseconds per check (minimum of repeats) and how many guards, ops and tensors there are.
"""

from __future__ import annotations

import timeit

import torch
from torch import nn

from torchjit_core.guards import ClassAttrIs, DictKeys, Guard, IdIs, InstanceLacks, TensorMatches, TypeIs
from torchjit_core.paths import AccessPath, Arg
from torchjit_guards import GuardProgram
from torchjit_guards.torch_support import ambient_guards, dispatch_keys


def tensor_guard(path: AccessPath, t: torch.Tensor) -> TensorMatches:
    return TensorMatches(
        path, type(t), t.dtype, t.device, t.requires_grad, tuple(t.shape), tuple(t.stride()), int(t.storage_offset()),
        dispatch_keys(t).raw_repr(),
    )  # fmt: skip


def module_guards(path: AccessPath, module: nn.Module, guards: list[Guard], gather: list[AccessPath]) -> None:
    """What a VM records for a module tree that it called: types, methods, no overrides, parameters, children."""
    guards.append(TypeIs(path, type(module)))
    guards.append(InstanceLacks(path, "forward"))
    guards.append(ClassAttrIs(type(module), "forward", type(module).__dict__.get("forward")))
    guards.append(IdIs(path.instance_attr("training"), module.training))
    parameters = path.instance_attr("_parameters")
    for name, parameter in module._parameters.items():
        if parameter is not None:
            guards.append(tensor_guard(parameters.item(name), parameter))
            gather.append(parameters.item(name))
    if module._modules:
        children = path.instance_attr("_modules")
        guards.append(DictKeys(children, tuple(module._modules)))
        for name, child in module.named_children():
            module_guards(children.item(name), child, guards, gather)


def model(blocks: int) -> nn.Sequential:
    layers = [layer for _ in range(blocks) for layer in (nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64))]
    return nn.Sequential(*layers)


def best(program: GuardProgram, slots: tuple[object, ...], number: int = 2000) -> float:
    """Nanoseconds per call, the best of many short runs: what a busy machine adds is left out."""
    return min(timeit.repeat(lambda: program(*slots), number=number, repeat=60)) / number * 1e9


def main() -> None:
    for blocks in (1, 12, 40):
        module, x = model(blocks), torch.randn(8, 64)
        guards: list[Guard] = []
        gather: list[AccessPath] = [Arg.of(1, "x")]
        module_guards(Arg.of(0, "self"), module, guards, gather)
        guards.append(tensor_guard(Arg.of(1, "x"), x))
        plain = GuardProgram(guards, gather, 2)
        ambient = GuardProgram([*guards, *ambient_guards()], gather, 2)
        assert plain(module, x) is not None and ambient(module, x) is not None
        ops = len(plain.listing().splitlines())
        print(
            f"{blocks:3} blocks: {len(guards)} guards, {ops} ops, {len(gather)} tensors: "
            f"{best(plain, (module, x)):.0f} ns, with ambient state {best(ambient, (module, x)):.0f} ns"
        )
    empty = GuardProgram([], [], 0)
    print(f"nothing: {best(empty, ()):.0f} ns")


if __name__ == "__main__":
    main()
