"""Wrong arguments, refused constructs, failing backends, a machine without a compiler."""

# mypy: allow-untyped-calls

import sys
import warnings
from typing import Any

import forked
import pytest
import torch

import torchjit


def test_unknown_names_tell_the_nearest() -> None:
    with pytest.raises(ValueError, match="'inductor'"):
        torchjit.compile(lambda x: x, backend="indcutor")
    with pytest.raises(ValueError, match="'reduce-overhead'"):
        torchjit.compile(lambda x: x, mode="reduce_overhead")
    with pytest.raises(ValueError, match="'max_autotune'"):
        torchjit.compile(lambda x: x, options={"max_autotun": True})
    with pytest.raises(ValueError, match="'recompile_limit'"):
        torchjit.config.recompile_limits = 3
    with pytest.raises(ValueError, match="did you mean 'recompiles'"):
        torchjit.set_logs(recompile=True)
    with pytest.raises(ValueError, match="both"):
        torchjit.compile(lambda x: x, mode="default", options={"max_autotune": True})
    with pytest.raises(ValueError, match="True or False"):
        torchjit.compile(lambda x: x, options={"max_autotune": 3})
    with pytest.raises(ValueError, match="fullgraph"):
        torchjit.compile(lambda x: x, fullgraph="yes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot be compiled"):
        torchjit.compile(3)


def test_missing_packages_and_retired_backends_say_so() -> None:
    with pytest.raises(ValueError, match="pip install openvino"):
        torchjit.lookup_backend("openvino")
    with pytest.raises(ValueError, match="retired"):
        torchjit.lookup_backend("ipex")


def test_fullgraph_shows_line_reason_and_hints() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x + 1
        return x - 1

    with pytest.raises(torchjit.exc.Unsupported) as caught:
        torchjit.compile(f, fullgraph=True, backend="eager")(torch.randn(3))
    text = str(caught.value)
    assert "if x.sum() > 0:" in text and "TJ-" in text and "hint:" in text and "^" in text


def test_an_error_of_the_users_backend_is_shown() -> None:
    def broken(gm: Any, inputs: Any) -> Any:
        raise RuntimeError("no luck")

    with pytest.raises(torchjit.exc.BackendCompilerFailed, match="no luck") as caught:
        torchjit.compile(lambda x: x + 1, backend=broken)(torch.randn(3))
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.warns(RuntimeWarning, match="no luck"):
        out = torchjit.compile(lambda x: x + 1, backend=broken, on_error="eager")(torch.ones(3))
    torch.testing.assert_close(out, torch.ones(3) + 1)


def test_internal_errors_do_not_surface(monkeypatch: pytest.MonkeyPatch) -> None:
    import torchjit_session.capture

    def explode(*args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(torchjit_session.capture, "capture", explode)
    compiled = torchjit.compile(lambda x: x * 3, backend="eager", on_error="eager")
    with pytest.warns(RuntimeWarning, match="TJ-API-021"):
        torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 3.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(torch.ones(2))


def test_the_recompile_limit_falls_back_once_and_says_why() -> None:
    def f(x: torch.Tensor, n: str) -> torch.Tensor:
        return x + len(n)

    compiled = torchjit.compile(f, backend="eager", recompile_limit=2)
    x = torch.ones(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(x, "a"), compiled(x, "bb")
    with pytest.warns(RuntimeWarning, match="TJ-API-020"):
        torch.testing.assert_close(compiled(x, "ccc"), x + 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(compiled(x, "dddd"), x + 4)
        torch.testing.assert_close(compiled(x, "a"), x + 1)
    with pytest.raises(torchjit.exc.RecompileLimitExceeded):
        strict = torchjit.compile(f, backend="eager", recompile_limit=1, fullgraph=True)
        strict(x, "a"), strict(x, "bb")


NO_COMPILER = """
import os, warnings, torch, torchjit
os.environ["PATH"] = ""
def f(x): return (x * 2).relu() + 1
x = torch.randn(8)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    out = torchjit.compile(f)(x)
    out2 = torchjit.compile(lambda x: f(x) * 2)(x)
torch.testing.assert_close(out, f(x)); torch.testing.assert_close(out2, f(x) * 2)
texts = [str(w.message) for w in caught if "TJ-" in str(w.message)]
assert len(texts) == 1, texts
print("fine:", texts[0].splitlines()[0])
"""


def test_without_a_c_compiler_one_warning_and_eager_results(tmp_path: Any) -> None:
    import os

    environment = {**os.environ, "TORCHJIT_CACHE_DIR": str(tmp_path), "CC": "", "CXX": ""}
    done = forked.run([sys.executable, "-c", NO_COMPILER], env=environment)
    assert done.returncode == 0, done.stderr
    assert "fine: TJ-IND" in done.stdout
