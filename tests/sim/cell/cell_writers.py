"""Writers of a simulated cell: they number frames, and send them again until they are confirmed."""

from typing import TYPE_CHECKING, Final

from fjm2.base.ledger import Ledger
from fjm2.cell.stored_tracker import StoredTracker
from fjm2.cell.wire.commands import Heartbeat, decode_command
from fjm2.cell.wire.stored import decode_stored

if TYPE_CHECKING:
    from cells import World

WRITER_NODE: Final = 1000


def frame_of(sequence: int, size: int = 0) -> bytes | None:
    """Return the frame with a sequence; None for one that nobody asked to keep."""
    return (b"%d" % sequence).ljust(size) if sequence % 5 else None


class Writer:
    """A producer that numbers frames, and sends them again until they are confirmed."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.node = WRITER_NODE + number
        self.ledger = Ledger(500 + number, 0, 1)
        self.past: list[Ledger] = []
        """Ledgers of earlier lives."""
        self.tracker = StoredTracker(self.ledger.producer_id, 10.0)
        self.sent = 0
        self.reachable = True

    @property
    def confirmed(self) -> int:
        return self.tracker.confirmed(self.ledger)

    def begin_anew(self) -> Ledger:
        """Go on under the next producer epoch. Return the old ledger, whose frames may still be under way."""
        old = self.ledger
        self.past.append(old)
        self.ledger = old._replace(producer_epoch=old.producer_epoch + 1)
        self.sent = 0
        return old

    def _frame_of(self, sequence: int) -> bytes | None:
        return frame_of(sequence, self.world.frame_bytes)

    def turn(self) -> None:
        world = self.world
        if self.past and world.random.random() < 0.2:
            # The first life has not ended everywhere: its frames come late.
            sequence = self.tracker.confirmed(self.past[-1]) + world.random.randint(1, 3)
            for keeper in world.keepers:
                world.deliver_frames(self, keeper, self.past[-1], sequence, self._frame_of(sequence))
        if world.is_writing and self.sent - self.confirmed < 16:
            self.sent += 1
            self.tracker.note_sent(self.ledger, self.sent, world.now)
        for sequence in range(self.confirmed + 1, self.sent + 1):
            if sequence == self.sent or world.random.random() < 0.2:
                for keeper in world.keepers:
                    world.deliver_frames(self, keeper, self.ledger, sequence, self._frame_of(sequence))
        if self.tracker.poll_request(world.now):
            for keeper in world.keepers:
                world.deliver(
                    self,
                    keeper,
                    lambda cell: cell.receive_stored_request(self.ledger.producer_id, self.node),
                )
        world.later(world.random.uniform(0.02, 0.06), self.turn)

    def receive(self, message: bytes) -> None:
        if message[:1] == b"\1":
            stored = decode_stored(message)
            assert stored is not None
            self.tracker.receive_stored(stored, self.world.now)
            if any(each.is_closed and each.ledger == self.ledger for each in stored.progresses()):
                self.begin_anew()
        else:
            command = decode_command(message)
            if isinstance(command, Heartbeat):
                self.tracker.receive_heartbeat(command, self.world.now)
        if self.past:
            self.world.check_closed()
