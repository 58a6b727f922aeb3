"""What users write wrongly: each call raises the builtin type of error that fits, says what to write instead, and names nothing of ours."""

# mypy: disable-error-code="arg-type,call-arg,call-overload,type-var,attr-defined"

import contextlib
import io
import os
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import torchjit
from torchjit import testing
from torchjit.cli import main
from torchjit_report import read_trace, write_report
from torchjit_report.logs import log_names

T = torchjit
X = torch.ones(2, 3)


def f(x: torch.Tensor, y: Any = None) -> Any:
    return x + 1


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x * 2


def two(gm: Any, example_inputs: Any) -> Any:
    return gm.forward


def no_arguments() -> Any:
    return None


def compiled(**arguments: Any) -> Any:
    return T.compile(f, **arguments)


def run(*args: Any, **arguments: Any) -> Any:
    return T.compile(f, **arguments)(*args)


def option(name: str, value: Any) -> Callable[[], Any]:
    return lambda: compiled(options={name: value})


def setting(name: str, value: Any) -> Callable[[], Any]:
    return lambda: setattr(T.config, name, value)


def patched(*args: Any, **changes: Any) -> Callable[[], Any]:
    def call() -> None:
        with T.config.patch(*args, **changes):
            pass

    return call


Row = tuple[Callable[[], Any], type[BaseException], str]
"""The call, the builtin type of its error, a pattern of the message."""
BOOL = "want True or False"

