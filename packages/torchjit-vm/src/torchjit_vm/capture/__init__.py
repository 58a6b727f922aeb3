"""The capture domain: symbolic execution with guards, effects, breaks and emission."""
