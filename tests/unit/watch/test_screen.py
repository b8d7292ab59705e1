"""Tests of the screen of `fjm2 top`, and of what it leaves out in a small terminal."""

import re
from io import StringIO
from typing import Literal

import pytest
from rich.console import Console
from sightings import Node

from fjm2.bus.presence import Flag
from fjm2.commands.support.screen import draw
from fjm2.watch import BusReport, BusWatch

FEED, DESK = 0xFEED, 0xDE5C


def busy_bus(desks: int = 5) -> BusWatch:
    """Return the state of a bus with one feed and several desks. The first desk stops answering at 2.0 s."""
    watch = BusWatch(now=0.0)
    feed = Node(5, watch)
    feed.announce(FEED, 0.0, client_id="feed", lanes=(5,), valid_s=600)
    for number in range(desks):
        desk = Node(100 + number, watch)
        desk.announce(DESK + number, 0.0, client_id=f"desk-{number}", valid_s=600)
        feed.ask(1, (desk.node_id,), 1.0)
        desk.confirm(5, 1, 1.0 + number / 100)
    feed.publish(FEED, 10, 1.5)
    for tenth in range(20, 70):
        feed.ask(2, (100,), tenth / 10)
    return watch


def shown(report: BusReport, width: int, height: int, *, colours: bool = False) -> list[str]:
    file = StringIO()
    system: Literal["standard"] | None = "standard" if colours else None
    console = Console(file=file, width=width, height=height, highlight=False, color_system=system)
    console.print(draw(report, "239.1.1.1:5740 on eth0", width, height))
    return file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(160, 50), (80, 24), (60, 15), (40, 10), (30, 6)])
def test_the_awaited_receiver_is_shown_in_any_terminal(width: int, height: int) -> None:
    lines = shown(busy_bus().report(6.9), width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    assert lines[2].startswith("slowest receiver: desk-0")


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.nightly)])
def test_no_figure_is_cut(step: int) -> None:
    report = busy_bus(30).report(6.9)
    for width in range(30, 200, step):
        assert not [line for line in shown(report, width, 200) if re.search(r"[0-9][.,0-9]*[a-zA-Z%]*…", line)], width


def test_a_given_up_receiver_is_highlighted() -> None:
    watch = busy_bus()
    watch.report(12.0)
    Node(5, watch).publish(FEED, 1, 12.1)
    report = watch.report(13.0)
    lines = shown(report, 80, 24)
    assert lines[2] == "given up: desk-0 by feed, too slow or dead; 0 NACKs"
    first = lines[next(at for at, line in enumerate(lines) if line.startswith("RECEIVER")) + 1]
    assert first.split()[:4] == ["desk-0", "-", "given", "up"]
    assert "\x1b[1;31mgiven up: desk-0" in "\n".join(shown(report, 80, 24, colours=True))


def test_a_full_receiver_is_shown_as_full() -> None:
    watch = busy_bus()
    Node(watch.report(6.9).receivers[0].node_id, watch).confirm_full(5, 6.9)
    lines = shown(watch.report(6.9), 160, 50)
    assert lines[2].startswith("slowest receiver: desk-0, full, ")
    first = lines[next(at for at, line in enumerate(lines) if line.startswith("RECEIVER")) + 1]
    assert "full " in first


def test_a_subscriber_by_pattern_is_shown_beside_topics() -> None:
    watch = busy_bus(2)
    Node(70, watch).announce(0x70, 6.8, client_id="all", flags=Flag.WANTS_ALL)
    lines = shown(watch.report(6.9), 160, 50)
    first = lines[next(at for at, line in enumerate(lines) if line.startswith("TOPIC")) + 1].split()
    assert first[5].endswith("+")
    assert "all?" in first


def test_a_small_terminal_shows_receivers_first() -> None:
    lines = shown(busy_bus(8).report(6.9), 40, 10)
    titles = [line for line in lines if line.split()[0].isupper() and line.split()[0].isalpha()]
    assert [title.split() for title in titles] == [
        ["TOPIC", "MSG/S", "B/S", "MSGS", "PUB", "SUB"],
        ["SENDER", "MSG/S", "B/S", "MISSED"],
        ["RECEIVER", "CONFIRMS", "IN", "AWAITED"],
    ]
    assert any(line.startswith("feed ") for line in lines)
    assert any(line.startswith("desk-0 ") for line in lines)


def test_a_tiny_terminal_is_no_error() -> None:
    for width, height in ((1, 1), (10, 3), (5, 100)):
        assert shown(busy_bus(300).report(6.9), width, height)