COMPILE: list[Row] = [
    (lambda: T.compile(3), TypeError, r"got 3.*Wrap what you have in a Python function"),
    (lambda: T.compile("model"), TypeError, r"got 'model'"),
    (lambda: T.compile([Net()]), TypeError, r"got \[Net\(\)\]"),
    (lambda: T.compile({"a": f}), TypeError, r"got \{"),
    (lambda: T.compile(X), TypeError, r"got a Tensor|got tensor"),
    (lambda: T.compile(Net), TypeError, r"Net.*(instance|Net\(\))"),
    (lambda: T.compile(int), TypeError, r"int"),
    (lambda: T.compile(f(X)), TypeError, r"a Tensor: compile the function that makes it"),
    (lambda: T.compile(torch), TypeError, r"module 'torch'"),
    (lambda: T.compile(f, True), TypeError, r"positional"),
    (lambda: compiled(mod="default"), TypeError, r"argument 'mod'; did you mean 'mode'"),
    (lambda: T.compile(fullgrph=True), TypeError, r"did you mean 'fullgraph'.*Known: backend, "),
    (lambda: compiled(dynamc=True), TypeError, r"dynamc"),
    (lambda: compiled(full_graph=True), TypeError, r"full_graph"),
    (lambda: compiled(fullgraph=2), TypeError, BOOL),
    (lambda: compiled(fullgraph="yes"), TypeError, BOOL),
    (lambda: compiled(fullgraph=None), TypeError, BOOL),
    (lambda: compiled(disable="no"), TypeError, BOOL),
    (lambda: compiled(disable=0.5), TypeError, BOOL),
    (lambda: compiled(isolate_recompiles="x"), TypeError, BOOL),
    (lambda: compiled(dynamic="auto"), TypeError, r"want True, False or None"),
    (lambda: compiled(dynamic=-1), TypeError, r"want True, False or None"),
    (lambda: compiled(dynamic=[0]), TypeError, r"want True, False or None"),
    (lambda: compiled(on_error="ignore"), ValueError, r"want 'raise', 'eager' or None"),
    (lambda: compiled(on_error=True), ValueError, r"want 'raise', 'eager' or None"),
    (lambda: compiled(recompile_limit=-1), ValueError, r"want an int of at least 0"),
    (lambda: compiled(recompile_limit="8"), TypeError, r"want an int of at least 0"),
    (lambda: compiled(recompile_limit=2.5), TypeError, r"want an int of at least 0"),
    (lambda: compiled(recompile_limit=True), TypeError, r"want an int of at least 0"),
    (lambda: compiled(name=3), TypeError, r"name=3, want a str"),
    (lambda: compiled(name=f), TypeError, r"want a str"),
    (lambda: compiled(backend=3), TypeError, r"want a name or a callable"),
    (lambda: compiled(backend=["eager"]), TypeError, r"want a name or a callable"),
    (lambda: compiled(backend=True), TypeError, r"want a name or a callable"),
    (lambda: compiled(backend=""), ValueError, r"backend ''.*Known: "),
    (lambda: compiled(backend="inducter"), ValueError, r"did you mean 'inductor'"),
    (lambda: compiled(backend="Inductor"), ValueError, r"did you mean 'inductor'"),
    (lambda: compiled(backend="aot-eager"), ValueError, r"did you mean 'aot_eager'"),
    (lambda: compiled(backend="cudagraph"), ValueError, r"did you mean 'cudagraphs'"),
    (lambda: compiled(backend="triton"), ValueError, r"Known: .*inductor"),
    (lambda: compiled(backend="ipex"), ValueError, r"retired.*Use backend='inductor'"),
    (lambda: compiled(backend="tvm"), ValueError, r"pip install apache-tvm"),
    (lambda: compiled(backend="tensorrt"), ValueError, r"pip install torch-tensorrt"),
    (lambda: compiled(backend="aot_ts"), ValueError, r"TorchScript is retired; use 'inductor'"),
    (lambda: compiled(backend="torch_tensorrt"), ValueError, r"use 'tensorrt'"),
    (lambda: run(X, backend=lambda gm, inputs: None), TypeError, r"returned None.*Return gm.forward"),
    (lambda: run(X, backend=lambda gm, inputs: [1]), TypeError, r"returned \[1\].*Return gm.forward"),
    (lambda: run(X, backend=lambda gm, inputs: lambda *a: None), TypeError, r"graph must return a tuple or list, not 'NoneType': a backend"),
    (lambda: run(X, backend=Net), RuntimeError, r"Net\.__init__\(\) takes 1 positional argument"),
    (lambda: run(X, backend=no_arguments), RuntimeError, r"no_arguments\(\) takes 0 positional arguments"),
    (lambda: compiled(backend=two, options={"a": 1}), TypeError, r"backend two.*options.*Give the function the keyword"),
    (lambda: compiled(backend=two, mode="max-autotune"), TypeError, r"backend two.*mode.*Give the function"),
    (lambda: compiled(mode="fast"), ValueError, r"mode 'fast'.*Known: .*reduce-overhead"),
    (lambda: compiled(mode="reduce_overhead"), ValueError, r"did you mean 'reduce-overhead'"),
    (lambda: compiled(mode="max_autotune"), ValueError, r"did you mean 'max-autotune'"),
    (lambda: compiled(mode="Default"), ValueError, r"did you mean 'default'"),
    (lambda: compiled(mode=3), TypeError, r"mode=3, want a str"),
    (lambda: compiled(mode=["default"]), TypeError, r"want a str"),
    (lambda: compiled(mode=True), TypeError, r"want a str"),
    (lambda: compiled(backend="eager", mode="fastest"), ValueError, r"Known: .*reduce-overhead"),
    (lambda: compiled(mode="default", options={"freezing": True}), ValueError, r"Give options only"),
    (lambda: compiled(options="freezing"), TypeError, r"want a dict"),
    (lambda: compiled(options=["freezing"]), TypeError, r"want a dict"),
    (lambda: compiled(options=3), TypeError, r"want a dict"),
    (lambda: compiled(options={3: True}), ValueError, r"option 3"),
    (lambda: compiled(options=[("freezing", True)]), TypeError, r"want a dict"),
    (lambda: run(X, dynamic_shapes=3), TypeError, r"want a dict"),
    (lambda: run(X, dynamic_shapes="x"), TypeError, r"want a dict"),
    (lambda: run(X, dynamic_shapes={"z": {0: True}}), ValueError, r"argument 'z'.*Known: x, y"),
    (lambda: run(X, dynamic_shapes=[{0: True}, None, None]), ValueError, r"3 entries"),
    (lambda: run(X, dynamic_shapes={"x": {5: True}}), ValueError, r"dimension 5 of x, which has 2"),
    (lambda: run(X, dynamic_shapes={"x": {"0": True}}), ValueError, r"dimension '0' of x"),
    (lambda: run(X, dynamic_shapes={"x": {0: "batch"}}), ValueError, r"'batch' for dimension 0 of x, want True"),
    (lambda: run(X, dynamic_shapes={"x": {0: 7}}), ValueError, r"dimension 0 of x is 2, not 7"),
    (lambda: run(X, dynamic_shapes={"x": True}), ValueError, r"True for the tensor x, want a dict"),
    (lambda: run(X, dynamic_shapes={"x": [True]}), ValueError, r"1 entries for x, which has 2 dimensions"),
    (lambda: run(X, 3, dynamic_shapes={"y": {0: True}}), ValueError, r"for y, a int"),
    (lambda: run(X, dynamic_shapes={"x": {0: torch.export.Dim("b", min=4)}}), ValueError, r"dimension 0 of x is 2, outside"),
    (lambda: run(X, [X], dynamic_shapes={"y": [None, None]}), ValueError, r"2 entries for y, which has 1"),
    (lambda: run(X, {"a": X}, dynamic_shapes={"y": {"b": None}}), ValueError, r"y has no key 'b'"),
]  # fmt: skip

