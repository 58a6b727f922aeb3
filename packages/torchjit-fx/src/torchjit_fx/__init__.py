"""The tensor domain: torch calls under an interpreter become torch.fx nodes with metadata."""

from torchjit_fx.breaks import NUMPY, PARAMETER
from torchjit_fx.deferred import preload
from torchjit_fx.domain import TensorDomain
from torchjit_fx.flex_operator import BACKWARD as ATTENTION_BACKWARD
from torchjit_fx.flex_operator import FORWARD as ATTENTION_FORWARD
from torchjit_fx.flex_operator import attention_named
from torchjit_fx.function_modes import seen_by_function_modes
from torchjit_fx.leaves import InputLeaf, OpaqueLeaf, SymLeaf, TensorLeaf
from torchjit_fx.naming import module_name
from torchjit_fx.numpy_calls import NUMPY_METHODS, NUMPY_SCALARS, NUMPY_VALUES, number_limits, plain_number
from torchjit_fx.polyfills import POLYFILLS, REPLACEMENTS, polyfill_of, replacement_of
from torchjit_fx.polyfills.hooks import handle_number, is_known_number, take_handle_number
from torchjit_fx.process_state import ProcessState
from torchjit_fx.protocols import CaptureContext, SymbolicSizes
from torchjit_fx.settings import FxSettings
from torchjit_fx.strictness import breaks_are_errors, set_breaks_are_errors
from torchjit_fx.subclasses import overriding_classes

__all__ = [
    "ATTENTION_BACKWARD",
    "ATTENTION_FORWARD",
    "NUMPY",
    "NUMPY_METHODS",
    "NUMPY_SCALARS",
    "NUMPY_VALUES",
    "PARAMETER",
    "POLYFILLS",
    "REPLACEMENTS",
    "CaptureContext",
    "FxSettings",
    "InputLeaf",
    "OpaqueLeaf",
    "ProcessState",
    "SymLeaf",
    "SymbolicSizes",
    "TensorDomain",
    "TensorLeaf",
    "attention_named",
    "breaks_are_errors",
    "handle_number",
    "is_known_number",
    "module_name",
    "number_limits",
    "overriding_classes",
    "plain_number",
    "polyfill_of",
    "preload",
    "replacement_of",
    "seen_by_function_modes",
    "set_breaks_are_errors",
    "take_handle_number",
]
