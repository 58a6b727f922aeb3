"""Kernels run by Triton's interpreter, so on any machine: programs that launch Triton kernels of their own, where a launch is one
break, and the kernels of `flex_attention`. What the interpreter cannot run is compared with eager on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from few_queries_program import CASES as FEW_QUERIES
from flex_program import CASES, DECODING, VARYING
from torch.torch_version import TorchVersion

import torchjit

PROGRAM = Path(__file__).with_name("triton_program.py")


def test_a_launch_is_one_break_and_kernels_of_flex_attention_agree() -> None:
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}  # read when triton is imported
    done = subprocess.run([sys.executable, PROGRAM], env=environment, capture_output=True, text=True, check=False)
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("Triton's interpreter does not know this version of NumPy")
    assert done.returncode == 0, done.stdout + done.stderr
    agreeing = [
        word for name in (*CASES, *VARYING, "varied_decoded", *DECODING, *FEW_QUERIES) for word in (name, "agrees")
    ]
    first, rest = done.stdout.split("\n", 1)
    assert first == "wraps" or (first == "does not wrap" and TorchVersion(torch.__version__) < (2, 15))
    wrapped = "launch_wrapped True 1 launch_by_operator True 1" if first == "wraps" else ""
    launches = f"launch True 1 launch_twice True 2 launch_by_function True 3 {wrapped}"
    assert rest.split() == [*launches.split(), *agreeing]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("shape", [(4096, 4096), (100, 70), (3, 40000)])
def test_quantized_rows_are_eagers(shape: tuple[int, int]) -> None:
    def function(x: torch.Tensor) -> Any:
        wide = x.float()
        return (wide / (wide.abs().amax(-1, keepdim=True) / 127)).round().clamp(-128, 127).to(torch.int8)

    x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    x[0], x[1, ::3], x[2, 5] = 0.0, 0.0, torch.inf
    torchjit.reset()
    assert torch.equal(torchjit.compile(function)(x), function(x))