OPTIONS: list[Row] = [
    (option("freezin", True), ValueError, r"did you mean 'freezing'"),
    (option("epilog_fusion", True), ValueError, r"did you mean 'epilogue_fusion'"),
    (option("cudagraphs", True), ValueError, r"did you mean .*'triton.cudagraphs'"),
    (option("triton.cudagraph", True), ValueError, r"did you mean .*'triton.cudagraphs'"),
    (option("max-autotune", True), ValueError, r"did you mean .*'max_autotune'"),
    (option("zzz", True), ValueError, r"Known: .*freezing"),
    (option("freezing", 1), TypeError, r"freezing=1, want True or False"),
    (option("freezing", "True"), TypeError, BOOL),
    (option("freezing", None), TypeError, BOOL),
    (option("triton.cudagraphs", "on"), TypeError, r"triton.cudagraphs='on', want True or False"),
    (option("max_autotune", [True]), TypeError, BOOL),
    (option("shape_padding", 8), TypeError, BOOL),
    (option("trace.enabled", "dir"), TypeError, BOOL),
    (option("trace.graph_diagram", 2), TypeError, BOOL),
    (option("epilogue_fusion", "off"), TypeError, BOOL),
    (option("layout_optimization", 0), TypeError, BOOL),
    (option("fallback_random", "yes"), TypeError, BOOL),
    (option("coordinate_descent_tuning", 3), TypeError, BOOL),
    (option("emulate_precision_casts", 1.0), TypeError, BOOL),
    (option("autotune_seconds", -1), ValueError, r"want a number of seconds"),
    (option("autotune_seconds", "10"), TypeError, r"want a number of seconds"),
    (option("autotune_seconds", True), TypeError, r"want a number of seconds"),
    (option("autotune_seconds", float("nan")), ValueError, r"want a number of seconds"),
    (option("activation_memory_budget", 2), ValueError, r"want a number from 0 to 1"),
    (option("activation_memory_budget", -0.5), ValueError, r"want a number from 0 to 1"),
    (option("activation_memory_budget", "half"), TypeError, r"want a number from 0 to 1"),
    (option("triton.cudagraph_capture_sizes", [0]), ValueError, r"want positive integers"),
    (option("triton.cudagraph_capture_sizes", "8"), TypeError, r"want positive integers"),
    (option("triton.cudagraph_capture_sizes", [2.0]), ValueError, r"want positive integers"),
    (option("triton.cudagraph_capture_sizes", [4]), ValueError, r"needs triton.cudagraphs=True"),
    (option("pre_grad_custom_pass", 3), TypeError, r"pre_grad_custom_pass=3"),
    (option("joint_custom_post_pass", "pass"), TypeError, r"joint_custom_post_pass='pass'"),
    (option("post_grad_custom_post_pass", lambda graph: None), ValueError, r"id"),
    (option("guard_filter_fn", 3), TypeError, r"guard_filter_fn=3, want a function"),
    (lambda: T.list_mode_options("fast"), ValueError, r"Known: .*reduce-overhead"),
    (lambda: T.list_mode_options(3), ValueError, r"mode 3"),  # type: ignore[arg-type]
    (lambda: T.list_mode_options("default", dynamic="x"), TypeError, r"want True, False or None"),  # type: ignore[arg-type]
    (lambda: T.list_options("freezing"), TypeError, r"argument"),  # type: ignore[call-arg]
]  # fmt: skip

