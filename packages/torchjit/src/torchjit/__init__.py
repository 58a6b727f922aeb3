"""torchjit: torch.compile's stack rebuilt as small packages; this one composes them.

    import torchjit
    fast = torchjit.compile(model)

Unrelated to `torch.jit` (TorchScript).
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from torchjit import exc
from torchjit.backends import (
    get_default_backend,
    list_backends,
    lookup_backend,
    register_backend,
    set_default_backend,
)
from torchjit.compiler import compile, is_compiled, replace_torch_compile, reset
from torchjit.config import config
from torchjit.options import list_mode_options, list_options
from torchjit.stance import set_stance
from torchjit_session import instead
from torchjit_session.callbacks import CompileEvent, on_compile_end, on_compile_start
from torchjit_session.control import (
    allow_in_graph,
    assume_constant_result,
    disallow_in_graph,
    error_on_graph_break,
    forbid_in_graph,
    graph_break,
    is_compiling,
    is_dynamo_compiling,
    is_exporting,
    nested_compile_region,
    nonstrict_trace,
    skip_frame,
    substitute_in_graph,
    wrap_numpy,
)
from torchjit_session.counters import counters
from torchjit_session.disabling import disable
from torchjit_session.marks import mark_dynamic, mark_static, mark_static_address, mark_unbacked, maybe_mark_dynamic

if TYPE_CHECKING:
    from torchjit import testing
    from torchjit.ahead_of_time import AotCompiled, aot_compile, load_compiled
    from torchjit.cache import CacheInfo, load_cache_artifacts, save_cache_artifacts
    from torchjit.inspection import explain
    from torchjit.listeners import set_logs
    from torchjit_cudagraphs import mark_step_begin as cudagraph_mark_step_begin
    from torchjit_cudagraphs import mark_warmup_incomplete as cudagraph_mark_warmup_incomplete
    from torchjit_guards.filters import (
        keep_portable_guards_unsafe,
        keep_tensor_guards_unsafe,
        skip_all_guards_unsafe,
        skip_guard_on_all_nn_modules_unsafe,
        skip_guard_on_globals_unsafe,
        skip_guard_on_inbuilt_nn_modules_unsafe,
    )
    from torchjit_report.folder import debug_folder

__version__ = "0.1.0"

__all__ = [
    "AotCompiled",
    "CacheInfo",
    "CompileEvent",
    "allow_in_graph",
    "aot_compile",
    "assume_constant_result",
    "compile",
    "config",
    "counters",
    "cudagraph_mark_step_begin",
    "cudagraph_mark_warmup_incomplete",
    "debug_folder",
    "disable",
    "disallow_in_graph",
    "error_on_graph_break",
    "exc",
    "explain",
    "forbid_in_graph",
    "get_default_backend",
    "graph_break",
    "is_compiled",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "list_backends",
    "list_mode_options",
    "list_options",
    "load_cache_artifacts",
    "load_compiled",
    "lookup_backend",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nested_compile_region",
    "nonstrict_trace",
    "on_compile_end",
    "on_compile_start",
    "register_backend",
    "replace_torch_compile",
    "reset",
    "save_cache_artifacts",
    "set_default_backend",
    "set_logs",
    "set_stance",
    "skip_all_guards_unsafe",
    "skip_frame",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "substitute_in_graph",
    "testing",
    "wrap_numpy",
]


_LATER = {
    "AotCompiled": ("torchjit.ahead_of_time", "AotCompiled"),
    "aot_compile": ("torchjit.ahead_of_time", "aot_compile"),
    "CacheInfo": ("torchjit.cache", "CacheInfo"),
    "cudagraph_mark_step_begin": ("torchjit_cudagraphs", "mark_step_begin"),
    "cudagraph_mark_warmup_incomplete": ("torchjit_cudagraphs", "mark_warmup_incomplete"),
    "debug_folder": ("torchjit_report.folder", "debug_folder"),
    "explain": ("torchjit.inspection", "explain"),
    "keep_portable_guards_unsafe": ("torchjit_guards.filters", "keep_portable_guards_unsafe"),
    "keep_tensor_guards_unsafe": ("torchjit_guards.filters", "keep_tensor_guards_unsafe"),
    "skip_all_guards_unsafe": ("torchjit_guards.filters", "skip_all_guards_unsafe"),
    "skip_guard_on_all_nn_modules_unsafe": ("torchjit_guards.filters", "skip_guard_on_all_nn_modules_unsafe"),
    "skip_guard_on_globals_unsafe": ("torchjit_guards.filters", "skip_guard_on_globals_unsafe"),
    "skip_guard_on_inbuilt_nn_modules_unsafe": ("torchjit_guards.filters", "skip_guard_on_inbuilt_nn_modules_unsafe"),
    "load_cache_artifacts": ("torchjit.cache", "load_cache_artifacts"),
    "load_compiled": ("torchjit.ahead_of_time", "load_compiled"),
    "save_cache_artifacts": ("torchjit.cache", "save_cache_artifacts"),
    "set_logs": ("torchjit.listeners", "set_logs"),
    "testing": ("torchjit.testing", None),
}
"""What the import itself has no use for: the module, and the name there."""


if not TYPE_CHECKING:  # type checkers shall go on to report names that are not there

    def __getattr__(name: str) -> Any:
        """What is loaded when it is first asked for; for PyTorch's other names an error says what to write."""
        if name not in _LATER:
            answer = instead.CALLS.get(name)
            text = f"module {__name__!r} has no attribute {name!r}" + (f"; {answer}" if answer else "")
            raise AttributeError(text, name=name, obj=sys.modules[__name__])
        module, attribute = _LATER[name]
        loaded = importlib.import_module(module)
        found = globals()[name] = loaded if attribute is None else getattr(loaded, attribute)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
