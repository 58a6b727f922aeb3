"""Where this process keeps kernels, and what compiles them."""

from __future__ import annotations

from torchjit.config import config
from torchjit.environment import read_environment
from torchjit_inductor import InductorSettings

__all__ = ["kernel_settings"]


def kernel_settings() -> InductorSettings:
    """Where this process keeps kernels, in a folder that goes with it where the cache is off, and what compiles them."""
    environment = read_environment()
    off = environment.caches_off or not config.snapshot().caches
    return InductorSettings(
        cache_dir=_private_folder() if off else environment.cache_dir,
        compiler=environment.compiler,
        compiler_named_by=environment.compiler_named_by,
        compiler_seconds=environment.compiler_seconds,
    )


def _private_folder() -> str:
    # Imported here: most processes keep their kernels.
    from torchjit_inductor import private_folder  # noqa: PLC0415

    return str(private_folder())