CONFIG: list[Row] = [
    (setting("recompil_limit", 3), AttributeError, r"did you mean 'recompile_limit'"),
    (setting("zzz", 3), AttributeError, r"Known: .*recompile_limit"),
    (lambda: T.config.recompil_limit, AttributeError, r"did you mean 'recompile_limit'"),
    (lambda: T.config.verbose, AttributeError, r"needs none: messages are always complete"),
    (setting("recompile_limit", -1), ValueError, r"recompile_limit=-1, want an int of at least 0"),
    (setting("recompile_limit", "8"), TypeError, r"want an int"),
    (setting("recompile_limit", 8.0), TypeError, r"want an int"),
    (setting("recompile_limit", True), TypeError, r"want an int"),
    (setting("recompile_limit", None), TypeError, r"want an int"),
    (setting("cache_size_limit", "8"), TypeError, r"want an int"),
    (setting("accumulated_recompile_limit", [1]), TypeError, r"want an int"),
    (setting("capture_scalar_outputs", 2), TypeError, BOOL),
    (setting("capture_scalar_outputs", "True"), TypeError, BOOL),
    (setting("capture_dynamic_output_shape_ops", None), TypeError, BOOL),
    (setting("automatic_dynamic_shapes", -1), TypeError, BOOL),
    (setting("capture_calls_at_breaks", "no"), TypeError, BOOL),
    (setting("suppress_errors", [True]), TypeError, BOOL),
    (setting("disable", "1"), TypeError, BOOL),
    (setting("caches", "off"), TypeError, BOOL),
    (setting("large_capture_nodes", 1.5), TypeError, r"want an int"),
    (setting("large_capture_seconds", "30"), TypeError, r"want a number"),
    (setting("large_capture_seconds", -3), ValueError, r"want a number"),
    (setting("large_capture_seconds", float("nan")), ValueError, r"want a number"),
    (setting("unroll_limit", -1), ValueError, r"want an int"),
    (lambda: delattr(T.config, "recompile_limit"), AttributeError, r"cannot be deleted; assign its default"),
    (patched(None, 5), TypeError, r"config\.patch=None, want a dict"),
    (setting("dynamic_sources", 3), TypeError, r"dynamic_sources=3, want names of places"),
    (setting("static_sources", ["x"]), TypeError, r"want names of places"),
    (setting("unbacked_sources", "L[(:0"), ValueError, r"'L\[\(' is no regular expression"),
    (setting("dynamic_source", "x"), AttributeError, r"did you mean 'dynamic_sources'"),
    (setting("on_error", "fail"), ValueError, r"want 'eager' or 'raise'"),
    (setting("on_error", True), ValueError, r"want 'eager' or 'raise'"),
    (setting("reorderable_logging_functions", print), TypeError, r"want a set"),
    (setting("reorderable_logging_functions", "print"), TypeError, r"want a set"),
    (setting("reorderable_logging_functions", {"print"}), TypeError, r"'print'.*function"),
    (patched(recompil_limit=2), AttributeError, r"did you mean 'recompile_limit'"),
    (patched("recompil_limit", 2), AttributeError, r"did you mean 'recompile_limit'"),
    (patched({"recompil_limit": 2}), AttributeError, r"did you mean 'recompile_limit'"),
    (patched({"recompile_limit": "2"}), TypeError, r"want an int"),
    (patched("recompile_limit"), TypeError, r"recompile_limit=None, want an int"),
    (patched(3), TypeError, r"patch.*3.*want a dict"),
    (patched(["recompile_limit"]), TypeError, r"want a dict"),
    (patched({3: 4}), AttributeError, r"setting 3"),
]  # fmt: skip

