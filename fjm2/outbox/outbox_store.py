"""The layout of an outbox in its journal: messages as they are accepted, how many are stored, and lives of lanes."""

from collections.abc import Sequence
from typing import Final, Protocol

from fjm2.base.errors import ConfigError
from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.store.config import Need
from fjm2.store.disk import Disk
from fjm2.store.format.identity import producer_id_of
from fjm2.store.journal import Journal
from fjm2.store.reader import Read
from fjm2.store.runs import Run

from .lives import Life
from .outbox_lane import Recovered

LIVES: Final = 128
"""Added to a lane, it names the ledger of the lane's lives."""
STORED: Final = 64
"""Added to a lane, it names a ledger without frames: the numbers of the lane's messages that keepers have stored."""
_READ_BYTES: Final = 1 << 20
_COUNT_MAX: Final = (1 << 32) - 1
"""Most numbers of one run."""


class Append(Protocol):
    """A function that has runs written: `Journal.append`, or `Committer.append`, which also starts the commit."""

    def __call__(self, runs: Sequence[Run], need: Need = Need.MESSAGE) -> int | None:
        """Return the LSN of the batch that the runs are in, or None if there is no room."""


class OutboxStore:
    """The journal of an outbox. Messages and lives have numbers from 1 on in a ledger of each lane.

    The journal itself remembers only with its next checkpoint what was released.
    """

    def __init__(self, journal: Journal, append: Append) -> None:
        self._journal = journal
        self._append = append
        self.producer_id: Final = producer_id_of(journal.identity)

    def append(
        self, messages: dict[int, tuple[int, list[bytes]]], stored: dict[int, int], need: Need = Need.MESSAGE
    ) -> int | None:
        """Write messages of lanes, each with the number of the first one, and the number through which lanes are
        stored. Return the LSN, or None without room. Call it again when that is on disk."""
        runs = [Run.of(self._messages(lane), first, frames) for lane, (first, frames) in messages.items()]
        for lane, through in stored.items():
            first = self.stored(lane) + 1
            runs.append(Run.counted(self._stored(lane), first, min(through + 1 - first, _COUNT_MAX)))
        return self._append(runs, need)

    def stored(self, lane: int) -> int:
        """Return the number through which a lane is stored, as the disk has it."""
        return _last(self._journal, self._stored(lane))

    def append_life(self, lane: int, life: Life) -> int | None:
        """Write the life of a lane, and give up the ones before. Return the LSN, or None without room."""
        ledger = self._lives(lane)
        number = _last(self._journal, ledger) + 1
        lsn = self._append([Run.of(ledger, number, [life.encode()])], Need.URGENT)
        if lsn is not None and number > 2:
            # The one before stays until this one is on disk.
            self._journal.release(ledger, [(1, number - 1)])
        return lsn

    def release(self, lane: int, first: int, last: int) -> None:
        """Give up messages that are stored."""
        self._journal.release(self._messages(lane), [(first, last + 1)])

    def read(self, lane: int, first: int, last: int) -> Read:
        """Return a plan to read messages from one on, of about a megabyte."""
        return self._journal.read(self._messages(lane), RangeSet([(first, last + 1)]), _READ_BYTES)

    def _messages(self, lane: int) -> Ledger:
        return Ledger(self.producer_id, 0, lane)

    def _stored(self, lane: int) -> Ledger:
        return Ledger(self.producer_id, 0, STORED + lane)

    def _lives(self, lane: int) -> Ledger:
        return Ledger(self.producer_id, 0, LIVES + lane)


def recover_lane(journal: Journal, disk: Disk, lane: int) -> Recovered:
    """Return the content of a lane when the outbox is opened. Raise ConfigError if it is not that of an outbox.

    Messages are given up in order. Some of those come back after a restart, and leave holes before all that wait.
    """
    producer_id = producer_id_of(journal.identity)
    messages, lives = Ledger(producer_id, 0, lane), Ledger(producer_id, 0, LIVES + lane)
    accepted = _last(journal, messages)
    live = journal.live(messages, 1, accepted + 1)
    life = _newest_life(journal, disk, lives)
    released = list(live)[-1][0] - 1 if live and live.last == accepted else accepted
    released = max(released, _last(journal, Ledger(producer_id, 0, STORED + lane)))
    if life is not None:
        released = max(released, life.base)
    is_whole = not accepted or journal.known(messages).covers(1, accepted + 1)
    if not is_whole or released > accepted:
        raise ConfigError(
            f"lane {lane} of an outbox ends with message {accepted} and lacks some before it: expected all messages; "
            "nothing was changed. Restore the directory, or name an empty one"
        )
    return Recovered(released, accepted, life)


def _newest_life(journal: Journal, disk: Disk, ledger: Ledger) -> Life | None:
    last = _last(journal, ledger)
    if not last:
        return None
    (data,) = journal.read(ledger, RangeSet([(last, last + 1)]), _READ_BYTES).fetch(disk) or (None,)
    life = None if data is None else Life.decode(data)
    if life is None:
        raise ConfigError(
            f"the newest life of lane {ledger.lane - LIVES} of an outbox cannot be read: expected one of this version; "
            "nothing was changed. Restore the directory, or name an empty one"
        )
    return life


def _last(journal: Journal, ledger: Ledger) -> int:
    """Return the last number of a ledger; 0 if it has none."""
    known = journal.known(ledger)
    return known.last if known else 0
