"""The host program: readable Python that allocates, calls kernels and aten ops, and frees early."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import attrs
import torch

from torchjit_core.expr import Atom, Expr, Operation, Symbol
from torchjit_core.writing import NEVER, WRITES_FROM
from torchjit_inductor.codegen_protocol import CompiledKernel
from torchjit_inductor.estimates import estimate
from torchjit_inductor.indexing import written
from torchjit_inductor.ir.kernel import Buffer
from torchjit_inductor.launches import conformed, note_launches
from torchjit_inductor.lowering.tensors import contiguous_strides
from torchjit_inductor.memory import MemoryEvent, overwritable, plan_reuse
from torchjit_inductor.steps import ExternStep, HostNumber, KernelStep, Program, TensorRef
from torchjit_torch.operators import ONLY_COMPUTE

__all__ = ["HostProgram", "write_host_program"]

_NO_IDENTIFIER = re.compile(r"^\d|\W", re.ASCII)
_STRIDES_KNOWN = frozenset({"mm", "addmm", "bmm", "baddbmm", "_linear_pointwise", "_linear_pointwise.default"})
"""Ops that always return row-major tensors."""

_OUT_VARIANTS = {
    torch.ops.aten.mm.default: torch.ops.aten.mm.out,
    torch.ops.aten.bmm.default: torch.ops.aten.bmm.out,
    torch.ops.aten.addmm.default: torch.ops.aten.addmm.out,
}
"""Ops that can write into memory that another buffer has left."""

_fast: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
_empty_cuda: Any = getattr(_fast, "_empty_strided_cuda", None)
"""`(sizes, strides, dtype)`: `empty_strided` on the current CUDA device in half the time. Of torch's C bindings."""
_empty_cpu: Any = getattr(_fast, "_empty_strided_cpu", None)
"""The same on the CPU: a third of the time."""
_seen_as: Any = getattr(_fast, "_reinterpret_tensor", None)
"""`(tensor, sizes, strides, offset)`: `as_strided` in half the time, the offset counted from the tensor's own."""


@final
@attrs.frozen
class HostProgram:
    """The program's text and the function that it defines."""

    source: str
    call: Callable[..., list[Any]]


def write_host_program(
    program: Program, kernels: Mapping[str, CompiledKernel], *, check_strides: bool, boxed: bool = False,
    hints: Mapping[Symbol, int] | None = None,
) -> HostProgram:  # fmt: skip
    """Generate and compile the host program.

    Args:
        kernels: what each kernel's name calls.
        check_strides: test the strides of what aten ops return.
        boxed: the function takes one list, which it empties: inputs that nobody else holds are freed after their last use.
        hints: typical values of size symbols, for the memory plan.
    """
    # The first text, which hands no memory on, shows when each buffer begins and ends to be used.
    plain = _Writer(program, kernels, check_strides, boxed, hints or {}, {})
    plain.text()
    writer = _Writer(program, kernels, check_strides, boxed, hints or {}, plan_reuse(plain.events))
    source = writer.text()
    namespace: dict[str, Any] = {**writer.names, WRITES_FROM: writer.writes_from}
    exec(compile(source, f"<torchjit {program.name}>", "exec"), namespace)
    call = namespace["call"]
    note_launches(call, list(dict.fromkeys(s.kernel.name for s in program.steps if isinstance(s, KernelStep))))
    return HostProgram(source, call)


_LONGEST_SUM = 3
"""Terms of a size that is written out."""
_FACTORS = 2
"""Sizes in a product that is computed once."""


