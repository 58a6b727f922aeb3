"""`--few-parameters`: of each test function that is parametrised, the first and the last of its cases.

For a second run of tests that have run whole elsewhere: whether a package's tests import and run in an environment that holds only
this package does not depend on the parameters.
"""

from __future__ import annotations

import pytest

__all__ = ["pytest_addoption", "pytest_collection_modifyitems"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --few-parameters."""
    parser.addoption(
        "--few-parameters", action="store_true", help="the first and the last case of each test function only"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what lies between the first and the last case of a function, after other plugins have left out what they leave out."""
    if not config.getoption("few_parameters"):
        return
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    ends = {id(item) for cases in functions.values() for item in (cases[0], cases[-1])}
    left_out = [item for item in items if id(item) not in ends]
    if left_out:
        items[:] = [item for item in items if id(item) in ends]
        config.hook.pytest_deselected(items=left_out)
