"""`torch.vmap` and the transforms of `torch.func`: the function is captured on the tensors that it sees.

Each takes the arguments apart, lets the function run on what the transform would show it, and puts the results together.
"""

from __future__ import annotations

import functools

import torch
from torch.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

from torchjit_fx.intrinsics import Value, derive, enter_transform, keep_function, leave_transform, refuse
from torchjit_fx.leaves import Function

__all__ = [
    "call_jacobian", "captured_jacobian", "grad_and_value_impl", "grad_impl", "hessian", "jacfwd", "jacrev", "jvp",
    "linearize", "vjp", "vmap_impl",
]  # fmt: skip


def check_randomness(randomness: Value) -> None:
    """Interpreted instead of `torch._functorch.vmap._check_randomness_arg`, whose module runs for real."""
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")


def vmap_impl(
    func: Value, in_dims: Value, out_dims: Value, randomness: Value, chunk_size: Value, *args: Value, **kwargs: Value
) -> Value:
    """Interpreted instead of `torch._functorch.vmap.vmap_impl`."""
    flat, spec = tree_flatten(args)
    dims: Value = _broadcast_to_and_flatten(in_dims, spec) if args and isinstance(in_dims, (int, tuple)) else None
    batched, inner_dims = _batched(flat, dims or ())
    seen = enter_transform([flat[i] for i in batched], inner_dims, [None] * len(batched))
    for i, tensor in zip(batched, seen):
        flat[i] = tensor
    outputs = func(*tree_unflatten(flat, spec), **kwargs)
    results, out_spec = tree_flatten(outputs)
    alone = isinstance(outputs, torch.Tensor) and isinstance(out_dims, tuple) and len(out_dims) == 1
    flat_out_dims = _broadcast_to_and_flatten(out_dims[0] if alone else out_dims, out_spec)
    if flat_out_dims is None or not _all_tensors(results):
        refuse("results of vmap that are no tensors, or do not fit out_dims")
    options = {"randomness": randomness, "chunk_size": chunk_size}
    dims_of = {"dims": tuple(inner_dims), "out_dims": tuple(flat_out_dims), "options": options}
    return tree_unflatten(leave_transform("vmap", results, dims_of, []), out_spec)


def _batched(flat: list[Value], dims: Value) -> tuple[list[int], list[Value]]:
    """The places of the arguments that have a batch dimension, and these."""
    batched = [i for i, dim in enumerate(dims) if dim is not None]
    inner_dims = [dims[i] for i in batched]
    whole = all([isinstance(dim, int) for dim in inner_dims])
    if not batched or not whole or not _all_tensors([flat[i] for i in batched]):
        refuse("vmap over nothing, over something that is no tensor, or with in_dims that do not fit")
    return batched, inner_dims


def _all_tensors(values: list[Value]) -> bool:
    return all([isinstance(v, torch.Tensor) for v in values])


class _Arguments:
    """The tensors among the arguments of a function that is differentiated."""

    def __init__(self, args: tuple[Value, ...], kwargs: dict[str, Value], argnums: Value, reverse: bool) -> None:
        self.flat, self.spec = tree_flatten((args, kwargs))
        self.places = [i for i, value in enumerate(self.flat) if isinstance(value, torch.Tensor)]
        self.many = isinstance(argnums, tuple)
        self.specs = []
        chosen: list[int] = []  # places in `flat`
        counts = [len(tree_flatten(a)[0]) for a in args]
        for n in _chosen(argnums, len(args)):
            start = sum(counts[:n])
            self.specs.append((tree_flatten(args[n])[1], counts[n]))
            chosen.extend(range(start, start + counts[n]))
        if not chosen or not all([i in self.places for i in chosen]):
            refuse("differentiation with respect to something that is no tensor")
        self.argnums = tuple([self.places.index(i) for i in chosen])
        wrapped: list[bool | None] = [reverse and i in chosen for i in self.places]
        seen = enter_transform([self.flat[i] for i in self.places], [None] * len(self.places), wrapped)
        for i, tensor in zip(self.places, seen):
            self.flat[i] = tensor

    def call(self, func: Function) -> Value:
        args, kwargs = tree_unflatten(self.flat, self.spec)
        return func(*args, **kwargs)

    def regroup(self, values: list[Value]) -> Value:
        """One tree per argument that was chosen, in its structure."""
        trees = []
        for spec, count in self.specs:
            trees.append(tree_unflatten(values[:count], spec))
            values = values[count:]
        return tuple(trees) if self.many else trees[0]


def _chosen(argnums: Value, count: int) -> list[int]:
    """Which of so many arguments, counted from the first."""
    given = argnums if isinstance(argnums, tuple) else (argnums,)
    numbers = [n % count for n in given if type(n) is int and -count <= n < count]
    if not numbers or len(set(numbers)) != len(given):
        refuse("argnums that do not fit the arguments, or one of them twice")
    return numbers


def _separate(outputs: Value, has_aux: bool) -> tuple[Value, list[Value], Value]:
    """The result proper, and what came beside it: flat, with its structure."""
    if not has_aux:
        return outputs, [], None
    if not (isinstance(outputs, tuple) and len(outputs) == 2):
        refuse("has_aux without a pair")
    rest, spec = tree_flatten(outputs[1])
    if not _all_tensors(rest):
        refuse("something beside the result that is no tensor")
    return outputs[0], rest, spec


