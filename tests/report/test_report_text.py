"""The text of the report page: what every reader finds in it, a browser or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from pages import whole_page
from recorded import (
    SH,
    SHEETS,
    make_records,
    recorded,
    without_scale,
)
from setwise.report import tables
from setwise.report.page.cells import (
    ABOVE,
    BEHIND,
    FAILS,
    HOLDS,
    MISSING,
    OTHER,
    SCALE,
    verdict,
)
from setwise.report.page.experiment import experiment_section


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_page(tmp_path_factory.mktemp("whole"))


class TestTheText:
    def test_reconstructions_of_the_hardest_scenario(self, whole: Path) -> None:
        text = whole.read_text()
        assert text.count("data:image/jpeg;base64") == 4 * 2 * 3
        assert "scenario (4) input random, target random" in text
        # The first network of scenario 4 divides by five: the inputs are 200/255 where not black.
        share = (10 * 20) / (40 * 60)
        rmse = (200 - 200 // 5) / 255 * share**0.5
        assert f"H: cross entropy, rmse {rmse:.3f} on these" in text

    def test_an_experiment_has_the_losses_of_its_sheet(self) -> None:
        records = make_records("table4-best", seeds=[0], scenarios=["n2-2250-fixed"])
        section = str(experiment_section(recorded(records)).body)
        assert "setwise reproduce table4 --preset best --results" in section
        assert "H: cross entropy" not in section.replace("SH: set cross entropy", "")
        assert "Cells: 1 behind the paper; 11 not recorded yet." in section

    def test_verdicts(self) -> None:
        two, three = SHEETS["table2"], SHEETS["table3"]
        errors = without_scale(three)

        def cell(reference: float | None, best: float) -> tables.Cell:
            return tables.Cell(SH, "1", reference, best, best, best, 1)

        assert verdict(two, cell(0.6, 0.6)) == HOLDS
        assert verdict(two, cell(0.6, 0.5)) == BEHIND
        assert verdict(two, cell(0.0, 0.004)) == FAILS
        assert verdict(two, cell(0.0, 0.3)) == ABOVE
        assert verdict(errors, cell(0.08, 0.09)) == BEHIND
        assert verdict(errors, cell(0.08, 0.07)) == HOLDS
        assert verdict(three, cell(0.08, 0.07)) == SCALE
        assert verdict(two, cell(None, 0.5)) == OTHER
        assert verdict(two, None) == MISSING
        assert verdict(SHEETS["table1-quick"], cell(None, 0.5)) == ""