MARKS: list[Row] = [
    (lambda: T.mark_dynamic([1, 2], 0), TypeError, r"got a list, want a tensor"),
    (lambda: T.mark_dynamic(3, 0), TypeError, r"got a int, want a tensor"),
    (lambda: T.mark_dynamic(X, 2), IndexError, r"dimension 2 of a tensor with 2"),
    (lambda: T.mark_dynamic(X, -3), IndexError, r"dimension -3"),
    (lambda: T.mark_dynamic(X, [0, 5]), IndexError, r"dimension 5"),
    (lambda: T.mark_dynamic(X, "0"), TypeError, r"'0'.*want an int"),
    (lambda: T.mark_dynamic(X, 0.0), TypeError, r"0\.0.*want an int"),
    (lambda: T.mark_dynamic(X, None), TypeError, r"None.*want an int"),
    (lambda: T.mark_dynamic(X, True), TypeError, r"True.*want an int"),
    (lambda: T.mark_dynamic(X, {0: 1}), TypeError, r"want an int"),
    (lambda: T.mark_dynamic(X, 0, min=5, max=3), ValueError, r"min=5, max=3"),
    (lambda: T.mark_dynamic(X, 0, min="2"), TypeError, r"min='2'"),
    (lambda: T.mark_dynamic(X, 0, max=3.5), TypeError, r"max=3\.5"),
    (lambda: T.mark_dynamic(X, 0, min=-1), ValueError, r"min=-1"),
    (lambda: T.mark_dynamic(X), TypeError, r"index"),
    (lambda: T.mark_dynamic(Net(), 0), TypeError, r"got a Net, want a tensor"),
    (lambda: T.maybe_mark_dynamic(None, 0), TypeError, r"got a NoneType, want a tensor"),
    (lambda: T.maybe_mark_dynamic(X, 9), IndexError, r"dimension 9"),
    (lambda: T.mark_static("x"), TypeError, r"got a str, want a tensor"),
    (lambda: T.mark_static([X]), TypeError, r"got a list, want a tensor"),
    (lambda: T.mark_static(X, 3), IndexError, r"dimension 3"),
    (lambda: T.mark_unbacked(X, 4), IndexError, r"dimension 4"),
    (lambda: T.mark_unbacked(X, 0, shape_id=3), TypeError, r"shape_id=3, want a str"),
    (lambda: T.mark_dynamic(X, torch.tensor(0)), TypeError, r"want an int or a list of ints"),
    (lambda: T.mark_unbacked((2, 3), 0), TypeError, r"got a tuple, want a tensor"),
    (lambda: T.disable(3), TypeError, r"got 3"),
    (lambda: T.disable("f"), TypeError, r"got 'f'"),
    (lambda: T.disable(f, reason=3), TypeError, r"reason=3, want a str"),
    (lambda: T.disable(f, recursive="no"), TypeError, r"recursive='no', want True or False"),
    (lambda: T.allow_in_graph(3), TypeError, r"allow_in_graph got 3"),
    (lambda: T.allow_in_graph("f"), TypeError, r"allow_in_graph got 'f'"),
    (lambda: T.assume_constant_result(3), TypeError, r"assume_constant_result got 3"),
    (lambda: T.disallow_in_graph("torch.sin"), TypeError, r"disallow_in_graph got 'torch.sin'"),
    (lambda: T.forbid_in_graph(None), TypeError, r"forbid_in_graph got None"),
    (lambda: T.nonstrict_trace(3), TypeError, r"nonstrict_trace got 3"),
    (lambda: T.nested_compile_region(3), TypeError, r"nested_compile_region got 3"),
    (lambda: T.wrap_numpy([1]), TypeError, r"wrap_numpy got \[1\]"),
    (lambda: T.substitute_in_graph(3), TypeError, r"3 is no function"),
    (lambda: T.substitute_in_graph(int), TypeError, r"is no function"),
    (lambda: T.substitute_in_graph(f)(lambda a: a), TypeError, r"other parameters.*skip_signature_check=True"),
    (lambda: T.substitute_in_graph(f)(3), TypeError, r"3"),
    (lambda: T.error_on_graph_break(), TypeError, r"error"),
    (lambda: T.error_on_graph_break("yes"), TypeError, r"error_on_graph_break='yes', want True or False"),
    (lambda: T.error_on_graph_break(f), TypeError, r"want True or False"),
    (lambda: T.set_stance(skip_guard_eval_unsafe="no"), TypeError, BOOL),  # type: ignore[arg-type]
    (lambda: T.set_stance("zzz"), ValueError, r"stance 'zzz'\. Known: "),  # type: ignore[arg-type]
    (lambda: T.set_logs(recompiles=3), TypeError, r"recompiles=3, want True or False"),
    (lambda: T.load_cache_artifacts("abc"), TypeError, r"want bytes, got str"),  # type: ignore[arg-type]
    (lambda: T.load_cache_artifacts(None), TypeError, r"want bytes, got NoneType"),  # type: ignore[arg-type]
    (lambda: T.on_compile_start(3), TypeError, r"got 3.*a function of one argument"),  # type: ignore[arg-type]
    (lambda: T.on_compile_end("f"), TypeError, r"got 'f'"),  # type: ignore[arg-type]
    (lambda: T.debug_folder(3).__enter__(), TypeError, r"path=3, want a folder"),  # type: ignore[arg-type]
    (lambda: T.keep_tensor_guards_unsafe(3), TypeError, r"guard_entries=3, want a list of guards"),  # type: ignore[arg-type]
    (lambda: T.skip_all_guards_unsafe(f), TypeError, r"want a list of guards"),  # type: ignore[arg-type]
    (lambda: T.replace_torch_compile(f), TypeError, r"argument"),
    (lambda: T.compile(lambda x: print(x), fullgraph=True)(X), RuntimeError, r"print.*hint"),
]  # fmt: skip

