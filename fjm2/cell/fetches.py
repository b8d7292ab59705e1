"""Fetches: a member's questions for what it lacks, and the answers to those of others."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Final, NamedTuple

from fjm2.base.ranges import RangeSet

from .context import Context, Storage
from .ledger_table import LedgerTable
from .outgoing import SendCommand
from .wire.commands import CountedFlag, Fetch
from .wire.ranges import COUNT_MAX, Range

FETCH_RANGES_MAX: Final = 40
"""Most ranges of a fetch: as many as one datagram of 1,400 bytes holds. The next fetch names further ones."""
FETCH_INTERVAL_S: Final = 0.1
"""Shortest time between fetches of a member: an answer takes a disk and a round trip."""
FETCH_FULL_S: Final = 0.5
"""The same after the store had no room for what was fetched."""
_FETCH_FULL_COUNT: Final = 16
"""Most messages that are fetched then, to find out if there is room again. While there is, each fetch is four times as
large as the last."""
_LACK_S: Final = 2 * FETCH_FULL_S + FETCH_INTERVAL_S
"""Time for which a store counts as too full for what others hold, after that was found out."""

REPLAY_RANGES_MAX: Final = 1000
"""Most ranges of frames that one fetch gets. The next one names the rest."""
COUNTED_RANGES_MAX: Final = 40
"""Most ranges that need no keeping in one answer: as many as one datagram of 1,400 bytes holds."""
_WORDS_MAX: Final = 4
"""Most answers about doubtful sequences to one fetch: these are as old as the oldest subscription in question."""
SEQUENCES_MAX: Final = 1 << 16
"""Most sequences that are looked at for one fetch. A keeper that catches up asks ten times a second."""


class Fetches:
    """Asks others for frames and decisions. One kind does not wait for the other."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._frames_at = self._decisions_at = 0.0
        """Times before which nothing is fetched again."""
        self._refused_at = -inf
        """Last time at which there was no room for something that was fetched."""
        self._count = COUNT_MAX
        """Most messages that are asked for at a time."""

    def note_refused(self, now: float) -> None:
        """Note that the store has no room for frames that were fetched."""
        self._refused_at = now
        self._count = _FETCH_FULL_COUNT

    def lack_room(self, now: float) -> bool:
        """Return True if others have what this keeper has not, and its store has no room for it."""
        return now - self._refused_at < _LACK_S

    def ask_for_frames(self, ranges: Sequence[Range], now: float) -> None:
        """Ask for frames, unless it was done a moment ago: for a few after there was no room for others."""
        if not ranges or now < self._frames_at:
            return
        is_limited = self._count < COUNT_MAX
        self._frames_at = now + (FETCH_FULL_S if is_limited else FETCH_INTERVAL_S)
        if is_limited:
            ranges = [replace(ranges[0], count=min(ranges[0].count, self._count))]
            if not self.lack_room(now):
                self._count = min(4 * self._count, COUNT_MAX)
        self._send(ranges)

    def ask_for_decisions(self, wanted: Range, now: float) -> None:
        """Ask for entries of the decision log, unless it was done a moment ago."""
        if now >= self._decisions_at:
            self._decisions_at = now + FETCH_INTERVAL_S
            self._send((wanted,))

    def _send(self, ranges: Sequence[Range]) -> None:
        context = self._context
        command = Fetch(reply_to=context.node_id, cell_id=context.cell_id, ranges=tuple(ranges[:FETCH_RANGES_MAX]))
        context.outgoing.append(SendCommand(command))


class Word(NamedTuple):
    """The little that a keeper in doubt may say."""

    sure: int
    """Version of the table through which nobody asks for the frames."""
    flags: int
    """`CountedFlag`s."""


class FetchAnswer(NamedTuple):
    """Sequences that a keeper has on disk, or knows to need no disk."""

    kept: tuple[Range, ...]
    counted: tuple[Range, ...]
    doubtful: dict[Word, list[Range]]
    """Those that are known, and for whose frames a subscription may ask."""


def answer_fetch(wanted: Iterable[Range], ledgers: LedgerTable, storage: Storage) -> FetchAnswer:
    """Return what a keeper can tell of these ranges."""
    kept: list[Range] = []
    counted: list[Range] = []
    doubtful: dict[Word, list[Range]] = {}
    doubts = ledgers.doubts
    left = SEQUENCES_MAX
    for each in wanted:
        for first, end in ledgers.on_disk_within(each.ledger, each.first, each.last + 1):
            if left <= 0 or len(kept) >= REPLAY_RANGES_MAX:
                break
            end = min(end, first + left)
            left -= end - first
            live = storage.live(each.ledger, first, end)
            kept += [Range(each.ledger, low, high - low) for low, high in live]
            for low, high in live.gaps(first, end):
                known = RangeSet([(low, high)])
                for start, stop in doubts.within(each.ledger, low, high):
                    known.remove(start, stop)
                counted += [Range(each.ledger, start, stop - start) for start, stop in known]
                is_fenced = ledgers.is_fenced(each.ledger)
                for start, stop, sure, is_hearsay in doubts.told_within(each.ledger, low, high):
                    flags = is_hearsay * CountedFlag.HEARSAY | is_fenced * CountedFlag.FENCED
                    doubtful.setdefault(Word(sure, flags), []).append(Range(each.ledger, start, stop - start))
    # The lowest ones first: what nobody can tell of those keeps the others in doubt, too.
    words = {word: doubtful[word][:COUNTED_RANGES_MAX] for word in sorted(doubtful)[:_WORDS_MAX]}
    return FetchAnswer(tuple(kept[:REPLAY_RANGES_MAX]), tuple(counted[:COUNTED_RANGES_MAX]), words)