def grad_and_value_impl(func: Value, argnums: Value, has_aux: bool, args: Value, kwargs: Value) -> Value:
    """Interpreted instead of `torch._functorch.eager_transforms.grad_and_value_impl`."""
    given = _Arguments(args, kwargs, argnums, True)
    value, rest, spec = _separate(given.call(func), has_aux)
    if not isinstance(value, torch.Tensor):
        refuse("the gradient of something that is no tensor")
    results = leave_transform("grad", [value, *rest], {"argnums": given.argnums}, [])
    count = len(given.argnums)
    gradients = given.regroup(results[:count])
    if has_aux:
        return gradients, (results[count], tree_unflatten(results[count + 1 :], spec))
    return gradients, results[count]


def grad_impl(func: Value, argnums: Value, has_aux: bool, args: Value, kwargs: Value) -> Value:
    """Interpreted instead of `torch._functorch.eager_transforms.grad_impl`."""
    gradients, value = grad_and_value_impl(func, argnums, has_aux, args, kwargs)
    return (gradients, value[1]) if has_aux else gradients


def jvp(func: Value, primals: Value, tangents: Value, *, strict: bool = False, has_aux: bool = False) -> Value:
    """Interpreted instead of `torch.func.jvp`."""
    if strict or has_aux or not isinstance(primals, tuple) or not primals or not isinstance(tangents, tuple):
        refuse("jvp with strict or has_aux")
    given = _Arguments(primals, {}, tuple(range(len(primals))), False)
    directions, spec = tree_flatten((tangents, {}))
    if spec != given.spec or not _all_tensors(directions):
        refuse("tangents that do not fit the primals")
    _check_dtypes(tree_flatten((primals, {}))[0], directions)
    results, out_spec = tree_flatten(given.call(func))
    if not _all_tensors(results):
        refuse("a result of jvp that is no tensor")
    both = leave_transform("jvp", results, {"count": len(directions)}, directions)
    return tree_unflatten(both[: len(results)], out_spec), tree_unflatten(both[len(results) :], out_spec)


def _check_dtypes(primals: Value, tangents: Value) -> None:
    """Where they differ, eager casts the tangent or not, as its memory is as large as the primal's or not."""
    if any([p.dtype is not t.dtype for p, t in zip(primals, tangents, strict=True)]):
        refuse("a tangent of another dtype than its primal's")


def vjp(func: Value, *primals: Value, has_aux: bool = False) -> Value:
    """Interpreted instead of `torch.func.vjp`."""
    given = _Arguments(primals, {}, tuple(range(len(primals))), True)
    outputs, rest, spec = _separate(given.call(func), has_aux)
    results, out_spec = tree_flatten(outputs)
    if not results or not _all_tensors(results):
        refuse("a result of vjp that is no tensor")
    found, kept = keep_function(results, rest)
    count = len(results)
    value = tree_unflatten(found[:count], out_spec)

    def pull(cotangents: Value, retain_graph: bool = True, create_graph: bool | None = None) -> Value:
        directions, given_spec = tree_flatten(cotangents)
        if create_graph is not None or given_spec != out_spec or not _all_tensors(directions):
            refuse("cotangents that do not fit the results")
        return tree_unflatten(derive(kept, directions), tree_flatten(primals)[1])

    return (value, pull, tree_unflatten(found[count:], spec)) if has_aux else (value, pull)


def linearize(func: Value, *primals: Value) -> Value:
    """Interpreted instead of `torch.func.linearize`, which traces the function with a tracer of torch's own."""
    refuse("linearize")


def jacrev(
    func: Value,
    argnums: Value = 0,
    *,
    has_aux: bool = False,
    chunk_size: Value = None,
    _preallocate_and_copy: bool = False,
) -> Value:
    """Interpreted instead of `torch.func.jacrev`."""
    options = {"chunk_size": chunk_size, "_preallocate_and_copy": _preallocate_and_copy}
    return _with_jacobian("jacrev", func, argnums, has_aux, options)


def jacfwd(func: Value, argnums: Value = 0, has_aux: bool = False, *, randomness: str = "error") -> Value:
    """Interpreted instead of `torch.func.jacfwd`."""
    return _with_jacobian("jacfwd", func, argnums, has_aux, {"randomness": randomness})


def hessian(func: Value, argnums: Value = 0) -> Value:
    """Interpreted instead of `torch.func.hessian`."""
    return jacfwd(jacrev(func, argnums), argnums)


def _with_jacobian(kind: str, func: Value, argnums: Value, has_aux: bool, options: dict[str, Value]) -> Value:
    @functools.wraps(func)
    def wrapper_fn(*args: Value) -> Value:
        return call_jacobian(kind, func, argnums, has_aux, options, args)

    return wrapper_fn


def call_jacobian(
    kind: str, func: Value, argnums: Value, has_aux: bool, options: dict[str, Value], args: tuple[Value, ...]
) -> Value:
    """What runs for real where `captured_jacobian` does not cover a call."""
    transform: Value = getattr(torch.func, kind)
    return transform(func, argnums, has_aux=has_aux, **options)(*args)


def captured_jacobian(
    kind: str, func: Value, argnums: Value, has_aux: bool, options: dict[str, Value], args: tuple[Value, ...]
) -> Value:
    """Interpreted instead of `call_jacobian`."""
    given = _Arguments(args, {}, argnums, kind == "jacrev")
    outputs, rest, spec = _separate(given.call(func), has_aux)
    results, out_spec = tree_flatten(outputs)
    if not results or not _all_tensors(results):
        refuse("the Jacobian of something that is no tensor")
    settings = {"argnums": given.argnums, "outputs": len(results), "options": options}
    found = leave_transform(kind, [*results, *rest], settings, [])
    count = len(given.argnums)
    rows = [given.regroup(found[i * count : (i + 1) * count]) for i in range(len(results))]
    jacobian = tree_unflatten(rows, out_spec)
    return (jacobian, tree_unflatten(found[len(results) * count :], spec)) if has_aux else jacobian
