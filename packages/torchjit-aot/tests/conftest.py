"""Lets the tests of this package import `aot_harness`; every joint graph is checked after each pass."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from torchjit_aot.settings import verify_by_default  # noqa: E402

verify_by_default(True)
