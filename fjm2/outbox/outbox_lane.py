"""One lane of an outbox, without I/O: which of its messages may be sent, in which ledger, and which are stored.

Messages have numbers 1, 2, 3 ... in the order in which they were accepted. A ledger of the lane has them in the same
order, so that the number of a message and its sequence in the ledger differ by a constant, which is on disk before the
first of them is sent: a `Life`. Whenever it is in doubt what keepers have of a ledger, it is closed, and what its final
set lacks is sent again in the ledger of the next producer epoch. So each message is stored once.

The owner passes in what reaches the disk and what the cell says. After each call it does what `poll_life` and
`poll_ask` return.
"""

import math
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from fjm2.base.ledger import Ledger

from .lives import Life

ASK_AGAIN_S: Final = 10.0
"""Time after which a final set is asked for again: the cell may have had no room for the request."""
PAUSE_S: Final = 2.0
"""Time for which nothing is sent after two ledgers of which nothing was stored: keepers may be full, and plain
consumers get again what they had heard. It doubles."""
PAUSE_S_MAX: Final = 30.0
NEVER: Final = math.inf


class LaneState(Enum):
    """Stages of a lane."""

    RESTING = auto()
    """The lane has no ledger that it may write to: there was no message yet, or no cell."""
    BEGINNING = auto()
    """The next life is on its way to the disk."""
    ENDING = auto()
    """The final set of an earlier ledger is not known yet."""
    OPEN = auto()
    """Messages are sent."""


