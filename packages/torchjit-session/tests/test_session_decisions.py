"""What each module of a session decides, asked directly."""

from __future__ import annotations

import os
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchjit_core import collector
from torchjit_core.events import listen
from torchjit_core.marks import SizeMark
from torchjit_core.reasons import InvalidIR, NotYet, UserError, UserIndexError, UserTypeError, reason
from torchjit_core.user_errors import BackendCompilerFailed, RecompileLimitExceeded
from torchjit_frame import FrontDoor
from torchjit_fx.marks import MARKS
from torchjit_session import (
    callables,
    comparison,
    control,
    disabling,
    inlining,
    marks,
    plain_calls,
    upstream,
)
from torchjit_session.backend_calls import GraphRaised, aot_eager, with_arguments
from torchjit_session.capture_policy import capture_policy, fx_settings
from torchjit_session.compilation import Compilation
from torchjit_session.dynamic_shapes import DynamicShapes
from torchjit_session.failures import MOST_OUT_OF_MEMORY, POSTPONE_LIMIT, Failures
from torchjit_session.function_marks import Asked
from torchjit_session.rerun import OnRaise, is_of_our_code
from torchjit_session.settings import Host, Settings
from torchjit_session.sharing import Family, family_of, keeping_compilations
from torchjit_session.specialization import Specialization
from torchjit_session.terms import Terms

WHY = reason("TJ-TST-911", "a test's reason", "It is one.")
X = torch.linspace(-1, 1, 4)


def terms_of(settings: Settings | None = None, *, users: bool = False, **said: Any) -> Terms:
    host = Host(lambda: settings or Settings(), lambda: False, lambda backend: aot_eager)
    return Terms(
        aot_eager,
        host,
        users,
        said.get("fullgraph", False),
        said.get("dynamic"),
        said.get("limit"),
        said.get("on_error"),
    )


def plain(x: torch.Tensor) -> torch.Tensor:
    return x + 1


PLAIN: Any = plain


# ------------------------------------------------------------------ terms
@pytest.mark.parametrize(
    ("said", "settings", "wanted"),
    [
        (None, Settings(), None),
        (None, Settings(on_error="raise"), "raise"),
        (None, Settings(suppress_errors=True), "eager"),
        ("eager", Settings(on_error="raise"), "eager"),
    ],
)
def test_what_an_error_does_is_said_by_the_call_then_by_settings(said: Any, settings: Settings, wanted: Any) -> None:
    terms = terms_of(settings, on_error=said)
    assert terms.on_error == wanted and terms.failure_policy().raises is (wanted == "raise")


def test_settings_fill_in_what_the_call_leaves_open() -> None:
    terms = terms_of(Settings(recompile_limit=3, automatic_dynamic_shapes=False, unroll_limit=7))
    assert (terms.recompile_limit, terms.dynamic, capture_policy(terms, Asked()).step_limit) == (3, False, 7)
    assert terms_of(Settings(recompile_limit=3), limit=1).recompile_limit == 1
    assert terms_of(dynamic=True).dynamic is True and terms_of().dynamic is None
    assert fx_settings(terms_of(users=True), errors_in_tries=False).node_values


def test_a_forced_backend_is_named_so_its_errors_are_not_the_users(forced: None) -> None:
    assert terms_of(users=True).backend is aot_eager and not terms_of(users=True).backend_is_users


# ------------------------------------------------------------------ failures
def failures_of(terms: Terms, *, room: bool = True) -> tuple[Failures, FrontDoor, list[Specialization]]:
    door, made = FrontDoor(plain, lambda door, slots: None), [Specialization("0/0", "first call")]
    return Failures("f", terms, door, made, lambda: room), door, made


def told(call: Callable[[], object]) -> tuple[list[tuple[str, dict[str, Any]]], list[str]]:
    """Events and warnings."""
    heard: list[tuple[str, dict[str, Any]]] = []
    with listen(lambda kind, fields: heard.append((kind, fields))), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return heard, [str(w.message) for w in caught]


def test_a_failure_is_told_once_and_the_region_runs_eagerly() -> None:
    terms = terms_of()
    for first in (True, False):
        failures, door, _ = failures_of(terms)
        heard, said = told(lambda: failures.failed(KeyError("lost")))
        assert failures.given_up is not None and "lost" in failures.given_up and door.sealed
        assert [kind for kind, _ in heard] == ["fallback"] and heard[0][1]["detail"] == "f: KeyError: 'lost'"
        assert bool(said) is first
    failures.forget()
    assert failures.given_up is None and not door.sealed


