"""Taking CPython bytecode apart, putting it together, and entering it in its middle."""

from torchjit_vm.assembly.assembler import assemble
from torchjit_vm.assembly.disassembler import disassemble
from torchjit_vm.assembly.listing import NO_POSITION, Handler, Instruction, Label, Listing, Position
from torchjit_vm.assembly.stack import stack_depths, stack_size

__all__ = [
    "NO_POSITION",
    "Handler",
    "Instruction",
    "Label",
    "Listing",
    "Position",
    "assemble",
    "disassemble",
    "stack_depths",
    "stack_size",
]
