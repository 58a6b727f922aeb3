"""`assemble(disassemble(code))` over every Python file of some folders, on the interpreter that runs this.

    python tools/check_assembly.py [FOLDER ...]

The default is the interpreter's own standard library, its tests included. torchjit-vm and torchjit-core must be importable. Exits
with 1 if a code object comes back changed, or needs less stack than CPython says.
"""

from __future__ import annotations

import platform
import sys
import sysconfig
import time
import types
import warnings
from collections.abc import Iterator
from pathlib import Path

from torchjit_vm.assembly import assemble, disassemble, stack_size


def nested(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from nested(constant)


def difference(code: types.CodeType) -> str | None:
    """What is wrong with a code object that went there and back."""
    try:
        listing = disassemble(code)
        again = assemble(listing)
    except Exception as error:  # reported with its place
        return f"{type(error).__name__}: {error}"
    for name in ("co_code", "co_exceptiontable", "co_linetable"):
        if getattr(again, name) != getattr(code, name):
            return name
    if again != code:
        return "another field"
    size = stack_size(listing)
    return None if size <= code.co_stacksize else f"stack size {size}, CPython's is {code.co_stacksize}"


def main(folders: list[str]) -> int:
    """Check the folders and print a summary for each."""
    warnings.simplefilter("ignore")
    failed = 0
    for folder in folders or [sysconfig.get_path("stdlib")]:
        started = time.perf_counter()
        files = codes = unreadable = 0
        for path in sorted(Path(folder).rglob("*.py")):
            if not folders and "site-packages" in path.parts:
                continue
            try:
                top = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
            except (SyntaxError, ValueError, RecursionError):  # test data that is no Python of this version
                unreadable += 1
                continue
            files += 1
            for code in nested(top):
                codes += 1
                wrong = difference(code)
                if wrong is not None:
                    failed += 1
                    print(f"{path}:{code.co_firstlineno} {code.co_qualname}: {wrong}")
        seconds = time.perf_counter() - started
        name = "standard library" if not folders else Path(folder).name
        print(
            f"Python {platform.python_version()}, {name}: {codes} code objects of {files} files identical"
            f" but for {failed}; {unreadable} files do not compile; {seconds:.0f} s"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
