"""A checker of histories: what agents wrote down about one run, held against what FJM2 promises.

Promises, for each publisher, topic and priority (a *sequence*), and each subscriber that was not killed:

1. Every message arrives at most once, in order, and unaltered.
2. The first message behind a loss has the gap flag.
3. Messages that a subscriber lost are told to the subscriber, and to the publisher, by name. A publisher is not told
   what consumers drop because their owner asked for it (`overflow`).
4. Nothing is lost between a subscriber's `ready` and its end without 2 and 3.

Bounds on time (how long a send may be held) belong to the scenarios.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

_DROPPED = "MessagesDroppedError"
"""Told to a subscriber whose consumer was full and dropped messages."""
_LOSSES = ("MessagesLostError", _DROPPED)
"""Told to a subscriber that lost messages."""

Sequence = tuple[str, str, int]
"""Publisher, topic and priority."""


class Range(NamedTuple):
    """Consecutive messages of a sequence."""

    at: float
    first: int
    end: int
    has_gap: bool


@dataclass
class Told:
    """A problem that an application was told."""

    at: float
    kind: str
    text: str
    code: str | None = None
    nodes: tuple[int, ...] = ()


@dataclass
class Life:
    """The log of one process."""

    name: str
    role: str
    node_id: int = 0
    ready_at: float = 0.0
    closing_at: float = float("inf")
    """Time at which the process began to close; infinite if it was killed."""
    is_closed: bool = False
    """False if the process was killed."""
    closed_at: float = float("inf")
    is_unread: bool = False
    """True for a subscriber that never reads."""
    began: list[tuple[float, int, int]] = field(default_factory=list)
    """Messages that a publisher was about to send in each sequence: time, first number, count."""
    sent: int | None = None
    """Messages sent in each sequence by a publisher that closed; None if it was killed."""
    got: dict[Sequence, list[Range]] = field(default_factory=lambda: defaultdict(list))
    told: list[Told] = field(default_factory=list)
    held_s: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def begun(self) -> int:
        """Number of messages in each sequence that the publisher may have sent."""
        return max((first + count for _, first, count in self.began), default=0)


def read(path: Path) -> Life:
    """Read the log of one process. A line that a kill cut short is ignored."""
    life = Life(path.stem, "")
    for line in path.read_text().splitlines():
        try:
            entry: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        match entry["event"]:
            case "ready":
                life.role, life.node_id, life.ready_at = entry["role"], entry["node_id"], entry["at"]
                life.is_unread = entry["is_unread"]
            case "send":
                life.began.append((entry["at"], entry["first"], entry["count"]))
            case "sent":
                life.sent = entry["count"]
            case "got":
                key = entry["sender"], entry["topic"], entry["priority"]
                life.got[key].append(Range(entry["at"], entry["first"], entry["end"], entry["gap"]))
            case "told":
                life.told.append(Told(entry["at"], entry["kind"], entry["text"], entry["code"], tuple(entry["nodes"])))
            case "held":
                life.held_s.append(entry["seconds"])
            case "fault" | "failed":
                life.faults.append(entry["text"])
            case "closing":
                life.closing_at = entry["at"]
            case "closed":
                life.is_closed, life.closed_at = True, entry["at"]
    return life


class Loss(NamedTuple):
    """Messages of a sequence that a subscriber did not get."""

    subscriber: str
    sequence: Sequence
    first: int
    end: int
    is_tail: bool
    """True if nothing came after them."""


@dataclass
class Verdict:
    """Broken promises, and losses that were reported as promised."""

    broken: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)


def check(lives: Iterable[Life], sequences: Iterable[tuple[str, int]]) -> Verdict:
    """Hold the logs of one run against the promises. `sequences` are the topics and priorities of every publisher."""
    verdict = Verdict()
    lives = list(lives)
    publishers = {life.name: life for life in lives if life.role == "publish"}
    places = list(sequences)
    for life in lives:
        verdict.broken += [f"{life.name}: {fault}" for fault in life.faults]
        if life.role != "subscribe":
            continue
        for publisher in publishers.values():
            for topic, priority in places:
                verdict.losses += _sequence_losses(life, publisher, (publisher.name, topic, priority), verdict.broken)
    by_subscriber: dict[tuple[str, str], list[Loss]] = defaultdict(list)
    for loss in verdict.losses:
        by_subscriber[loss.subscriber, loss.sequence[0]].append(loss)
    named = {life.name: life for life in lives}
    for (subscriber, publisher), losses in by_subscriber.items():
        verdict.broken += _untold(named[subscriber], publishers[publisher], losses)
    return verdict


def _sequence_losses(life: Life, publisher: Life, sequence: Sequence, broken: list[str]) -> Iterator[Loss]:
    """Yield what a subscriber lost of one sequence, and note what arrived against the promises."""
    ranges = life.got.get(sequence, [])
    name = f"{life.name}: {'/'.join(map(str, sequence))}"
    expected = _first_expected(life, publisher)
    if ranges:
        expected = min(expected, ranges[0].first)  # a newcomer may get some messages that were sent before
    for _, first, end, has_gap in ranges:
        if first < expected:
            broken.append(f"{name}: {first} came again or out of order, {expected} was next")
        if end > publisher.begun:
            broken.append(f"{name}: {end - 1} was never sent")
        if first > expected:
            if not has_gap:
                broken.append(f"{name}: {first} has no gap flag, and {expected} to {first - 1} are missing")
            yield Loss(life.name, sequence, expected, first, False)
        expected = max(expected, end)
    if not life.is_closed or life.is_unread or life.closing_at < publisher.closed_at:
        return  # it was killed, reads nothing, or left before the end
    if publisher.sent is not None and expected < publisher.sent:
        yield Loss(life.name, sequence, expected, publisher.sent, True)


def _first_expected(life: Life, publisher: Life) -> int:
    """Return the number of the first message that the publisher can only have sent after the subscriber was ready."""
    before = [first + count for at, first, count in publisher.began if at <= life.ready_at]
    return max(before, default=0)


def _untold(subscriber: Life, publisher: Life, losses: list[Loss]) -> Iterator[str]:
    """Yield a text for each side that was not told of losses."""
    example = losses[0]
    count = sum(loss.end - loss.first for loss in losses)
    text = f"{subscriber.name} lost {count} messages of {publisher.name}, such as {example.first} to {example.end - 1}"
    if not any(told.kind in _LOSSES for told in subscriber.told):
        yield f"{text}: the subscriber was not told"
    if publisher.sent is None:
        return  # it was killed
    if any(told.kind == _DROPPED for told in subscriber.told):
        return
    if not any(_names(told, subscriber) for told in publisher.told):
        yield f"{text}: the publisher was not told"


def _names(told: Told, subscriber: Life) -> bool:
    """Return True if a report names the subscriber."""
    return subscriber.name in told.text or f"{subscriber.node_id:#x}" in told.text or subscriber.node_id in told.nodes
