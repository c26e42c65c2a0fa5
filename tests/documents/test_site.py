"""The site is built without a warning, and needs nothing from elsewhere to be read."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import setwise as sw
from repository import ROOT

# Slow: MkDocs reads all of the library. `make check` builds the site without a warning as well, and
# what is ours in it is called below.
builds_the_site = pytest.mark.slow
# What a browser fetches by itself, unlike a link.
_FETCHED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*?\bsrc=\"([^\"]*)\"|<link\b[^>]*>")
_ADDRESS = re.compile(r"\bhref=\"([^\"]*)\"")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="module")
def hooks() -> Any:
    return SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "site" / "hooks.py")))


def fetched(page: str) -> list[str]:
    """Addresses that a page loads something from."""
    found = []
    for tag in _FETCHED.finditer(page):
        address = tag[1] if tag[1] is not None else _ADDRESS.search(tag[0])
        found.append(address if isinstance(address, str) else address[1] if address else "")
    return found


@builds_the_site
def test_every_document_is_a_page(site: Path) -> None:
    wanted = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert wanted | {"index", "contributing", "changelog"} <= {path.stem for path in site.glob("*")}


@builds_the_site
def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for path in site.glob("*.html"):
        page = path.read_text()
        assert len(fetched(page)) > 3
        for address in fetched(page):
            assert not re.match(r"(https?:)?//", address), f"{path.name} loads {address}"
    for path in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", path.read_text()), path


def test_what_is_fetched_is_noticed() -> None:
    page = '<link rel="x" href="https://a/b.css"><script async src="//c/d.js"></script><a href="e">'
    assert fetched(page) == ["https://a/b.css", "//c/d.js"]


@builds_the_site
def test_formulas_are_drawn(site: Path) -> None:
    page = (site / "losses.html").read_text()
    assert page.count("<math") > 50
    for path in site.glob("*.html"):
        assert "arithmatex" not in path.read_text(), f"{path.name} has a formula that is not drawn"


@builds_the_site
def test_the_reference_has_every_public_name(site: Path) -> None:
    page = (site / "api.html").read_text()
    described = {name.split(".")[-1] for name in re.findall(r'id="(setwise\.[\w.]+)"', page)}
    public = set(sw.__all__) | set(sw.metrics.__all__) | {"Loss", "find_loss", "register_loss"}
    mirrors = {name for name in sw.__all__ if name.endswith("Loss")}
    assert public - mirrors - {"losses", "metrics"} <= described
    assert "doc-symbol-module" not in page  # a function may lie in a module of its own name
    assert "::: setwise" not in page
    assert ":func:" not in page


def test_formulas_become_mathml(hooks: Any) -> None:
    html = r'a <span class="arithmatex">\(x &lt; y_1\)</span> b'
    drawn = hooks.on_page_content(html)
    assert drawn.startswith("a <math")
    assert "<mi>x</mi><mo>&#x0003C;</mo>" in drawn
    assert "<msub><mi>y</mi><mn>1</mn></msub>" in drawn


def test_links_are_moved_and_broken_ones_are_left_to_be_noticed(hooks: Any) -> None:
    text = (
        "[a](../README.md#install) [b](losses.md) [c](../examples/fine_control.py) [d](../no.md)\n"
        "```\n[e](../README.md)\n```\n[f](https://example.org/README.md)\n"
    )
    page = SimpleNamespace(file=SimpleNamespace(src_uri="kernels.md"))
    assert hooks.on_page_markdown(text, page, None, None) == (
        "[a](index.md#install) [b](losses.md) [c](repository/examples/fine_control.py) "
        "[d](../no.md)\n```\n[e](../README.md)\n```\n[f](https://example.org/README.md)\n"
    )
    readme = SimpleNamespace(file=SimpleNamespace(src_uri="index.md"))
    moved = hooks.on_page_markdown("[a](docs/losses.md#numbers)", readme, None, None)
    assert moved == "[a](losses.md#numbers)"
