"""A hook of mkdocs: pages of the site that lie outside docs/, under their own paths, and links as they are in the repository.

Links in the pages are those that work where the files lie (`../packages/torchjit-vm/README.md`). A link to a page is
rewritten for the site; a link to any other file of the repository becomes its text; what is nowhere stays, and fails the build.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
OUTSIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md", "packages/*/README.md", "packages/*/docs/*.md")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its links rewritten for the site."""
    assert page.file.abs_src_path is not None
    here = Path(page.file.abs_src_path).parent

    def rewritten(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        path = Path(os.path.normpath(here / target))
        if not path.exists():
            return match[0]
        page_path = _page_of(path, files)
        if page_path is None:
            return text
        return f"[{text}]({os.path.relpath(page_path, Path(page.file.src_uri).parent)}{anchor})"

    return LINK.sub(rewritten, markdown)


def _page_of(path: Path, files: Files) -> str | None:
    """Where the site has the file or folder `path` of the repository, or None."""
    if path == ROOT / "README.md":
        return "index.md"
    if path.is_dir():
        path /= "README.md"
    site_path = path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT).as_posix()
    return site_path if files.get_file_from_path(site_path) else None
