"""Kernels run by Triton's interpreter, so on any machine: programs that launch Triton kernels of their own, where a launch is one
break, and the kernels of `flex_attention`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from flex_program import CASES

PROGRAM = Path(__file__).with_name("triton_program.py")


def test_a_launch_is_one_break_and_kernels_of_flex_attention_agree() -> None:
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}  # read when triton is imported
    done = subprocess.run([sys.executable, PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    agreeing = [word for name in CASES for word in (name, "agrees")]
    assert done.stdout.split() == [
        "launch", "True", "1",
        "launch_twice", "True", "2",
        "launch_wrapped", "True", "1",
        "launch_by_function", "True", "3",
        "launch_by_operator", "True", "1",
        *agreeing,
    ]  # fmt: skip
