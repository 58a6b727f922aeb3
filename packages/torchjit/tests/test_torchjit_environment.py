"""Environment variables and settings: a wrong value is an error that names it, at once and each time; `CXX` and `CC` count."""

# mypy: allow-untyped-calls

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import torchjit
from torchjit import listeners
from torchjit.environment import read_environment
from torchjit.exc import UserError
from torchjit_inductor.cpp import folders


def compiles() -> Any:
    return torchjit.compile(lambda x: x + 1, backend="eager")(torch.ones(2))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TORCHJIT_DISABLE", "ture", "did you mean 'true'?"),
        ("TORCHJIT_DISABLE", "2", "TORCHJIT_DISABLE='2'"),
        ("TORCHJIT_FORCE_DISABLE_CACHES", "maybe", "TORCHJIT_FORCE_DISABLE_CACHES='maybe'"),
        ("TORCHJIT_ON_ERROR", "riase", "TORCHJIT_ON_ERROR='riase': want 'raise' or 'eager'; did you mean 'raise'?"),
        ("TORCHJIT_ON_ERROR", "Eager ", "TORCHJIT_ON_ERROR='Eager '"),
        ("TORCHJIT_STORE", "verfy", "TORCHJIT_STORE='verfy': want on, off, read or verify; did you mean 'verify'?"),
        ("TORCHJIT_REMOTE_CACHE", "memory://x", "'memory://x': what lies there is code: set TORCHJIT_BUNDLE_KEY"),
        ("TORCHJIT_TRUST_REMOTE", "sometimes", "TORCHJIT_TRUST_REMOTE='sometimes'"),
        ("TORCHJIT_LOGS", "recompile", "TORCHJIT_LOGS: 'recompile'; did you mean 'recompiles'"),
        ("TORCHJIT_LOGS", "+guards,-nonsense", "TORCHJIT_LOGS: 'nonsense'"),
        ("TORCHJIT_TRACE", "/dev/null", "TORCHJIT_TRACE='/dev/null'"),
        ("TORCHJIT_TRACE", "/dev/null/traces", "TORCHJIT_TRACE='/dev/null/traces'"),
        ("TORCHJIT_COMPILER_SECONDS", "ten", "TORCHJIT_COMPILER_SECONDS='ten'"),
        ("TORCHJIT_COMPILER_SECONDS", "-1", "TORCHJIT_COMPILER_SECONDS='-1'"),
        ("TORCHJIT_COMPILER_SECONDS", "nan", "TORCHJIT_COMPILER_SECONDS='nan'"),
        ("TORCHJIT_CACHEDIR", "/tmp", "TORCHJIT_CACHEDIR; did you mean TORCHJIT_CACHE_DIR?"),
        ("TORCHJIT_LOG", "guards", "TORCHJIT_LOG; did you mean TORCHJIT_LOGS?"),
        ("TORCHJIT_disabel", "1", "TORCHJIT_disabel; did you mean TORCHJIT_DISABLE?"),
    ],
)
def test_wrong_variables_are_refused_each_time(
    name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "_started", [])
    monkeypatch.setenv(name, value)
    for _ in range(2):
        with pytest.raises(UserError, match="TJ-API-0(60|01)") as caught:
            compiles()
        assert said in str(caught.value)
    monkeypatch.delenv(name)
    assert compiles().tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCHJIT_DISABLE", " False"), ("TORCHJIT_FORCE_DISABLE_CACHES", "on"), ("TORCHJIT_ON_ERROR", ""), ("TORCHJIT_LOGS", ""), ("TORCHJIT_STORE", ""),
        ("TORCHJIT_COMPILER_SECONDS", "inf"), ("TORCHJIT_SOMETHING_OF_A_PROGRAM", "x"), ("TORCHJIT_EXAMPLES", "3"),
    ],
)  # fmt: skip
def test_right_variables_are_taken(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    assert compiles().tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("name", "value", "nearest"),
    [
        ("recompile_limit", "many", None), ("recompile_limit", -1, None), ("recompile_limit", True, None), ("recompile_limit", "16", "16"),
        ("cache_size_limit", 1.5, None), ("cache_size_limit", 2.0, "2"), ("unroll_limit", None, None),
        ("large_capture_seconds", float("nan"), None), ("large_capture_seconds", "30", "30.0"), ("large_capture_seconds", True, None),
        ("automatic_dynamic_shapes", 1.0, "True"), ("capture_scalar_outputs", "yes", "True"), ("capture_scalar_outputs", "Flase", "False"),
        ("caches", None, None), ("store", "reed", "'read'"), ("store", 3, None), ("disable", 0.0, "False"), ("on_error", "riase", "'raise'"), ("on_error", "EAGER", "'eager'"),
        ("on_error", None, None), ("reorderable_logging_functions", print, "{<built-in function print>}"),
        ("reorderable_logging_functions", ["print"], None),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(name: str, value: Any, nearest: str | None) -> None:
    before = torchjit.config.snapshot()
    for _ in range(2):
        with pytest.raises(UserError, match="TJ-API-061") as caught:
            setattr(torchjit.config, name, value)
        assert f"torchjit.config.{name}={value!r}, want " in str(caught.value)
        assert ("did you mean" in str(caught.value)) == (nearest is not None)
        assert nearest is None or f"did you mean {nearest}?" in str(caught.value)
        with pytest.raises(UserError, match="TJ-API-061"), torchjit.config.patch(**{"unroll_limit": 5, name: value}):
            pass
    assert torchjit.config.snapshot() == before


def test_wrong_patches_are_refused_where_they_are_written() -> None:
    with pytest.raises(UserError, match="did you mean 'recompile_limit'"):
        torchjit.config.patch(recompil_limit=2)
    with pytest.raises(UserError, match="did you mean 2?"):
        torchjit.config.patch({"recompile_limit": "2"})
    with pytest.raises(UserError, match="did you mean False?"):

        @torchjit.config.patch("disable", "0")
        def never() -> None: ...


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_autotune": 1}, "max_autotune=1, want True or False; did you mean True?"),
        ({"freezing": "no"}, "want True or False; did you mean False?"),
        ({"activation_memory_budget": 3}, "want a number from 0 to 1; did you mean 1?"),
        ({"activation_memory_budget": "0.5"}, "did you mean 0.5?"),
        ({"autotune_seconds": -1.0}, "want a number of seconds; did you mean 0?"),
        ({"triton.cudagraph_capture_sizes": [8, 0]}, "want positive integers"),
        ({"post_grad_custom_post_pass": 3}, "want a pass, or a tuple of passes"),
        ({"guard_filter_fn": 3}, "want a function of guards"),
        ({"trace_enabled": True}, "did you mean 'trace.enabled'"),
        ({"epilog_fusion": False}, "did you mean 'epilogue_fusion'"),
    ],
)
def test_wrong_options_are_refused(options: Any, said: str) -> None:
    with pytest.raises(UserError) as caught:
        torchjit.compile(lambda x: x, options=options)
    assert said in str(caught.value)


