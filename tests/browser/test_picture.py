"""The page changes a picture line by line. Whatever came before, it must end as the drawing that the kernel sent."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from helpers.draw.graph import draw_graph
from helpers.draw.storage import draw_layout, draw_storage
from helpers.draw.svg import group, picture, text
from tools.nbharness.lab import browser_page

SOURCE = Path(__file__).resolve().parents[2] / "helpers" / "explore" / "picture.js"
# For each drawing, shown one after the other in the same place: how it stands there, and how it is written.
SHOW_IN_TURN = """svgs => {
    const given = (node) => Array.from(node.attributes, (a) => `${a.name}=${a.value}`).sort();
    const own = (node) => Array.from(node.childNodes, (n) => (n.nodeType === Node.TEXT_NODE ? n.data.trim() : ""));
    const told = (svg) => {
        svg.querySelector(":scope > title")?.remove();
        for (const name of ["role", "style", "aria-label"]) svg.removeAttribute(name);
        return [svg, ...svg.querySelectorAll("*")].map((n) => [n.tagName, ...given(n), own(n).join("")].join(" "));
    };
    const box = document.createElement("div");
    box.shadow = box.attachShadow({ mode: "open" });
    return svgs.map((svg) => {
        patchPicture(box, svg, "a picture");
        return [told(box.shadow.firstElementChild.cloneNode(true)), told(parse(svg))];
    });
}"""
# Whether every element that stands there after the second drawing stood there after the first.
KEPT = """([first, second]) => {
    const box = document.createElement("div");
    box.shadow = box.attachShadow({ mode: "open" });
    patchPicture(box, first, "a picture");
    const before = new Set(box.shadow.querySelectorAll("*"));
    patchPicture(box, second, "a picture");
    return [...box.shadow.querySelectorAll("*")].every((element) => before.has(element));
}"""


@pytest.fixture(scope="module")
def page(chromium):
    with browser_page() as page:
        page.add_script_tag(content=SOURCE.read_text(encoding="utf-8"))
        yield page


def written(*texts: str) -> str:
    """A drawing of texts, as a helper writes it: each is escaped."""
    labels = [text(10, 20 * i, content) for i, content in enumerate(texts)]
    return picture(100, 100, "texts", [group(labels, font_size=12)])


def drawings() -> list[str]:
    m = torch.arange(24).view(4, 6)
    x = torch.ones(3, requires_grad=True)
    shown = [draw_layout(m, focus=i) for i in range(4)]
    shown += [draw_layout(m.t(), focus=1), draw_layout(m), draw_layout(m[0]), draw_layout(torch.tensor(1.5))]
    shown += [draw_layout(torch.empty(0)), draw_storage(m, m.t()), draw_storage(m[1:]), draw_layout(torch.ones(40, 40))]
    shown += [draw_graph((x * 2).exp().sum()), draw_graph((x.relu() + x).sum())]
    texts = [("a < b", "c"), ('a & "b"', "c"), ("a", "&lt;"), ("", "it's"), ("a",)]
    return [drawing.svg for drawing in shown] + [written(*content) for content in texts]


@pytest.mark.parametrize("seed", range(3))
def test_a_picture_ends_as_the_drawing_that_came_last(page, seed):
    order = drawings() + random.Random(seed).choices(drawings(), k=40)
    for there, sent in page.evaluate(SHOW_IN_TURN, order):
        assert there == sent


def test_a_moved_focus_keeps_every_element(page):
    moved = [draw_layout(torch.arange(256).view(16, 16), focus=i).svg for i in range(16)]
    for pair in pairwise(moved):
        assert page.evaluate(KEPT, list(pair))


def test_text_that_must_be_escaped_keeps_its_element(page):
    assert page.evaluate(KEPT, [written("a < b", "c"), written('"a" & b', "it's")])
