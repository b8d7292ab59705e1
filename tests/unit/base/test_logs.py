"""Tests of structured logs: both formats, protection against forged lines, and rate limits."""

import json
import logging
from collections.abc import Iterator

import pytest

from fjm2.base import logs
from fjm2.base.logs import AGAIN_S, JsonLines, Log, TextLines

NAME = "fjm2test.part"


class Kept(logging.Handler):
    """A log handler that keeps the records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def entries(self) -> list[dict[str, object]]:
        return [json.loads(JsonLines().format(record)) for record in self.records]


@pytest.fixture
def kept() -> Iterator[Kept]:
    logger, handler = logging.getLogger(NAME), Kept()
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.propagate = True
    logger.setLevel(logging.NOTSET)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_an_event_is_its_name_and_fields_in_both_forms(kept: Kept) -> None:
    Log(NAME).warning("peer_down", peer="lyon", seconds=1.5, tries=3)
    (entry,) = kept.entries
    assert entry | {"time": ""} == {
        "time": "",
        "level": "warning",
        "part": NAME,
        "event": "peer_down",
        "peer": "lyon",
        "seconds": 1.5,
        "tries": 3,
    }
    assert str(entry["time"]).endswith("+00:00")
    line = TextLines().format(kept.records[0])
    assert line[12:] == " warning peer_down peer=lyon seconds=1.5 tries=3"


@pytest.mark.parametrize("hostile", ['x"\n12:00:00 info forged', "a b", "a=b", "\x1b[31m", "ü", "", "\\", "\u2028x"])
def test_no_value_can_look_like_another_line_or_field(kept: Kept, hostile: str) -> None:
    Log(NAME).info("peer_up", peer=hostile, n=3)
    line = TextLines().format(kept.records[0])
    assert len(line.splitlines()) == 1
    assert line.isascii()
    assert line.endswith(f" peer_up peer={json.dumps(hostile)} n=3")
    json_line = JsonLines().format(kept.records[0])
    assert len(json_line.splitlines()) == 1
    assert json.loads(json_line)["peer"] == hostile


def test_a_failure_of_each_kind_is_logged_once_a_minute(kept: Kept) -> None:
    clock = Clock()
    log = Log(NAME, clock)
    for _ in range(5):
        log.failure("task_failed", ValueError("no sense"), task="age")
    log.failure("task_failed", KeyError("x"), task="age")
    log.failure("unexpected", ValueError("no sense"))
    assert [(entry["event"], entry["error"]) for entry in kept.entries] == [
        ("task_failed", "no sense"),
        ("task_failed", "'x'"),
        ("unexpected", "no sense"),
    ]
    assert "left_out" not in kept.entries[0]
    assert "ValueError: no sense" in str(kept.entries[0]["exception"])
    assert "ValueError: no sense" in TextLines().format(kept.records[0]).splitlines()[-1]
    clock.now += AGAIN_S
    log.failure("task_failed", ValueError("again"), task="age")
    assert kept.entries[-1]["left_out"] == 4
    clock.now += AGAIN_S
    log.failure("task_failed", ValueError("again"), task="age")
    assert "left_out" not in kept.entries[-1]


def test_events_caused_by_peers_are_rate_limited_for_each_peer(kept: Kept) -> None:
    clock = Clock()
    log = Log(NAME, clock)
    for _ in range(3):
        for address in ("192.0.2.1", "192.0.2.2"):
            clock.now += 1
            log.seldom(logging.INFO, "unauthorised", address, address=address)
    assert [entry["address"] for entry in kept.entries] == ["192.0.2.1", "192.0.2.2"]


def test_the_memory_of_rate_limits_is_bounded(kept: Kept) -> None:
    log = Log(NAME, Clock())
    for number in range(5000):
        log.seldom(logging.INFO, "unauthorised", number)
    assert len(kept.records) == 5000
    log.seldom(logging.INFO, "unauthorised", 4999)
    assert len(kept.records) == 5000
    log.seldom(logging.INFO, "unauthorised", 0)  # its entry has long been forgotten
    assert len(kept.records) == 5001


def test_levels_and_forms_are_set_for_the_service_alone(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = root.handlers, root.level
    try:
        for form in ("json", "text", "auto"):
            logs.set_up("fjm2test", "debug", form)
            Log(NAME).debug("heard", n=1)
            logging.getLogger("other").info("not told")
            logging.getLogger("other").warning("told")
        logs.set_up("fjm2test", "error", "text")
        Log(NAME).warning("not told either")
        assert not Log(NAME).is_debugging
    finally:
        root.handlers, root.level = before
        logging.getLogger("fjm2test").setLevel(logging.NOTSET)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 6
    assert json.loads(lines[0])["event"] == "heard"
    assert lines[2].endswith("debug   heard n=1")
    assert json.loads(lines[5]) | {"time": ""} == {"time": "", "level": "warning", "part": "other", "event": "told"}
