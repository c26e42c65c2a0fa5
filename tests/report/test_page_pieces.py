"""What pages are made of: escaping, tables, drawings and their scales."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pages import HOSTILE, png
from recorded import SHEETS
from setwise.report.curves import Curve
from setwise.report.page.benchmarks import benchmarks_section
from setwise.report.page.charts import powers
from setwise.report.page.colours import DARK, LIGHT, PALETTE, contrast, themed
from setwise.report.page.pieces import (
    Markup,
    Section,
    bars,
    command,
    curves,
    joined,
    page,
    paragraph,
    steps,
    subheading,
    table,
)


def test_text_is_escaped_wherever_it_enters() -> None:
    """Unless it is markup already; which it no longer is once it was formatted."""
    assert paragraph("<b>", kind='"x"') == '<p class="&#34;x&#34;">&lt;b&gt;</p>\n'
    strong = Markup("<b>x</b>")
    assert paragraph(strong + "<i>") == "<p><b>x</b>&lt;i&gt;</p>\n"
    assert paragraph(f"{strong}") == "<p>&lt;b&gt;x&lt;/b&gt;</p>\n"
    assert joined(["<", Markup("<br>")], " ") == "&lt; <br>"
    every = [
        *(subheading(HOSTILE), command(HOSTILE, HOSTILE), steps(HOSTILE, [png()], [HOSTILE])),
        table(HOSTILE, ["", HOSTILE], [[HOSTILE, HOSTILE]]),
        *(curves(HOSTILE, [Curve(HOSTILE, "#000000", [(1, 1.0)])], HOSTILE, HOSTILE),),
        bars(HOSTILE, {HOSTILE: 1.0}, HOSTILE, notes={HOSTILE: HOSTILE}),
    ]
    text = page(HOSTILE, HOSTILE, [Section(HOSTILE, HOSTILE, joined(every), HOSTILE)])
    assert "<img src=x" not in text
    assert text.count("&lt;img src=x") > 20
    assert text.count("</script") == text.count("</style") == 1


def test_a_formula_in_a_name_is_only_a_name() -> None:
    drawn = curves("t", [Curve("$x", "#000000", [(1, 1.0)])], "$\\frac$", "$1 and $2")
    assert ">$x 1.00</text>" in drawn
    assert ">$\\frac$</text>" in drawn
    assert ">$1 and $2</text>" in drawn


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 2 cells in a row"):
        table("t", ["", "a"], [["x"]])
    with pytest.raises(ValueError, match="got 1 pictures and 2 captions"):
        steps("s", [png()], ["a", "b"])
    with pytest.raises(ValueError, match="expected a PNG or JPEG, got bytes that begin b'<svg>'"):
        steps("s", [b"<svg>"], ["a"])
    one = Section("one", "One", Markup(""))
    with pytest.raises(ValueError, match="anchors must differ"):
        page("t", "", [one, one])


def test_curves_of_nothing_and_of_what_is_no_number() -> None:
    """Runs that diverged have no value; a drawing is made all the same."""
    nan = float("nan")
    lines = [
        Curve("SH", "#dc143c", [(1, nan), (2, None), (3, 0.5)], runs=[[(1, nan), (3, 0.25)]]),
        Curve("H", "#7f7f7f", []),
    ]
    drawn = curves("t", lines, "x", "y")
    assert "SH ends at 0.50" in drawn
    assert "H ends" not in drawn.replace("SH ends", "")
    assert "nan" not in drawn
    assert "<svg" in curves("t", [], "x", "y", log=True)
    assert "<svg" in bars("t", {}, "x")


def texts(drawn: str) -> list[str]:
    """What is written in a drawing."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", drawn)


def test_scales() -> None:
    """Round numbers at the edges, of all kinds of ranges."""
    share = curves("t", [Curve("a", "#000000", [(0, 0.2), (1500, 0.3)])], "x", "y", shares=True)
    for tick in ("0", "500", "1000", "1500", "0.25", "0.5", "0.75", "1"):
        assert tick in texts(share)
    assert powers(1024, 65536) == [1024, 4096, 16384, 65536]
    assert powers(0.001, 5e6) == [0.001, 1, 1000, 1000000]
    large = curves("t", [Curve("a", "#000000", [(1024, 0.5), (65536, 300.0)])], "x", "y", log=True)
    for tick in ("1024", "16384", "65536", "1", "10", "100"):
        assert tick in texts(large)
    same = curves("t", [Curve("a", "#000000", [(3, 3.0), (4, 3.0)])], "x", "y")
    assert "3" in texts(same)


