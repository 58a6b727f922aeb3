"""The tensor domain: torch calls under an interpreter become torch.fx nodes with metadata."""

import importlib
from typing import TYPE_CHECKING, Any

from torchjit_fx.strictness import breaks_are_errors, set_breaks_are_errors

if TYPE_CHECKING:
    from torchjit_fx.breaks import NUMPY, PARAMETER
    from torchjit_fx.deferred import preload
    from torchjit_fx.domain import TensorDomain
    from torchjit_fx.flex_operator import BACKWARD as ATTENTION_BACKWARD
    from torchjit_fx.flex_operator import FORWARD as ATTENTION_FORWARD
    from torchjit_fx.flex_operator import attention_named
    from torchjit_fx.function_modes import seen_by_function_modes
    from torchjit_fx.leaves import InputLeaf, OpaqueLeaf, SymLeaf, TensorLeaf
    from torchjit_fx.naming import module_name
    from torchjit_fx.numpy.facts import NUMPY_PURE, NUMPY_SCALARS, NUMPY_VALUES, number_limits, plain_number
    from torchjit_fx.polyfills import POLYFILLS, REPLACEMENTS, polyfill_of, replacement_of
    from torchjit_fx.polyfills.attention import REMADE
    from torchjit_fx.polyfills.hooks import handle_number, is_known_number, take_handle_number
    from torchjit_fx.process_state import ProcessState
    from torchjit_fx.protocols import CaptureContext, SymbolicSizes
    from torchjit_fx.settings import FxSettings
    from torchjit_fx.subclasses import overriding_classes

__all__ = [
    "ATTENTION_BACKWARD", "ATTENTION_FORWARD", "NUMPY", "NUMPY_PURE", "NUMPY_SCALARS", "NUMPY_VALUES", "PARAMETER",
    "POLYFILLS", "REMADE", "REPLACEMENTS", "CaptureContext", "FxSettings", "InputLeaf", "OpaqueLeaf", "ProcessState", "SymLeaf",
    "SymbolicSizes", "TensorDomain", "TensorLeaf", "attention_named", "breaks_are_errors", "handle_number",
    "is_known_number", "module_name", "number_limits", "overriding_classes", "plain_number", "polyfill_of", "preload",
    "replacement_of", "seen_by_function_modes", "set_breaks_are_errors", "take_handle_number",
]  # fmt: skip

_MODULES = {
    "breaks": "NUMPY PARAMETER",
    "deferred": "preload",
    "domain": "TensorDomain",
    "flex_operator": "attention_named",
    "function_modes": "seen_by_function_modes",
    "leaves": "InputLeaf OpaqueLeaf SymLeaf TensorLeaf",
    "naming": "module_name",
    "numpy.facts": "NUMPY_PURE NUMPY_SCALARS NUMPY_VALUES number_limits plain_number",
    "polyfills.attention": "REMADE",
    "polyfills": "POLYFILLS REPLACEMENTS polyfill_of replacement_of",
    "polyfills.hooks": "handle_number is_known_number take_handle_number",
    "process_state": "ProcessState",
    "protocols": "CaptureContext SymbolicSizes",
    "settings": "FxSettings",
    "subclasses": "overriding_classes",
}
_LATER = {name: (module, name) for module, names in _MODULES.items() for name in names.split()} | {
    "ATTENTION_BACKWARD": ("flex_operator", "BACKWARD"),
    "ATTENTION_FORWARD": ("flex_operator", "FORWARD"),
}
"""What captures: the module, and the name there."""


if not TYPE_CHECKING:  # type checkers shall go on to report names that are not there

    def __getattr__(name: str) -> Any:
        """What captures, when it is first asked for: a program that imports torchjit and compiles nothing does without it."""
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, attribute = _LATER[name]
        found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
