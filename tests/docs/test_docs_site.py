"""Tests of the built site: no warnings, no broken links, and nothing loaded from other hosts."""

import contextlib
import http.server
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from browser import Browser
from doc_blocks import PAGES, ROOT
from doc_site import Site

LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}
WIDTHS = (1280, 390)
LOOKED_AT = ("index.html", "doctor.html", "benchmarks.html", "api/jms.html", "api/norm.html")


class Page(HTMLParser):
    """A page of the site: its links, the resources it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADING and LOADING[tag] in values:
            self.loads.append(values[LOADING[tag]])
        self.loads += re.findall(r"url\(['\"]?([^'\")]+)", values.get("style", ""))


def test_it_builds_without_a_warning(site: Site) -> None:
    assert [line for line in site.said.splitlines() if not line.startswith("INFO")] == []
    assert site.code == 0


def test_nothing_is_loaded_from_elsewhere(site: Site) -> None:
    for path, text in site.pages.items():
        assert [url for url in Page(text).loads if is_elsewhere(url)] == [], path
        assert 'class="mermaid"' not in text, f"{path}: the theme fetches what draws this from another host"
    for sheet in site.folder.rglob("*.css"):
        found = re.findall(r"(?:url\(|@import )['\"]?([^'\")\s]+)", sheet.read_text())
        assert [url for url in found if is_elsewhere(url)] == [], sheet.name


def is_elsewhere(url: str) -> bool:
    return url.startswith(("http:", "https:", "//"))


def test_links_within_the_site_lead_somewhere(site: Site) -> None:
    pages = {path: Page(text) for path, text in site.pages.items()}
    for path, page in pages.items():
        if path == "404.html":
            continue
        for link in page.links + page.loads:
            if urlsplit(link).scheme or not link:
                continue
            place, anchor = urldefrag(link)
            target = (site.folder / path).parent / unquote(place) if place else site.folder / path
            assert target.is_file(), f"{path}: {link}"
            name = target.resolve().relative_to(site.folder.resolve()).as_posix()
            if anchor and name in pages and anchor not in ("__skip", "__comments"):
                assert unquote(anchor) in pages[name].ids, f"{path}: {link}"


def test_links_of_the_sources_lead_somewhere() -> None:
    """Links in the Markdown files lead to existing files and headings. Links to other hosts are well formed."""
    for page in PAGES:
        for link in links_of(page):
            if is_elsewhere(link):
                assert urlsplit(link).scheme == "https", f"{page.name}: {link}"
                assert re.fullmatch(r"[\w-]+(\.[\w-]+)+", urlsplit(link).netloc), f"{page.name}: {link}"
                continue
            place, anchor = urldefrag(link)
            target = page.parent / unquote(place) if place else page
            assert target.exists(), f"{page.name}: {link}"
            if anchor and target.suffix == ".md":
                assert anchor in headings_of(target), f"{page.name}: {link}"


def prose_of(page: Path) -> str:
    """Return a page's text without code blocks and inline code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))


def links_of(page: Path) -> list[str]:
    return re.findall(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)", prose_of(page))


def headings_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    titles = re.findall(r"^#+ (.*)", re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_files_named_in_the_pages_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"`((?:examples|tests|docs|packaging|bench)/[\w/.-]+\.\w+)`", page.read_text()):
            assert (ROOT / name).exists(), f"{page.name}: {name}"


def test_pages_named_in_the_code_exist() -> None:
    sources = (path for folder in ("fjm2", "fjm2admin", "fjm2d", "bench") for path in (ROOT / folder).rglob("*.py"))
    for path in sources:
        for name in re.findall(r"\bdocs/[\w/.-]+\.md\b", path.read_text()):
            assert (ROOT / name).exists(), f"{path.relative_to(ROOT)}: {name}"


def test_every_example_is_in_the_table() -> None:
    page = (ROOT / "docs" / "examples.md").read_text()
    table = {name for line in page.splitlines() if line.startswith("| `") for name in re.findall(r"`(.*?)`", line)}
    assert {f"examples/{path.name}" for path in (ROOT / "examples").glob("*.py")} == {
        name for name in table if name.startswith("examples/")
    }


@pytest.fixture(scope="module")
def browser(require_tool: Callable[[str], str]) -> Iterator[Browser]:
    with Browser(require_tool("chromium")) as opened:
        yield opened


@pytest.fixture(scope="module")
def url(site: Site) -> Iterator[str]:
    """Yield the URL at which the site is served."""
    handler = partial(QuietHandler, directory=str(site.folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing. The output of the tests should not contain requests."""

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()


OVERFLOWING = """
(() => {
  const width = document.documentElement.clientWidth;
  const scrolls = (at) => at && (["auto", "scroll", "hidden"].includes(getComputedStyle(at).overflowX)
                                 || scrolls(at.parentElement));
  return [...document.querySelectorAll(".md-content *")]
    .filter((one) => one.getBoundingClientRect().right > width + 1 && !scrolls(one.parentElement))
    .map((one) => `${one.tagName}: ${one.textContent.slice(0, 60)}`);
})()
"""


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_overflows(width: int, browser: Browser, url: str) -> None:
    for page in LOOKED_AT:
        browser.open(f"{url}/{page}", width, 900)
        browser.until("document.readyState === 'complete'")
        assert browser.value(OVERFLOWING) == [], page
        assert browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0, page


def test_search_finds_pages_without_another_host(browser: Browser, url: str) -> None:
    browser.open(f"{url}/index.html", 1280, 900)
    browser.until("document.querySelector('.md-search__input') !== null")
    browser.value(
        "(() => { const box = document.querySelector('.md-search__input'); box.focus(); box.value = 'watermark';"
        " box.dispatchEvent(new Event('keyup')); box.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
    browser.until("document.querySelector('.md-search-result__item a[href*=\"norm.html\"]') !== null", 30)
    assert [address for address in browser.requested if not address.startswith((url, "data:", "about:", "blob:"))] == []
