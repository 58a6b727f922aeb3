"""What the VM interprets, and what it leaves to Python. See `substitutes` for what it replaces."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.autograd.function
import torch.nn.attention
import torch.utils.checkpoint
import typing_extensions

import torchjit_core.paths
import torchjit_frame
import torchjit_vm
from torchjit_session import control

__all__ = [
    "GLOBAL_HOOKS",
    "HOOKS",
    "MODULE_CALLS",
    "TAGGING",
    "TOLD_OF_TRACING",
    "forwarding_of",
    "is_user_code",
    "is_user_file",
    "may_import",
    "should_inline",
    "worth_capturing",
]

_PACKAGES = (
    "torchjit_vm", "torchjit_frame", "torchjit_guards", "torchjit_fx", "torchjit_aot", "torchjit_inductor", "torchjit_cudagraphs",
    "torchjit_report", "torchjit_store", "torchjit_torch", "torchjit_backends",
)  # fmt: skip
"""Of torchjit, without this one."""
# Modules whose functions do more than compute: their effects must happen each time, in Python.
_LEFT_TO_PYTHON = (
    "asyncio", "concurrent", "ctypes", "gc", "importlib", "io", "json", "linecache", "logging", "multiprocessing", "os",
    "pathlib", "pdb", "pickle", "queue", "shutil", "signal", "socket", "subprocess", "tempfile", "threading", "time",
    "traceback", "unittest", "urllib", "warnings",
    "torch._dynamo", "torch._inductor", "torch._subclasses", "torch.cuda.graphs", "torch.distributed", "torch.fx",
    "torch.hub", "torch.jit", "torch.multiprocessing", "torch.onnx", "torch.profiler", "torch.serialization",
    "torch.testing", "torch.utils.benchmark", "torch.utils.data", "torch._functorch.eager_transforms",
    "torch._functorch.vmap", "torch._higher_order_ops",
    "tqdm", "triton", *_PACKAGES,
)  # fmt: skip


# torch.compile, once used in a process, replaces `nn.Module.__init__` by a wrapper of this module, which tags each new
# module for its own use. The wrapper is interpreted; the tag says nothing about modules that live inside a region.
TAGGING = "torch._dynamo.mutation_guard"
# Where torch keeps a mode that mask functions run under (`transformers.masking_utils`); it imports nothing of the compiler.
_INDEXING = "torch._dynamo._trace_wrapped_higher_order_op"

# Modules below those that are ordinary Python over tensors.
_PLAIN_PYTHON = frozenset(
    {
        "torch._higher_order_ops.associative_scan",
        "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
        TAGGING,
    }
)


# Of modules that are left to Python, what is interpreted all the same.
_PARTS: dict[str, frozenset[str]] = {
    # Reads of environment variables: what they find in the dict behind `os.environ` is guarded like any other dict.
    "os": frozenset(
        {"getenv", "_Environ.__getitem__", "_createenviron.<locals>.encode", "_createenviron.<locals>.decode"}
    ),
    # The hooks of modules whose parameters are distributed; what they call has polyfills.
    "torch.distributed.tensor._api": frozenset({"distribute_module.<locals>.<lambda>"}),
    "torch.distributed.tensor.parallel.style": frozenset(
        {
            f"{cls}._apply.<locals>.<lambda>"
            for cls in ("PrepareModuleInput", "PrepareModuleOutput", "PrepareModuleInputOutput")
        }
    ),
    # The call of each graph module; what that calls has a polyfill.
    "torch.fx.graph_module": frozenset({"GraphModule.recompile.<locals>.call_wrapped"}),
    # What says which process group there is; collectives have polyfills.
    **dict.fromkeys(
        ("torch.distributed", "torch.distributed.distributed_c10d"),
        frozenset({"_WorldMeta.WORLD", "_World.default_pg", "is_available", "is_initialized"}),
    ),
}
# Likewise, of all modules of a package.
_PARTS_OF_PACKAGES: dict[str, frozenset[str]] = {
    # What says whether there is an export.
    "torch.onnx": frozenset({"is_in_onnx_export", "_InternalGlobals.in_onnx_export"}),
    # Of progress bars, which print and look at the clock, what loops go through.
    "tqdm": frozenset({"tqdm.__iter__", "tqdm.__enter__"}),
    # What prepares a launch, `kernel[grid]`, and arithmetic for its grid: the launch is one break.
    "triton": frozenset(
        {
            "KernelInterface.__getitem__", "KernelInterface.__getitem__.<locals>.<lambda>", "ConstexprFunction.__call__",
            "_unwrap_if_constexpr", "cdiv", "next_power_of_2",
        }
    ),
}  # fmt: skip

_DDP = torch.nn.parallel.DistributedDataParallel

# Functions whose insides would break the graph several times. What LBFGS calls back is captured on its own.
_WHOLE: frozenset[object] = frozenset({_DDP._pre_forward, _DDP._post_forward, inspect.unwrap(torch.optim.LBFGS.step)})


_POLYFILLS = ("torchjit_fx.polyfills.", "torchjit_vm.capture.library.")


def should_inline(fn: types.FunctionType) -> bool:
    """May the VM look inside this function? By the module that defines it."""
    module, name = fn.__globals__.get("__name__") or "", fn.__qualname__
    if fn in _WHOLE:
        return False
    if not _is_below(module, _LEFT_TO_PYTHON):
        return True
    if module in _PLAIN_PYTHON or name in _PARTS.get(module, ()) or module.startswith(_POLYFILLS):
        return True
    if module == _INDEXING:
        return name.startswith(("TransformGetItemToIndex.", "ModIndex."))
    return any(name in names and _is_below(module, (package,)) for package, names in _PARTS_OF_PACKAGES.items())


def _is_below(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def worth_capturing(function: types.FunctionType) -> bool:
    """Should a function that Python calls during a graph break be captured? Not what serves torch or Python itself."""
    if "__emitted__" in function.__globals__ or torchjit_vm.is_resume_code(function.__code__):
        return False  # emitted code, which carries the user's file name, and resumed code: both are ours
    if function.__name__.endswith(_ANSWERS) or _serves_a_call():
        # What a checkpoint's backward recomputes, outside of the hook, must be what ran here; the body of a custom operator
        # is opaque, and runs inside of graphs too; what answers one call of an operator, or serves Triton, would break again
        # and again.
        return False
    return is_user_code(function.__code__) and should_inline(function)


_ANSWERS = ("__torch_function__", "__torch_dispatch__", "__tensor_flatten__", "__tensor_unflatten__")
"""How the names end of methods by which tensors and modes of the program answer torch's calls, and ours: `_dispatch__torch_function__` is torchao's."""


def _serves_a_call() -> bool:
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        name = frame.f_code.co_filename
        if name == torch.utils.checkpoint.__file__ or name.startswith(_CUSTOM_OPERATORS):
            return True
        if frame.f_code.co_name.endswith(_ANSWERS) or _is_below(frame.f_globals.get("__name__") or "", ("triton",)):
            return True
        frame = frame.f_back
    return False


def is_user_code(code: types.CodeType) -> bool:
    """Does this code belong to the user's program, not to torch, torchjit or the standard library?"""
    return is_user_file(code.co_filename)


