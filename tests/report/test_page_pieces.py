"""What pages are made of: escaping, tables, drawings and their scales."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pages import png
from setwise.report.page.benchmarks import benchmarks_section
from setwise.report.page.html import Html, element, joined
from setwise.report.page.pieces import Section, bars, curves, page, steps, table
from setwise.report.page.scales import Scale, fitted


def test_text_is_escaped_wherever_it_enters() -> None:
    """Unless it is markup already; which it no longer is once it was added to."""
    assert element("p", "<b>", title='"x"') == '<p title="&quot;x&quot;">&lt;b&gt;</p>'
    assert element("p", element("b", "x") + "<i>") == "<p>&lt;b&gt;x&lt;/b&gt;&lt;i&gt;</p>"
    assert joined(["<", Html("<br>")], " & ") == "&lt; &amp; <br>"
    with pytest.raises(ValueError, match="must not contain </script"):
        element("script", "'</SCRIPT>'")
    with pytest.raises(ValueError, match="img: has no content"):
        element("img", "x")


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 2 cells in a row"):
        table("t", ["", "a"], [["x"]])
    with pytest.raises(ValueError, match="got 1 pictures and 2 captions"):
        steps("s", [png()], ["a", "b"])
    with pytest.raises(ValueError, match="expected a PNG or JPEG, got bytes that begin b'<svg>'"):
        steps("s", [b"<svg>"], ["a"])
    one = Section("one", "One", Html(""))
    with pytest.raises(ValueError, match="anchors must differ"):
        page("t", "", [one, one])


def test_curves_of_nothing_and_of_what_is_no_number() -> None:
    """Runs that diverged have no value; a drawing is made all the same."""
    nan = float("nan")
    drawn = curves("t", {"SH": [(1, nan), (2, None), (3, 0.5)], "H": []}, "x", "y")
    assert "SH ends at 0.50" in drawn
    assert "H ends" not in drawn.replace("SH ends", "")
    assert "nan" not in drawn
    assert "<svg" in curves("t", {}, "x", "y", log=True)
    assert "<svg" in bars("t", {}, "x")


def test_scales() -> None:
    assert Scale(0, 1, 10, 20).ticks() == [0, 0.25, 0.5, 0.75, 1]
    assert Scale(1024, 65536, 0, 1, log=True).ticks() == [1024, 4096, 16384, 65536]
    assert Scale(0.001, 5e6, 0, 1, log=True).ticks() == [0.001, 1, 1000, 1000000]
    same = fitted([3.0, 3.0], 0, 100)
    assert same(3.0) == 50.0
    assert fitted([0.0, 1.0, 100.0], 0, 100, log=True)(10.0) == 50.0


def row(shape: str, impl: str, total_ms: float | None, **more: Any) -> dict[str, Any]:
    sizes = {"B": 1, "N": 8, "F": 3}
    measured = {"error": "out of memory"} if total_ms is None else {"total_ms": total_ms}
    return {"shape": shape, "impl": impl, **sizes, "peak_mb": 1.0, **measured, **more}


def test_benchmarks_compare_with_the_fastest_peer(tmp_path: Path) -> None:
    """It is named, and so is what cannot be compared; each of ours keeps its colour."""
    rows = [
        *(row("a", "dense", 8.0), row("a", "compiled", 4.0), row("a", "setwise-x", 2.0)),
        *(row("a", "setwise-b", 1.0), row("a", "fused", 6.0)),
        *(row("b", "dense", None), row("b", "compiled", 9.0), row("b", "setwise-x", 2.0)),
        *(row("b", "fused", 3.0), row("c", "dense", None), row("c", "setwise-x", 2.0)),
        *(row("sweep-8", name, 2.0) for name in ("dense", "setwise-b", "setwise-x")),
    ]
    record = {"header": {"device": "a card"}, "rows": rows}
    (tmp_path / "losses-x.json").write_text(json.dumps(record))
    text = benchmarks_section(tmp_path).body
    told = "a 2.0 compiled, b 1.5 fused."
    assert f"its time / that of setwise-x. {told}" in text
    said = "Not compared, as ours or every peer has no time: c (dense out of memory)."
    assert said in text
    assert "CUDA graphs, as" not in text
    names = ("setwise-x", "setwise-b", "dense")
    colours = {name: set(re.findall(rf'class="end (s\d)">{name} ', text)) for name in names}
    assert [len(found) for found in colours.values()] == [1, 1, 1]
    assert set(re.findall(r'<rect [^>]*class="(s\d)"', text)) == colours["setwise-x"]
