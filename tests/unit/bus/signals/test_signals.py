"""Tests of signals: each reaches the handler of its kind, and no other."""

from random import Random

import pytest

from fjm2.bus.signals.signals import (
    ANNOUNCEMENT,
    CELL_QUESTION,
    FETCH,
    FOUNDING,
    HEARTBEAT,
    NOTICE,
    VOTE,
    VOTE_REQUEST,
    Signals,
)
from fjm2.bus.statistics import BusStats
from fjm2.norm.events import AckReceived, AckRequested


@pytest.fixture
def stats() -> BusStats:
    return BusStats()


@pytest.fixture
def signals(stats: BusStats) -> Signals:
    return Signals(stats)


def test_kinds_are_those_of_the_documentation() -> None:
    assert list(range(1, 8)) == [ANNOUNCEMENT, HEARTBEAT, VOTE_REQUEST, VOTE, FETCH, FOUNDING, NOTICE]


def test_commands_reach_the_handler_of_their_kind(signals: Signals, stats: BusStats) -> None:
    heard: list[tuple[str, int, bytes]] = []
    signals.hear_commands(HEARTBEAT, lambda node_id, content: heard.append(("heartbeat", node_id, content)))
    signals.hear_commands(FETCH, lambda node_id, content: heard.append(("fetch", node_id, content)))
    signals.handle_command(7, b"\x02one")
    signals.handle_command(8, b"\x05")
    signals.handle_command(9, b"\x03nobody")
    signals.handle_command(9, b"")
    assert heard == [("heartbeat", 7, b"\x02one"), ("fetch", 8, b"\x05")]
    assert stats.signals_unknown == 2


def test_acknowledgements_and_requests_reach_different_handlers(signals: Signals, stats: BusStats) -> None:
    acks: list[tuple[int, AckReceived]] = []
    requests: list[AckRequested] = []
    signals.hear_acks(16, lambda lane, ack: acks.append((lane, ack)))
    signals.hear_requests(17, requests.append)
    for event in (
        AckReceived(1, 16, 0, b"x"),
        AckReceived(1, 17, 0, b"x"),
        AckRequested(2, 16, 3),
        AckRequested(2, 17, 3),
    ):
        assert signals.take_ack(2, event)
    assert acks == [(2, AckReceived(1, 16, 0, b"x"))]
    assert requests == [AckRequested(2, 17, 3)]
    assert stats.signals_unknown == 2


def test_a_kind_has_one_handler_until_it_is_taken_away(signals: Signals, stats: BusStats) -> None:
    signals.hear_commands(3, lambda *_: None)
    with pytest.raises(ValueError, match="kind=3: it has a handler already"):
        signals.hear_commands(3, lambda *_: None)
    signals.hear_commands(3, None)
    signals.hear_commands(3, None)
    signals.handle_command(1, b"\x03")
    assert stats.signals_unknown == 1
    signals.hear_commands(3, lambda *_: None)
    with pytest.raises(ValueError, match="kind=256: expected 0 to 255"):
        signals.hear_acks(256, lambda *_: None)


def test_random_commands_are_counted(signals: Signals, stats: BusStats) -> None:
    random = Random(1)
    commands = [random.randbytes(random.randrange(50)) for _ in range(1000)]
    questions = sum(content[:1] == bytes((CELL_QUESTION,)) for content in commands)
    for content in commands:
        signals.handle_command(random.getrandbits(32), content)
    assert questions > 0, "they are for keepers, and all others hear them"
    assert stats.signals_unknown == 1000 - questions