@dataclass(frozen=True, slots=True)
class AskFinal:
    """Send the request to close a ledger, as the first frame of another one, and wait for the final set."""

    ledger: Ledger
    """Ledger that gets the request, with sequence 1."""
    ended: Ledger
    """Ledger to be closed."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """Content of a lane on disk."""

    released: int = 0
    """All messages through this number are known to be stored."""
    accepted: int = 0
    """Number of the last message."""
    life: Life | None = None


class OutboxLane:
    """The messages of one lane on their way from the disk to the keepers."""

    def __init__(self, producer_id: int, lane: int, recovered: Recovered) -> None:
        self.lane: Final = lane
        self.state = LaneState.RESTING
        self.released = recovered.released
        """All messages through this number are stored."""
        self.durable = recovered.accepted
        """All messages through this number are on the outbox's disk."""
        self.sent = recovered.released
        """All messages through this number were sent in the present ledger, or are stored."""
        self._producer_id = producer_id
        self._life = recovered.life
        self._is_settled = False
        """True if it is known what keepers have of the messages in the present life."""
        self._has_cell = False
        self._life_due: Life | None = None
        self._ask_due: AskFinal | None = None
        self._due_at = NEVER
        self._is_pausing = False
        self._vain = 0
        """Ledgers in a row of which nothing was stored."""

    @property
    def ledger(self) -> Ledger:
        """Newest ledger of the lane."""
        return Ledger(self._producer_id, 0 if self._life is None else self._life.epoch, self.lane)

    @property
    def waiting(self) -> int:
        """Number of messages on disk that are not known to be stored."""
        return self.durable - self.released

    # Sending

    def next_place(self) -> tuple[int, int] | None:
        """Return the number of the message to send next, and its sequence in `ledger`. Return None if there is none."""
        if self.state is not LaneState.OPEN or self.sent >= self.durable:
            return None
        assert self._life is not None
        return self.sent + 1, self._life.place_of(self.sent + 1)

    def note_sent(self, count: int) -> int:
        """Note that the next messages are sent. Return the sequence of the last one."""
        assert self._life is not None
        self.sent += count
        return self._life.place_of(self.sent)

    def poll_ask(self) -> AskFinal | None:
        """Return the request that is to be sent now."""
        due, self._ask_due = self._ask_due, None
        return due

    def poll_timeout(self) -> float:
        """Return the time at which to call `handle_timeout`."""
        return self._due_at

    # The disk

    def poll_life(self) -> Life | None:
        """Return the life that is to be written now. Call `handle_life_written` when it is on disk."""
        due, self._life_due = self._life_due, None
        return due

    def handle_durable(self, through: int) -> None:
        """Note that messages are on disk."""
        self.durable = through
        self._advance()

    def handle_life_written(self, life: Life, now: float) -> None:
        """Note that a life is on disk."""
        self._life = life
        if life.closing:
            self.state = LaneState.ENDING
            self._due_at = now + ASK_AGAIN_S
            ended = self.ledger._replace(producer_epoch=life.closing)
            self._ask_due = AskFinal(self.ledger, ended)
        else:
            self.state = LaneState.OPEN
            self.sent = self.released
            self._is_settled = False

    # The cell

    def handle_cell(self) -> None:
        """Note that a cell serves the bus. Call it again when another one has taken its place: that one has nothing."""
        if self._has_cell and self.state in (LaneState.OPEN, LaneState.ENDING):
            self._rest(is_settled=True)
        self._has_cell = True
        self._resume()

    def handle_stored(self, ledger: Ledger, through: int) -> None:
        """Note that W keepers have a ledger on disk through a sequence."""
        if self.state is LaneState.OPEN and ledger == self.ledger:
            assert self._life is not None
            self.released = max(self.released, min(self._life.message_at(through), self.sent))

    def handle_lost(self, ledger: Ledger) -> None:
        """Note that keepers may lack something of a ledger for ever, or take nothing more of it."""
        if self.state not in (LaneState.OPEN, LaneState.ENDING) or ledger != self.ledger:
            return
        self._rest(is_settled=self.state is LaneState.OPEN and self.sent == self.released)
        self._advance()

    def handle_final(self, ledger: Ledger, through: int, now: float) -> None:
        """Note the final set of a ledger: all sequences through this one."""
        life = self._life
        if self.state is LaneState.ENDING and life is not None and ledger.producer_epoch == life.closing:
            # More than was sent is a forgery.
            self.released = max(self.released, min(life.message_at(through), self.durable))
            self._vain = 0 if self.released > life.base else self._vain + 1
            if self._vain > 1:
                self._pause(now)
            else:
                self._begin(Life(life.epoch, 0, self.released, 1))

    def _pause(self, now: float) -> None:
        """Wait before anything is sent again."""
        self._rest(is_settled=True)
        self._is_pausing = True
        self._due_at = now + min(PAUSE_S * 2.0 ** (self._vain - 2), PAUSE_S_MAX)

    def rest(self) -> bool:
        """Give up a ledger of which everything is stored: keepers close the ledgers of silent writers. Return False,
        and do nothing, if something is on its way."""
        if self.state is not LaneState.OPEN or self.released < self.durable:
            return False
        self._rest(is_settled=True)
        return True

    def handle_timeout(self, now: float) -> None:
        """End a pause, or ask again for a final set that did not come."""
        if now < self._due_at:
            return
        if not self._is_pausing:
            self._rest(is_settled=False)
        self._resume()

    def _rest(self, *, is_settled: bool) -> None:
        self.state = LaneState.RESTING
        self._is_settled = is_settled
        self._due_at = NEVER
        self._ask_due = None

    def _resume(self) -> None:
        """End a pause, if there is one, and go on."""
        if self._is_pausing:
            self._is_pausing = False
            self._due_at = NEVER
        self._advance()

    def _advance(self) -> None:
        """Begin a life if there is something to send."""
        is_able = self.state is LaneState.RESTING and self._has_cell and not self._is_pausing
        if not is_able or self.released >= self.durable:
            return
        life = self._life
        if life is None:
            self._begin(Life(1, 0, self.released, 0))
        elif self._is_settled:
            self._begin(Life(life.epoch + 1, 0, self.released, 0))
        else:
            self._begin(life.ended())

    def _begin(self, life: Life) -> None:
        self.state = LaneState.BEGINNING
        self._due_at = NEVER
        self._life_due = life
