"""The module of a captured graph: its code is generated on demand, by one thread at a time."""

import copy
import sys
import threading

import pytest
import torch
from torch import fx

from torchjit_fx.versions import lazy_graph_module


def graph_of(steps: int) -> fx.Graph:
    graph = fx.Graph()
    x = graph.placeholder("x")
    for _ in range(steps):
        x = graph.call_function(torch.add, (x, 1))
    graph.output((x,))
    return graph


def test_threads_that_call_forward_first_at_once() -> None:
    failed = []

    def call(forward: object, barrier: threading.Barrier) -> None:
        barrier.wait()
        try:
            assert forward(torch.zeros(()))[0].item() == 20  # type: ignore[operator]
        except Exception as e:  # reported by the main thread
            failed.append(e)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(30):
            forward = lazy_graph_module(graph_of(20)).forward
            barrier = threading.Barrier(8)
            threads = [threading.Thread(target=call, args=(forward, barrier)) for _ in range(8)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
    finally:
        sys.setswitchinterval(before)
    assert not failed


def test_an_error_of_the_first_call_is_only_raised(capfd: pytest.CaptureFixture[str]) -> None:
    forward = lazy_graph_module(graph_of(1)).forward
    with pytest.raises(TypeError):
        forward("not a tensor")
    assert capfd.readouterr().err == ""


def test_copies_and_changed_graphs() -> None:
    gm = lazy_graph_module(graph_of(2))
    twin = copy.deepcopy(gm)
    assert gm.forward(torch.zeros(()))[0].item() == 2
    next(iter(gm.graph.find_nodes(op="call_function", target=torch.add))).update_arg(1, 5)
    gm.recompile()
    assert gm(torch.zeros(()))[0].item() == 6
    assert twin(torch.zeros(()))[0].item() == 2