def test_on_error_raise_shows_the_error() -> None:
    failures, *_ = failures_of(terms_of(on_error="raise"))
    with pytest.raises(InvalidIR, match="TJ-API-021.*KeyError") as caught:
        failures.failed(KeyError("lost"))
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(MemoryError):
        failures.failed(MemoryError())
    own = BackendCompilerFailed(WHY, "it failed")
    with pytest.raises(BackendCompilerFailed):
        failures_of(terms_of(users=True))[0].failed(own)
    with pytest.warns(RuntimeWarning, match="it failed"):
        assert failures_of(terms_of())[0].failed(own) is False


def test_where_memory_ran_out_other_calls_try_again() -> None:
    failures, *_ = failures_of(terms_of())
    assert all(failures.failed(MemoryError()) for _ in range(MOST_OUT_OF_MEMORY - 1)) and failures.given_up is None
    with pytest.warns(RuntimeWarning):
        assert not failures.failed(MemoryError())
    assert failures.given_up is not None


def test_not_yet_is_not_for_ever() -> None:
    failures, *_ = failures_of(terms_of())
    for _ in range(POSTPONE_LIMIT):
        assert failures.given_up is None
        failures.postponed(NotYet(WHY, "later"))
    assert failures.given_up is not None


def test_the_limit_is_an_error_with_fullgraph() -> None:
    failures, door, made = failures_of(terms_of())
    _, said = told(lambda: failures.limit_reached("f has 1 specialisations", made, None))
    assert door.sealed and "TJ-API-020" in said[0]
    assert not told(lambda: failures.limit_reached("once more", made, None, warn=False))[1]
    with pytest.raises(RecompileLimitExceeded, match="f has 1"):
        failures_of(terms_of(fullgraph=True))[0].limit_reached("f has 1", made, None)


def test_the_second_fault_ends_it() -> None:
    failures, _, made = failures_of(terms_of())
    for n in range(2):
        told(lambda: failures.drop_faulty(made[0], WHY, "wrong"))
        assert (failures.given_up is not None) is bool(n)
    other, *_ = failures_of(terms_of())
    assert "wrong" in told(lambda: other.invalidate(WHY, "wrong"))[1][0] and other.given_up is not None


# ------------------------------------------------------------------ graphs that raise
def on_raise(terms: Terms, **more: Any) -> OnRaise:
    failures, _, made = failures_of(terms)
    return OnRaise(
        failures, made[0], **{"is_graph": True, "catches": False, "in_blocks": False, "writes": False, **more}
    )


def test_the_regions_own_code_runs_for_errors_of_operations_only() -> None:
    asked = on_raise(terms_of())
    error = RuntimeError("of an operation")
    assert callable(asked(error))
    for other in (
        KeyboardInterrupt(),
        RuntimeError("CUDA error: illegal memory access"),
        StopIteration(),
        KeyError("x"),
    ):
        assert asked(other) is other
    emitted = on_raise(terms_of(), is_graph=False)
    assert emitted(error) is error and callable(emitted(GraphRaised(error)))
    assert on_raise(terms_of(), writes=True)(error) is error  # nobody knows whether it has written
    assert not is_of_our_code(KeyError("x"))
    once = on_raise(terms_of(), repeats=False)
    borrowed = once.of(asked.failures, asked.made)
    assert once(error) is error and borrowed(error) is error  # nor where another module has borrowed the entry


def test_a_graph_that_raises_alone_three_times_is_not_trusted() -> None:
    asked = on_raise(terms_of())
    failures = asked.failures
    for n in range(3):
        assert failures.given_up is None and failures.raised_alone == n
        again = asked(RuntimeError("alone"))
        assert callable(again) and not isinstance(again, BaseException)
        told(again)
    assert failures.given_up is not None and "TJ-API-023" in failures.given_up
    caught = on_raise(terms_of(), catches=True)
    again = caught(RuntimeError("caught"))
    assert callable(again) and not isinstance(again, BaseException)
    again()
    assert caught.failures.raised_alone == 0 and caught.failures.caught == 1


