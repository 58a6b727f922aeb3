"""Builds the C extension; everything else is in pyproject.toml."""

from glob import glob

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "torchjit_frame._c",
            sources=sorted(glob("csrc/*.c")),
            depends=sorted(glob("csrc/*.h")),
            include_dirs=["csrc"],
            # Hidden: a call between our own files then needs no lookup, and no other extension can interpose one.
            extra_compile_args=["-fvisibility=hidden", "-Wall", "-Wextra"],
        )
    ]
)
