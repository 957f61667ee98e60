"""The course in real JupyterLab: Run All, both themes, explorers by mouse and by keyboard, accessibility.

All tests share one server and one page, and each chapter is run once. They are in one file so that the browser is
closed before notebooks are tested by nbval: Playwright's event loop must not run beside Jupyter's.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import written
from tools.nbharness.lab import THEMES, lab_in_browser
from tools.unanswered import unanswered

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
PANEL = ".cp-panel"


@pytest.fixture(scope="module")
def lab(chromium):
    with lab_in_browser() as lab:
        yield lab


@pytest.fixture(scope="module", params=CHAPTERS)
def chapter(request, lab):
    """A chapter, opened and run; `chapter.ran` are its cells."""
    lab.open(request.param)
    lab.ran = lab.run_all()
    return lab


def test_run_all_runs_every_cell_without_an_error(chapter):
    failed = {
        cell["id"]: cell["errors"] for cell in chapter.ran if cell["errors"] and "raises-exception" not in cell["tags"]
    }
    assert failed == {}
    code = [cell for cell in chapter.ran if cell["type"] == "code"]
    assert [cell["count"] for cell in code] == list(range(1, len(code) + 1))


def test_a_cell_that_teaches_an_error_shows_it(chapter):
    silent = [cell["id"] for cell in chapter.ran if "raises-exception" in cell["tags"] and not cell["errors"]]
    assert silent == []


def test_every_picture_is_loaded(chapter):
    broken = chapter.page.evaluate(
        "() => Array.from(document.querySelectorAll('.jp-Notebook img')).filter((i) => !i.complete || !i.naturalWidth)"
        ".map((i) => i.alt)"
    )
    assert broken == []


def test_every_label_names_the_control_beside_it(chapter):
    strangers = chapter.page.evaluate(
        "() => Array.from(document.querySelectorAll('.jp-Notebook .cp-panel label'))"
        ".filter((label) => label.parentElement !== label.control?.parentElement).map((label) => label.textContent)"
    )
    assert strangers == []


@pytest.mark.parametrize("theme", THEMES)
def test_outputs_are_accessible(chapter, theme):
    from axe_playwright_python.sync_playwright import Axe

    chapter.theme(theme)
    found = Axe().run(
        chapter.page,
        context={"include": [[".jp-Notebook .jp-OutputArea-output"]]},
        options={"resultTypes": ["violations"]},
    )
    violations = [
        f"{rule['id']}: {node['target']} {node['html'][:160]}"
        for rule in found.response["violations"]
        for node in rule["nodes"]
    ]
    assert not violations, "\n".join(violations)


def test_every_slider_moves_by_keyboard(chapter):
    for panel in _panels(chapter):
        for slider in panel.get_by_role("slider").all():
            low, high = int(slider.get_attribute("min")), int(slider.get_attribute("max"))
            value = int(slider.input_value())
            if low == high:
                continue
            before = _shown(panel)
            slider.focus()
            chapter.page.keyboard.press("ArrowRight" if value < high else "ArrowLeft")
            _settled(panel)
            assert int(slider.input_value()) != value
            assert _shown(panel) != before, "the panel shows the same after its slider moved"
            assert slider.evaluate("(node) => document.activeElement === node"), "the slider lost the focus"


def test_every_slider_moves_by_mouse(chapter):
    for panel in _panels(chapter):
        for slider in panel.get_by_role("slider").all():
            if slider.get_attribute("min") == slider.get_attribute("max"):
                continue
            before, box = slider.input_value(), slider.bounding_box()
            low, high = (int(slider.get_attribute(name)) for name in ("min", "max"))
            in_left_half = 2 * int(before) < low + high
            slider.click(position={"x": box["width"] - 3 if in_left_half else 3, "y": box["height"] / 2})
            _settled(panel)
            assert slider.input_value() != before


def test_every_operation_of_an_explorer_can_be_chosen_by_keyboard(chapter):
    for panel in _panels(chapter):
        choice = panel.get_by_role("combobox", name="operation")
        if choice.count() == 0:
            continue
        options = choice.locator("option").all_inner_texts()
        assert len(options) > 3
        for option in options:
            choice.select_option(option)
            _settled(panel)
            assert choice.input_value() == option
            assert "can't" not in panel.locator(".cp-sentence").inner_text()
            assert panel.locator(".cp-picture").evaluate("(node) => !!node.shadowRoot.querySelector('svg')")
        choice.focus()
        chapter.page.keyboard.press("Home")
        _settled(panel)
        assert choice.input_value() == options[0]


def test_every_switch_of_an_explorer_answers_to_the_keyboard(chapter):
    for panel in _panels(chapter):
        for switch in panel.get_by_role("combobox").all():
            options = switch.locator("option").all_inner_texts()
            if switch.get_attribute("aria-label") == "operation" or len(options) < 2:
                continue
            before, shown = switch.input_value(), _shown(panel)
            there, back = ("ArrowDown", "ArrowUp") if before != options[-1] else ("ArrowUp", "ArrowDown")
            switch.focus()
            chapter.page.keyboard.press(there)
            _settled(panel)
            assert switch.input_value() != before
            assert _shown(panel) != shown, "the panel shows the same after its switch moved"
            assert switch.evaluate("(node) => document.activeElement === node"), "the switch lost the focus"
            chapter.page.keyboard.press(back)  # not every two switches go together
            _settled(panel)
            assert switch.input_value() == before


def test_a_prediction_is_locked_in_by_keyboard_and_answered(chapter):
    predictions = [panel for panel in _panels(chapter) if panel.locator(".cp-buttons button[data-name]").count() > 1]
    predictions = [panel for panel in predictions if panel.get_by_role("combobox").count() == 0]
    assert predictions, "no prediction in this chapter"
    panel = predictions[0]
    button = panel.locator(".cp-buttons button").first
    if button.get_attribute("aria-disabled") != "true":
        button.focus()
        chapter.page.keyboard.press("Enter")
        _settled(panel)
    assert button.get_attribute("aria-disabled") == "true"
    mark = button.get_attribute("data-mark")
    assert mark in ("right", "wrong")
    answer = panel.locator(".cp-sentence").inner_text()
    assert ("is right" in answer) == (mark == "right")


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_that_is_only_opened_and_saved_is_not_an_edited_one(lab, name):
    lab.open(name, cleared=False)
    delivered, saved = unanswered(name, (ROOT / "notebooks" / name).read_bytes()), lab.save()
    assert saved != delivered, "JupyterLab writes something of its own"
    assert written.mark(name, saved) == written.mark(name, delivered)


def test_a_saved_chapter_opened_again_shows_its_panels_and_says_how_to_wake_them(lab):
    lab.open(CHAPTERS[0])
    lab.run_all()
    before = [_shown(panel) for panel in _panels(lab)]
    lab.save()
    lab.reopen()
    lab.page.wait_for_function("count => document.querySelectorAll('.cp-panel').length === count", arg=len(before))
    assert before
    assert [_shown(panel) for panel in _panels(lab)] == before
    panel = lab.cell("row-explore").locator(PANEL)
    panel.get_by_role("slider").first.press("ArrowRight")
    assert panel.locator(".cp-note").inner_text() == ""
    lab.page.wait_for_function("(node) => node.textContent", arg=panel.locator(".cp-note").element_handle())
    assert "run this cell again" in panel.locator(".cp-note").inner_text()


def _panels(lab) -> list:
    return lab.page.locator(f".jp-Notebook {PANEL}").all()


def _shown(panel) -> str:
    picture = panel.locator(".cp-picture").evaluate("(node) => node.shadowRoot.innerHTML")
    return picture + panel.locator(".cp-sentence").inner_text() + panel.locator(".cp-code code").inner_text()


def _settled(panel) -> None:
    """Wait until the kernel's answer to the last change is on the page."""
    panel.page.wait_for_function("(node) => !node.dataset.busy", arg=panel.element_handle(), timeout=20_000)
