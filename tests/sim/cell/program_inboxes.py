"""The inbox between a consumer of the simulator and its program: that of real consumers."""

from typing import Final

from fjm2.base.ledger import Ledger
from fjm2.bus.inbox import ConsumerSettings
from fjm2.jms.deliveries import Opener
from fjm2.jms.durable.inbox import DurableInbox, DurableReceived
from fjm2.messages.destination import Topic
from fjm2.messages.frame import Frame, FrameWriter, frame_alone
from fjm2.messages.header import NUMBER, PERSISTENT, Kind
from fjm2.messages.object_codec import SAFE_CODEC

_TOPIC: Final = Topic("any")
_FRAME: Final = frame_alone(b"".join(FrameWriter(1).write_body(int(Kind.BYTES), b"", b"", _TOPIC, PERSISTENT, 4, 1)))


async def _acknowledge() -> None:
    """Acknowledge nothing: the program of the simulator does."""


class ProgramInbox:
    """Messages that were delivered and not used.

    Their frames have no content. Each has a message id of its own: a program of the simulator gives messages back, and
    gets them again.
    """

    def __init__(self) -> None:
        self._count = 0
        self._inbox = DurableInbox(_TOPIC, None, None, ConsumerSettings(), lambda: None, lambda _inbox, _loss: None)
        self._opener = Opener(SAFE_CODEC, _acknowledge)

    def add(self, ledger: Ledger, first: int, count: int, *, is_redelivered: bool) -> None:
        frames = [_frame_of(number) for number in range(self._count, self._count + count)]
        self._count += count
        self._inbox.take_frames(ledger, first, frames, is_redelivered=is_redelivered)

    def take(self) -> tuple[Ledger, int, bool]:
        """Return the place of the message that a program gets next, and True if that is flagged."""
        delivery = self._opener.take(self._inbox)
        assert delivery is not None, "expected each message that was delivered"
        received = delivery.received
        assert isinstance(received, DurableReceived)
        self._inbox.release(received)
        return received.ledger, received.sequence, delivery.count > 1


def _frame_of(number: int) -> Frame:
    buffer, start, body, end, header = _FRAME
    return buffer, start, body, end, (*header[:NUMBER], number, *header[NUMBER + 1 :])  # type: ignore[return-value]
