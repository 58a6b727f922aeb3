"""Settings and options as users give them."""

from __future__ import annotations

import pytest

import torchjit
from torchjit.config import config, describe_settings, store_settings
from torchjit.options import make_options
from torchjit_core.reasons import UserAttributeError, UserError
from torchjit_session.settings import Settings


def test_a_snapshot_is_what_is_set_and_a_patch_ends() -> None:
    with torchjit.config.patch(cache_size_limit=3, dynamic_sources="x"):
        assert config.snapshot() == Settings(recompile_limit=3, dynamic_sources="x") and config.cache_size_limit == 3
    assert config.snapshot() == Settings() and not config.is_off()


@pytest.mark.parametrize(
    ("name", "value", "error", "said"),
    [
        ("recompile_limt", 3, UserAttributeError, "recompile_limit"), ("recompile_limit", -1, UserError, "recompile_limit=-1"),
        ("on_error", "riase", UserError, "did you mean 'raise'?"), ("suppress_errors", "yes", UserError, "suppress_errors='yes'"),
    ],
)  # fmt: skip
def test_wrong_settings(name: str, value: object, error: type[UserError], said: str) -> None:
    with pytest.raises(error, match="TJ-API-0") as caught, config.patch({name: value}):
        pass
    assert said in str(caught.value)


def test_the_store_is_what_the_environment_says_over_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHJIT_STORE", "TORCHJIT_FORCE_DISABLE_CACHES"):
        monkeypatch.delenv(name, raising=False)
    assert store_settings().mode == "on" and store_settings().reads and store_settings().writes
    with config.patch(store="off"):
        assert not store_settings().reads
    with config.patch(store="read"):
        assert store_settings().reads and not store_settings().writes
        monkeypatch.setenv("TORCHJIT_STORE", "verify")
        monkeypatch.setenv("TORCHJIT_CACHE_DIR", "somewhere")
        monkeypatch.setenv("TORCHJIT_BUNDLE_KEY", "hush")
        settings = store_settings()
        assert settings.verifies and settings.writes and settings.cache_dir == "somewhere"
        assert settings.secret == b"hush" and "hush" not in repr(settings)
        with config.patch(caches=False):
            assert store_settings().mode == "off"
        monkeypatch.setenv("TORCHJIT_FORCE_DISABLE_CACHES", "1")
        assert store_settings().mode == "off"


def test_each_setting_is_described() -> None:
    assert all(d.takes and d.meaning for d in describe_settings())


def test_options_of_a_mode_and_wrong_ones() -> None:
    assert make_options("max-autotune", None) != make_options(None, None) == make_options("default", {})
    for mode, options in (("fastest", None), (None, {"no_such_option": 1})):
        with pytest.raises(UserError, match="did you mean|Known"):
            make_options(mode, options)


def test_errors_have_the_names_that_users_know() -> None:
    assert torchjit.exc.Unsupported.__module__ == "torchjit.exc"
    assert torchjit.exc.UserError is UserError
