"""Warnings, log records and prints inside compiled code: no break, and what plain Python shows."""

# mypy: no-warn-return-any

from __future__ import annotations

import functools
import io
import logging
import warnings
from typing import Any

import pytest
import torch

import torchjit

LOGGER = logging.getLogger("torchjit.tests.reports")


@functools.lru_cache(None)
def warning_once(logger: logging.Logger, *args: Any) -> None:
    """As in transformers."""
    logger.warning(*args)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        warning_once(LOGGER, f"first of {x.shape[1]}")
        LOGGER.warning("call %s", self.calls)
        LOGGER.debug("x is %s", x)
        warnings.warn("odd", stacklevel=1)
        print("shape", x.shape)
        if x.shape[0] > 4:
            raise ValueError("too many")
        return self.linear(x).relu()


def reports() -> io.StringIO:
    """Where the records go from now on, and nowhere else: pytest's handlers could see the program's state."""
    made = io.StringIO()
    handler = logging.StreamHandler(made)
    handler.setFormatter(logging.Formatter("%(message)s %(filename)s:%(lineno)d %(funcName)s"))
    LOGGER.propagate = False
    LOGGER.handlers[:] = [handler]
    LOGGER.setLevel(logging.INFO)
    return made


def test_one_graph_and_the_same_reports(capsys: pytest.CaptureFixture[str]) -> None:
    """Three sizes, the last of which raises: results, records with their places, warnings, prints and exceptions."""
    torch.manual_seed(0)
    model = Model()
    seen = []
    with torchjit.config.patch(reorderable_logging_functions={print}):
        for compiled in (False, True):
            model.calls = 0
            warning_once.cache_clear()
            made = reports()
            call = torchjit.compile(model, backend="eager", fullgraph=True) if compiled else model
            results = []
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for size in (2, 3, 5):
                    torch.manual_seed(size)
                    try:
                        results.append(call(torch.randn(size, 3)).tolist())
                    except ValueError as error:
                        results.append(repr(error))
            lines = [(str(w.message), w.filename, w.lineno) for w in caught if "odd" in str(w.message)]
            seen.append((results, made.getvalue(), lines, capsys.readouterr().out, model.calls))
    assert seen[0] == seen[1]
    assert len(seen[0][2]) == 3 and seen[0][4] == 3


def averages(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss = torch.nn.functional.mse_loss(x, y)  # sizes that differ: torch's Python warns
    return loss * torch.tensor(x).sum()  # torch's C++ warns


@pytest.fixture
def nothing_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is loaded from disk tries no call again."""
    monkeypatch.setenv("TORCHJIT_STORE", "off")


@pytest.mark.usefixtures("nothing_stored")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_torch_warns_of_is_about_the_line_of_the_program(backend: str, dynamic: bool) -> None:
    """And not about the lines from which a capture and the compiler try the call."""
    x, y = torch.ones(11, 1), torch.ones(11)
    first = averages.__code__.co_firstlineno
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        compiled = torchjit.compile(averages, backend=backend, dynamic=dynamic)
        for _ in range(2):
            compiled(x, y)
    found = [
        (w.filename, w.lineno)
        for w in told
        if any(text in str(w.message) for text in ("Using a target size", "To copy construct"))
    ]
    # How often is up to others: who changes filters meanwhile lets Python forget what it has told.
    assert set(found) == {(__file__, first + 1), (__file__, first + 2)}


@pytest.mark.usefixtures("nothing_stored")
def test_filters_of_the_program_hold_for_what_torch_warns_of() -> None:
    x, y = torch.ones(13, 1), torch.ones(13)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", module=__name__.replace(".", r"\."))
        torchjit.compile(averages, backend="aot_eager", on_error="raise")(x, y)


@pytest.mark.usefixtures("nothing_stored")
def test_what_is_an_error_by_the_filters_is_raised_as_in_eager() -> None:
    x, y = torch.ones(17, 1), torch.ones(17)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="Using a target size"):
            torchjit.compile(averages, backend="aot_eager", on_error="raise")(x, y)


def test_what_the_fake_of_an_operator_warns_of_is_not_told() -> None:
    """torchvision's `nms` calls what torch has renamed."""
    with torch.library._scoped_library("warning_fakes", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")

        def fake(x: torch.Tensor) -> torch.Tensor:
            warnings.warn("a name is old", FutureWarning, stacklevel=2)
            return torch.empty_like(x)

        torch.library.register_fake("warning_fakes::twice", fake, lib=library)
        compiled = torchjit.compile(lambda x: torch.ops.warning_fakes.twice(x) + 1, backend="eager")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert not told, told
