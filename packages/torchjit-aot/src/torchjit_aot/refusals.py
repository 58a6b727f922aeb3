"""Why a graph is run by eager PyTorch instead of being compiled: the registered reasons of this package."""

from __future__ import annotations

from torchjit_core.reasons import reason

__all__ = [
    "BACKWARD_COMPILER",
    "COMPLEX_DROPOUT",
    "DOUBLE_BACKWARD",
    "EMPTY_GRAPH",
    "FUNCTIONALIZE",
    "METADATA_MUTATION",
    "OUTPUT_KIND",
    "RANDOM_IN_BACKWARD",
    "SHARED_STORAGE",
    "SUBCLASS",
    "SYMBOLIC_EXPRESSION",
    "TRACE_FAILED",
]

TRACE_FAILED = reason(
    "TJ-AOT-001",
    "the joint trace raised an error",
    "Running the graph on fake tensors raised. Eager PyTorch runs it instead and shows the real error, if it is one.",
    "Operations whose result depends on data (item, nonzero) cannot be traced ahead of time.",
)
FUNCTIONALIZE = reason(
    "TJ-AOT-002",
    "a mutation that cannot be made functional",
    "The graph writes to a tensor through an operation or a view that has no out-of-place form known to this package.",
)
SHARED_STORAGE = reason(
    "TJ-AOT-003",
    "an input is mutated that shares its storage with another input",
    "Writing to one input changes the other. The compiled graph would not see that, so eager PyTorch runs it.",
    "Pass the base tensor once and take the views inside the function.",
)
METADATA_MUTATION = reason(
    "TJ-AOT-004",
    "sizes, strides or storage of an input are changed in place",
    "The graph calls something like resize_, set_, t_ or requires_grad_ on an input.",
    "Use the out-of-place form, for example x.t() for x.t_().",
)
OUTPUT_KIND = reason(
    "TJ-AOT-005",
    "an output of a kind that compiled graphs cannot return",
    "Outputs may be tensors, ints, floats, bools, None, strings and tuples, lists or dicts of them.",
)
SUBCLASS = reason(
    "TJ-AOT-006",
    "an input that is not a plain dense tensor",
    "Tensor subclasses, sparse, quantized and nested tensors are run by eager PyTorch.",
)
SYMBOLIC_EXPRESSION = reason(
    "TJ-AOT-007",
    "a symbolic number that cannot be written into the graph",
    "A size is given by an expression whose symbols are no input of the graph, or by an unknown function.",
)
COMPLEX_DROPOUT = reason(
    "TJ-AOT-008",
    "a layer draws its random numbers in another order when traced",
    "Dropout of complex numbers. Eager PyTorch runs it, so that a seeded program gives the same numbers.",
)
RANDOM_IN_BACKWARD = reason(
    "TJ-AOT-011",
    "the backward draws random numbers",
    "A checkpointed region with dropout repeats its random numbers in the backward; the graph cannot replay them yet.",
    "Compile the region without the checkpoint, or the checkpoint without the dropout.",
)
BACKWARD_COMPILER = reason(
    "TJ-AOT-012",
    "the compiler failed on the backward graph",
    "The forward is compiled and has run; the backward's operators are called one by one instead.",
    "This is a bug in torchjit: report it with the traceback, which on_error='raise' or TORCHJIT_ON_ERROR=raise shows.",
)
DOUBLE_BACKWARD = reason(
    "TJ-AOT-009",
    "double backward through a compiled graph",
    "The backward of a compiled graph is compiled too and cannot be differentiated again.",
    "Compile the function that takes the gradient and uses it: torch.autograd.grad(..., create_graph=True) inside of a compiled function is "
    "part of its graph (a gradient penalty, torch.func.hessian).",
    "Or run the differentiated function in eager PyTorch: torchjit.disable.",
)
EMPTY_GRAPH = reason(
    "TJ-AOT-010",
    "an input kind that the trace does not know",
    "Graph inputs are tensors, ints, floats, bools or None.",
)
