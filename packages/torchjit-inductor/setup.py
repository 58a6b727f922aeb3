"""Builds the C extension (optional: without it kernels are launched through ctypes); the rest is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "torchjit_inductor._c", ["csrc/launcher.c"], extra_compile_args=["-O2", "-fvisibility=hidden", "-Wall"],
            optional=True,
        )
    ]
)  # fmt: skip
