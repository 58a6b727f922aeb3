"""Proof, by mypy, that each provider satisfies the protocol of its consumer. Nothing here runs.

The packages do not import each other, so no type checker sees both sides anywhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torchjit_aot
    import torchjit_cudagraphs
    import torchjit_fx
    import torchjit_guards
    import torchjit_inductor
    import torchjit_vm
    from torchjit_inductor.codegen_protocol import KernelBackend
    from torchjit_inductor.triton.backend import TritonBackend

    def _vm_meets_fx(domain: torchjit_fx.TensorDomain) -> tuple[torchjit_vm.LeafHandler, torchjit_vm.RegionCompiler]:
        return domain, domain

    def _fx_meets_guards(sizes: torchjit_guards.ShapeEnv) -> torchjit_fx.SymbolicSizes:
        return sizes

    def _aot_meets_inductor(inductor: torchjit_inductor.Inductor) -> torchjit_aot.GraphCompiler:
        return inductor

    def _cudagraphs_meets_inductor(graph: torchjit_inductor.CompiledGraph) -> torchjit_cudagraphs.Recordable:
        return graph

    def _inductor_meets_triton(backend: TritonBackend) -> KernelBackend:
        return backend
