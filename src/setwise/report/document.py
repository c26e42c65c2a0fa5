"""The page of results: what stands between its pairs of markers is written from the records."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from setwise.report import figures, tables
from setwise.report.failures import CAPTION, failures
from setwise.report.paper import TABLES, PaperTable, base_name, is_quick, paper_table
from setwise.report.tables import HELDOUT, Cell, Record

NOTHING = "No runs recorded yet.\n"

Draw = Callable[[str, PaperTable, Sequence[Record], Path], None]


def write(page: Path, results: Path) -> None:
    """Make the page and the pictures beside it, in ``figures/``, anew from a folder of records."""
    page.write_text(update(page, results))
    folder = page.parent / "figures"
    for name, records in _published(results).items():
        draw(name, records, folder)
    for stale in stale_pictures(page, results):
        stale.unlink()


def update(page: Path, results: Path) -> str:
    """The text of the page with the block of every table made anew."""
    found = _published(results)
    text = page.read_text()
    marked = re.findall(r"^<!-- (\w+): begin -->$", text, re.MULTILINE)
    if sorted(marked) != sorted(TABLES):
        raise ValueError(f"{page.name}: has blocks {sorted(marked)}, not {sorted(TABLES)}")
    for table in TABLES:
        presets = [n for n in found if base_name(n) == table != n]
        costs = {name: tables.read_costs(results, name) for name in (table, *presets)}
        parts = [section(table, found[table], costs[table]) if table in found else NOTHING]
        parts += [f"### {name}\n\n{section(name, found[name], costs[name])}" for name in presets]
        text = with_block(text, page.name, table, "\n".join([_quoted(TABLES[table]), *parts]))
    return text


def with_block(text: str, document: str, name: str, block: str) -> str:
    """The text of a document with what is between the two markers of a name replaced.

    >>> with_block("<!-- x: begin -->\\nold<!-- x: end -->\\n", "page.md", "x", "new\\n")
    '<!-- x: begin -->\\n\\nnew\\n\\n<!-- x: end -->\\n'
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{document}: expected one pair of markers {begin.strip()}, {end.strip()}")
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n{block}\n{end}{after}"


def _published(results: Path) -> dict[str, list[Record]]:
    found = tables.read_tables(results)
    return {name: records for name, records in found.items() if not is_quick(name)}


def section(name: str, records: Sequence[Record], costs: Sequence[Record] = ()) -> str:
    """A table in the paper's setting or another, what it took, and its pictures."""
    paper = paper_table(name)
    cells = {(cell.loss, cell.scenario): cell for cell in tables.cells(paper, records)}
    columns = tables.losses(records)
    rows = {
        paper.label(scenario): [cells.get((loss, scenario)) for loss in columns]
        for scenario in tables.scenarios(paper, records)
    }
    parts = [f"{paper.metric_name.capitalize()}; paper: best / median / worst (runs).\n\n"]
    parts += [_against(columns, rows, lambda cell: _against_paper(paper, cell))]
    if paper.metric != HELDOUT and any(cell.heldout_best is not None for cell in cells.values()):
        parts += ["\nThe same on what was held out; best / median.\n\n"]
        parts += [_against(columns, rows, lambda cell: _heldout(paper, cell))]
    failed = failures(paper, records)
    if failed:
        parts += [f"\n{CAPTION}.\n\n", _markdown(columns, failed)]
    for said in tables.remarks(paper, records):
        parts += ["\n", _wrapped(said)]
    parts += ["\n", _cost(records, "of planning " if paper.counts_plans else "")]
    if costs:
        parts += ["\n", _wrapped(tables.said_of_costs(costs))]
    shown = pictures(name, records)
    parts += [f"\n![{said}](figures/{picture})\n" for picture, (said, _) in shown.items()]
    return "".join(parts)


def pictures(name: str, records: Sequence[Record]) -> dict[str, tuple[str, Draw]]:
    """File names of the pictures of a table: for each what it shows, and what draws it."""
    found: dict[str, tuple[str, Draw]] = {
        f"{name}-cells.png": (f"Every run of {name} beside the paper", figures.draw_cells)
    }
    if figures.has_curves(paper_table(name), records):
        found[f"{name}-curves.png"] = f"How {name} was learned", figures.draw_curves
    return found


def draw(name: str, records: Sequence[Record], folder: Path) -> None:
    """Draw the pictures of a table into a folder."""
    for picture, (_, draw_picture) in pictures(name, records).items():
        draw_picture(name, paper_table(name), records, folder / picture)


def stale_pictures(page: Path, results: Path) -> list[Path]:
    """Pictures of tables, beside the page, that no record asks for any more."""
    found = _published(results)
    wanted = {picture for name, records in found.items() for picture in pictures(name, records)}
    present = (page.parent / "figures").glob("table*.png")
    return sorted(path for path in present if path.name not in wanted)


def _quoted(paper: PaperTable) -> str:
    lines = textwrap.wrap(f"{paper.caption} ({paper.place})", 98)
    return "".join(f"> {line}\n" for line in lines)


def _against_paper(paper: PaperTable, cell: Cell) -> str:
    best, middle, worst = map(paper.format_ours, (cell.best, cell.median, cell.worst))
    if paper.reaches(cell.best, cell.paper):
        best = f"**{best}**"
    before = "" if cell.paper is None else f"{paper.format_paper(cell.paper)}: "
    return f"{before}{best} / {middle} / {worst} ({cell.runs})"


def _heldout(paper: PaperTable, cell: Cell) -> str:
    if cell.heldout_best is None or cell.heldout_median is None:
        return ""
    return f"{paper.format_ours(cell.heldout_best)} / {paper.format_ours(cell.heldout_median)}"


def _cost(records: Sequence[Record], kind: str) -> str:
    """How many runs, how long, on what, with which code."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        made = record["environment"]
        commit = str(made.get("commit") or "unknown")
        # A mark at the end of a commit says that files were changed since.
        short = commit[:12] + commit[40:]
        groups[f"on {made['hardware']}, torch {made['torch']}, commit {short}"].append(record)
    parts = [
        f"{len(found)} runs {kind}in {tables.seconds(found):.0f} s {where}"
        for where, found in groups.items()
    ]
    return _wrapped(f"{'; '.join(parts)}.")


def _against(
    losses: Sequence[str], rows: dict[str, list[Cell | None]], text: Callable[[Cell], str]
) -> str:
    found = {
        name: ["" if cell is None else text(cell) for cell in cells] for name, cells in rows.items()
    }
    return _markdown(losses, found)


def _markdown(losses: Sequence[str], rows: dict[str, list[str]]) -> str:
    """Scenarios as rows, losses as columns."""
    lines = [["", *losses], ["---"] * (len(losses) + 1)]
    lines += [[name, *cells] for name, cells in rows.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 100, break_on_hyphens=False) + "\n"
