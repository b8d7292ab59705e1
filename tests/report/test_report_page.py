"""Tests of the report in headless Chromium, on a screen and on a telephone.

All plots are there, and nothing overlaps.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
pytest.importorskip("matplotlib", reason="the extra `bench` is not installed")
pytest.importorskip("websockets", reason="the extra `dev` is not installed")
sys.path.append(str(Path(__file__).parents[1] / "admin"))

from browser import Browser

WIDE, NARROW = (1200, 900), (390, 844)

BOXES = """
(() => {
  const shown = [...document.querySelectorAll(
    'h1, header p, nav, section > h2, section > p, picture img, section > .grid, summary')];
  return shown.map(it => {
    const box = it.getBoundingClientRect();
    return {what: it.tagName + ' ' + (it.id || it.textContent.slice(0, 40) || it.alt.slice(0, 40)),
      x0: box.left, x1: box.right, y0: box.top + scrollY, y1: box.bottom + scrollY};
  });
})()
"""
IMAGES = """
[...document.querySelectorAll('img')].map(it => {
  const box = it.getBoundingClientRect();
  return {complete: it.complete, width: it.naturalWidth, height: it.naturalHeight, shown: box.width, tall: box.height,
    alt: it.alt, source: it.currentSrc.slice(0, 26)};
})
"""


@pytest.fixture
def browser(require_tool: Callable[[str], str]) -> Iterator[Browser]:
    with Browser(require_tool("chromium")) as opened:
        yield opened
        assert opened.complaints == []


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_all_plots_are_shown(browser: Browser, page: Path, size: tuple[int, int]) -> None:
    browser.open(page.as_uri(), *size)
    images: list[dict[str, Any]] = browser.value(IMAGES)
    assert len(images) == len(list(page.parent.glob("*.png"))) > 15
    for image in images:
        assert image["complete"], image
        assert image["width"] > 0, image
        assert image["height"] > 0, image
        assert image["shown"] > 0.8 * min(size[0], 900), image
        # The image is shown as it was drawn, neither stretched nor squeezed.
        assert image["tall"] / image["shown"] == pytest.approx(image["height"] / image["width"], rel=0.01)
        assert len(image["alt"]) > 60
        assert image["source"] == "data:image/svg+xml;base64,"
    assert [url for url in browser.requested if not url.startswith("data:")] == [page.as_uri()]


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_nothing_overlaps_and_nothing_sticks_out(browser: Browser, page: Path, size: tuple[int, int]) -> None:
    browser.open(page.as_uri(), *size)
    boxes: list[dict[str, Any]] = browser.value(BOXES)
    assert len(boxes) > 60
    for number, one in enumerate(boxes):
        assert one["x0"] >= 0, one
        assert one["x1"] <= size[0], one
        assert one["x1"] > one["x0"], one
        assert one["y1"] > one["y0"], one
        for other in boxes[number + 1 :]:
            is_beside = one["x1"] <= other["x0"] + 0.5 or other["x1"] <= one["x0"] + 0.5
            is_below = one["y1"] <= other["y0"] + 0.5 or other["y1"] <= one["y0"] + 0.5
            assert is_beside or is_below, (one, other)
    assert browser.value("document.documentElement.scrollWidth") <= size[0]


def test_tables_need_no_scrolling_on_a_screen(browser: Browser, page: Path) -> None:
    """The last columns, which describe an anomaly, are visible too."""
    browser.open(page.as_uri(), *WIDE)
    browser.value("document.querySelectorAll('details').forEach(it => it.open = true)")
    wide = "[...document.querySelectorAll('.grid')].filter(it => it.scrollWidth > it.clientWidth)"
    assert browser.value(f"{wide}.map(it => it.parentElement.id || it.closest('section').id)") == []


def test_phones_get_pictures_of_their_own(browser: Browser, page: Path) -> None:
    shapes = []
    for size in (WIDE, NARROW):
        browser.open(page.as_uri(), *size)
        shapes.append([(it["width"], it["height"]) for it in browser.value(IMAGES)])
    for (wide, _), (narrow, tall) in zip(*shapes, strict=True):
        assert narrow < 0.6 * wide
        assert narrow <= tall * 1.6


def test_the_contents_lead_to_every_section(browser: Browser, page: Path) -> None:
    browser.open(page.as_uri(), *WIDE)
    missing = browser.value(
        "[...document.querySelectorAll('nav a')].map(a => a.hash).filter(it => !document.querySelector(it))"
    )
    assert missing == []
    assert browser.value("document.querySelectorAll('nav a').length === document.querySelectorAll('section').length")


def test_the_figures_unfold_and_print_without_them(browser: Browser, page: Path) -> None:
    browser.open(page.as_uri(), *NARROW)
    browser.value("document.querySelectorAll('details').forEach(it => it.open = true)")
    assert browser.value("document.documentElement.scrollWidth") <= NARROW[0]
    link = browser.value("document.querySelector('#latency details a').href")
    assert link.startswith("data:text/csv;base64,")
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.value("[...document.querySelectorAll('details')].every(it => it.getClientRects().length === 0)")
    assert browser.value("[...document.querySelectorAll('img')].every(it => it.getClientRects().length === 1)")
