"""Builds the C extension; everything else is in pyproject.toml."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "torchjit_guards._c",
            [
                f"csrc/{name}.c"
                for name in ("module", "program", "build", "check", "tensor", "condition", "walk", "words", "snapshot")
            ],
            depends=[
                f"csrc/{name}.h" for name in ("program", "group", "tensor", "condition", "walk", "words", "snapshot")
            ],
            # walk.h reads interpreter structures that only the internal headers declare
            define_macros=[("Py_BUILD_CORE_MODULE", "1")],
            extra_compile_args=["-O2", "-fvisibility=hidden", "-Wall", "-Wextra"],
        )
    ]
)
