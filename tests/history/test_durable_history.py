"""The checker of durable histories finds each kind of broken promise, in linear time."""

import gc
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from durable_history import Entry, check, missing, read_all

LANE = 0


class Script:
    """Logs of processes, written in the order of events."""

    def __init__(self) -> None:
        self.logs: dict[str, list[Entry]] = {}
        self._now = itertools.count(1)

    def add(self, process: str, event: str, **fields: Any) -> None:
        self.logs.setdefault(process, []).append({"at": float(next(self._now)), "event": event, **fields})

    def send(self, *numbers: int, outcome: str | None = "sent", producer: str = "p", **fields: Any) -> None:
        for number in numbers:
            self.add(producer, "send", lane=LANE, number=number, **fields)
            if outcome is not None:
                self.add(producer, outcome, lane=LANE, number=number, in_doubt=fields.get("in_doubt", True))

    def begin(self, consumer: str = "c", **fields: Any) -> None:
        self.add(consumer, "session", subscription="s", **fields)

    def get(self, *numbers: int, consumer: str = "c", flagged: bool = False, whole: bool = True) -> None:
        for number in numbers:
            self.add(consumer, "got", producer="p", lane=LANE, number=number, redelivered=flagged, whole=whole)

    def acknowledge(self, consumer: str = "c", outcome: str | None = "acknowledged") -> None:
        self.add(consumer, "acknowledge")
        if outcome is not None:
            self.add(consumer, outcome)

    def end(self, consumer: str = "c") -> None:
        self.add(consumer, "killed")

    def broken(self) -> dict[str, int]:
        return dict(check(self.logs).counts)


@pytest.fixture
def script() -> Script:
    """Return logs in which a consumer is there, and three messages were sent."""
    script = Script()
    script.begin()
    script.send(1, 2, 3)
    return script


def test_a_history_without_harm_is_fine(script: Script) -> None:
    script.get(1, 2, 3)
    script.acknowledge()
    verdict = check(script.logs)
    assert verdict.broken == []
    assert (verdict.sent, verdict.delivered, verdict.redelivered, verdict.in_doubt) == (3, 3, 0, 0)
    assert missing(script.logs) == 0


def test_messages_come_again_to_the_next_session_until_they_are_acknowledged(script: Script) -> None:
    script.get(1, 2)
    script.acknowledge(outcome=None)
    script.end()
    script.begin()
    script.get(1, 2, flagged=True)
    script.get(3)
    script.acknowledge()
    assert script.broken() == {}


def test_a_message_that_never_arrives_is_lost(script: Script) -> None:
    script.get(1, 3)
    script.acknowledge()
    (text,) = check(script.logs).broken
    assert text == "lost (1 of 1): s never got p/0/2"
    assert missing(script.logs) == 1


@pytest.mark.parametrize("outcome", [None, "unacknowledged"])
def test_a_message_that_is_not_acknowledged_has_to_come_again(script: Script, outcome: str | None) -> None:
    script.get(1, 2)
    if outcome is not None:
        script.acknowledge(outcome=outcome)
    script.end()
    script.begin()
    script.get(3)
    script.acknowledge()
    assert script.broken() == {"lost": 2}


def test_a_message_is_not_lost_if_its_send_failed_or_came_before_the_subscription() -> None:
    script = Script()
    script.send(1)
    script.begin()
    script.send(2, outcome="failed")
    script.send(3, outcome=None)
    assert script.broken() == {}
    assert check(script.logs).in_doubt == 2


def test_a_message_that_comes_again_to_the_session_that_acknowledged_it_is_doubled(script: Script) -> None:
    script.get(1, 2, 3)
    script.acknowledge()
    script.get(3, flagged=True)
    assert script.broken() == {"doubled": 1}


def test_a_message_that_comes_twice_to_a_session_without_a_flag_is_doubled(script: Script) -> None:
    script.get(1, 2, 2, 3)
    script.acknowledge()
    assert script.broken() == {"doubled": 1}


def test_a_message_that_comes_to_the_next_session_without_a_flag_is_doubled(script: Script) -> None:
    script.get(1, 2)
    script.end()
    script.begin()
    script.get(1, flagged=True)
    script.get(2, 3)
    script.acknowledge()
    assert script.broken() == {"doubled": 1}


def test_an_acknowledged_message_that_comes_to_another_session_is_resurrected(script: Script) -> None:
    script.get(1, 2, 3)
    script.acknowledge()
    script.end()
    script.begin()
    script.get(2, 3, flagged=True)
    assert script.broken() == {"resurrected": 2}


def test_messages_in_the_wrong_order_are_found(script: Script) -> None:
    script.get(1, 3, 2)
    script.acknowledge()
    assert script.broken() == {"reordered": 1}


def test_an_early_message_that_comes_to_the_next_session_first_is_found(script: Script) -> None:
    script.get(2)
    script.end()
    script.begin()
    script.get(1)
    script.get(2, flagged=True)
    script.get(3)
    script.acknowledge()
    assert script.broken() == {"reordered": 1}


