"""Tests of the service's web page in headless Chromium."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from network import Network
from running import Admin, Gateway, link, make_token, sample

pytest.importorskip("websockets", reason="the extra `dev` is not installed")
from browser import Browser

from fjm2admin.registry.nodes import Profile
from fjm2admin.registry.store import Store, StoredNode

SCRIPT = "<img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script>"


@pytest.fixture(scope="module")
def browser(require_tool: Callable[[str], str]) -> Iterator[Browser]:
    with Browser(require_tool("chromium")) as made:
        yield made


def row(name: str, column: str) -> str:
    """Return a JavaScript expression for the text of a cell in the table of nodes."""
    rows = "[...document.querySelectorAll('#nodes tbody tr')]"
    heads = "[...document.querySelectorAll('#nodes thead th')]"
    own = f"{rows}.find((row) => row.cells[0].textContent === {json.dumps(name)})"
    return f"{own}?.cells[{heads}.findIndex((head) => head.textContent === {column!r})].textContent"


def test_nodes_appear_and_become_stale_and_gone_in_time(
    start: Callable[..., Admin], data: Path, browser: Browser
) -> None:
    admin = start(heartbeat_s=0.5, stale_s=2, gone_s=5, forget_s=100)
    browser.open(admin.url)
    browser.until("!document.querySelector('#nodes-none').hidden")
    with Network(admin.url, data) as network:
        for name in network.gateways:
            browser.until(f"{row(name, 'State')} === 'live'")
        assert browser.text("#connection") == "Live"
        network.silence("Rome")
        # Add a tick of the page, and the half second between heartbeats.
        assert 0.5 < browser.until(f"{row('Rome', 'State')} === 'stale'") < 2 + 2.5
        down = "document.querySelectorAll('#links .state.down').length"
        browser.until(f"{down} === 3")
        browser.until("document.querySelectorAll('#map line.bad').length === 3")
        # Nodes with problems come first, and their rows are shown completely.
        assert browser.value("document.querySelector('#nodes tbody button').textContent") == "Rome"
        assert browser.value("document.title") == "(1 stale) FJM2 nodes"
        states = "[...document.querySelectorAll('#links tbody .state')]"
        assert browser.value(f"{states}.map((cell) => cell.textContent)").count("down") == 3
        assert browser.value(f"{states}.slice(0, 3).every((cell) => cell.textContent === 'down')")
        browser.value(
            "window.lines = (c) => { const r = new Range(); r.selectNodeContents(c); return r.getClientRects() }; 1"
        )
        assert browser.value(f"{states}.every((cell) => lines(cell).length === 1)")
        assert 1 < browser.until(f"{row('Rome', 'State')} === 'gone'") < 3 + 2.5
        assert browser.value(row("Paris", "State")) == "live"
        assert browser.text("#counts").split() == ["live", "3", "stale", "0", "gone", "1"]


def test_the_plots_move_and_a_node_has_a_history(start: Callable[..., Admin], data: Path, browser: Browser) -> None:
    admin = start(heartbeat_s=0.5)
    browser.open(admin.url)
    paths = "[...document.querySelectorAll('#now path')].map((path) => path.getAttribute('d'))"
    with Network(admin.url, data):
        browser.until(f"(({row('Paris', 'Out')}) ?? '').includes('Mbit/s')")
        browser.until(f"{paths}.every((path) => path.includes('L'))")
        before = browser.value(paths)
        assert len(before) == 4
        browser.until(f"{json.dumps(before)}.every((path, at) => path !== {paths}[at])")
        captions = browser.value("[...document.querySelectorAll('#now figcaption')].map((one) => one.innerText)")
        assert [caption.split()[0] for caption in captions] == ["Throughput", "Loss,", "Round"]
        assert "Mbit/s" in captions[0]
        assert browser.value("document.querySelectorAll('#links tbody tr').length") == 12
        assert browser.value("document.querySelectorAll('#map line').length") == 6
        links = "[...document.querySelectorAll('#links tbody tr')].map((row) => row.innerText)"
        rome = [text for text in browser.value(links) if text.startswith("Rome")]
        assert len(rome) == 3
        assert all("up" in text.split() and "6.0/s queue_full" in text for text in rome)
        assert any("20.0 Mbit/s" in text for text in rome)
        assert not any("queue_full" in text for text in browser.value(links) if text.startswith("Paris"))

        browser.value("document.querySelector('#nodes tbody button').click()")
        assert browser.text("#details-title") == "Lisbon"
        browser.until("document.querySelector('#past path')?.getAttribute('d').startsWith('M')", 25)
        assert "198.51.100.4:5741" in browser.text("#facts")
        assert "forwards for its LAN" in browser.text("#facts")


def silent_for(data: Path, name: str, number: int, silence_s: float) -> None:
    """Store a node whose last heartbeat was `silence_s` seconds ago."""
    profile = Profile(f"{number:08x}", name, str(number), ("127.0.0.1:9",), (), None, "1")
    with contextlib.closing(Store(data)) as store:
        store.save_node(StoredNode(profile, "token", "127.0.0.1", 0.0, time.time() - silence_s))
        store.save_batch([], [], [], 1, time.time())


def test_among_many_nodes_those_in_trouble_are_shown(start: Callable[..., Admin], data: Path, browser: Browser) -> None:
    for number in range(40):
        silent_for(data, f"gateway {number:02}.site.example", number, 60 if number == 37 else 0)
    silent_for(data, "long gone", 40, 1000)
    admin = start()
    browser.open(admin.url)
    browser.until("document.querySelectorAll('#nodes tbody tr').length === 41")
    names = "[...document.querySelectorAll('#nodes tbody button')].map((one) => one.textContent)"
    assert browser.value(f"{names}[0]").startswith("gateway 37")
    assert browser.value(f"{names}.at(-1)") == "long gone"
    assert "The map shows 30 of 40 nodes." in browser.text("#map figcaption")
    drawn = browser.value("[...document.querySelectorAll('#map text')].map((one) => one.textContent)")
    assert len(drawn) == 30
    assert any(name.startswith("gateway 37") for name in drawn)
    # No name lies beyond the edge of the map.
    for width in (1200, 360):
        browser.open(admin.url, width)
        browser.until("document.querySelectorAll('#map text').length === 30")
        browser.value(
            "window.box = (one) => one.getBoundingClientRect();"
            "window.isInside = (one) => { const a = box(one), b = box(one.closest('svg'));"
            " return a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom }; 1"
        )
        outside = "[...document.querySelectorAll('#map text')].filter((one) => !isInside(one))"
        assert browser.value(f"{outside}.map((one) => one.textContent)") == []


def test_rates_are_written_as_people_write_them(gateway: Gateway, admin: Admin, browser: Browser) -> None:
    shown = {
        999.0: "999 bit/s",
        1234.0: "1.23 kbit/s",
        999_960.0: "1000 kbit/s",
        45.67e6: "45.7 Mbit/s",
        4.5e12: "4.50 Tbit/s",
    }
    links = [link(f"{number:08x}", 0, 0, rate_bps=bps) for number, bps in enumerate(shown)]
    gateway.heartbeat(metrics=sample(1, *links))
    browser.open(admin.url)
    browser.until(f"document.querySelectorAll('#links tbody tr').length === {len(shown)}")
    paced = "[...document.querySelectorAll('#links tbody tr')].map((one) => one.cells[5].textContent)"
    assert browser.value(paced) == list(shown.values())


def test_find_searches_links_and_says_when_nothing_is_found(admin: Admin, data: Path, browser: Browser) -> None:
    find = (
        "document.querySelector('#find').value = {}; document.querySelector('#find').dispatchEvent(new Event('input'))"
    )
    with Network(admin.url, data):
        browser.open(admin.url)
        browser.until("document.querySelectorAll('#links tbody tr').length === 12")
        browser.value(find.format("'OSL'"))
        assert browser.value("document.querySelectorAll('#nodes tbody tr').length") == 1
        assert browser.value("document.querySelectorAll('#links tbody tr').length") == 6
        assert browser.value("document.querySelector('#nodes-shown').hidden")
        browser.value(find.format("'nowhere'"))
        assert browser.text("#nodes-shown").startswith("None of 4 nodes has that in its")
        assert browser.text("#links-shown").startswith("None of 12 links has that in its")
        assert browser.value("document.querySelector('#nodes').hidden && document.querySelector('#links').hidden")


@pytest.mark.usefixtures("gateway")
def test_closing_a_node_returns_to_the_same_place(admin: Admin, browser: Browser) -> None:
    browser.open(admin.url)
    browser.until(f"{row('paris', 'State')} === 'live'")
    browser.value("document.querySelector('#nodes tbody button').click()")
    assert browser.value("document.activeElement.id") == "details-title"
    assert browser.value("document.querySelector('#nodes tbody button').ariaPressed") == "true"
    browser.value("document.querySelector('#close').click()")
    assert browser.value("document.activeElement.textContent") == "paris"
    assert browser.value("document.activeElement.ariaPressed") == "false"


def test_texts_of_nodes_are_not_interpreted_as_html(admin: Admin, browser: Browser) -> None:
    name = SCRIPT[:64]
    with Gateway(admin.url, admin.token("evil"), name, lan="<b>lan</b>", version="<i>1</i>") as gateway:
        assert gateway.register().status_code == 200
        browser.open(admin.url)
        browser.until(f"{row(name, 'LAN')} === '<b>lan</b>'")
        browser.value("document.querySelector('#nodes tbody button').click()")
        assert browser.text("#details-title") == name
        assert "<i>1</i>" in browser.text("#facts")
        assert browser.value("document.title") == "FJM2 nodes"
        assert browser.value("document.querySelectorAll('main img, main script, main b, main i').length") == 0


def test_the_page_loads_nothing_from_elsewhere_and_logs_no_errors(admin: Admin, data: Path, browser: Browser) -> None:
    browser.open("about:blank")
    browser.complaints.clear()
    browser.requested.clear()
    with Network(admin.url, data):
        browser.open(admin.url)
        browser.until(f"{row('Oslo', 'State')} === 'live'")
        browser.value("document.querySelector('#nodes tbody button').click()")
        browser.until("document.querySelector('#past path') !== null")
    assert browser.requested
    assert [url for url in browser.requested if not url.startswith(admin.url)] == []
    assert browser.complaints == []
    run_inline = "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)"
    browser.value(run_inline)
    assert browser.value("window.ran") is None, "the policy lets scripts in"


def tell_the_most(admin: Admin) -> None:
    """Register a gateway that reports the largest figures that the service allows."""
    with Gateway(admin.url, admin.token("most"), "most") as gateway:
        gateway.register()
        most = {"rtt_ms": 1e6, "loss": 1.0, "queue_bytes": 2**63 - 1}
        for uptime_s, count in ((10.0, 0), (10.002, 2**63 - 1)):
            gateway.heartbeat(metrics=sample(uptime_s, link("0000000a", count, count, **most)))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_a_phone(admin: Admin, data: Path, browser: Browser, dark: bool) -> None:
    with Network(
        admin.url, data, ("W" * 64, f"Node {'wide' * 10}", "Z" + "\u0335\u0300" * 31, "\u05d0 (1%) \u05d1", "A")
    ):
        tell_the_most(admin)
        browser.open(admin.url, 360, 740, dark)
        browser.until("document.querySelectorAll('#nodes tbody tr').length === 6")
        browser.until("document.querySelectorAll('#links tbody tr').length >= 20")
        browser.value("document.querySelector('#nodes tbody button').click()")
        assert browser.value("document.documentElement.scrollWidth") <= 360
        outside = "[...document.querySelectorAll('main :not(thead *)')].filter((one) => rightOf(one) > 361)"
        browser.value("window.rightOf = (one) => one.getBoundingClientRect().right; 1")
        assert browser.value(f"{outside}.map((one) => one.outerHTML.slice(0, 80))") == []
        ground = browser.value("getComputedStyle(document.body).backgroundColor")
        assert (int(ground[4:].split(",")[0]) < 100) == dark


def test_it_says_that_the_connection_is_lost_and_comes_back(admin: Admin, data: Path, browser: Browser) -> None:
    with Network(admin.url, data):
        browser.open(admin.url)
        browser.until(f"{row('Oslo', 'State')} === 'live'")
        admin.kill()
        browser.until("!document.querySelector('#lost').hidden", 3)
        assert "The connection to the server is lost" in browser.text("#lost")
        assert browser.text("#connection") == "Connection lost"
        admin.again()
        browser.until("document.querySelector('#lost').hidden", 15)
        browser.until(f"{row('Oslo', 'State')} === 'live'")


def test_a_token_is_asked_for_and_kept_out_of_addresses(start: Callable[..., Admin], browser: Browser) -> None:
    admin = start(page="token")
    token = admin.token("wall", "--scope", "view")
    browser.open("about:blank")
    browser.requested.clear()
    enter = "document.querySelector('#token').value = {}; document.querySelector('#login').requestSubmit()"
    browser.open(admin.url)
    browser.until("!document.querySelector('#login').hidden")
    assert browser.value("document.querySelector('#main').hidden")
    browser.value(enter.format("'wrong'"))
    browser.until("document.querySelector('#refused').innerText.includes('not good')")
    browser.value(enter.format(json.dumps(token)))
    browser.until("document.querySelector('#connection').innerText === 'Live'")
    browser.call("Page.reload")
    browser.until("document.querySelector('#connection')?.innerText === 'Live'")
    assert not [url for url in browser.requested if token in url]
    assert browser.value("localStorage.length + document.cookie.length") == 0
    make_token(admin.data, "another", "--scope", "view")
    browser.value("document.querySelector('#forget').click()")
    browser.until("document.querySelector('#login')?.hidden === false")


def test_tables_and_fields_are_named(admin: Admin, gateway: Gateway, browser: Browser) -> None:
    gateway.heartbeat(metrics={"uptime_s": 1, "links": [{"peer": "0000000a", "bytes_in": 1, "bytes_out": 1}]})
    browser.open(admin.url)
    browser.until(f"{row('paris', 'State')} === 'live'")
    assert browser.value("document.documentElement.lang") == "en"
    assert browser.value("[...document.querySelectorAll('thead th')].every((head) => head.scope === 'col')")
    assert browser.value("[...document.querySelectorAll('tbody th')].every((head) => head.scope === 'row')")
    assert browser.value("[...document.querySelectorAll('input, select')].every((one) => one.labels.length === 1)")
    assert browser.value("[...document.querySelectorAll('svg')].every((one) => one.getAttribute('aria-label'))")
    assert browser.value("document.querySelector('#connection').getAttribute('role')") == "status"
