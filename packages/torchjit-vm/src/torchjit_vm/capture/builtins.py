"""The built-in functions and methods that the VM interprets, as two tables. Importing this module fills them."""

from torchjit_vm.capture import builtin_descriptors as _descriptors
from torchjit_vm.capture import builtin_functions as _functions
from torchjit_vm.capture import builtin_iterators as _iterators
from torchjit_vm.capture import builtin_objects as _objects
from torchjit_vm.capture import builtin_types as _types
from torchjit_vm.capture import class_checks as _checks
from torchjit_vm.capture import classes as _classes
from torchjit_vm.capture import contexts as _contexts
from torchjit_vm.capture import copying as _copying
from torchjit_vm.capture import getters as _getters
from torchjit_vm.capture import imports as _imports
from torchjit_vm.capture import library_values as _library_values
from torchjit_vm.capture import lru_caches as _lru_caches
from torchjit_vm.capture import objects as _kinds
from torchjit_vm.capture import prelude as _prelude
from torchjit_vm.capture import reorderable_calls as _reorderable_calls
from torchjit_vm.capture import weak_references as _weak_references
from torchjit_vm.capture.builtin_table import BUILTINS, METHODS

__all__ = ["BUILTINS", "METHODS"]

FAMILIES = (
    _functions, _iterators, _objects, _types, _checks, _classes, _contexts, _copying, _reorderable_calls, _descriptors, _prelude, _getters, _imports, _library_values, _lru_caches, _kinds, _weak_references,
)  # fmt: skip
