"""A symbolic interpreter for CPython bytecode, usable without torch."""
