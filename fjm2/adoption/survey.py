"""The messages of a store that may go into another cell, and those that may not yet, or no more."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fjm2.base.errors import JournalError
from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.keeper.kept_frames import delivery_time
from fjm2.messages.batches.array_writer import HEADERS
from fjm2.messages.header import FILE, HEADER_BYTES
from fjm2.store.disk import Disk
from fjm2.store.journal import Journal
from fjm2.store.reader import Read

from .past_cell import PastCell

_PORTION_BYTES: Final = 16 << 20


class Span(NamedTuple):
    """Messages of one topic with the sequences first, ..., end - 1 of a ledger."""

    ledger: Ledger
    frame_hash: int
    first: int
    end: int


@dataclass(slots=True)
class TopicCount:
    """Messages of one topic that were not acknowledged."""

    name: str
    subscriptions: list[str]
    """Names of the durable subscriptions of the earlier cell."""
    messages: int = 0
    """Messages that may be sent now."""
    expired: int = 0
    later: int = 0
    """Messages whose delivery time has not come."""


@dataclass(slots=True)
class Survey:
    """Everything that was not acknowledged in a store."""

    cell_id: int
    topics: dict[int, TopicCount] = field(default_factory=dict)
    """Counts by the topic's hash."""
    spans: list[Span] = field(default_factory=list)
    """Messages that may be sent now: ledger by ledger, each in order."""


def survey_of(past: PastCell, journal: Journal, disk: Disk, now_ms: int) -> Survey:
    """Look at all messages of a store that were not acknowledged. Raise JournalError if one cannot be read."""
    survey = Survey(past.cell_id)
    for frame_hash, cursors in past.topics().items():
        place = cursors[0].subscription.destination
        names = sorted({cursor.subscription.name for cursor in cursors})
        survey.topics[frame_hash] = TopicCount(place.name, names)
    look_at(survey, past.unacknowledged(), journal, disk, now_ms)
    return survey


def look_at(
    survey: Survey,
    unacknowledged: Iterable[tuple[Ledger, dict[int, RangeSet]]],
    journal: Journal,
    disk: Disk,
    now_ms: int,
) -> None:
    """Add messages to a survey, which are named by ledger and the hash of a topic that it has."""
    for ledger, by_hash in unacknowledged:
        for frame_hash, waiting in by_hash.items():
            count, spans = survey.topics[frame_hash], RangeSet()
            at: int | None = waiting.first
            while at is not None:
                read = journal.read(ledger, waiting, _PORTION_BYTES, at)
                _look(read, disk, ledger, now_ms, count, spans)
                at = read.resume_at
            survey.spans += [Span(ledger, frame_hash, first, end) for first, end in spans]
            count.messages += len(spans)
    survey.spans.sort()


def _look(read: Read, disk: Disk, ledger: Ledger, now_ms: int, count: TopicCount, spans: RangeSet) -> None:
    """Sort the messages of a portion."""
    if not len(read.sequences):
        return
    heads, is_read = read.fetch_heads(disk, HEADER_BYTES)
    if not is_read.all():
        sequence = int(read.sequences[np.flatnonzero(~is_read)[0]])
        raise JournalError(f"message {sequence} of {ledger} cannot be read: expected what was stored")
    headers = heads.view(HEADERS)[:, 0]
    is_sent = (headers["kind"] != FILE) & _is_named(read, disk, headers, count.name.encode())
    is_expired = is_sent & (headers["expiration"] > 0) & (headers["expiration"] <= now_ms)
    is_later = np.zeros(len(headers), np.bool_)
    if ledger.is_delayed:
        times_ms = np.fromiter(map(delivery_time, read.fetch(disk)), np.int64, len(headers))
        is_later = is_sent & (times_ms > now_ms) & ~is_expired
    count.expired += int(np.count_nonzero(is_expired))
    count.later += int(np.count_nonzero(is_later))
    _add(spans, read.sequences[is_sent & ~is_expired & ~is_later])


def _is_named(read: Read, disk: Disk, headers: NDArray[np.void], name: bytes) -> NDArray[np.bool_]:
    """Return True for each frame that is to the topic of a name: others may have the same hash, by design."""
    heads, _ = read.fetch_heads(disk, HEADER_BYTES + len(name))
    is_same = (heads[:, HEADER_BYTES:] == np.frombuffer(name, np.uint8)).all(axis=1)
    found: NDArray[np.bool_] = is_same & (headers["name_bytes"] == len(name))
    return found


def _add(spans: RangeSet, sequences: NDArray[np.uint64]) -> None:
    breaks = np.flatnonzero(np.diff(sequences) != 1) + 1
    for part in np.split(sequences, breaks):
        if len(part):
            spans.add(int(part[0]), int(part[-1]) + 1)


def total_of(topics: dict[int, TopicCount]) -> Counter[str]:
    """Return the sums of the counts of all topics."""
    total: Counter[str] = Counter()
    for each in topics.values():
        total.update(messages=each.messages, expired=each.expired, later=each.later)
    return total
