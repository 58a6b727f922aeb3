"""The canonical instructions, by family. Importing this package registers all of them."""

from torchjit_vm.instructions import calls as calls
from torchjit_vm.instructions import containers as containers
from torchjit_vm.instructions import control as control
from torchjit_vm.instructions import exceptions as exceptions
from torchjit_vm.instructions import generators as generators
from torchjit_vm.instructions import matching as matching
from torchjit_vm.instructions import names as names
from torchjit_vm.instructions import operators as operators
from torchjit_vm.instructions import stack as stack
