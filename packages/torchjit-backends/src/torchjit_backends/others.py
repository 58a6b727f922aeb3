"""Backends that hand a graph to a compiler of another package: one module each, imported when the backend is asked for."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, final

import attrs
import torch
from torch import fx

from torchjit_core.events import emit_fallback
from torchjit_core.reasons import MissingPackage, UserError, reason
from torchjit_session.backend_calls import Backend

__all__ = ["EXTERNAL", "NOT_TAKEN", "Known", "entry_of", "refusal_of", "tell_refusal"]

MISSING_PACKAGE = reason(
    "TJ-API-005",
    "the package of this backend is not installed",
    "The backend hands the graph to another compiler, which is a package of its own.",
    "Install the package that the message names, or choose one of torchjit.list_backends().",
)
RETIRED = reason(
    "TJ-API-006",
    "this backend is retired upstream",
    "Its makers stopped it; PyTorch itself took over what it did.",
    "Use backend='inductor'.",
)
NO_ADAPTER = reason(
    "TJ-API-007",
    "the package of this backend has no entry that is known here",
    "torchjit hands the graph to the function that the package has for torch.compile, and this version of the package has none of that name.",
    "Use another version of the package, or pass its compiler function as backend=.",
)

NOT_TAKEN = reason(
    "TJ-API-062",
    "the other compiler cannot run this graph",
    "The graph writes to an input or draws random numbers, or the compiler lacks one of its operators; it runs by eager operators.",
    "Nothing, if that is fast enough; otherwise leave the operator out, or use another backend for this function.",
)


@final
@attrs.frozen
class Known:
    """A backend that hands graphs to another package.

    Attributes:
        package: what to install, for `pip install`.
        modules: what must be there.
        adapter: the module of `torchjit_backends`, whose function has the backend's name. None: it is retired.
    """

    package: str
    modules: tuple[str, ...] = ()
    adapter: str | None = None

    def is_there(self) -> bool:
        """Can it be used?"""
        return self.adapter is not None and all(importlib.util.find_spec(name) for name in self.modules)

    def load(self, name: str) -> Backend:
        """The backend of this name."""
        adapter: Backend = getattr(importlib.import_module(str(self.adapter)), name)
        return adapter

    def refusal(self, name: str) -> UserError:
        """Why there is no backend of this name."""
        if self.adapter is None:
            return UserError(RETIRED, f"{name!r} (package {self.package})")
        return MissingPackage(MISSING_PACKAGE, f"backend {name!r} needs: pip install {self.package}")


EXTERNAL = {
    "onnxrt": Known("onnxruntime onnxscript", ("onnxruntime", "onnxscript"), "torchjit_backends.onnxrt"),
    "openvino": Known("openvino", ("openvino",), "torchjit_backends.openvino"),
    "tensorrt": Known("torch-tensorrt", ("torch_tensorrt",), "torchjit_backends.tensorrt"),
    "tvm": Known("apache-tvm", ("tvm",), "torchjit_backends.tvm"),
    "ipex": Known("intel-extension-for-pytorch"),
}


def refusal_of(graph: fx.Graph) -> str | None:
    """Why no other compiler may have this final graph: its writes would be lost, its numbers would not be eager's."""
    for node in graph.nodes:
        if node.target is torch.ops.aten.copy_.default:
            return "the graph writes to an input"
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and not _never_draws(node):
            return f"{node.target} draws random numbers"
    return None


def _never_draws(node: fx.Node) -> bool:
    """Is it an attention without dropout, which comes after query, key and value?"""
    attention = node.target is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    return attention and not (node.args[3] if len(node.args) > 3 else node.kwargs.get("dropout_p"))


def tell_refusal(name: str, detail: str) -> None:
    """Tell reports and logs that a graph runs by eager operators."""
    emit_fallback(NOT_TAKEN, f"{name}: {detail}")


def entry_of(module: str, name: str) -> Any:
    """The function of a package that takes a graph.

    Raises:
        UserError: this version of the package has none of that name, or cannot be imported.
    """
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(NO_ADAPTER, f"{module}.{name}: {error}") from error