def test_a_flagged_message_in_the_wrong_order_is_found(script: Script) -> None:
    script.get(1, 2, 3)
    script.end()
    script.begin()
    script.get(1, 3, 2, flagged=True)
    script.acknowledge()
    assert script.broken() == {"reordered": 1}


def test_messages_come_again_after_a_recover(script: Script) -> None:
    script.get(1, 2)
    script.add("c", "recover")
    script.get(1, 2, flagged=True)
    script.get(3)
    script.acknowledge()
    assert script.broken() == {}


def test_messages_that_come_again_after_a_recover_keep_their_order(script: Script) -> None:
    script.get(1, 2, 3)
    script.add("c", "recover")
    script.get(2, 1, 3, flagged=True)
    script.acknowledge()
    assert script.broken() == {"reordered": 1}


def test_consumers_that_share_a_subscription_may_overtake_each_other(script: Script) -> None:
    script.logs.clear()
    script.begin("c", shared=True)
    script.begin("d", shared=True)
    script.send(1, 2, 3)
    script.get(2, consumer="d")
    script.get(1, 3)
    script.acknowledge("c")
    script.acknowledge("d")
    assert script.broken() == {}
    script.get(1, consumer="d", flagged=True)
    assert script.broken() == {"resurrected": 1}


def test_an_altered_body_is_torn(script: Script) -> None:
    script.get(1)
    script.get(2, whole=False)
    script.get(2, 3)
    script.acknowledge()
    assert script.broken() == {"torn": 1}


@pytest.mark.parametrize(("outcome", "broken"), [("committed", {"lost": 1, "torn": 1}), (None, {"torn": 1})])
def test_a_part_of_a_transaction_is_torn(script: Script, outcome: str | None, broken: dict[str, int]) -> None:
    script.get(1, 2, 3)
    script.send(4, 5, outcome=None, transaction=7)
    script.add("p", "commit", transaction=7)
    if outcome is not None:
        script.add("p", outcome, transaction=7)
    script.get(4)
    script.acknowledge()
    assert script.broken() == broken
    script.get(5)
    script.acknowledge()
    assert script.broken() == {}


def test_a_message_that_nobody_sent_is_invented(script: Script) -> None:
    script.get(1, 2, 3, 4)
    script.acknowledge()
    assert script.broken() == {"invented": 1}


def test_a_message_whose_send_failed_for_certain_is_invented(script: Script) -> None:
    script.send(4, outcome="failed", in_doubt=False)
    script.send(5, outcome=None, transaction=7)
    script.add("p", "rolled_back", transaction=7, in_doubt=False)
    script.get(1, 2, 3, 4, 5)
    script.acknowledge()
    assert script.broken() == {"invented": 2}


def test_only_the_first_violations_of_a_kind_are_described(script: Script) -> None:
    script.send(*range(4, 104))
    verdict = check(script.logs)
    assert verdict.counts["lost"] == 103
    assert len(verdict.broken) == 5


def test_half_a_line_of_a_killed_process_does_not_count(tmp_path: Path, script: Script) -> None:
    for name, entries in script.logs.items():
        lines = [json.dumps(entry) for entry in entries]
        (tmp_path / f"{name}.jsonl").write_text("\n".join([*lines, lines[-1][:-5]]))
    assert check(read_all(tmp_path)).counts["lost"] == 3


def long_history(messages: int) -> dict[str, Iterator[Entry]]:
    """Return the logs of a publisher and a consumer that acknowledges each 100 messages, made as they are read."""

    def publish() -> Iterator[Entry]:
        for number in range(messages):
            yield {"at": float(number), "event": "send", "lane": LANE, "number": number}
            yield {"at": number + 0.2, "event": "sent", "lane": LANE, "number": number}

    def consume() -> Iterator[Entry]:
        yield {"at": -1.0, "event": "session", "subscription": "s"}
        common = {"event": "got", "producer": "p", "lane": LANE, "redelivered": False, "whole": True}
        for number in range(messages):
            yield {"at": number + 0.1, "number": number, **common}
            if number % 100 == 99:
                yield {"at": number + 0.3, "event": "acknowledge"}
                yield {"at": number + 0.4, "event": "acknowledged"}

    return {"p": publish(), "c": consume()}


def test_a_million_events_take_ten_times_as_long_as_a_hundred_thousand() -> None:
    took_s = []
    for messages in (33_000, 330_000):
        logs = long_history(messages)
        gc.collect()
        began = time.process_time()
        verdict = check(logs)
        took_s.append(time.process_time() - began)
        assert (verdict.sent, verdict.delivered, verdict.broken) == (messages, messages, [])
    # A quadratic checker would need a hundred times as long. The garbage collector is slower in larger heaps.
    assert took_s[1] < 30 * took_s[0], took_s