@final
class _Writer:
    def __init__(
        self,
        program: Program,
        kernels: Mapping[str, CompiledKernel],
        check_strides: bool,
        boxed: bool,
        hints: Mapping[Symbol, int],
        successors: Mapping[str, str],
    ) -> None:
        self.program, self.kernels, self.check_strides, self.boxed = program, kernels, check_strides, boxed
        self.names: dict[str, Any] = {
            "torch": torch,
            "empty_strided": torch.empty_strided,
            "as_strided": torch.as_strided,
            "conformed": conformed,
            "no_grad": torch._C._set_grad_enabled,
            "is_grad": torch.is_grad_enabled,
            "inf": math.inf,
            "nan": math.nan,
        }
        self.lines: list[str] = []
        self._computed: dict[Expr | Operation, str] = {}
        self.inputs = {n for n in program.inputs if isinstance(n, str)}
        self.foreign = self.inputs | set(program.constants)
        self.allocated: set[str] = set()
        self.addresses: set[str] = set()
        self.views: dict[str, dict[TensorRef, str]] = {}  # by buffer
        self.numbers: set[str] = set()
        self.last_use = self._last_uses()
        self.hints = hints
        cuda = {b.device.index or 0 for b in program.buffers.values() if b.device.type == "cuda"}
        # The CUDA device to make current during the call, or None.
        self.cuda_index = min(cuda) if cuda else None
        # For each buffer that gets a dead one's memory, the dead one; and what happened to memory, step by step.
        self.successors = successors
        self.inherited = set(self.successors.values())
        self.events: list[MemoryEvent] = []
        self.position = 0
        # Buffers whose memory went to an output of the kernel that read them last.
        self.taken: set[str] = set()
        # Buffers that the program allocates itself.
        self.owned: set[str] = set()
        # Buffers at the start of their storage. What an operator returns need not be: `slice_scatter` copies all of a view's storage.
        self.at_start: set[str] = set()
        # Names whose memory may be seen through another name: never reused.
        self.shared: set[str] = set(self.foreign)
        # Results of operators that nobody reads: their memory is not given to others. On CUDA, attention leaves some of them out
        # (they are None then), or makes them smaller than its fake does.
        self.unread: set[str] = set()
        # The line of the first call that writes to memory that was there before.
        self._first_write: int | None = None
        self.writes_from = NEVER

    # ------------------------------------------------------------------ lifetimes
    def _last_uses(self) -> dict[str, int]:
        last: dict[str, int] = {}
        for position, step in enumerate(self.program.steps):
            for name in (*step.reads, *step.writes):
                last[name] = position
        for output in self.program.outputs:
            if isinstance(output, TensorRef):
                last[output.buffer] = len(self.program.steps)
        return last

    def _note(self, name: str, *, begins: bool) -> None:
        buffer = self.program.buffers[name]
        count = estimate(buffer.span, self.hints)
        kind = None if name in self.shared else self._kind(buffer)
        # Memory that an operator of aten makes is no place for a dead buffer's.
        kind = None if begins and name not in self.owned else kind
        self.events.append(MemoryEvent(self.position, name, kind, count * buffer.dtype.itemsize, begins))

    def _out_variant(self, step: ExternStep) -> Any:
        """The op's form that writes into a given tensor, if it has one and the result is row-major."""
        out = _OUT_VARIANTS.get(step.op)
        if out is None or not step.single or step.outputs[0] is None:
            return None
        buffer = self.program.buffers[step.outputs[0]]
        return out if buffer.strides == contiguous_strides(buffer.sizes) else None

    # ------------------------------------------------------------------ sizes
    def _size(self, e: Expr) -> str:
        """An expression as Python text. Divisions, products of sizes, and long sums are computed once, where they are first needed: sizes
        that divide sizes have them again and again, and kernels of one graph the same extents."""
        if e.value is not None:
            return str(e.value)
        if e not in self._computed:
            text = written(e, self._atom)
            short = all(sum(power for _, power in monomial) < _FACTORS for monomial, _ in e.terms)
            if len(e.terms) <= _LONGEST_SUM and short:
                return text
            self._compute(e, text)
        return self._computed[e]

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Symbol):
            return atom.name
        if not isinstance(atom, Operation):
            raise TypeError(f"unknown atom {atom!r}")
        if atom not in self._computed:
            sign = {"floordiv": "//", "mod": "%"}.get(atom.kind)
            left, right = self._size(atom.left), self._size(atom.right)
            self._compute(atom, f"({left}) {sign} ({right})" if sign else f"{atom.kind}({left}, {right})")
        return self._computed[atom]

    def _compute(self, key: Expr | Operation, text: str) -> None:
        name = self._computed[key] = f"n__{len(self._computed)}"
        self.put(f"{name} = {text}")

    def _tuple(self, items: Sequence[Expr]) -> str:
        return f"({', '.join(self._size(i) for i in items)}{',' if len(items) == 1 else ''})"

    def _layout(self, of: Buffer | TensorRef) -> str:
        """Sizes and strides, as two arguments."""
        return f"{self._tuple(of.sizes)}, {self._tuple(of.strides)}"

    # ------------------------------------------------------------------ text
    def put(self, line: str) -> None:
        self.lines.append(f"        {line}")

    def text(self) -> str:
        """The whole program."""
        program = self.program
        parameters = [
            n if isinstance(n, str) else n.name if isinstance(n, HostNumber) else f"arg__{k}"
            for k, n in enumerate(program.inputs)
        ]
        self.numbers = {n.name for n in program.inputs if isinstance(n, HostNumber)}
        for k, held in program.constants.items():
            self.names[k] = held
        for symbol, (position, kind, dim) in program.symbol_sources.items():
            source = parameters[position]
            self.put(f"{symbol.name} = {source}.{kind}({dim})" if kind else f"{symbol.name} = {source}")
        for position, step in enumerate(program.steps):
            self.position = position
            if isinstance(step, KernelStep):
                self._kernel(step, position)
            else:
                self._extern(step)
            self._free(step, position)
        self._outputs()
        keep, enter, leave = self._device_scope()
        head = [
            f"# {program.name}: {sum(isinstance(s, KernelStep) for s in program.steps)} kernels, "
            f"{sum(isinstance(s, ExternStep) for s in program.steps)} aten calls",
            *self._signature(parameters),
            "    grad = is_grad()",
            *keep,
            "    try:",
            "        no_grad(False)",
            *enter,
        ]
        if self._first_write is not None:
            self.writes_from = len(head) + self._first_write + 1
        return "\n".join([*head, *self.lines, "    finally:", *leave, ""])

    def _device_scope(self) -> tuple[list[str], list[str], list[str]]:
        """What comes before the `try`, at its beginning, and what brings everything back."""
        if self.cuda_index is None:
            return [], [], ["        no_grad(grad)"]
        self.names |= {
            "current_device": getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device),
            "exchange_device": getattr(torch._C, "_cuda_exchangeDevice", torch.cuda._exchange_device),
            "restore_device": getattr(torch._C, "_cuda_maybeExchangeDevice", torch.cuda._maybe_exchange_device),
        }
        # Inside of the `try`, and each by one call of a C function: an exception of a signal's handler finds no moment between
        # the change and what brings it back.
        leave = ["        try:", "            no_grad(grad)", "        finally:", "            restore_device(device)"]
        return ["    device = current_device()"], [f"        exchange_device({self.cuda_index})"], leave

    def _signature(self, parameters: Sequence[str]) -> list[str]:
        if not self.boxed:
            return [f"def call({', '.join(parameters)}):"]
        unpacked = [f"    {', '.join(parameters)}, = inputs"] if parameters else []
        return ["def call(inputs):", *unpacked, "    inputs.clear()"]

    def _kernel(self, step: KernelStep, position: int) -> None:
        kernel = step.kernel
        for name in step.writes:
            if name not in self.foreign and name not in self.allocated:
                self._allocate(name, self._dying_input(step, name, position))
        compiled = self.kernels[kernel.name]
        self.names[kernel.name] = compiled.launch
        args = list(step.buffers) if compiled.takes_tensors else [self._address(n) for n in step.buffers]
        more = compiled.arguments
        args += [s.name for s in kernel.symbols] if more is None else [self._size(e) for e in more]
        self._note_write(step.writes)
        self.put(f"{kernel.name}({', '.join(args)})")

    def _note_write(self, written: Sequence[str], of_others: bool = False) -> None:
        if self._first_write is None and (of_others or not self.shared.isdisjoint(written)):
            self._first_write = len(self.lines)

    def _address(self, name: str) -> str:
        if name not in self.addresses:
            self.addresses.add(name)
            self.put(f"{name}__at = {name}.data_ptr()")
        return f"{name}__at"

    def _dying_input(self, step: KernelStep, name: str, position: int) -> str | None:
        """A buffer that the kernel reads for the last time and may overwrite, element by element, with `name`."""
        kind = self._kind(self.program.buffers[name])
        for old in step.read_buffers:
            if (
                old in self.allocated
                and old not in self.shared
                and old not in self.taken
                and self.last_use.get(old) == position
                and old not in self.views
                and self._kind(self.program.buffers[old]) == kind
                and overwritable(step.kernel, step.kernels_name(old), step.kernels_name(name))
            ):
                self.taken.add(old)
                return old
        return None

    def _allocate(self, name: str, inplace: str | None = None) -> None:
        buffer = self.program.buffers[name]
        self.allocated.add(name)
        source = inplace or self.successors.get(name)
        if source is None or source in self.at_start:
            self.at_start.add(name)
        if inplace is not None:
            # The old name stays bound until the kernel has run.
            self._address(inplace)
            self._rename(name, inplace)
            return
        self.owned.add(name)
        self._note(name, begins=True)
        old = self.successors.get(name)
        if old is not None:
            self._rename(name, old)
            self.put(f"del {old}")
            return
        dtype, shape = self._constant(buffer.dtype), self._layout(buffer)
        if _empty_cuda is not None and buffer.device.type == "cuda" and (buffer.device.index or 0) == self.cuda_index:
            self.names["empty_cuda"] = _empty_cuda
            self.put(f"{name} = empty_cuda({shape}, {dtype})")
            return
        if _empty_cpu is not None and buffer.device.type == "cpu":
            self.names["empty_cpu"] = _empty_cpu
            self.put(f"{name} = empty_cpu({shape}, {dtype})")
            return
        device = "" if buffer.device.type == "cpu" else f", device={self._constant(buffer.device)}"
        self.put(f"{name} = empty_strided({shape}, dtype={dtype}{device})")

    def _rename(self, name: str, old: str) -> None:
        """Give the memory of `old` to `name`."""
        buffer, other = self.program.buffers[name], self.program.buffers[old]
        if (other.sizes, other.strides) == (buffer.sizes, buffer.strides):
            self.put(f"{name} = {old}  # reuse")
        else:
            shape, sees = self._layout(buffer), self._may_see(buffer)
            self.put(f"{name} = {f'seen_as({old}, {shape}, 0)' if sees else f'as_strided({old}, {shape})'}  # reuse")
        if old in self.addresses:
            self.put(f"{name}__at = {old}__at")
            self.addresses.add(name)

    def _may_see(self, buffer: Buffer) -> bool:
        """Is `seen_as` there, for a buffer on its device?"""
        if _seen_as is None or buffer.device.type != "cuda":
            return False
        self.names["seen_as"] = _seen_as
        return True

    def _kind(self, buffer: Buffer) -> tuple[object, ...]:
        """Buffers of one kind can stand for one another."""
        return (buffer.dtype, buffer.device, buffer.span)

    def _free(self, step: KernelStep | ExternStep, position: int) -> None:
        for name in dict.fromkeys((*step.reads, *step.writes)):
            is_input = self.boxed and name in self.inputs
            if self.last_use.get(name, -1) != position or (name in self.foreign and not is_input):
                continue
            if name in self.views:
                self.put(f"del {', '.join(self.views.pop(name).values())}")
            if is_input:
                self.put(f"del {name}")
            if name not in self.allocated:
                continue
            if name in self.unread:
                self.put(f"del {name}")
                continue
            if name not in self.taken:
                self._note(name, begins=False)
            if name not in self.inherited:
                self.put(f"del {name}")

    # ------------------------------------------------------------------ aten
    def _extern(self, step: ExternStep) -> None:
        self.shared.update(step.aliases)
        if step.aliases:
            self.shared.update(o for o in step.outputs if o is not None)
        self._note_write(step.mutates, getattr(step.op, "namespace", "aten") not in ONLY_COMPUTE)
        args = [self._tree(a) for a in step.args]
        args += [f"{k}={self._tree(v)}" for k, v in step.kwargs.items()]
        out = self._out_variant(step)
        if out is not None and step.outputs[0] is not None:
            self._allocate(step.outputs[0])
            self.put(f"{self._function(out)}({', '.join([*args, f'out={step.outputs[0]}'])})  # {step.origin.node}")
            return
        call = f"{self._function(step.op)}({', '.join(args)})"
        self.put(f"{self._assigned(step, call)}  # {step.origin.node}")
        for variable, source, dim in step.sizes:
            self.put(f"{variable} = {source}.size({dim})")
        for name in step.outputs:
            if name is not None:
                self._result(step, name)

    def _assigned(self, step: ExternStep, call: str) -> str:
        """The statement that names what a call returns."""
        if step.number is not None:
            self.numbers.add(step.number)
            return f"{step.number} = {call}"
        if step.single:
            return f"{step.outputs[0]} = {call}" if step.outputs and step.outputs[0] else call
        targets = [o or "_" for o in step.outputs]
        return f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {call}"

    def _result(self, step: ExternStep, name: str) -> None:
        """A result of an operator, in the layout that was planned."""
        self.allocated.add(name)
        if self.last_use.get(name) == self.position:
            self.unread.add(name)
            return
        self._note(name, begins=True)
        buffer = self.program.buffers[name]
        base = getattr(step.op, "_opname", getattr(step.op, "__name__", ""))
        if self.check_strides and base not in _STRIDES_KNOWN and len(buffer.sizes) > 0:
            strides = self._tuple(buffer.strides)
            self.put(
                # As above: what attention leaves out may be a result of the program.
                f"if {name} is not None and {name}.stride() != {strides}: "
                f"{name} = conformed({name}, {self._tuple(buffer.sizes)}, {strides})"
            )

    def _function(self, op: object) -> str:
        if isinstance(op, torch._ops.OpOverload):
            name = self._unused("_".join(str(op._name).replace("::", ".").split(".")))
            # Calling the C++ entry itself skips a Python frame.
            self.names[name] = op._op if hasattr(op, "_op") else op
            return name
        return self._constant(op, f"{getattr(op, '__name__', 'constant')}_")

    def _tree(self, leaf: object) -> str:
        if isinstance(leaf, TensorRef):
            return self._ref(leaf)
        if isinstance(leaf, Expr):
            return self._size(leaf)
        if isinstance(leaf, HostNumber):
            return self._number(leaf)
        if isinstance(leaf, tuple):
            return f"({', '.join(self._tree(x) for x in leaf)}{',' if len(leaf) == 1 else ''})"
        if isinstance(leaf, list):
            return f"[{', '.join(self._tree(x) for x in leaf)}]"
        if leaf is None or isinstance(leaf, (bool, int, float, str)):
            return repr(leaf)
        return self._constant(leaf)

    def _number(self, number: HostNumber) -> str:
        """A Python number; computed once, where it is first needed."""
        if number.name not in self.numbers:
            args = ", ".join(self._tree(a) for a in number.args)
            self.put(f"{number.name} = {self._constant(number.function)}({args})")
            self.numbers.add(number.name)
        return number.name

    def _ref(self, ref: TensorRef) -> str:
        """A view of a buffer; made once and kept while the buffer lives."""
        buffer = self.program.buffers[ref.buffer]
        if (ref.sizes, ref.strides) == (buffer.sizes, buffer.strides) and ref.offset.value == 0:
            return ref.buffer
        views = self.views.setdefault(ref.buffer, {})
        if ref not in views:
            name = f"{ref.buffer}__view{len(self.lines)}"
            offset = self._size(ref.offset)
            views[ref] = name
            seen = self._may_see(buffer)
            if not seen and ref.buffer not in self.at_start:
                offset = f"{ref.buffer}.storage_offset() + {offset}"
            self.put(f"{name} = {'seen_as' if seen else 'as_strided'}({ref.buffer}, {self._layout(ref)}, {offset})")
        return views[ref]

    def _constant(self, value: object, stem: str = "constant") -> str:
        """A name for an object that has no literal."""
        text = str(value)
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return text
        if isinstance(value, torch.device):
            return f"torch.device({text!r})"
        for name, held in self.names.items():
            if held is value:
                return name
        name = self._unused(f"{_NO_IDENTIFIER.sub('_', stem)}{len(self.names)}")
        self.names[name] = value
        return name

    def _unused(self, name: str) -> str:
        """The name, with a `_` for each time that a buffer has it."""
        while name in self.program.buffers:
            name += "_"
        return name

    def _outputs(self) -> None:
        self.put(f"return [{', '.join(self._tree(o) for o in self.program.outputs)}]")