def test_a_drawing_is_of_the_page() -> None:
    """It brings no style, no name and no font of its own, and is the same every time."""
    line = Curve("SH", "#dc143c", [(0, 0.1), (9, 0.9)], runs=[[(0, 0.2), (9, 0.8)]])
    drawn = curves("Title", [line], "x", "y")
    assert not re.search(r"style=|id=|font-family|clip-path|<use|<defs|xmlns", drawn)
    assert drawn.count(f'stroke="{themed("#dc143c")}"') == 2
    assert f'fill="{themed("#dc143c")}"' in drawn
    assert 'role="img" aria-label="Title: y over x. SH ends at 0.90."' in drawn
    assert drawn == curves("Title", [line], "x", "y")
    assert len(drawn) < 4000


def test_colours_can_be_read_in_light_and_in_dark() -> None:
    losses = {style.colour for sheet in SHEETS.values() for style in sheet.losses.values()}
    for colour in (*PALETTE, *losses, "#ffffff", "#000000", "#ffff00", "#0000ff", "#7f7f7f"):
        light, dark = re.findall("#[0-9a-f]{6}", themed(colour))
        assert contrast(light, LIGHT) >= 4.5
        assert contrast(dark, DARK) >= 4.5


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
    colours = {
        name: set(re.findall(rf'<text [^>]*fill="([^"]*)"[^>]*>{name} ', text)) for name in names
    }
    assert [len(found) for found in colours.values()] == [1, 1, 1]
    assert len(set.union(*colours.values())) == 3
    chart = text[text.index("How many times") : text.index("Time over")]
    areas = set(re.findall(r'<path d="[^"]*" fill="(light[^"]*)"', chart))
    assert areas == colours["setwise-x"]


def test_the_matrix_is_a_heat_map(tmp_path: Path) -> None:
    """Ours beside its fastest rival, which is named; colours say who is faster, and how much."""

    def measured(loss: str, impl: str, mode: str, ms: float | None) -> dict[str, Any]:
        cell = {"loss": loss, "family": "Gaussian", "shape": "few", "sizes": [2, 1000, 3]}
        outcome = {"error": "out of memory"} if ms is None else {"total_ms": ms, "peak_mb": 1.0}
        return {**cell, "impl": impl, "mode": mode, **outcome}

    rows = [
        *(measured("SH", "setwise", "eager", 1.0), measured("SH", "dense", "eager", 7.0)),
        *(measured("SH", "dense", "compiled", 3.0), measured("SH", "setwise", "graph", 1.0)),
        *(measured("<A1H>", "setwise", "eager", 8.0), measured("<A1H>", "a & b", "eager", 1.0)),
        *(measured("H1H", "setwise", "eager", 8.0), measured("H1H", "dense", "eager", None)),
        *(measured("AH", "setwise", "eager", None), measured("AH", "scipy", "eager", 2.0)),
    ]
    record = {"header": {"hardware": "a card", "commit": "abc"}, "rows": rows}
    (tmp_path / "matrix-x.json").write_text(json.dumps(record))
    text = benchmarks_section(tmp_path).body
    cells = re.findall(r'<span class="heat ?([\w-]*)">([^<]*)(?:<small>([^<]*))?', text)
    assert cells == [
        ("ahead-2", "3.0", "dense (compiled)"),
        ("behind-3", "0.12", "a &amp; b"),
        ("ahead-3", "8.0 ms", "dense: out of memory"),
        ("", "memory", "out of memory"),
        ("", "1.0 ms", ""),  # from a graph nobody else was measured
    ]
    assert "&lt;A1H&gt;, Gaussian" in text
    assert "few 2 x 1,000 x 3" in text
    assert "setwise bench losses --output benchmarks/records/matrix-x.json" in text
    assert "0.61 times as fast as the fastest rival in the geometric mean of 2 cells" in text
