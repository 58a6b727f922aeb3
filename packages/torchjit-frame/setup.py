"""Builds the C extension; everything else is in pyproject.toml."""

from setuptools import Extension, setup

setup(ext_modules=[Extension("torchjit_frame._c", ["csrc/torchjit_frame.c"])])
