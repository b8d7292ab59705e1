"""Tests that the logged events are exactly those in docs/observability.md, and that their rate is limited."""

import ast
import json
import logging
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from syntax import tree_of

from fjm2.base.logs import TELL_AGAIN_S, JsonLines, Limiter, Log, TextLines
from fjm2.bus.errors import BusError, ListenerError, MessagesLostError, UnconfirmedError
from fjm2.bus.problems import ADVICE, event_of, log_problem
from fjm2.bus.statistics import BUS_INSTRUMENTS
from fjm2.keeper.counts import KEEPER_INSTRUMENTS
from fjm2.messages.errors import IllegalStateError, InvalidClientIDError, JMSError
from fjm2.norm.net.statistics import SESSION_INSTRUMENTS

pytestmark = pytest.mark.usefixtures("keeping_trees")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "observability.md").read_text()
NAME = "fjm2test.events"


class Event(NamedTuple):
    name: str
    logger: str
    level: str


# The page.


def described() -> set[Event]:
    rows = re.findall(r"^\| `(\w+)` \| `(fjm2\.\w+)` \| (\w+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == len({name for name, *_ in rows})
    assert all(told for *_, told in rows)
    return {Event(name, logger, level) for name, logger, level, _ in rows}


@cache
def sources(package: str) -> list[tuple[Path, ast.Module]]:
    return [(path, tree_of(path)) for path in sorted((ROOT / package).rglob("*.py"))]


def loggers_of(module: ast.Module) -> dict[str, str]:
    """Return the names of the Log objects in a module, with the names of their loggers."""
    found = {}
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "Log":
            (target,), (name,) = node.targets, node.value.args
            found[ast.unparse(target)] = str(ast.literal_eval(name))
    return found


def calls_of(module: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls in a module of the form `name(...)` or `owner.name(...)`, each with that name."""
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Name(name)):
                yield name, node
            case ast.Call(func=ast.Attribute(ast.Name(owner), name)):
                yield f"{owner}.{name}", node


def logged() -> set[Event]:
    """Return the events that the library logs: by calls of `tell` and `warn`, and by the table of advice."""
    found = {Event(name, "fjm2.jms", "warning") for name in ADVICE}
    for path, module in sources("fjm2"):
        loggers = loggers_of(module)
        for function, call in calls_of(module):
            if function.endswith(".tell") and function.removesuffix(".tell") in loggers:
                level, event = call.args[:2]
                if isinstance(event, ast.Constant):
                    logger = loggers[function.removesuffix(".tell")]
                    found.add(Event(event.value, logger, ast.unparse(level).removeprefix("logging.").lower()))
                else:
                    assert ast.unparse(event) == "event"
            elif function == "warn":
                event = call.args[0]
                assert isinstance(event, ast.Constant), f"{path}: an event is to be a text"
                found.add(Event(event.value, "fjm2.norm", "warning"))
    return found


def test_the_page_and_the_code_have_the_same_events() -> None:
    assert described() == logged()


def test_the_library_logs_in_this_way_alone() -> None:
    for path, module in sources("fjm2"):
        for function, call in calls_of(module):
            if path.name != "logs.py" and function == "logging.getLogger":
                assert "commands" in path.parts, f"{path}:{call.lineno}: use fjm2.base.logs"
            assert function != "warnings.warn", f"{path}:{call.lineno}: use fjm2.base.logs"


WRITING = re.compile(r"log\.(debug|info|warning|error|seldom|failure)")


@pytest.mark.parametrize("service", ["fjm2d", "fjm2admin"])
def test_the_page_and_the_services_have_the_same_events(service: str) -> None:
    rows = dict(re.findall(r"^\| (`fjm2d`|its peers|its node list|`fjm2admin`) \| (`.+`) \|$", PAGE, re.MULTILINE))
    of_gateway = [told for part, told in rows.items() if part != "`fjm2admin`"]
    told = set(re.findall(r"`(\w+)`", " ".join(of_gateway) if service == "fjm2d" else rows["`fjm2admin`"]))
    written, texts = set(), set()
    for _, module in sources(service):
        texts |= {node.value for node in ast.walk(module) if isinstance(node, ast.Constant)}
        for function, call in calls_of(module):
            if WRITING.fullmatch(function):
                event = call.args[1 if function == "log.seldom" else 0]
                written |= {event.value} if isinstance(event, ast.Constant) else set()
    assert written <= told
    assert told <= texts


def test_the_page_names_every_metric_and_no_other() -> None:
    """Counters have the names under which they are served, with `_total`."""
    metrics = {one.metric for one in (*SESSION_INSTRUMENTS, *BUS_INSTRUMENTS, *KEEPER_INSTRUMENTS) if one.metric} | {
        "fjm2_info"
    }
    start = PAGE.index("<!-- counters of session: begin")
    described = set(re.findall(r"`(fjm2_\w+)`", PAGE[start : PAGE.index("### Metrics of gateways")]))
    assert described == metrics
    used = set(re.findall(r"fjm2_\w+", PAGE[:start]))
    assert used <= metrics


# Texts of events.


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_an_event_is_in_front_of_the_text_and_in_the_record(caplog: pytest.LogCaptureFixture) -> None:
    Log(NAME, Clock()).tell(logging.WARNING, "disk_refused", "the disk is full; make room", size=3)
    (record,) = caplog.records
    assert record.getMessage() == "disk_refused: the disk is full; make room"
    assert (record.levelno, record.__dict__["event"], record.__dict__["fields"]) == (30, "disk_refused", {"size": 3})
    entry = json.loads(JsonLines().format(record))
    assert entry | {"time": ""} == {
        "time": "",
        "level": "warning",
        "part": NAME,
        "event": "disk_refused",
        "text": "disk_refused: the disk is full; make room",
        "size": 3,
    }
    assert TextLines().format(record)[12:] == " warning disk_refused: the disk is full; make room"


def test_an_event_is_logged_once_in_ten_seconds_for_each_subject(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    log = Log(NAME, clock)

    def tell(about: str) -> None:
        log.tell(logging.WARNING, "full", f"{about} is full", about=about)

    for _ in range(7):
        tell("a")
        clock.now += 1
    tell("b")
    assert messages(caplog) == ["full: a is full", "full: b is full"]
    clock.now = 1000 + TELL_AGAIN_S
    tell("a")
    tell("a")
    assert messages(caplog)[2:] == ["full: a is full (6 more like it)"]
    assert caplog.records[2].__dict__["fields"] == {"left_out": 6}
    clock.now += TELL_AGAIN_S
    tell("a")
    clock.now += TELL_AGAIN_S
    tell("a")
    assert messages(caplog)[3:] == ["full: a is full (1 more like it)", "full: a is full"]


def test_disabled_levels_are_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(NAME, Clock())
    with caplog.at_level(logging.ERROR, NAME):
        log.tell(logging.WARNING, "full", "a is full")
    log.tell(logging.WARNING, "full", "a is full")
    assert messages(caplog) == ["full: a is full"]


@pytest.mark.parametrize("hostile", ["a\nb", "a\x1b[31mb", "a\u2028b", "a\rb", "a\udcffb"])
def test_no_text_can_look_like_another_line(caplog: pytest.LogCaptureFixture, hostile: str) -> None:
    Log(NAME, Clock()).tell(logging.WARNING, "full", hostile)
    (message,) = messages(caplog)
    assert message.isprintable()


def test_the_memory_of_a_limiter_is_bounded() -> None:
    clock = Clock()
    limiter = Limiter(clock)
    for number in range(100_000):
        assert limiter.left_out(number, 10.0) == 0
    assert len(limiter) == 1024
    assert limiter.left_out(99_999, 10.0) is None
    assert limiter.left_out(0, 10.0) == 0  # long forgotten


def test_frequent_subjects_are_remembered_among_many_others() -> None:
    limiter = Limiter(Clock())
    assert limiter.left_out("often", 10.0) == 0
    for number in range(10_000):
        limiter.left_out(number, 10.0)
        assert limiter.left_out("often", 10.0) is None


# Problems without an exception listener.


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (MessagesLostError("bytes are lost"), "messages_lost"),
        (UnconfirmedError("not confirmed"), "unconfirmed"),
        (InvalidClientIDError("in use"), "client_id_in_use"),
        (BusError("interface lo is down", "interface_down"), "interface_down"),
        (BusError("the kernel refuses what this host sends over lo: ...", "sends_refused"), "sends_refused"),
        (BusError("something", "unheard_of"), "problem"),
        (BusError("something"), "problem"),
        (IllegalStateError("closed"), "problem"),
        (ValueError("no sense"), "problem"),
    ],
)
def test_each_problem_has_an_event_with_advice(
    error: Exception, event: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fjm2.bus.problems.log", Log("fjm2.jms"))
    assert event_of(error) == event
    log_problem(error)
    (record,) = caplog.records
    assert record.getMessage() == f"{event}: {error}; {ADVICE[event]}"
    assert record.__dict__["fields"] == {"error_kind": type(error).__name__}


def test_exceptions_of_listeners_are_logged_with_their_traceback(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fjm2.bus.problems.log", Log("fjm2.jms"))
    log_problem(ListenerError("a message listener raised", linked_exception=KeyError("price")))
    log_problem(ListenerError("a message listener raised", linked_exception=ValueError("x")))
    log_problem(JMSError("the message may not have been sent"))
    assert "KeyError: 'price'" in caplog.text
    assert "ValueError: x" in caplog.text
    assert caplog.records[2].exc_info is None