def is_user_file(filename: str) -> bool:
    """The same, of a code object's file."""
    return not filename.startswith(_OURS)


def may_import(name: str) -> bool:
    """May a module be imported while code that imports it is captured? Of torch's own nothing comes that a graph could miss.

    It is the program, or torch, that asks for it, as in plain Python: also `torch._dynamo`, which we never import for ourselves.
    """
    return _is_below(name, ("torch",))


def _folder(module: types.ModuleType) -> str:
    return str(Path(str(module.__file__)).parent) + "/"


def _folder_of(package: str) -> str:
    """Without importing it."""
    found = importlib.util.find_spec(package)
    return "" if found is None else str(Path(str(found.origin)).parent) + "/"


_CUSTOM_OPERATORS = str(Path(torch.__file__).parent / "_library") + "/"
_OURS = (
    *map(_folder, (torch, torchjit_core.paths, control, contextlib)),
    *filter(None, map(_folder_of, ("torchjit", *_PACKAGES))),
    str(typing_extensions.__file__),  # the wrapper of what torch deprecates; a part of Python from 3.13 on
    "<",  # generated code: namedtuple, dataclasses, our own host programs
)

HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
GLOBAL_HOOKS = tuple(
    f"_global{name}" for name in ("_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_pre_hooks")
)
MODULE_CALLS = frozenset(
    code
    for function in (torch.nn.Module._wrapped_call_impl, torch.nn.Module._call_impl)
    for code in (function.__code__, *function.__code__.co_consts)
    if isinstance(code, types.CodeType)
)
"""Code of `nn.Module.__call__`, up to where it calls hooks and `forward`."""
_OUTER_NAMES = ("_compiled_call_impl", "_call_impl")


def _told_of_tracing() -> str | None:
    """What `nn.Module.__call__`, which is two functions before `forward`, asks torch for: whether it traces.

    None if these functions of this torch know other hooks than ours.
    """
    outer, inner = torch.nn.Module._wrapped_call_impl, torch.nn.Module._call_impl
    hooks = {name for name in inner.__code__.co_names if name.endswith("_hooks")}
    tracing = [name for name in ("_is_tracing", "_get_tracing_state") if name in inner.__code__.co_names]
    if hooks != {*HOOKS, *GLOBAL_HOOKS} or len(tracing) != 1 or outer.__code__.co_names != _OUTER_NAMES:
        return None
    return tracing[0]


TOLD_OF_TRACING = _told_of_tracing()
"""See there: where it is known, a module's call without hooks only passes its arguments on to `forward`."""


def forwarding_of(function: Any) -> dict[str, Any]:
    """Where the arguments of a module's call end up, for its front door: `forward`, unless hooks see them before."""
    module_calls = (torch.nn.Module._wrapped_call_impl, torch.nn.Module._call_impl)
    # A checkout whose extension was built before doors could forward compiles each spelling by itself.
    if (
        TOLD_OF_TRACING is None
        or function not in module_calls
        or "forwards" not in (torchjit_frame.FrontDoor.__doc__ or "")
    ):
        return {}
    observers = tuple(getattr(torch.nn.modules.module, name) for name in GLOBAL_HOOKS)
    return {"forwards": ("forward", HOOKS, observers)}