# ------------------------------------------------------------------ what is captured
def function_of(module: str, qualname: str) -> types.FunctionType:
    made = types.FunctionType(plain.__code__, {"__name__": module}, "f")
    made.__qualname__ = qualname
    return made


@pytest.mark.parametrize(
    ("module", "qualname", "looks"),
    [
        ("mine", "f", True),
        ("torch.nn.functional", "relu", True),
        ("timeit", "f", True),  # `time` is another module
        ("time", "f", False),
        ("os", "getenv", True),
        ("os", "remove", False),
        ("os.path", "getenv", False),
        ("torch.distributed", "is_initialized", True),
        ("torch.distributed.rpc", "is_available", False),
        ("torch.distributed.algorithms._checkpoint.checkpoint_wrapper", "f", True),
        ("torch.onnx._globals", "_InternalGlobals.in_onnx_export", True),
        ("torch.onnx._globals", "f", False),
        ("tqdm.std", "tqdm.__iter__", True),
        ("tqdm.std", "tqdm.update", False),
        ("triton.runtime.jit", "KernelInterface.__getitem__", True),
        ("triton.runtime.jit", "JITFunction.run", False),
        ("torch._dynamo.mutation_guard", "wrapper", True),
        ("torch._dynamo._trace_wrapped_higher_order_op", "ModIndex.apply", True),
        ("torch._dynamo._trace_wrapped_higher_order_op", "trace_wrapped", False),
        ("torchjit_fx.polyfills.checkpoint", "f", True),
        ("torchjit_fx.domain", "f", False),
        ("torchjit_backends.onnxrt", "f", False),
        ("", "f", True),
    ],
)
def test_which_functions_the_vm_looks_into(module: str, qualname: str, looks: bool) -> None:
    assert inlining.should_inline(function_of(module, qualname)) is looks


def test_whose_files_are_the_programs() -> None:
    assert inlining.is_user_file(__file__) and not inlining.is_user_file(str(torch.__file__))
    assert not inlining.is_user_file(os.__file__) and not inlining.is_user_file("<string>")
    assert inlining.worth_capturing(PLAIN)
    emitted = types.FunctionType(plain.__code__, {"__emitted__": True, "__name__": "mine"})
    assert not inlining.worth_capturing(emitted)


def test_functions_that_are_left_alone_and_why() -> None:
    assert disabling.left_alone(plain) is None
    alone = disabling.left_alone(disabling.disable(plain, reason="it prints"))
    assert alone is not None and alone.reason is disabling.DISABLED
    asked = disabling.left_alone(control.graph_break)
    assert asked is not None and asked.reason is disabling.EXPLICIT_BREAK
    for wrong in (3, "f"):
        with pytest.raises(UserTypeError, match="TJ-API-040"):
            disabling.disable(wrong)  # type: ignore[call-overload]


def test_marks_of_functions_want_functions() -> None:
    for mark in (control.allow_in_graph, control.assume_constant_result, control.forbid_in_graph, control.wrap_numpy):
        with pytest.raises(UserTypeError, match="TJ-API-045"):
            mark(3)  # type: ignore[arg-type]
    with pytest.raises(UserTypeError, match="other parameters"):
        control.substitute_in_graph(plain)(lambda y: y)
    assert not control.is_compiling() and not control.is_exporting()
    pytest.importorskip("numpy")
    doubled = control.wrap_numpy(lambda a: a * 2)
    assert torch.equal(doubled(X), X * 2)


def test_which_calls_are_left_to_plain_python() -> None:
    proxy = torch.fx.Graph().placeholder("x")
    tracer = torch.fx.Tracer()
    tracer.graph = proxy.graph
    assert plain_calls.holds_proxies([{"a": torch.fx.Proxy(proxy, tracer)}]) and not plain_calls.holds_proxies(X)
    assert (
        plain_calls.holds_tensors((1, [X]))
        and not plain_calls.holds_tensors([[[X]]])
        and not plain_calls.holds_tensors(3)
    )
    assert not plain_calls.must_run_eagerly()
    with torch.overrides.BaseTorchFunctionMode():
        assert plain_calls.must_run_eagerly()
    with torch.device("cpu"):
        assert not plain_calls.must_run_eagerly()


