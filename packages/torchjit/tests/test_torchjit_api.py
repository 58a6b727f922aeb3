"""What the meta-package itself decides: backends by name, modes, stances, what is described, which commands there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

import torchjit
from torchjit import backends, compiler
from torchjit.cli import main
from torchjit.commands import COMMANDS
from torchjit.config import config
from torchjit.environment import VARIABLES, read_environment
from torchjit.kernels import kernel_settings
from torchjit.options import describe_modes, describe_options, make_options
from torchjit_backends.options import Options
from torchjit_core import described
from torchjit_core.kinds import SWITCH
from torchjit_core.reasons import MissingPackage, UserError, UserTypeError
from torchjit_session import stance

X = torch.linspace(-1, 1, 4)


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.fixture
def registered() -> Iterator[Callable[..., Any]]:
    def mine(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: Any = None) -> Callable[..., Any]:
        return gm.forward

    torchjit.register_backend(mine, name="mine", tags=["experimental"])
    yield mine
    del backends._registered["mine"], backends._TAGS["mine"]
    torchjit.set_default_backend(None)


def test_backends_by_name(registered: Any) -> None:
    assert torchjit.lookup_backend("mine") is registered and torchjit.lookup_backend(registered) is registered
    assert "mine" not in torchjit.list_backends() and "mine" in torchjit.list_backends(exclude_tags=None)
    torchjit.set_default_backend("mine")
    assert torchjit.get_default_backend() == "mine"
    assert torch.equal(torchjit.compile(double)(X), X * 2)
    torchjit.set_default_backend(None)
    assert torchjit.get_default_backend() == "inductor"
    for name, error, said in (
        ("minee", UserError, "did you mean 'mine'"),
        ("eager_noexcept", UserError, "use 'eager' with on_error='raise'"),
        ("tvm", MissingPackage, "pip install apache-tvm"),
        ("ipex", UserError, "TJ-API-006"),
    ):
        with pytest.raises(error, match=said):
            torchjit.lookup_backend(name)


def test_every_backend_is_described(registered: Any) -> None:
    told = {name: (usable, text) for name, usable, text in backends.describe_backends()}
    assert told["inductor"] == (True, "The default backend with default options.") and told["mine"] == (True, "")
    assert told["tvm"] == (False, "backend 'tvm' needs: pip install apache-tvm")


@pytest.mark.parametrize(
    ("argument", "error", "said"),
    [
        ({"fullgraph": 2}, UserTypeError, "fullgraph=2, want True or False"),
        ({"dynamic": "yes"}, UserTypeError, "dynamic='yes', want True, False or None"),
        ({"backend": 3}, UserTypeError, "backend=3, want a name or a callable"),
        ({"mode": 3}, UserTypeError, "mode=3, want a str, the name of a mode"),
        ({"mode": "fast"}, UserError, "mode 'fast'"),
        ({"options": 3}, UserTypeError, "options=3, want a dict of options"),
        ({"name": 3}, UserTypeError, "name=3, want a str"),
        ({"recompile_limit": True}, UserTypeError, "recompile_limit=True, want an int of at least 0"),
        ({"recompile_limit": -1}, UserError, "recompile_limit=-1, want an int of at least 0"),
        ({"on_error": "riase"}, UserError, "on_error='riase', want 'raise', 'eager' or None; did you mean 'raise'?"),
        ({"mode": "default", "options": {"freezing": True}}, UserError, "TJ-API-003"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_compiled(
    argument: dict[str, Any], error: type[UserError], said: str
) -> None:
    for call in (lambda: torchjit.compile(double, **argument), lambda: torchjit.compile(**argument)):
        with pytest.raises(error) as caught:
            call()
        assert said in str(caught.value)


def test_one_and_zero_are_true_and_false() -> None:
    given = compiler._checked({"fullgraph": 1, "dynamic": 0, "options": None, "dynamic_shapes": "anything"})
    assert given == {"fullgraph": True, "dynamic": False, "options": None, "dynamic_shapes": "anything"}
    assert given["fullgraph"] is True and given["dynamic"] is False


def test_what_is_not_to_be_compiled_is_returned_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert torchjit.compile(double, disable=True) is double
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    assert torchjit.compile(double) is double
    monkeypatch.delenv("TORCH_COMPILE_DISABLE")
    assert torchjit.is_compiled(torchjit.compile(double, backend="eager"))


def test_a_mode_stands_for_options() -> None:
    for name, chosen, meaning in describe_modes():
        assert make_options(name, None) == make_options(None, chosen) and meaning
    assert make_options("reduce-overhead", None).for_one_object and not Options().for_one_object
    assert {each.name for each in describe_options()} == set(torchjit.list_options())
    with pytest.raises(UserError, match=r"needs triton\.cudagraphs=True"):
        make_options(None, {"triton.cudagraph_capture_sizes": [8]})


def test_settings_are_as_before_after_a_block_that_sets_them() -> None:
    seen = set(config.reorderable_logging_functions)
    with config.kept():
        config.recompile_limit = 99
        config.reorderable_logging_functions.add(print)
        with config.patch({"recompile_limit": 5, "caches": False}):
            assert (config.recompile_limit, config.caches) == (5, False)
        assert (config.recompile_limit, config.caches) == (99, True)
        with config.patch():
            config.recompile_limit = 98
        assert config.recompile_limit == 98
    assert config.recompile_limit == 8 and config.reorderable_logging_functions == seen


def test_kernels_are_kept_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHJIT_CACHE_DIR", "kept")
    monkeypatch.delenv("TORCHJIT_FORCE_DISABLE_CACHES", raising=False)
    monkeypatch.setenv("CXX", "g++ -DX")
    made = kernel_settings()
    assert (made.cache_dir, made.compiler, made.compiler_named_by) == ("kept", "g++ -DX", "CXX")
    with config.patch(caches=False):
        assert kernel_settings().cache_dir not in ("kept", None)
    assert read_environment().cache_dir == "kept"


def test_entries_of_docstrings_describe_fields() -> None:
    assert all(v.name and v.takes and v.meaning for v in VARIABLES)

    def documented() -> None:
        """A function.

        Args:
            a, b: two
                lines.
            c: one.

        Returns:
            d: nothing.
        """

    assert described.entries_of(documented, "Args") == {"a": "two lines.", "b": "two lines.", "c": "one."}
    (first, *_) = described.described_fields(
        Options, dict.fromkeys(("bool", "float", "tuple[int, ...]", "tuple[torchjit_aot.GraphPass, ...]"), SWITCH), "up"
    )
    assert (first.name, first.default, first.upstream, first.takes) == (
        "max_autotune",
        "False",
        "up.max_autotune",
        SWITCH.text,
    )


def test_a_stance_ends_with_its_block(registered: Any) -> None:
    with torchjit.set_stance("force_eager"):
        assert stance.current_stance() == "force_eager"
    assert stance.current_stance() == "default"
    for wrong, said in ((("force_eagr",), "did you mean 'force_eager'"), ((3,), "want a str")):
        with pytest.raises(UserError, match=said):
            torchjit.set_stance(*wrong)
    with pytest.raises(UserError, match="TJ-API-041"):
        torchjit.set_stance("force_eager", force_backend="mine")


def test_each_command_says_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    for name, command in COMMANDS.items():
        assert command.HELP and (getattr(command, "DESCRIPTION", None) or command.__doc__), name
    for name in ("modes", "logs", "backends", "options"):
        assert main([name]) == 0
        assert len(capsys.readouterr().out.splitlines()) > 4
