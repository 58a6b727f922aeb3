"""Taking CPython bytecode apart, putting it together, and entering it in its middle."""

from torchjit_vm.assembly.assembler import assemble
from torchjit_vm.assembly.disassembler import disassemble
from torchjit_vm.assembly.listing import NO_POSITION, Handler, Instruction, Item, Label, Listing, Position
from torchjit_vm.assembly.places import add_locals, check_loads
from torchjit_vm.assembly.resume import is_resume_code, resume, resume_function, suspended_function
from torchjit_vm.assembly.stack import handler_nesting, stack_depths, stack_size

__all__ = [
    "NO_POSITION",
    "Handler",
    "Instruction",
    "Item",
    "Label",
    "Listing",
    "Position",
    "add_locals",
    "assemble",
    "check_loads",
    "disassemble",
    "handler_nesting",
    "is_resume_code",
    "resume",
    "resume_function",
    "stack_depths",
    "stack_size",
    "suspended_function",
]
