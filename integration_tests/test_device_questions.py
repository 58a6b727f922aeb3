"""What programs ask about devices and the flags of `torch.backends`: answered at capture, guarded where the answer may change."""

# mypy: allow-untyped-calls

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchjit
from torchjit_core import events

QUESTIONS: dict[str, Callable[[], Any]] = {
    "cuda.is_available": torch.cuda.is_available,
    "cuda.device_count": torch.cuda.device_count,
    "cuda.is_bf16_supported": torch.cuda.is_bf16_supported,
    "cuda.is_tf32_supported": torch.cuda.is_tf32_supported,
    "cuda.is_initialized": torch.cuda.is_initialized,
    "cuda.get_arch_list": lambda: len(torch.cuda.get_arch_list()),
    "version.cuda": lambda: len(torch.version.cuda or ""),
    "accelerator": lambda: torch.accelerator.is_available(),
    "backends.cpu": lambda: len(torch.backends.cpu.get_cpu_capability()),
    "cpu.amx": torch.cpu._is_amx_tile_supported,
    "backends.cudnn": lambda: torch.backends.cudnn.is_available() + int(torch.backends.cudnn.version() or 0),
    "backends.mps": torch.backends.mps.is_available,
    "cuda.matmul.fp16": lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
    "cudnn.allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
    "fill_uninitialized_memory": lambda: torch.utils.deterministic.fill_uninitialized_memory,
}


