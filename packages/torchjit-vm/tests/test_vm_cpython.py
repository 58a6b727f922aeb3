"""Slices of CPython's own test suite through `Interpreter(ConcreteDomain)`."""

from __future__ import annotations

import importlib.util
import sys

import pytest
import vm_cpython

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("test.test_scope") is None, reason="this Python was installed without its own tests"
)

QUICK = ("test_scope", "test_iter")
ALL = (
    "test_contextlib", "test_dataclasses", "test_descr", "test_dict", "test_exceptions", "test_functools",
    "test_generators", "test_grammar", "test_iter", "test_list", "test_scope", "test_set",
)  # fmt: skip

FRAMES = "looks at real frames, tracebacks or source positions of interpreted code: they are the interpreter's"
LIFETIMES = "counts references, or waits for an object to die: boxes and frames of the interpreter live longer"
BUILTINS = "replaces or removes a builtin that the interpreter itself uses"
GENERATORS = "asks for what only C generators have: their type, gi_frame, a place on the C stack for signals"
TYPE_PARAMETERS = "PEP 695 scopes, which 3.12 introduced, are on the list of unsupported instructions"
CONTEXTS = "relies on the context that C code sets between frames of its own"
DEPTH = "recurses to the limit: the interpreter's own frames reach it at another place, or too slowly"

KNOWN: dict[str, tuple[str, ...]] = {
    FRAMES: (
        "test_contextmanager_traceback", "test_exit_exception_traceback", "test_send_with_yield_from",
        "test_throw_with_yield_from", "testSettingException", "test_unhandled", "test_name_error_suggestions",
        "PEP626Tests", "test_exception_locations", "test_partial_as_method", "TestMakeDataclass.test_module_attr",
    ),
    LIFETIMES: (
        "test_nokeepref", "testExceptionCleanupState", "test_memory_error_cleanup", "test_cycle_through_dict", "test_free_after_iterating",
        "test_remove_subclass", "ClassPropertiesAndMethods.test_slots", "test_refcycle", "test_frame_resurrect", "test_close_releases_frame_locals",
        "_cleanup_exc_state",
    ),
    BUILTINS: ("test_lru_reentrancy_with_len", "test_reduce_mutating_builtins_iter"),
    GENERATORS: (
        "test_gi_frame_f_back", "test_lambda_generator", "test_generator_gi_yieldfrom", "test_raise_and_yield_from",
    ),
    CONTEXTS: ("test_exit_exception_explicit_none_context",),
    TYPE_PARAMETERS: ("TestUpdateWrapper.test_default_update", "test_dataclass_derived_generic"),
    DEPTH: ("test_recursion_in_except_handler", "test_trashcan_recursion"),
}  # fmt: skip
"""Why a test that passes natively may fail interpreted, and parts of the names of those tests."""


def unexpected(name: str) -> list[str]:
    passed, failures = vm_cpython.run_module(name)
    assert passed > 20, "the module's tests do not run natively either"
    known = [part for parts in KNOWN.values() for part in parts]
    return [str(f) for f in failures if not any(part in f.name for part in known)]


@pytest.mark.parametrize("name", QUICK)
def test_quick_slice(name: str) -> None:
    """What passes in CPython passes interpreted."""
    assert unexpected(name) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_whole_modules(name: str, request: pytest.FixtureRequest) -> None:
    """The same for every module of the list."""
    if "slow" not in request.config.getoption("-m"):
        pytest.skip("run with -m slow")
    assert unexpected(name) == [], sys.version