STANCES: list[Row] = [
    (lambda: T.set_stance("force-eager"), ValueError, r"did you mean 'force_eager'"),
    (lambda: T.set_stance("eager"), ValueError, r"did you mean"),
    (lambda: T.set_stance("zzz"), ValueError, r"Known: .*fail_on_recompile"),
    (lambda: T.set_stance(3), TypeError, r"stance=3, want a str"),
    (lambda: T.set_stance(None), TypeError, r"stance=None, want a str"),
    (lambda: T.set_stance(["default"]), TypeError, r"want a str, the name of a stance"),
    (lambda: T.set_stance("force_eager", force_backend="eager"), ValueError, r"Leave one of the two out"),
    (lambda: T.set_stance(force_backend="egaer"), ValueError, r"did you mean 'eager'"),
    (lambda: T.set_stance(force_backend=3), TypeError, r"3"),
    (lambda: T.set_stance("default", skip_guards=True), TypeError, r"skip_guards"),
    (lambda: T.set_default_backend("inducter"), ValueError, r"did you mean 'inductor'"),
    (lambda: T.set_default_backend(3), TypeError, r"backend=3, want a name or a callable"),
    (lambda: T.set_default_backend(["eager"]), TypeError, r"want a name or a callable"),
    (lambda: T.set_default_backend("tvm"), ValueError, r"pip install"),
    (lambda: T.lookup_backend("egaer"), ValueError, r"did you mean 'eager'"),
    (lambda: T.lookup_backend(3), TypeError, r"want a name or a callable"),
    (lambda: T.lookup_backend(None), TypeError, r"want a name or a callable"),
    (lambda: T.register_backend(3), TypeError, r"3"),
    (lambda: T.register_backend("mine"), TypeError, r"'mine'.*name="),
    (lambda: T.register_backend(two, name=3), TypeError, r"name=3, want a str"),
    (lambda: T.register_backend(two, tags="debug"), TypeError, r"tags='debug', want a list"),
    (lambda: T.list_backends("debug"), TypeError, r"exclude_tags='debug', want a list"),
    (lambda: T.list_backends(3), TypeError, r"exclude_tags=3, want a list"),
    (lambda: T.set_logs(recompile=True), ValueError, r"did you mean 'recompiles'"),
    (lambda: T.set_logs(zzz=True), ValueError, r"Known: "),
    (lambda: T.set_logs(graph_breaks="yes"), TypeError, r"graph_breaks='yes', want True, False or a level of logging"),
    (lambda: T.set_logs(guards=3.5), TypeError, r"guards=3.5, want"),
    (lambda: T.set_logs("recompiles"), TypeError, r"positional"),
    (lambda: T.explain(3)(X), TypeError, r"got 3"),
    (lambda: T.explain(3), TypeError, r"got 3"),
    (lambda: T.explain("f"), TypeError, r"got 'f'"),
    (lambda: T.explain(f, dynamic="yes"), TypeError, r"want True, False or None"),
    (lambda: T.explain(f, X), TypeError, r"positional"),
    (lambda: T.explain(f)(), TypeError, r"missing 1 required positional argument: 'x'"),
    (lambda: T.explain(f)(X, z=1), TypeError, r"'z'"),
    (lambda: compiled(backend="eager")(), TypeError, r"missing 1 required positional argument: 'x'"),
    (lambda: compiled(backend="eager")(X, 1, 2), TypeError, r"takes .* positional arguments"),
    (lambda: T.reset(True), TypeError, r"argument"),
    (lambda: T.is_compiled(), TypeError, r"argument"),
    (lambda: T.compil, AttributeError, r"compil"),
    (lambda: T.Compile, AttributeError, r"Compile"),
    (lambda: T.exc.unsupported, AttributeError, r"unsupported"),
]  # fmt: skip