# ------------------------------------------------------------------ sizes
def test_marks_of_sizes() -> None:
    t = torch.ones(3, 4)
    marks.mark_dynamic(t, -1, min=2, max=8)
    marks.mark_static(t, 0)
    assert t.__dict__[MARKS] == {1: SizeMark("dynamic", 2, 8, None), 0: SizeMark("static", None, None, None)}
    cases: list[tuple[type[UserError], Callable[[], object]]] = [
        (UserIndexError, lambda: marks.mark_dynamic(t, 2)),
        (UserTypeError, lambda: marks.mark_dynamic(t, True)),
        (UserTypeError, lambda: marks.mark_dynamic(t, 0, min=2.0)),  # type: ignore[arg-type]
        (UserError, lambda: marks.mark_dynamic(t, 0, min=-1)),
        (UserError, lambda: marks.maybe_mark_dynamic(t, 0, min=5, max=4)),
        (UserTypeError, lambda: marks.mark_unbacked(t, 0, shape_id=3)),  # type: ignore[arg-type]
        (UserTypeError, lambda: marks.mark_static_address(3)),  # type: ignore[arg-type]
    ]
    for error, call in cases:
        with pytest.raises(error, match="TJ-API-012"):
            call()


def test_shapes_said_beside_the_program() -> None:
    Dim: Any = torch.export.Dim
    batch = Dim("batch", max=8)
    shapes = DynamicShapes.of(plain, ({0: batch, 1: None},))
    assert shapes is not None and DynamicShapes.of(plain, None) is None
    region_of = Compilation(PLAIN, aot_eager, terms_of().host).root.region
    t = torch.ones(3, 4)
    with shapes.marked(region_of, (t,)):
        assert t.__dict__[MARKS] == {0: SizeMark("dynamic", None, 8, None), 1: SizeMark("static", None, None, None)}
    assert MARKS not in t.__dict__
    for given, said in (
        ({"y": None}, "argument 'y'"), (({}, {}), "2 entries"), ("x", "got a str"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=said):
            DynamicShapes.of(plain, given)
    for spec, said in (
        ([True], "1 entries for x"), ({0: 2}, "is 3, not 2"), ({5: True}, "dimension 5"), ({0: Dim("n", max=2)}, "outside of"),
        (3, "want a dict"), ({0: "x"}, "want True"), ({0: batch, 1: batch}, "was 3 before"),
    ):  # fmt: skip
        wrong = DynamicShapes({"x": spec})
        with pytest.raises(UserError, match=said), wrong.marked(region_of, (t,)):
            pass


# ------------------------------------------------------------------ what can be compiled, and what is shared
class Called(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Instance:
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * 3


def test_everything_that_can_be_called_can_be_compiled() -> None:
    host = terms_of().host

    def start(function: types.FunctionType, *more: Any, of_object: bool = False) -> FrontDoor:
        made = Compilation(function, aot_eager, host)
        setattr(made.root.door, "compiled", made)  # noqa: B010
        return made.root.door

    models: tuple[Any, ...] = (plain, Called(), Instance(), Called().forward, torch.sin)
    for model in models:
        compiled = callables.compile_any(model, start, {})
        torch.testing.assert_close(compiled(X), model(X))
        assert callables.is_compiled(compiled) and not callables.is_compiled(model)
        assert callables.is_compiled(callables.compile_any(compiled, start, {}))
    assert isinstance(callables.compile_any(Called(), start, {}), Called)
    for wrong, said in (
        (3, "got 3"),
        (Called, "the class Called: compile an instance"),
        (X, "a Tensor: compile the function"),
    ):
        with pytest.raises(UserTypeError, match=said):
            callables.compile_any(wrong, start, {})


def test_families_hold_nobody() -> None:
    key = object()
    family = family_of(key)
    assert isinstance(family, Family) and family_of(key) is family and family_of([]) is None  # type: ignore[arg-type]
    with keeping_compilations() as kept:
        first = Compilation(PLAIN, aot_eager, terms_of().host, family=family)
        second = Compilation(PLAIN, aot_eager, terms_of().host, family=family)
    assert kept == [first, second]
    first.root.door(X)
    assert [lender for lender, _ in family.entries(second)] == [first] and not list(family.entries(first))
    assert torch.equal(second.root.door(X), plain(X))
    assert second.specializations[0].cause.startswith("shared with")
    first.reset()
    assert first.specializations == [] and torch.equal(first.root.door(X), plain(X))


def test_upstreams_marks_are_found_where_the_program_put_them() -> None:
    ours = {plain}
    assert upstream.marked_for_graph(ours) is ours or plain in upstream.marked_for_graph(ours)

    def constant() -> int:
        return 3

    constant._dynamo_marked_constant = True  # type: ignore[attr-defined]
    found = upstream.marked_constant(ours)
    assert constant in found and plain in found and print not in found


def test_the_collector_rests_during_a_capture() -> None:
    import gc

    was_on = gc.isenabled()
    with collector.collector_paused() as collects:
        assert collects is was_on and not gc.isenabled()
        with collector.collector_resumed(collects):
            assert gc.isenabled() is was_on
        assert not gc.isenabled()
    assert gc.isenabled() is was_on


def full_collections() -> int:
    """How often Python goes through all objects while their number grows by half."""
    import gc

    found: list[int] = []

    def see(when: str, about: dict[str, int]) -> None:
        if when == "start" and about["generation"] == 2:
            found.append(1)

    gc.collect()
    gc.callbacks.append(see)
    try:
        kept = [[] for _ in range(100_000 + len(gc.get_objects()) // 2)]  # type: ignore[var-annotated]
    finally:
        gc.callbacks.remove(see)
    del kept
    return len(found)


def test_full_collections_wait_until_a_compilation_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    import gc

    monkeypatch.setattr(collector, "_frozen_until", 0.0)  # a test before this one may have frozen objects
    was_on, before = gc.isenabled(), gc.get_threshold()
    gc.enable()
    try:
        if not full_collections():
            pytest.skip("this Python goes through all objects at other times")
        with collector.full_collections_put_off():
            assert full_collections() == 0
            with collector.full_collections_put_off():
                pass
            assert full_collections() == 0
            collector.full_collections_allowed()
            assert full_collections() > 0
        assert full_collections() > 0 and gc.get_threshold() == before
    finally:
        (gc.enable if was_on else gc.disable)()


# ------------------------------------------------------------------ two calls side by side
def outcome(f: Callable[..., Any], *args: Any, gradients: bool = True, **kwargs: Any) -> comparison.Outcome:
    called, args, kwargs = comparison.copied(f, args, kwargs)
    return comparison.outcome_of(called, args, kwargs, gradients=gradients)


def raises(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (lambda x: x * 2, ""),
        (lambda x: x * 3, "the result:"),
        (lambda x: (x * 2,), "the result has another structure"),
        (lambda x: (x * 2).detach(), "the result has requires_grad=False"),
        (lambda x: float(x.detach().sum()), "the result is a float, eager's a Tensor"),
        (raises, "eager raises nothing, compiled it raises ValueError: no"),
        (lambda x: x * 2 + x.detach() * 0 + (x - x) * x, ""),
        (lambda x: x.detach() + x, "the gradient of argument 0:"),
    ],
)
def test_in_what_two_calls_differ(other: Callable[..., Any], said: str) -> None:
    x = X.clone().requires_grad_()
    text = comparison.difference(outcome(other, x), outcome(lambda x: x * 2, x), None, None)
    assert text.startswith(said) if said else text == ""
    assert x.grad is None


def test_writes_and_random_numbers_are_compared_from_copies() -> None:
    def writes(items: list[torch.Tensor]) -> int:
        items[0].add_(torch.rand(4))
        items.append(items[0])
        return len(items)

    given = [X.clone()]
    first, second = outcome(writes, given), outcome(writes, given)
    assert comparison.difference(second, first, None, None) == "" and len(given) == 1
    assert torch.equal(given[0], X)
    other = outcome(lambda items: items.append(items[0] + 1) or 2, given)
    assert comparison.difference(other, first, None, None).startswith("argument 0 after the call[0]")


def test_backends_of_others_get_what_compile_was_given() -> None:
    def backend(gm: Any, inputs: Any, *, options: Any = None) -> Any:
        return gm

    assert with_arguments(backend, "default", {}) is backend
    given: Any = with_arguments(backend, None, {"level": 2})
    assert given.keywords == {"options": {"level": 2}}
    with pytest.raises(UserTypeError, match="TJ-API-043"):
        with_arguments(backend, "max-autotune", None)
