"""What the site needs beside the pages in docs/: the README as its first page, and formulas.

MkDocs calls these functions while it builds. Pages are written for GitHub, where they can link to
any file of the repository; here such files are taken along, so that no link leads nowhere.
"""

from __future__ import annotations

import html
import re
from pathlib import Path

from latex2mathml.converter import convert  # type: ignore[import-untyped]
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Documents of the repository that are pages of the site as well.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files from outside docs/."""
    for source, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / source).read_text()))
    for document in [*DOCS.glob("*.md"), *(ROOT / source for source in PAGES)]:
        for path, _ in _LINK.findall(_FENCE.sub("", document.read_text())):
            target = (document.parent / path).resolve()
            uri = _uri(target)
            if target.is_file() and files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to where things are on the site."""
    sources = {uri: ROOT / source for source, uri in PAGES.items()}
    folder = sources.get(page.file.src_uri, DOCS / page.file.src_uri).parent

    def moved(link: re.Match[str]) -> str:
        target = (folder / link[1]).resolve()
        return f"]({_uri(target)}{link[2] or ''})" if target.is_file() else link[0]

    parts = _FENCE.split(markdown)
    return "".join(part if _FENCE.match(part) else _LINK.sub(moved, part) for part in parts)


def on_page_content(html_text: str, **_: object) -> str:
    """Formulas as MathML, which browsers draw by themselves: no script, no font from elsewhere."""

    def drawn(formula: re.Match[str]) -> str:
        display = "block" if formula[1] == "div" else "inline"
        return str(convert(html.unescape(formula[2]).strip(), display=display))

    return _FORMULA.sub(drawn, html_text)


def _uri(target: Path) -> str:
    """Where a file of the repository is on the site, from its top."""
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    if not target.is_relative_to(ROOT):
        return target.as_posix()
    inside = target.relative_to(ROOT).as_posix()
    return PAGES.get(inside, f"repository/{inside}")
