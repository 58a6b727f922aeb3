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