TESTING: list[Row] = [
    (lambda: testing.assert_one_graph(X), TypeError, r"got a Tensor.*not assert_one_graph\(model\(x\)\)"),
    (lambda: testing.assert_no_breaks(3, X), TypeError, r"got a int"),
    (lambda: testing.assert_recompiles(3, []), TypeError, r"got a int"),
    (lambda: testing.assert_recompiles(f, X), TypeError, r"calls is a Tensor, want a list"),
    (lambda: testing.assert_recompiles(f, 3), TypeError, r"calls is a int, want a list"),
    (lambda: testing.assert_recompiles(f, {"x": X}), TypeError, r"calls is a dict, want a list"),
    (lambda: testing.assert_recompiles(f, [X]), TypeError, r"call 0 is a Tensor, want a tuple or a dict"),
    (lambda: testing.assert_recompiles(f, [(X,), [X]]), TypeError, r"call 1 is a list"),
    (lambda: testing.assert_recompiles(f, [(X,)], at_most=-1), ValueError, r"at_most=-1"),
    (lambda: testing.assert_recompiles(f, [(X,)], at_most="1"), TypeError, r"at_most='1'"),
    (lambda: testing.assert_recompiles(f, [(X,)], dynamic="x"), TypeError, r"want True, False or None"),
    (lambda: testing.assert_equal_to_eager("f", X), TypeError, r"got a str"),
    (lambda: testing.assert_equal_to_eager(f, X, rtol=1e-3), ValueError, r"give both, or none"),
    (lambda: testing.assert_equal_to_eager(f, X, atol=1e-3), ValueError, r"give both, or none"),
    (lambda: testing.assert_equal_to_eager(f, X, gradients="no"), TypeError, r"gradients='no', want True or False"),
    (lambda: testing.assert_equal_to_eager(f, X, rtol="a", atol="b"), TypeError, r"rtol='a'.*want numbers"),
    (lambda: testing.assert_equal_to_eager(f, X, compile="inductor"), TypeError, r"compile='inductor'.*functools.partial"),
    (lambda: testing.assert_equal_to_eager(f, (i for i in "a")), TypeError, r"make what cannot be copied inside"),
]  # fmt: skip

PATHS: list[Row] = [
    (lambda: read_trace("/nowhere/trace"), FileNotFoundError, r"/nowhere/trace"),
    (lambda: read_trace(3), TypeError, r""),
    (lambda: write_report([], "/nowhere/report.html"), FileNotFoundError, r"/nowhere/report.html"),
    (lambda: write_report([], Path("/")), OSError, r""),
    (lambda: write_report(3, "x.html"), TypeError, r""),
]  # fmt: skip

ROWS = {
    f"{name}-{number}": row
    for name, rows in {
        "compile": COMPILE, "options": OPTIONS, "config": CONFIG, "marks": MARKS, "stances": STANCES, "testing": TESTING, "paths": PATHS,
    }.items()
    for number, row in enumerate(rows)
}  # fmt: skip

