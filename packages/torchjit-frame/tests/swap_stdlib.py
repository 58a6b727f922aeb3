"""Run one of CPython's own test modules with every function frame replaced: python swap_stdlib.py MODE test_name ...

MODE: `plain` (no hook), `left` (hook on, nothing replaced), `identity` (a copy of the code is swapped in),
`widen` (the copy has a larger frame), `door` (a front door that runs the original), `trampoline` (the same behind code).
Prints one line of JSON: per module the tests run and the ids of those that failed, and the hook's counters.
"""

from __future__ import annotations

import importlib
import io
import json
import sys
import unittest
from collections.abc import Callable
from contextlib import nullcontext
from types import CodeType, FunctionType
from typing import Any

from torchjit_frame import FrontDoor, hook_counters, hook_scope, trampoline


def identity(function: FunctionType) -> CodeType:
    return function.__code__.replace()


def widen(function: FunctionType) -> CodeType:
    code = function.__code__
    return code.replace(co_stacksize=code.co_stacksize + 20)


def door(function: FunctionType) -> FrontDoor:
    made = FrontDoor(function, lambda door, slots: None)
    made.sealed = True
    return made


def door_behind_code(function: FunctionType) -> CodeType:
    return trampoline(function, door(function))


CALLBACKS: dict[str, Callable[[FunctionType], CodeType | FrontDoor | None] | None] = {
    "plain": None,
    "left": lambda function: None,
    "identity": identity,
    "widen": widen,
    "door": door,
    "trampoline": door_behind_code,
}


def run(mode: str, module: str) -> dict[str, Any]:
    suite = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(f"test.{module}"))
    callback = CALLBACKS[mode]
    with nullcontext() if callback is None else hook_scope(callback):
        result = unittest.TextTestRunner(stream=io.StringIO()).run(suite)
    failed = sorted(test.id() for test, _ in [*result.failures, *result.errors])
    return {"run": result.testsRun, "failed": failed}


if __name__ == "__main__":
    outcome = {name: run(sys.argv[1], name) for name in sys.argv[2:]}
    print(json.dumps({"modules": outcome, "counters": hook_counters()}))
