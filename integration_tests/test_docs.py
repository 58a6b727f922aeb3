"""Every Python block of the documentation runs, and the generated pages are current."""

import builtins
import importlib
import importlib.util
import re
import sys
from pathlib import Path

import forked
import pytest

import torchjit

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/README.md")])
EXAMPLES = ROOT / "examples" / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
FENCED = re.compile(r"^```.*?^```", re.M | re.S)
# Blocks of the interface document are declarations of protocols, not programs.
DECLARATIONS = {"0001-interfaces.md"}
LEARN = sorted((ROOT / "docs" / "learn").glob("*.md"))
APART = {*LEARN, *(p for p in PAGES if p.name in DECLARATIONS)}
GUIDE = [p for p in sorted(ROOT.glob("docs/**/*.md")) if BLOCK.search(p.read_text()) and p not in APART]
READMES = [p for p in PAGES if BLOCK.search(p.read_text()) and not p.is_relative_to(ROOT / "docs")]
NEEDS = {"hugging-face.md": "transformers"}
"""What a page imports that the project does not depend on. The group `dev` has it, so CI runs the page."""
RUN_PAGES = """
import runpy, sys, torch, torchjit
for path in sys.argv[1:]:
    print("page", path, file=sys.stderr, flush=True)
    runpy.run_path(path, run_name="__main__")
    torchjit.reset()
"""


@pytest.mark.parametrize("pages", [GUIDE, READMES], ids=["guide", "readmes"])
def test_blocks_run(pages: list[Path], tmp_path: Path) -> None:
    """All in one process, since most of a page's time is that of importing torch."""
    programs = []
    for page in pages:
        if page.name in NEEDS and importlib.util.find_spec(NEEDS[page.name]) is None:
            continue
        # One file per page: blocks build on each other, and inspect finds their source lines.
        program = tmp_path / f"{'_'.join(page.relative_to(ROOT).with_suffix('').parts).replace('-', '_')}.py"
        program.write_text("\n".join(BLOCK.findall(page.read_text())))
        programs.append(str(program))
    command = [sys.executable, "-c", RUN_PAGES, *programs]
    done = forked.run(command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the pages show Python 3.11's bytecode")
def test_pages_show_what_their_blocks_print(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "integration_tests" / "shown_pages.py"), *map(str, LEARN)]
    done = forked.run(command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_links_lead_somewhere() -> None:
    for page in [*PAGES, EXAMPLES]:
        for target in re.findall(r"\]\(([^)#:]+)\)", FENCED.sub("", page.read_text())):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_every_page_is_in_the_navigation() -> None:
    """As `tools/build_docs.sh` asks, in a moment and without mkdocs."""
    listed = set(re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]))
    pages = {str(p.relative_to(ROOT / "docs" if p.is_relative_to(ROOT / "docs") else ROOT)) for p in PAGES}
    outside = {str(p.relative_to(ROOT)) for p in ROOT.glob("packages/*/docs/*.md")} | {
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "examples/README.md",
    }
    assert listed == (pages | outside) - {"README.md"}


def test_the_page_of_the_api_shows_each_name_once() -> None:
    """In a group where a reader looks, or else under "Others", which leaves out those of the groups."""
    page = (ROOT / "docs" / "api.md").read_text()
    grouped = re.findall(r"^::: torchjit\.(\w+)$", page, re.M)
    (left_out,) = re.findall(r'"!\^\((.*?)\)\$"', page)
    assert sorted(grouped) == sorted(left_out.split("|"))
    assert set(grouped) <= set(torchjit.__all__)


INTERNALS = ["design/0001-interfaces.md", "life-of-a-call.md", "glossary.md", "first-change.md", "from-scratch.md"]
NOT_OURS = {"object", "layers", "operator", "torch", "fx", "ast", "dis", "aten", "array", "make", "autograd"}


def stale_names(text: str) -> list[str]:
    """Of what stands in backticks, modules, classes, functions and files of ours that do not exist."""
    files = [p for p in ROOT.glob("packages/*/**/*") if p.suffix in (".py", ".c", ".h")]
    sources = "\n".join(p.read_text() for p in files if "tests" not in p.parts)
    known = set(re.findall(r"\w+", sources)) | set(dir(builtins))
    lost = []
    for quoted in dict.fromkeys(re.findall(r"`([^`\n]+)`", FENCED.sub("", text))):
        if re.fullmatch(r"[\w./-]+(\.py|\.c|/)", quoted):
            found = any(str(p).endswith(f"/{quoted}") or f"/{quoted}" in f"{p}" for p in files)
        elif dotted := re.match(r"torchjit\w*(\.\w+)+", quoted):
            found = resolves(dotted[0]) or f'"{dotted[0]}"' in sources  # a name as text, such as that of a capsule
        elif plain := re.match(r"@?([A-Za-z_][\w.]*)(\(|$)", quoted):
            first, *rest = plain[1].split(".")
            found = first in NOT_OURS or {first, *rest} <= known
        else:
            continue
        if not found:
            lost.append(quoted)
    return lost


def resolves(dotted: str) -> bool:
    """Is it a module, or what one has? What a package holds under the name of a module of its own hides that, so either will do."""
    parts = dotted.split(".")
    for k in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:k]))
            for name in parts[k:]:
                value = getattr(value, name)
        except (ImportError, AttributeError):
            continue
        return True
    return False


@pytest.mark.parametrize("page", INTERNALS)
def test_pages_about_the_inside_name_what_exists(page: str) -> None:
    assert stale_names((ROOT / "docs" / page).read_text()) == []


@pytest.mark.parametrize(
    "stale",
    [
        "`torchjit_vm.no_such_thing`",
        "`torchjit_core.nowhere.f(x)`",
        "`capture/no_such_file.py`",
        "`NoSuchClass`",
        "`no_such_function(x)`",
    ],
)
def test_a_stale_name_is_noticed(stale: str) -> None:
    assert stale_names(f"Some {stale} here; `torchjit_vm.capture(region)` and `Site.on_miss` exist.") == [
        stale.strip("`")
    ]


@pytest.mark.parametrize("tool", ["write_reasons", "write_settings", "write_interfaces", "write_lowerings"])
def test_generated_pages_are_current(tool: str) -> None:
    done = forked.run([sys.executable, str(ROOT / "tools" / f"{tool}.py"), "--check"])
    assert done.returncode == 0, done.stderr
