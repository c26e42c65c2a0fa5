"""Pages in a real browser, and what must hold for each of them.

Chromium is the system's (``apt-get install chromium``); Playwright only drives it. Where there is
none these tests are skipped and say so, unless SETWISE_TEST_EVERYTHING is set: then they fail.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Page, sync_playwright

from programs import is_missing

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
WIDTHS = (375, 1440)  # pixels: a phone, a desk
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")

# Elements whose content reaches beyond the page, or beyond a parent that does not let it scroll.
_OVERFLOWING = """() => {
  const width = document.documentElement.clientWidth;
  const scrolls = (node) => {
    for (let at = node.parentElement; at; at = at.parentElement)
      if (["auto", "scroll", "hidden"].includes(getComputedStyle(at).overflowX)) return true;
    return false;
  };
  const name = (node) => `${node.tagName} ${node.textContent.trim().slice(0, 40)}`;
  const far = [...document.querySelectorAll("body *")].filter((node) => {
    const box = node.getBoundingClientRect();
    return box.width > 1 && (box.right > width + 1 || box.left < -1) && !scrolls(node)
      && !node.matches(".skip");
  });
  const wide = document.documentElement.scrollWidth > width ? ["the page"] : [];
  return [...wide, ...far.map(name)];
}"""

# Text whose contrast to what is behind it is below 4.5, by the formula of WCAG 2.
_FAINT = """() => {
  const read = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [R, G, B] = [r, g, b].map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * R + 0.7152 * G + 0.0722 * B;
  };
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = read(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || node.closest("script, .unseen, [hidden]")) continue;
    const style = getComputedStyle(node);
    const colour = read(node.closest("svg") ? style.fill : style.color);
    const [low, high] = [light(colour), light(behind(node))].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    const text = walker.currentNode.data.trim().slice(0, 40);
    if (ratio < 4.5) faint.push(`${ratio.toFixed(2)} ${text}`);
  }
  return faint;
}"""

# Letters of drawings that are beyond their edges, or smaller than 12 pixels.
_DRAWN = """() => {
  const found = [];
  for (const drawing of document.querySelectorAll("svg")) {
    const box = drawing.getBoundingClientRect();
    const scale = drawing.viewBox.baseVal.width ? box.width / drawing.viewBox.baseVal.width : 1;
    for (const text of drawing.querySelectorAll("text")) {
      const at = text.getBoundingClientRect();
      if (at.left < box.left - 1 || at.right > box.right + 1
          || at.top < box.top - 1 || at.bottom > box.bottom + 1)
        found.push(`cut ${text.textContent}`);
      if (scale * parseFloat(getComputedStyle(text).fontSize) < 12)
        found.push(`small ${text.textContent}`);
    }
  }
  return found;
}"""

# Tables that do not fit, and whether keys can get at the rest of them.
_SCROLLING = """() => [...document.querySelectorAll(".scroll")]
  .filter((box) => box.scrollWidth > box.clientWidth + 1)
  .map((box) => `${box.tabIndex} ${box.ariaLabel}`)"""

# What keeps a page from those who do not see it, or do not use a mouse.
_UNNAMED = """() => {
  const found = [];
  const levels = [...document.querySelectorAll("h1, h2, h3, h4")].map((h) => Number(h.tagName[1]));
  if (levels[0] !== 1 || levels.filter((level) => level === 1).length !== 1) found.push("h1");
  levels.forEach((level, at) => {
    if (at && level > levels[at - 1] + 1) found.push(`heading ${at}: h${level}`);
  });
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  if (new Set(ids).size < ids.length) found.push("an id twice");
  for (const link of document.querySelectorAll('a[href^="#"]'))
    if (!document.getElementById(link.hash.slice(1))) found.push(`link ${link.hash}`);
  for (const image of document.images) {
    if (!image.alt) found.push("img without alt");
    if (!image.naturalWidth) found.push(`img broken: ${image.alt}`);
  }
  for (const drawing of document.querySelectorAll("svg:not([aria-hidden])"))
    if (!drawing.ariaLabel || drawing.role !== "img") found.push("svg without a label");
  for (const input of document.querySelectorAll("input"))
    if (![...input.labels].some((label) => label.textContent.trim())) found.push("input");
  for (const button of document.querySelectorAll("button"))
    if (!button.ariaLabel && !button.textContent.trim()) found.push("button");
  const captions = [...document.querySelectorAll("table")].map((t) => t.caption?.textContent);
  if (!captions.every(Boolean)) found.push("table");
  if (new Set(captions).size < captions.length) found.push("a caption twice");
  if (!document.documentElement.lang || !document.title) found.push("lang or title");
  return found;
}"""


@contextmanager
def started() -> Iterator[Browser]:
    """The browser of this system, without a window."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        is_missing("no Chromium is installed: sudo apt-get install chromium")
    # A user who is root has to do without its sandbox.
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"] if root else []
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(
    browser: Browser, path: Path, width: int = 1440, scheme: Scheme = "light", **options: Any
) -> Iterator[Page]:
    """A file in a tab. That nothing was complained of or fetched is checked at the end."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, **options
    )
    page = context.new_page()
    told: list[str] = []
    page.on("console", lambda message: told.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: told.append(f"error: {error}"))
    page.on("request", lambda request: told.append(f"fetched {request.url[:80]}"))
    try:
        page.goto(path.resolve().as_uri())
        yield page
        own = f"fetched {path.resolve().as_uri()[:80]}"
        told = [line for line in told if line != own and "fetched data:" not in line]
        assert not told, told
    finally:
        context.close()


def overflowing(page: Page) -> list[str]:
    """What reaches beyond the right or left edge."""
    found: list[str] = page.evaluate(_OVERFLOWING)
    return found


def faint(page: Page) -> list[str]:
    """Texts that are hard to tell from what is behind them."""
    found: list[str] = page.evaluate(_FAINT)
    return found


def badly_drawn(page: Page) -> list[str]:
    """Texts of drawings that cannot be read, or not wholly."""
    found: list[str] = page.evaluate(_DRAWN)
    return found


def scrolling(page: Page) -> list[str]:
    """Tables that have to be scrolled: their tabindex and name."""
    found: list[str] = page.evaluate(_SCROLLING)
    return found


def unnamed(page: Page) -> list[str]:
    """Parts without a name, pictures without a text, headings out of order."""
    found: list[str] = page.evaluate(_UNNAMED)
    return found
