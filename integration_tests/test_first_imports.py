"""Modules that code of a region imports for the first time in the process: torch's at capture, others behind a graph break."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest
import torch

import torchjit

MODULE = "torch.utils.show_pickle"  # needs nothing, registers nothing, and nobody else imports it


@pytest.fixture(autouse=True)
def not_loaded(monkeypatch):
    importlib.import_module(MODULE)
    monkeypatch.delitem(sys.modules, MODULE)
    monkeypatch.delattr(torch.utils, "show_pickle")


def statement(x):
    import torch.utils.show_pickle

    return x.sin(), torch.utils.show_pickle.__name__


def from_the_package(x):
    with torch.no_grad():
        from torch.utils import show_pickle as found
    return x.cos() * 2, found.FakeClass.__name__


def from_the_module(x):
    from torch.utils.show_pickle import FakeObject

    return x + 1, FakeObject("module", "name", ()).name


def by_name(x):
    found = importlib.import_module(MODULE)
    return x * 2, importlib.import_module(".show_pickle", package="torch.utils") is found


def after_it_was_missed(x):
    """What the region has read before the import is read anew after it."""
    before = hasattr(torch.utils, "show_pickle")
    importlib.import_module(MODULE)
    return x - 1, before, hasattr(torch.utils, "show_pickle")


def in_a_function_that_is_called(x):
    total = x
    for _ in range(2):
        total = total + statement(total)[0]
    return total, MODULE in sys.modules


@pytest.mark.parametrize(
    "program", [statement, from_the_package, from_the_module, by_name, in_a_function_that_is_called]
)
def test_of_torch_no_graph_breaks(program):
    x = torch.randn(3, requires_grad=True)
    compiled: Any = torchjit.compile(program, backend="eager", fullgraph=True)
    first, second, (value, rest) = compiled(x), compiled(x), program(x)
    for found in (first, second):
        torch.testing.assert_close(found[0], value, rtol=0, atol=0)
        assert found[0].requires_grad and found[1] == rest
    assert len(compiled.compiled.specializations) == 1


def test_what_was_read_before_is_read_again():
    """The first call finds the module loaded earlier than plain Python would: the one thing that shows."""
    x = torch.randn(3)
    compiled: Any = torchjit.compile(after_it_was_missed, backend="eager", fullgraph=True)
    assert compiled(x)[1:] == compiled(x)[1:] == (True, True)
    assert len(compiled.compiled.specializations) == 1


def test_a_module_that_is_not_there_is_the_programs_own_error():
    def program(x):
        try:
            import torch.no_such_module  # noqa: F401
        except ImportError as error:
            return x.sin(), error.name
        raise AssertionError

    x = torch.randn(3)
    assert torchjit.compile(program, backend="eager")(x)[1] == "torch.no_such_module"
    with pytest.raises(torchjit.exc.Unsupported, match="first import of torch.no_such_module"):
        torchjit.compile(program, backend="eager", fullgraph=True)(x)


def test_a_module_of_the_program_is_imported_by_the_program(tmp_path, monkeypatch):
    """Its code may do anything, in its place: between the graphs."""
    (tmp_path / "imported_by_a_region.py").write_text("import torch\nfound = torch.get_default_dtype(), []\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "imported_by_a_region", None)
    monkeypatch.delitem(sys.modules, "imported_by_a_region")

    def program(x):
        y = x.sin()
        import imported_by_a_region

        imported_by_a_region.found[1].append(1)
        return y.cos(), len(imported_by_a_region.found[1])

    x = torch.randn(3)
    compiled = torchjit.compile(program, backend="eager")
    for times in (1, 2):
        value, count = compiled(x)
        torch.testing.assert_close(value, x.sin().cos(), rtol=0, atol=0)
        assert count == times
    del sys.modules["imported_by_a_region"]