def test_right_settings_are_taken() -> None:
    class Eight:
        def __index__(self) -> int:
            return 8

    with torchjit.config.patch(recompile_limit=Eight(), reorderable_logging_functions=[print], on_error="raise"):
        assert torchjit.config.recompile_limit == 8
        assert torchjit.config.reorderable_logging_functions == {print}


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
@pytest.mark.parametrize("name", ["CXX", "CC"])
def test_the_compiler_of_the_environment(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program, used = tmp_path / "a compiler", tmp_path / "used"
    program.write_text(f'#!/bin/sh\n[ "$1" = -DX ] || exit 1\necho "$@" >> {used}\nexec g++ "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("TORCHJIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv(name, f"'{program}' -DX")
    x = torch.linspace(0, 1, 8)
    torch.testing.assert_close(torchjit.compile(lambda x: x.sin() * 2 + 1)(x), x.sin() * 2 + 1)
    assert "kernels.cpp" in used.read_text()
    monkeypatch.setenv(name, "no-such-compiler -DX")
    compiled: Any = torchjit.compile(lambda x: x.cos() * 2 + 1)
    for _ in range(2):
        with pytest.raises(UserError, match=f"TJ-IND-010.*{name}='no-such-compiler -DX'"):
            compiled(x)
    assert torchjit.compile(lambda x: x + 1, backend="eager")(x).shape == x.shape


def test_what_a_cache_folder_cannot_hold_is_compiled_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(folders, "_unusable", set())
    monkeypatch.setenv("TORCHJIT_CACHE_DIR", str(tmp_path / "file" / "cache"))
    x = torch.linspace(0, 1, 8)
    functions: tuple[Any, ...] = (lambda x: x.sin() * 2, lambda x: x.cos() * 3, lambda x: x.exp().sum())
    compiled: list[Any] = [torchjit.compile(f, on_error="eager") for f in functions]
    with pytest.warns(RuntimeWarning, match="TJ-IND-009.*TORCHJIT_CACHE_DIR") as told:
        for f, c in zip(functions, compiled, strict=True):
            torch.testing.assert_close(c(x), f(x))
    assert len(told) == 1
    assert told[0].filename == __file__
    assert all(c.compiled.root.given_up is None for c in compiled)


def test_what_changes_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHJIT_STORE", "read")
    first = read_environment()
    assert read_environment() is first and first.store == "read"
    monkeypatch.setenv("TORCHJIT_STORE", "verify")
    assert read_environment().store == "verify"
    monkeypatch.delenv("TORCHJIT_STORE")
    assert read_environment().store is None
    monkeypatch.setenv("TORCHJIT_STROE", "on")
    for _ in range(2):
        with pytest.raises(UserError):
            read_environment()
    monkeypatch.setattr(os, "environ", {"TORCHJIT_STORE": "on"})
    assert read_environment().store == "on"
