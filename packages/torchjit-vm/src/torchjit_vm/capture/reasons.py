"""Why the VM breaks a graph."""

from torchjit_core.reasons import reason

__all__ = [
    "ADDRESS",
    "ASYNC",
    "BOUNDARY",
    "CLASS_BODY",
    "DISABLED",
    "FINALIZER",
    "NOT_INLINED",
    "NO_RESTART",
    "NO_SUBMODULE",
    "OPAQUE_ITERATOR",
    "OPAQUE_OBJECT",
    "OWN_FRAME",
    "QUIET",
    "RAISED_INSIDE",
    "RAISED_UNDER_CAPTURE",
    "REBUILD",
    "REFUSED_CHECK",
    "SET_ORDER",
    "STEP_LIMIT",
    "TOO_DEEP",
    "UNHASHABLE",
    "UNKNOWN_ATTRIBUTE",
    "UNKNOWN_CALL",
    "UNKNOWN_OPERATION",
]

UNKNOWN_CALL = reason(
    "TJ-VM-002",
    "call of a C function that the VM does not know",
    "The VM cannot see inside C functions and only runs those during capture that it knows to be pure. This call runs "
    "for real between two graphs.",
    "Mark the function with allow_in_graph if it only works on tensors.",
    "Move the call out of the compiled region.",
)
NOT_INLINED = reason(
    "TJ-VM-003",
    "call of a function that is left to Python",
    "Functions of modules that do more than compute (files, processes, clocks, logging; of torch those that compile, profile or exchange data) are run for real, "
    "not interpreted: what they do has to happen in each call.",
    "Move the call out of the compiled region, and pass its result in.",
)
DISABLED = reason(
    "TJ-VM-004", "call of a disabled function", "The function was marked with disable(); it runs for real."
)
UNKNOWN_ATTRIBUTE = reason(
    "TJ-VM-005",
    "attribute of a C object that the VM does not know",
    "The attribute is computed by C code whose effects and result the VM cannot know in advance.",
    "Read the attribute before the compiled region, and pass in what it says.",
)
UNKNOWN_OPERATION = reason(
    "TJ-VM-006",
    "operation that the VM has no symbolic form of",
    "The operation, on operands of these types, runs for real between two graphs.",
    "Compute it before the compiled region, and pass the result in.",
)
OPAQUE_OBJECT = reason(
    "TJ-VM-007",
    "an object of a C type, or a value made in the region, that cannot be given to a captured operation",
    "Only constants, containers of constants and leaves, and identified real objects can be.",
    "Make the object before the compiled region, and pass it in.",
)
OPAQUE_ITERATOR = reason(
    "TJ-VM-008",
    "iteration over a real iterator",
    "Iterators that exist outside the region are advanced for real, between two regions.",
    "Iterate over a list or tuple: list(iterator), before the compiled region.",
)
STEP_LIMIT = reason(
    "TJ-VM-009",
    "too many instructions in one capture",
    "A loop is unrolled as often as it runs; this region grew beyond the limit.",
    "Move the long loop out of the compiled region, or raise the step limit.",
)
TOO_DEEP = reason(
    "TJ-VM-010",
    "calls nested too deeply",
    "Recursion, or callbacks inside callbacks, would come near Python's recursion limit. The outermost call of what recurs runs for "
    "real: it returns, or raises RecursionError where plain Python does.",
)
CLASS_BODY = reason(
    "TJ-VM-011",
    "a class statement that cannot be followed",
    "Class statements are interpreted: their body, metaclass, hooks and decorators. This one does something at its "
    "creation that the VM cannot do on a class that only stands for the real one; it runs for real, between two graphs.",
    "Define the class outside of the compiled function.",
)
ASYNC = reason(
    "TJ-VM-012",
    "an asynchronous generator, or an event loop",
    "Coroutines are interpreted where something drives them in the region; asynchronous generators and event loops run for real.",
    "Compile the function that computes, and await outside of it.",
)
UNHASHABLE = reason(
    "TJ-VM-013",
    "a dict key or set element with its own hash or equality",
    "Running user-defined __hash__ and __eq__ for lookups is not captured.",
    "Use keys that compare by value without code of their own, such as strings, numbers and tuples of these.",
)
FINALIZER = reason(
    "TJ-VM-018",
    "an object with a finalizer is made",
    "Its __del__ runs when the last reference to it goes. Objects that a region makes and drops are never there, so this one is made for real, "
    "between two graphs.",
    "Make the object outside of the compiled function, or release what it holds in a with block.",
)
REBUILD = reason(
    "TJ-VM-014",
    "a value that is alive at a break cannot be rebuilt",
    "For example a generator that has started, or super().",
    "Finish the generator before the line that breaks, for example by building a list.",
)
NO_RESTART = reason(
    "TJ-VM-015",
    "a break inside a callback or generator, and the capture cannot be restarted",
    "The break lies where a frame cannot be resumed in its middle; the capture would have to start again.",
    "Move what breaks out of the callback or generator.",
)
OWN_FRAME = reason(
    "TJ-VM-017",
    "call of a function that looks at the frame that calls it",
    "eval, exec, dir, vars, sys._getframe, debuggers (breakpoint, pdb.set_trace) and their kind find the caller's names and line by its frame. The rest of this call runs "
    "in plain Python, in a frame of the original function.",
    "Pass eval and exec the namespaces that they need: eval(text, globals()).",
)
BOUNDARY = reason("TJ-VM-016", "end of a region", "Not an obstacle: the region ends here on purpose.")
RAISED_INSIDE = reason(
    "TJ-VM-030",
    "an exception inside a call that is captured in one piece",
    "The forward or backward of a custom autograd function, or a checkpointed function, raised while it was captured. "
    "The call runs for real, between two graphs, and raises there if the exception is the program's.",
)
QUIET = reason(
    "TJ-VM-031",
    "a side effect in code that runs later",
    "The backward of a custom autograd function and gradient hooks run when gradients are computed, perhaps never or "
    "twice; a graph holds their tensor operations only. The call runs for real, between two graphs.",
    "Keep what such code remembers in the context object that it is given.",
)
INTERCEPTED = reason(
    "TJ-VM-041",
    "a mode that sees the calls in a block cannot be followed",
    "Torch function modes entered in the region are interpreted; a block that breaks, or a mode that stays, is entered for real.",
    "Enter the mode outside of the compiled function.",
)
RAISED_UNDER_CAPTURE = reason(
    "TJ-VM-040",
    "an exception leaves a region that asked whether it is compiled",
    "The program does something else where is_compiling() is true, and that raised. It runs eagerly, where the answer is "
    "false; an exception of its own is raised there.",
    "Make the branch that is_compiling() takes work for these arguments.",
)
GENERATOR_FUNCTION = reason(
    "TJ-VM-042",
    "a generator or coroutine function",
    "Its body runs in Python: between two of its steps anything may happen. A generator that a compiled function makes and uses up itself is part "
    "of that function's graph.",
    "Compile the functions that it calls, or the one that iterates over it.",
)
CONSTANT_RESULT = reason(
    "TJ-STORE-024",
    "the result of a function is assumed to be constant",
    "assume_constant_result says that a function gives the same for as long as the process lives, not that it does so in the next one: "
    "compiled code that holds such a result is not kept on disk.",
)
PROCESS_HASH = reason(
    "TJ-STORE-025",
    "the hash of a text, or of another object, is part of what was computed",
    "hash() gives other numbers in each process, unless PYTHONHASHSEED is set: compiled code that holds one is not kept on disk.",
    "Use a digest, such as zlib.crc32, where a number must stay the same.",
)
REFUSED_CHECK = reason(
    "TJ-STORE-010",
    "isinstance() or issubclass() raised an error",
    "A class that refuses the question (a protocol without runtime_checkable, a hook that raises) may answer it in the next process: "
    "compiled code in which it was refused is not kept on disk.",
)
SET_ORDER = reason(
    "TJ-STORE-028",
    "the order of a set's elements is part of what was computed",
    "Texts and most objects have other hashes in each process, and sets of them another order: compiled code that went through such a set "
    "is not kept on disk. Of at most three texts that were put into a set in the compiled code the order is compared.",
    "Go through sorted(...) of it outside of the compiled function, or use a tuple or a dict.",
)
ADDRESS = reason(
    "TJ-STORE-029",
    "the address of an object is part of what was computed",
    "id() of an object, and a text such as <function f at 0x7f...>, are others in each process: compiled code that holds one is not kept on disk.",
    "Compare objects with `is`, and show their names.",
)
NO_SUBMODULE = reason(
    "TJ-STORE-027",
    "a module that a package does not have was looked for",
    "`from package import name` looks for a file of this name in the package's folder, which another process may find there: "
    "compiled code that took its absence for granted is not kept on disk.",
)
PLACE_OF_CODE = reason(
    "TJ-STORE-026",
    "the place of code in its file is part of what was computed",
    "Compiled code on disk goes on to be used where a function moves in its file, or the file moves; not if it holds the old place.",
)