COMMANDS: list[tuple[list[str], str]] = [
    ([], r"required: command"),
    (["explane"], r"invalid choice: 'explane'"),
    (["explain"], r"required: script"),
    (["explain", "/nowhere/program.py"], r"there is no /nowhere/program.py"),
    (["explain", "/"], r"there is no /"),
    (["bench"], r"required: script"),
    (["bench", "/nowhere/program.py"], r"there is no /nowhere/program.py"),
    (["bench", "--compilers", "gcc", "program.py"], r"invalid choice: 'gcc'"),
    (["report"], r"required: trace"),
    (["report", "/nowhere/trace"], r"there is no /nowhere/trace; run the program with TORCHJIT_TRACE=FOLDER first"),
    (["report", __file__], r"there are no events in .*test_wrong_calls.py.*TORCHJIT_TRACE"),
    (["demo", "--device", "tpu"], r"invalid choice: 'tpu'"),
    (["demo", "--seconds", "long"], r"invalid float value: 'long'"),
    (["demo", "--smal", "--seconds", "x"], r"invalid float value"),
    (["backends", "eager"], r"unrecognized arguments: eager"),
    (["modes", "--all"], r"unrecognized arguments: --all"),
    (["options", "freezing"], r"unrecognized arguments: freezing"),
    (["logs", "--level", "3"], r"unrecognized arguments"),
    (["doctor", "--fix"], r"unrecognized arguments: --fix"),
]

VARIABLES: list[tuple[str, str, str]] = [
    ("TORCHJIT_DISABLE", "maybe", r"TORCHJIT_DISABLE='maybe'"),
    ("TORCHJIT_FORCE_DISABLE_CACHES", "2", r"TORCHJIT_FORCE_DISABLE_CACHES='2'"),
    ("TORCHJIT_ON_ERROR", "fail", r"want 'raise' or 'eager'"),
    ("TORCHJIT_ON_ERROR", "raises", r"did you mean 'raise'"),
    ("TORCHJIT_COMPILER_SECONDS", "-1", r"want a positive number of seconds"),
    ("TORCHJIT_COMPILER_SECONDS", "long", r"want a positive number of seconds"),
    ("TORCHJIT_LOGS", "recompile", r"did you mean 'recompiles'"),
    ("TORCHJIT_LOGS", "+guards,zzz", r"'zzz'.*Known: "),
    ("TORCHJIT_LOG", "guards", r"did you mean TORCHJIT_LOGS"),
    ("TORCHJIT_DISABEL", "1", r"did you mean TORCHJIT_DISABLE"),
    ("TORCHJIT_CACHE_DIRS", "/tmp", r"did you mean TORCHJIT_CACHE_DIR"),
]


def test_there_are_many() -> None:
    assert len(ROWS) + len(COMMANDS) + len(VARIABLES) >= 200


@contextlib.contextmanager
def nothing_stays() -> Iterator[None]:
    logs = os.environ.pop("TORCHJIT_LOGS", None)
    with testing.fresh():
        yield
    T.set_logs(**dict.fromkeys(log_names(), False))
    if logs is not None:
        os.environ["TORCHJIT_LOGS"] = logs


INTERNAL = re.compile(r"\btorchjit_\w+\.|\b_[a-z]\w*\(| at 0x[0-9a-f]+|\bsite\.py\b")
"""What a message must not name: modules and functions of ours, addresses."""


@pytest.mark.parametrize("name", ROWS)
def test_wrong_call(name: str) -> None:
    call, kind, said = ROWS[name]
    with nothing_stays(), pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert re.search(said, text, re.S), text
    if isinstance(caught.value, T.exc.TorchjitError):
        assert not INTERNAL.search(text.replace(__name__, "")), text
        assert "hint: " in text or "want " in text or "did you mean" in text or "take" in text, text
        shown = "".join(traceback.format_exception(caught.value))
        if not isinstance(caught.value, T.exc.BackendCompilerFailed):  # whose cause is the program's
            assert "During handling of the above" not in shown and "direct cause" not in shown, shown


@pytest.mark.parametrize(("words", "said"), COMMANDS, ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_wrong_command(words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stderr = io.StringIO()
    with contextlib.redirect_stderr(stderr), contextlib.redirect_stdout(io.StringIO()):
        try:
            status = main(words)
        except SystemExit as stop:
            status = stop.code
    assert status == 2
    assert re.search(said, stderr.getvalue(), re.S), stderr.getvalue()
    assert "Traceback" not in stderr.getvalue()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("variable", "value", "said"), VARIABLES)
def test_wrong_variable(variable: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match="hint: ") as caught:
        compiled(backend="eager")
    assert re.search(said, str(caught.value), re.S), str(caught.value)
    assert not INTERNAL.search(str(caught.value))
