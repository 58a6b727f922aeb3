"""The kinds of values, one file each: what a kind does, in the slots of `type_slots`. Importing this registers them all."""

from torchjit_vm.capture.objects import (
    array,
    byte_array,
    constant,
    dict,
    exception,
    function,
    generator,
    identity,
    instance,
    iterator,
    known,
    leaf,
    method,
    sequence,
    set,
    slice,
)

__all__ = [
    "array",
    "byte_array",
    "constant",
    "dict",
    "exception",
    "function",
    "generator",
    "identity",
    "instance",
    "iterator",
    "known",
    "leaf",
    "method",
    "sequence",
    "set",
    "slice",
]
