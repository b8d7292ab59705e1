"""A checker of histories: what agents wrote down about one run, held against what FJM2 promises.

Promises, for each publisher, topic and priority (a *sequence*), and each subscriber that was not killed:

1. Every message arrives at most once, in order, and unaltered.
2. The first message behind a loss has the gap flag.
3. Messages that a subscriber lost are told to the subscriber, and to the publisher, by name. A publisher is not told
   what consumers drop because their owner asked for it (`overflow`). If a subscriber is given up, comes back, and loses
   the end, the publisher is told again.
4. Nothing is lost between a subscriber's `ready` and its end without 2 and 3.
5. Of a transaction, a subscriber gets everything or nothing.
6. A subscriber that has some of a transaction whose publisher was killed is told within about six seconds.
7. A file arrives whole, or is told to both sides.

Bounds on time (how long a send may be held) belong to the scenarios.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

_DROPPED = "MessagesDroppedError"
"""Told to a subscriber whose consumer was full and dropped messages."""
_LOST = "MessagesLostError"
_LOSSES = (_LOST, _DROPPED)
"""Told to a subscriber that lost messages."""
_CUT_S = 0.5
"""Time of a commit after which each subscriber has some of it, even on a busy machine."""
_TOLD_OF_CUT_S = 7.5
"""Time after a kill by which subscribers are told of the transaction that it cut: 5 s of silence, a check once a
second, and what a busy machine adds."""

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
    is_summary: bool = False
    """True for the summary of an outage."""


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
    killed_at: float = float("inf")
    was_stopped: bool = False
    """True if the process was stopped for a while, so that its own sends were held."""
    is_unread: bool = False
    """True for a subscriber that never reads."""
    takes_files: bool = False
    began: list[tuple[float, int, int]] = field(default_factory=list)
    """Messages that a publisher was about to send in each sequence: time, first number, count."""
    sent: int | None = None
    """Messages sent in each sequence by a publisher that closed; None if it was killed."""
    got: dict[Sequence, list[Range]] = field(default_factory=lambda: defaultdict(list))
    told: list[Told] = field(default_factory=list)
    held_s: list[float] = field(default_factory=list)
    """Seconds for which sends were held, without time in which the machine ran other programs instead."""
    lulls: list[tuple[float, float]] = field(default_factory=list)
    """Times without a message at a subscriber: when they ended, and seconds."""
    is_transacted: bool = False
    commit_at: float | None = None
    """Time at which the publisher began to commit its last transaction; None if all commits had ended."""
    files: list[tuple[str, int]] = field(default_factory=list)
    """Publishers and numbers of files that were sent or received."""
    faults: list[str] = field(default_factory=list)

    @property
    def begun(self) -> int:
        """Number of messages in each sequence that the publisher may have sent."""
        return max((first + count for _, first, count in self.began), default=0)

    def sent_at(self, number: int) -> float:
        """Return a time shortly before the publisher sent the messages with a number; 0 if it sent none before it."""
        return max((at for at, first, _ in self.began if first <= number), default=0.0)


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
                life.is_unread, life.takes_files = entry["is_unread"], entry["takes_files"]
            case "send":
                life.began.append((entry["at"], entry["first"], entry["count"]))
            case "sent":
                life.sent = entry["count"]
            case "got":
                key = entry["sender"], entry["topic"], entry["priority"]
                life.got[key].append(Range(entry["at"], entry["first"], entry["end"], entry["gap"]))
            case "told":
                nodes, is_summary = tuple(entry["nodes"]), entry["is_summary"]
                life.told.append(Told(entry["at"], entry["kind"], entry["text"], entry["code"], nodes, is_summary))
            case "held":
                life.held_s.append(entry["seconds"] - entry["starved_s"])
            case "lull":
                life.lulls.append((entry["at"], entry["seconds"]))
            case "commit":
                life.is_transacted, life.commit_at = True, entry["at"]
            case "committed":
                life.commit_at = None
            case "file":
                life.files.append((entry["sender"], entry["number"]))
            case "killed":
                life.killed_at = entry["at"]
            case "stopped":
                life.was_stopped = True
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
            verdict.broken += _transactions(life, publisher, [(publisher.name, *place) for place in places])
            verdict.broken += _files(life, publisher)
    by_subscriber: dict[tuple[str, str], list[Loss]] = defaultdict(list)
    for loss in verdict.losses:
        by_subscriber[loss.subscriber, loss.sequence[0]].append(loss)
    named = {life.name: life for life in lives}
    for (subscriber, publisher), losses in by_subscriber.items():
        verdict.broken += _untold(named[subscriber], publishers[publisher], losses)
    return verdict


def were_told(lives: Iterable[Life], sequences: Iterable[tuple[str, int]]) -> bool:
    """Return True if each subscriber that runs has everything that the publishers sent, or was told of a loss."""
    lives, places = list(lives), list(sequences)
    publishers = [life for life in lives if life.role == "publish"]
    running = (life for life in lives if life.role == "subscribe" and life.killed_at == float("inf"))
    return all(
        _was_told(life)
        or not list(_sequence_losses(replace(life, is_closed=True), publisher, (publisher.name, *at), []))
        for life in running
        for publisher in publishers
        for at in places
    )


def _sequence_losses(life: Life, publisher: Life, sequence: Sequence, broken: list[str]) -> Iterator[Loss]:
    """Yield what a subscriber lost of one sequence, and note what arrived against the promises."""
    ranges = life.got.get(sequence, [])
    name = f"{life.name}: {'/'.join(map(str, sequence))}"
    expected, begun = _first_expected(life, publisher), publisher.begun
    if ranges:
        expected = min(expected, ranges[0].first)  # a newcomer may get some messages that were sent before
    for _, first, end, has_gap in ranges:
        if first < expected:
            broken.append(f"{name}: {first} came again or out of order, {expected} was next")
        if end > begun:
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


def _transactions(life: Life, publisher: Life, sequences: list[Sequence]) -> Iterator[str]:
    """Yield a text for each transaction of which a subscriber got a part, or of whose cut it was not told."""
    if not publisher.is_transacted or not life.is_closed:
        return
    got_all = False
    for _, first, count in publisher.began:
        got = sum(
            max(min(each.end, first + count) - max(each.first, first), 0)
            for sequence in sequences
            for each in life.got.get(sequence, ())
        )
        got_all = got == count * len(sequences)
        if got and not got_all:
            yield f"{life.name}: {got} of {count * len(sequences)} messages of a transaction of {publisher.name}"
    cut_at, commit_at = publisher.killed_at, publisher.commit_at
    if commit_at is None or got_all or cut_at - commit_at < _CUT_S or life.closing_at < cut_at + _TOLD_OF_CUT_S:
        return
    told = [each.at - cut_at for each in life.told if each.kind == _LOST and f"'{publisher.name}'" in each.text]
    if not any(0 <= after_s <= _TOLD_OF_CUT_S for after_s in told):
        yield f"{life.name}: told of the cut transaction of {publisher.name} {told} s after the kill"


def _files(life: Life, publisher: Life) -> Iterator[str]:
    """Yield a text for each side that was not told of a file that did not arrive."""
    if not life.takes_files or not life.is_closed:
        return
    if len(set(life.files)) < len(life.files):
        yield f"{life.name}: files came twice: {life.files}"
    for _, number in set(publisher.files) - set(life.files):
        text = f"{life.name}: file {number} of {publisher.name} did not arrive"
        if not any(told.kind == _LOST for told in life.told):
            yield f"{text}: the subscriber was not told"
        if not any(_names(told, life) for told in publisher.told):
            yield f"{text}: the publisher was not told"


def _first_expected(life: Life, publisher: Life) -> int:
    """Return the number of the first message that the publisher can only have sent after the subscriber was ready."""
    before = [first + count for at, first, count in publisher.began if at <= life.ready_at]
    return max(before, default=0)


def _untold(subscriber: Life, publisher: Life, losses: list[Loss]) -> Iterator[str]:
    """Yield a text for each side that was not told of losses."""
    example = losses[0]
    count = sum(loss.end - loss.first for loss in losses)
    text = f"{subscriber.name} lost {count} messages of {publisher.name}, such as {example.first} to {example.end - 1}"
    if not _was_told(subscriber):
        yield f"{text}: the subscriber was not told"
    if publisher.sent is None:
        return  # it was killed
    if any(told.kind == _DROPPED for told in subscriber.told):
        return
    told_at = max((told.at for told in publisher.told if _names(told, subscriber)), default=None)
    if told_at is None:
        yield f"{text}: the publisher was not told"
    elif any(loss.is_tail and told_at < publisher.sent_at(loss.first - 1) for loss in losses):
        yield f"{text}: the publisher was told before the subscriber came back, and not of what it lost at the end"


def _was_told(subscriber: Life) -> bool:
    """Return True if a subscriber was told of a loss."""
    return any(told.kind in _LOSSES for told in subscriber.told)


def _names(told: Told, subscriber: Life) -> bool:
    """Return True if a report names the subscriber."""
    return (
        subscriber.name in told.text or f"{subscriber.node_id:#010x}" in told.text or subscriber.node_id in told.nodes
    )
