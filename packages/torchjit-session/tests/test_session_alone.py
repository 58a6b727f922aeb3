"""A session without the meta-package: settings and backends come from its host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch

from torchjit_core.reasons import UserTypeError
from torchjit_core.user_errors import RecompileLimitExceeded
from torchjit_session.backend_calls import aot_eager, call_backend, is_ours
from torchjit_session.compilation import Compilation
from torchjit_session.inlining import is_user_file
from torchjit_session.inspection import describe
from torchjit_session.settings import Host, Settings


def a_graph(gm: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
    return gm.forward


def session_of(function: Any, settings: Settings | None = None, *, off: bool = False, **more: Any) -> Compilation:
    backends = {"aot_eager": aot_eager}
    host = Host(
        lambda: settings or Settings(),
        lambda: off,
        lambda backend: backends[backend] if isinstance(backend, str) else backend,
    )
    return Compilation(function, a_graph, host, **more)


def scaled(x: torch.Tensor, n: int) -> torch.Tensor:
    return x.relu() * n


def call(session: Compilation, *args: Any) -> torch.Tensor:
    found: torch.Tensor = session.root.door(*args)
    torch.testing.assert_close(found, scaled(*args))
    return found


X = torch.linspace(-1, 1, 4)


def test_settings_are_read_when_something_is_compiled() -> None:
    session = session_of(scaled, Settings(recompile_limit=1, automatic_dynamic_shapes=False))
    call(session, X, 2)
    with pytest.warns(RuntimeWarning, match="has 1 specialisations"):
        call(session, X, 3)
    assert len(session.specializations) == 1 and session.specializations[0].settings == session.terms.settings
    strict = session_of(scaled, Settings(recompile_limit=0), fullgraph=True)
    with pytest.raises(RecompileLimitExceeded):
        strict.root.door(X, 2)
    together = session_of(scaled, Settings(accumulated_recompile_limit=0))
    with pytest.warns(RuntimeWarning, match="accumulated_recompile_limit"):
        call(together, X, 2)


def test_a_host_that_is_off_compiles_nothing() -> None:
    session = session_of(scaled, off=True)
    call(session, X, 2)
    assert session.specializations == []


def test_the_host_knows_the_backend_that_a_stance_forces(forced: None) -> None:
    session = session_of(scaled)
    assert session.terms.backend is aot_eager and not session.terms.backend_is_users
    call(session, X, 2)
    assert session.specializations[0].forced == "aot_eager"


def test_backends_of_others_return_something_to_call() -> None:
    assert is_ours(aot_eager) and not is_ours(a_graph)
    with pytest.raises(UserTypeError, match="TJ-API-008"):
        call_backend(lambda gm, inputs: 1, torch.fx.symbolic_trace(torch.nn.ReLU()), [X])  # type: ignore[arg-type, return-value]


def test_a_host_is_frozen_and_the_sessions_own_files_are_not_the_users() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        session_of(scaled).terms.host.is_off = lambda: True  # type: ignore[misc]
    from torchjit_session import control

    assert not is_user_file(str(control.__file__)) and is_user_file(__file__)


def test_what_happened_as_data() -> None:
    def breaks(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1

    session = session_of(breaks)
    assert torch.equal(session.root.door(X + 1), X + 2)
    told = describe(session)
    assert told.graph_break_count == 1 and "torch.where" in told.breaks[0].hints[0]
    assert [obstacle.kind for obstacle in told.obstacles] == ["Break"]
    assert told.breaks[0].location is not None and told.breaks[0].location.filename == __file__
