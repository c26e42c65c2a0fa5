"""Plans on the page: the slider, buttons and keys in a real browser, and folders of plans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator

from browser import opened
from pages import CAPTIONS, add_plan, whole_page
from setwise.report.page.plans import plans_section


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_page(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def plan(chromium: Browser, whole: Path) -> Iterator[Locator]:
    with opened(chromium, whole) as tab:
        yield tab.locator("figure.steps")


def shown(plan: Locator) -> list[str]:
    """Captions of the steps that are to be seen."""
    return [step.inner_text() for step in plan.locator("li").all() if step.is_visible()]


class TestSteps:
    pytestmark = pytest.mark.browser

    def test_one_is_seen_at_a_time(self, plan: Locator) -> None:
        assert shown(plan) == CAPTIONS[:1]
        assert plan.locator("output").inner_text() == "0 of 2"
        assert plan.locator("input").get_attribute("aria-valuetext") == CAPTIONS[0]

    def test_step_and_caption_are_read_out(self, plan: Locator) -> None:
        """Together, once for every step, whichever way it was chosen."""
        status = plan.get_by_role("status").first
        assert status.evaluate("node => [...node.children].map((n) => n.textContent)") == [
            "0 of 2",
            CAPTIONS[0],
        ]
        plan.locator(".next").click()
        assert status.text_content() == f"1 of 2{CAPTIONS[1]}"

    def test_the_mouse_on_the_slider(self, plan: Locator) -> None:
        slider = plan.locator("input")
        slider.scroll_into_view_if_needed()
        box = slider.bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        plan.page.mouse.click(box["x"] + box["width"] / 2, middle)
        assert shown(plan) == CAPTIONS[1:2]
        plan.page.mouse.down()
        plan.page.mouse.move(box["x"] + box["width"] - 2, middle)
        plan.page.mouse.up()
        assert shown(plan) == CAPTIONS[2:]
        assert slider.get_attribute("aria-valuetext") == CAPTIONS[2]

    def test_keys(self, plan: Locator) -> None:
        plan.locator("input").focus()
        for key, step in (
            ("ArrowRight", 1),
            ("End", 2),
            ("ArrowRight", 2),
            ("ArrowLeft", 1),
            ("Home", 0),
        ):
            plan.page.keyboard.press(key)
            assert shown(plan) == [CAPTIONS[step]], key
        for name in ("previous", "play", "next"):
            plan.page.keyboard.press("Tab")
            assert plan.page.evaluate("document.activeElement.className") == name

    def test_buttons(self, plan: Locator) -> None:
        previous, onwards = plan.locator(".previous"), plan.locator(".next")
        assert previous.get_attribute("aria-disabled") == "true"
        previous.click(force=True)
        assert shown(plan) == CAPTIONS[:1]
        onwards.click()
        assert shown(plan) == CAPTIONS[1:2]
        onwards.focus()
        plan.page.keyboard.press("Enter")
        assert shown(plan) == CAPTIONS[2:]
        assert onwards.get_attribute("aria-disabled") == "true"
        previous.click()
        assert shown(plan) == CAPTIONS[1:2]

    def test_it_plays_to_the_end_and_stops(self, chromium: Browser, whole: Path) -> None:
        with opened(chromium, whole) as tab:
            tab.clock.install()
            tab.reload()
            plan = tab.locator("figure.steps")
            play = plan.locator(".play")
            play.click()
            assert play.inner_text() == "Pause"
            tab.clock.run_for(1000)
            assert shown(plan) == CAPTIONS[1:2]
            play.click()
            tab.clock.run_for(5000)
            assert shown(plan) == CAPTIONS[1:2]
            play.click()
            tab.clock.run_for(5000)
            assert shown(plan) == CAPTIONS[2:]
            assert play.inner_text() == "Play"
            play.click()  # from the beginning again
            assert shown(plan) == CAPTIONS[:1]

    def test_without_scripts_all_are_seen(self, chromium: Browser, whole: Path) -> None:
        with opened(chromium, whole, java_script_enabled=False) as tab:
            plan = tab.locator("figure.steps")
            assert shown(plan) == CAPTIONS
            assert not plan.locator(".controls").is_visible()


class TestFolders:
    def test_a_plan_is_replaced_whole(self, tmp_path: Path) -> None:
        add_plan(tmp_path)
        add_plan(tmp_path, captions=CAPTIONS[:2])
        folder = tmp_path / "plans" / "a-plan"
        assert sorted(path.name for path in folder.iterdir()) == ["00.png", "01.png", "plan.json"]
        assert list(folder.parent.iterdir()) == [folder]

    @pytest.mark.parametrize("name", [".", "..", "other"])
    def test_nothing_else_is(self, name: str, tmp_path: Path) -> None:
        """A name that leads elsewhere must not cost a folder."""
        (tmp_path / "plans" / "other").mkdir(parents=True)
        (tmp_path / "plans" / "other" / "mine.txt").touch()
        with pytest.raises(ValueError, match="is no plan; choose another"):
            add_plan(tmp_path, name=name)
        assert (tmp_path / "plans" / "other" / "mine.txt").exists()

    def test_plans_that_were_not_finished_are_not_shown(self, tmp_path: Path) -> None:
        add_plan(tmp_path)
        add_plan(tmp_path, name="other")
        (tmp_path / "plans" / "other").rename(tmp_path / "plans" / ".other.123")
        text = plans_section(tmp_path).body
        assert text.count('class="steps"') == 1
        assert ".other" not in text
