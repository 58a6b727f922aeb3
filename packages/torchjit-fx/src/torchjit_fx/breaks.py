"""Why the tensor domain gives up on an operation: the TJ-FX reasons."""

from __future__ import annotations

from torchjit_core.reasons import reason

_EAGER = "The operation runs for real, between two graphs."

DATA_DEPENDENT = reason(
    "TJ-FX-001",
    "a Python value is read out of a tensor",
    "The value depends on the tensor's data, or on a number that each call draws anew (random.random()), which is not known while the graph is captured. "
    + _EAGER,
    "Keep the value in a tensor (torch.where, masks) if it does not steer Python control flow.",
)
DYNAMIC_SHAPE = reason(
    "TJ-FX-002",
    "the shape of the result depends on data",
    "Operations such as nonzero, unique or indexing with a boolean mask make a result whose size is not known. "
    + _EAGER,
    "Use torch.where or multiply by the mask where a result of the full size will do.",
)
META_FAILED = reason(
    "TJ-FX-003",
    "the operation failed on tensors without data",
    "The operation was tried on fake tensors to learn its result's shape and dtype, and raised. "
    + _EAGER
    + " If it is a mistake in the program, that run raises the real error.",
)
UNSUPPORTED_TENSOR = reason(
    "TJ-FX-004",
    "a tensor of this kind cannot be captured yet",
    "Dense tensors of type torch.Tensor, Parameter, Buffer and of subclasses with no more than a `__torch_function__` are captured, and those of traceable wrapper "
    "subclasses (`__torch_dispatch__` with `__tensor_flatten__` and `__tensor_unflatten__`), which may not be written to: no sparse, nested, quantised or mkldnn "
    "layouts, no other subclasses with `__torch_dispatch__`, no tensors of functorch transforms. Code that runs later or under a transform "
    "is captured for plain tensors only. " + _EAGER,
    "Convert it to a dense tensor before the compiled region (to_dense, dequantize).",
)
UNSUPPORTED_ARGUMENT = reason(
    "TJ-FX-005",
    "an argument cannot be written into a graph",
    "A graph holds tensors, numbers, strings, dtypes, devices, layouts and lists, tuples, dicts and slices of these. "
    + _EAGER,
    "Pass numbers, strings and tensors; build other objects outside of the compiled region.",
)
UNSUPPORTED_RESULT = reason(
    "TJ-FX-006",
    "the result cannot be written into a graph",
    "The operation returned something that is neither a tensor nor a plain Python value. " + _EAGER,
    "Call it outside of the compiled region, or register it as a custom operator (torch.library.custom_op).",
)
NOT_CAPTURABLE = reason(
    "TJ-FX-007",
    "this torch function cannot be part of a graph",
    "It reads or changes state outside the tensors that it is given (autograd tapes, generators of the program, files, devices, "
    "storage addresses). " + _EAGER,
    "Call it outside of the compiled region.",
)
METADATA_MUTATION = reason(
    "TJ-FX-008",
    "an input's shape, strides or storage is changed in place",
    "The caller would have to see the change of its tensor's metadata, or that a tensor of the region is a leaf of autograd. "
    + _EAGER,
    "Use the out-of-place form of the operation (reshape, transpose, detach ...).",
)
SHARED_STORAGE_WRITTEN = reason(
    "TJ-FX-009",
    "a written input shares memory with another input",
    "The graph would have to see one write through two of its inputs. " + _EAGER,
    "Pass one of them and derive the other inside the function.",
)
VIEW_INPUT_WRITTEN = reason(
    "TJ-FX-010",
    "an input that is a view is written while gradients are recorded",
    "The write changes the gradient history of the view's base, which the graph does not see. " + _EAGER,
    "Pass the base tensor and take the view inside the function, or clone the view.",
)
TENSOR_ATTRIBUTE = reason(
    "TJ-FX-011",
    "this attribute of a tensor cannot be captured",
    "Attributes such as grad_fn, hooks, storage or objects that the program attached live outside the graph. " + _EAGER,
    "Read it outside of the compiled region, and pass in what it says.",
)
TENSOR_ATTRIBUTE_SET = reason(
    "TJ-FX-012",
    "an attribute of a tensor is assigned",
    "Assigning names changes how the kernels see the tensor. grad, data and requires_grad may be assigned to a leaf that was there before, "
    "data only where autograd remembers no earlier use, and what the program itself puts on a tensor may always be. "
    + _EAGER,
    "Write the values in place under torch.no_grad(), x.copy_(y), or assign outside of the compiled region.",
)
AUTOGRAD_CALL = reason(
    "TJ-FX-013",
    "the backward pass is started or hooked here",
    "A backward pass writes gradients of tensors that the graph only borrows; torch.autograd.grad may be part of a graph where its outputs depend on its "
    "inputs through nothing but the graph. " + _EAGER,
    "Nothing, if the break is the step's only one: what comes behind it (clipping, the optimizer's step) is compiled as a graph of its own.",
    "Compile the forward pass and the loss, and call backward() outside, where the function has to be one graph (fullgraph=True).",
)
MODE_OBJECT = reason(
    "TJ-FX-014",
    "this torch mode cannot be entered inside a graph",
    "Modes held by C objects are not tracked by the capture, and a graph runs either inside of inference mode or outside. "
    + _EAGER,
    "Enter the mode outside of the compiled function.",
)
SYMBOLIC_UNSUPPORTED = reason(
    "TJ-FX-015",
    "this operation on a symbolic number is not known",
    "The number is the size of a tensor that varies between calls. " + _EAGER,
)
STORAGE_OFFSET = reason(
    "TJ-FX-016",
    "the operation needs the place of a tensor inside its storage",
    "The tensor is a view that begins inside its storage; the graph sees each input as a tensor of its own. " + _EAGER,
    "Clone the view before the call.",
)
CUSTOM_FUNCTION = reason(
    "TJ-FX-017",
    "a custom autograd function or checkpoint that cannot be captured",
    "Its forward and backward become graphs of their own, which this use does not allow. " + _EAGER,
)
ESCAPED_TENSOR = reason(
    "TJ-FX-018",
    "a tensor made inside a custom autograd function is used outside of it",
    "The forward stored an intermediate tensor somewhere else than in its context or its results. The call "
    "runs for real, between two graphs.",
    "Return the tensor, and mark it with ctx.mark_non_differentiable().",
)
LAZY_PARAMETER = reason(
    "TJ-FX-019",
    "a parameter of a lazy module is not initialised yet",
    "Its first call gives the parameter its shape, and the module its final class. That call runs eagerly; the next one is "
    "captured.",
    "Call the module once before it is compiled.",
)
NUMPY = reason(
    "TJ-FX-020",
    "a NumPy function",
    "What depends on no tensor NumPy computes at capture; functions of arrays that come from tensors or arguments are captured where "
    "torch computes what NumPy does. Random numbers, files, warnings and all else run for real, a function that works without tensors as "
    "a whole, between two graphs.",
    "Use the torch function of the same name, or compute the array outside of the compiled region.",
)
PARAMETER = reason(
    "TJ-FX-022",
    "a parameter is made",
    "A parameter is a leaf of autograd, which a graph cannot make. One whose data the region made, with a known size, no history and memory "
    "of its own is made before the graph runs. Of others, a function that makes it without tensors (the constructor of a module) runs for real "
    "as a whole, between two graphs.",
    "Make modules and parameters outside of the compiled region.",
)
CONTROL_FLOW = reason(
    "TJ-FX-021",
    "cond, while_loop or scan with a branch or body that cannot be captured",
    "Branches and bodies take and give tensors, write only to tensors that they made, draw no random numbers, and agree in the shapes, "
    "strides and dtypes of what they give. " + _EAGER,
)
COLLECTIVE = reason(
    "TJ-FX-025",
    "a collective that a graph cannot hold",
    "Collectives over a group that this process is in, on contiguous tensors without gradients, are captured. Work objects (`async_op=True`), "
    "groups given as lists of ranks, and collectives that write to what autograd follows are not. " + _EAGER,
    "Use the functional forms (`torch.distributed._functional_collectives`) or the blocking ones.",
)
DATA_ERROR = reason(
    "TJ-FX-026",
    "an operation may raise an error that the program catches",
    "Whether an index is in range, or a matrix can be factorised, shows when the graph runs. If it raises, the region runs again as plain Python, which goes to "
    "the `except`: not where the graph may have written to tensors from outside by then, custom operators are called (which are never called twice), or the region draws from Python's generators before, with a backend "
    "of somebody else, after three such errors, nor for `ctc_loss` and others of which it is not known that a compiled graph raises wherever they do. "
    "(An `except` that only raises the error again, or one of the same kind, does not count: the first one is raised then.) "
    + _EAGER,
    "Do it outside of the `try`, or use a form that tells about errors in its result (torch.linalg.cholesky_ex, inv_ex, a clamped index).",
)
ROWS = reason(
    "TJ-FX-032",
    "a loop over the rows of a tensor whose number varies",
    "The loop runs in Python, and its body is compiled once, so that both serve every number of rows.",
    "Compute all rows at once: an operation of the whole tensor, or torch.vmap.",
    "Unroll the loop for each number of rows: for row in x.unbind(0).",
)
WRAPPER_TANGENT = reason(
    "TJ-FX-031",
    "a result that consists of several tensors, and has a gradient",
    "The backward of a compiled graph is compiled for gradients that consist of tensors in the same way as the result. A class says with "
    "`__coerce_same_metadata_as_tangent__` how another gradient becomes such a one; without it, what makes the result runs for real.",
    "Give the class that method, or return plain tensors from the compiled region.",
)
KEPT_RESULT = reason(
    "TJ-FX-033",
    "a cached function is called with a size that varies, and what it keeps shows",
    "A graph that serves several sizes runs a function under `functools.lru_cache` in each call. One that draws random numbers, or whose result is written to, has to "
    "run once for each size and to give the same tensor again. " + _EAGER,
    "Call it outside of the compiled region, and pass the result in.",
    "Leave the cache out, or clone the result before it is written to.",
)