def _breaks(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    heard: list[str] = []

    def hear(kind: str, fields: dict[str, Any]) -> None:
        if kind == "graph_break":
            heard.append(str(fields.get("detail")))

    events.start_listening(hear)
    try:
        return call(), heard
    finally:
        events.stop_listening(hear)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_breaks_no_graph(name: str) -> None:
    ask, x = QUESTIONS[name], torch.ones(3)

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + int(ask())

    got, breaks = _breaks(lambda: torchjit.compile(f, backend="eager")(x))
    torch.testing.assert_close(got, f(x))
    assert not breaks


class _Flag:
    def __init__(self, owner: Any, name: str, other: Any) -> None:
        self.owner, self.name, self.other = owner, name, other


FLAGS = {
    "cudnn.benchmark": _Flag(torch.backends.cudnn, "benchmark", True),
    "cudnn.enabled": _Flag(torch.backends.cudnn, "enabled", False),
    "cudnn.deterministic": _Flag(torch.backends.cudnn, "deterministic", True),
    "matmul.allow_fp16": _Flag(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", False),
    "matmul.allow_bf16": _Flag(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False),
    "mkldnn.enabled": _Flag(torch.backends.mkldnn, "enabled", False),
    "fill_uninitialized_memory": _Flag(torch.utils.deterministic, "fill_uninitialized_memory", False),
}


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_that_changes_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # torch's own testing modules forbid it to the process that imports them. `torch.backends` is a module in front of
    # the one whose global this is.
    monkeypatch.setitem(torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", True)
    flag, x = FLAGS[name], torch.ones(3)

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if getattr(flag.owner, flag.name) else x - 1

    compiled = torchjit.compile(f, backend="eager")
    before = getattr(flag.owner, flag.name)
    torch.testing.assert_close(compiled(x), f(x))
    setattr(flag.owner, flag.name, flag.other)
    try:
        torch.testing.assert_close(compiled(x), f(x))
    finally:
        setattr(flag.owner, flag.name, before)
    torch.testing.assert_close(compiled(x), f(x))


def test_whether_cuda_is_initialized_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An initialized one asks, in C, whether this is the child of a process that had it."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU, which a process that says so would use")

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if torch.cuda.is_initialized() else x - 1

    compiled, x = torchjit.compile(f, backend="eager"), torch.ones(3)
    for said in (True, False, True):
        monkeypatch.setattr(torch.cuda, "_initialized", said)
        got, breaks = _breaks(lambda: compiled(x))
        assert torch.equal(got, x + 1 if said else x - 1) and not breaks


def test_a_question_that_raises_raises_as_in_eager() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")

    def f(x: torch.Tensor) -> Any:
        try:
            return x * torch.cuda.get_device_capability(0)[0]
        except (AssertionError, RuntimeError) as error:
            return x, type(error).__name__, str(error)

    x = torch.ones(3)
    got, want = torchjit.compile(f, backend="eager")(x), f(x)
    torch.testing.assert_close(got[0], want[0])
    assert got[1:] == want[1:]


_WITH_TWO_GPUS = """
from operator import attrgetter
import torch

class Properties:
    def __init__(self, major):
        self._major, self._minor, self._processors = major, 0, 100 + major
    major = property(attrgetter("_major"))
    minor = property(attrgetter("_minor"))
    multi_processor_count = property(attrgetter("_processors"))

current, gpus = [0], [Properties(8), Properties(9)]

def index(device):
    number = None if device is None or isinstance(device, torch.device) and device.index is None else device
    return current[0] if number is None else number.index if isinstance(number, torch.device) else number

torch._C._CudaDeviceProperties = Properties
torch.cuda.get_device_properties = lambda device=None: gpus[index(device)]
torch.cuda.current_device = lambda: current[0]
torch.cuda.is_available = lambda: True

import torchjit
from torchjit_core import events

broken = []
events.start_listening(lambda kind, fields: broken.append(fields) if kind == "break" else None)
x = torch.ones(3)
programs = (
    lambda x: x + torch.cuda.get_device_capability(1)[0],
    lambda x: x + torch.cuda.get_device_capability(torch.device("cuda", 1))[0],
    lambda x: x * 2 if torch.cuda.get_device_capability() >= (9, 0) else x,
    lambda x: x + torch.cuda.get_device_properties(None).multi_processor_count,
    lambda x: x + torch.cuda.get_device_properties(torch.device("cuda")).major,
    lambda x: x + torch.cuda.current_device(),
)
for program in programs:
    compiled = torchjit.compile(program, backend="eager")
    for current[0] in (0, 1, 0):
        assert torch.equal(compiled(x), program(x)), (program, current)
assert not broken, broken
"""


def test_the_current_device_is_guarded_where_none_is_named() -> None:
    """Two GPUs that differ, in a process that has none: torchjit sees the functions that were there when it was imported."""
    done = subprocess.run([sys.executable, "-c", _WITH_TWO_GPUS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_list_that_is_an_answer_is_the_programs_own() -> None:
    def f(x: torch.Tensor) -> Any:
        found = torch.cuda.get_arch_list()
        found.append("more")
        return x + len(found), found

    compiled, x = torchjit.compile(f, backend="eager"), torch.ones(3)
    for _ in range(3):
        got, want = compiled(x), f(x)
        torch.testing.assert_close(got[0], want[0])
        assert got[1] == want[1]


Attention = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@pytest.fixture
def attention() -> Attention:
    query, key, value = torch.randn(3, 2, 4, 8, 16)
    return query, key, value


def asked_for_a_kernel(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """As keras' attention asks."""
    params = torch.backends.cuda.SDPAParams(query * 2, key, value, None, 0.0, False, False)
    flash = torch.backends.cuda.can_use_flash_attention(params, False)
    if flash or torch.backends.cuda.can_use_efficient_attention(params):
        return query
    return torch.nn.functional.scaled_dot_product_attention(params.query, key, value)


def test_which_attention_kernel_there_is_breaks_no_graph(attention: Attention) -> None:
    compiled = torchjit.compile(asked_for_a_kernel, fullgraph=True, backend="aot_eager")
    for rows in (2, 1):
        given = tuple(t[:rows] for t in attention)
        torch.testing.assert_close(compiled(*given), asked_for_a_kernel(*given))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        torch.testing.assert_close(compiled(*attention), asked_for_a_kernel(*attention))


def test_what_attention_was_asked_about_leaves_the_region_as_it_is(attention: Attention) -> None:
    def made(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Any:
        return torch.backends.cuda.SDPAParams(query, key, value, query > 0, 0.0, False, False), query + 1

    params, _ = torchjit.compile(made, fullgraph=True, backend="aot_eager")(*attention)
    assert type(params) is torch.backends.cuda.SDPAParams
    assert params.query is attention[0]
    assert torch.equal(params.attn_mask, attention[0] > 0)

    def across(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Any:
        params = torch.backends.cuda.SDPAParams(query * 2, key, value, None, 0.0, False, False)
        torchjit.graph_break()
        return torch.backends.cuda.can_use_flash_attention(params), params.query + 1

    torch.testing.assert_close(torchjit.compile(across, backend="aot_eager")(*attention), across(*attention))
