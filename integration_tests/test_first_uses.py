"""Libraries that look for their backend in the first call: no break comes of it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch

import torchjit

# As in einops 0.8: `get_backend` goes through all subclasses, and the one that fits imports a module.
BACKENDS = """
import sys

_loaded_backends = {}
_type2backend = {}


def get_backend(tensor):
    found = _type2backend.get(type(tensor))
    if found is not None:
        return found
    subclasses = []
    backends = Backend.__subclasses__()
    while backends:
        backend = backends.pop()
        backends += backend.__subclasses__()
        subclasses.append(backend)
    for cls in subclasses:
        if cls.framework_name in sys.modules:
            backend = cls()
            _loaded_backends[backend.framework_name] = backend
            if backend.is_appropriate_type(tensor):
                _type2backend[type(tensor)] = backend
                return backend
    raise RuntimeError(type(tensor))


class Backend:
    framework_name = ""


class TorchBackend(Backend):
    framework_name = "torch"

    def __init__(self):
        import torch

        self.torch = torch
        from . import _torch_specific

    def is_appropriate_type(self, tensor):
        return isinstance(tensor, self.torch.Tensor)

    def transpose(self, x):
        return x.permute(1, 0)
"""


def test_einops_finds_its_backend_before_the_first_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "einops"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "_backends.py").write_text(BACKENDS)
    (package / "_torch_specific.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    ours = ("einops", "einops._backends", "einops._torch_specific")
    for name in ours:
        monkeypatch.delitem(sys.modules, name, raising=False)  # another one is back when the test has ended
    try:
        backends = importlib.import_module("einops._backends")

        def transposed(x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = backends.get_backend(x).transpose(x) * 2
            return result

        x = torch.randn(2, 3)
        found = torchjit.compile(transposed, backend="eager", fullgraph=True)(x)
        assert torch.equal(found, 2 * x.T)
        assert list(backends._type2backend) == [torch.Tensor]
    finally:
        for name in ours:
            sys.modules.pop(name, None)
