"""What a world can suffer, by program. The changes lie in a file for each kind of thing that changes.

Both worlds of a pair suffer the same changes with equally seeded random numbers; only one of them is compiled.
"""

from __future__ import annotations

import staleness_containers
import staleness_inputs
import staleness_library
import staleness_modules
import staleness_objects
from staleness_registry import MUTATIONS, Mutation

__all__ = ["KINDS", "MUTATIONS", "Mutation"]

KINDS = (staleness_modules, staleness_containers, staleness_objects, staleness_inputs, staleness_library)
"""The files; importing them registers their changes."""
