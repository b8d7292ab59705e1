"""Tests of the room of a durable consumer: it is told when a full one may go on."""

from dataclasses import replace

import pytest

from fjm2.base.ledger import Ledger
from fjm2.bus.inbox import ConsumerSettings
from fjm2.jms.durable.inbox import DurableInbox
from fjm2.messages.destination import Topic
from fjm2.messages.frame import Frame, FrameWriter, frame_alone
from fjm2.messages.header import PERSISTENT, Kind

TOPIC = Topic("prices")
LEDGER = Ledger(1, 0, 0)


def frames(count: int, size: int = 4) -> list[Frame]:
    writer = FrameWriter(1)
    parts = [writer.write_body(int(Kind.BYTES), b"", bytes(size), TOPIC, PERSISTENT, 4, 1) for _ in range(count)]
    return [frame_alone(b"".join(each)) for each in parts]


@pytest.mark.parametrize("is_redelivered", [False, True])
@pytest.mark.parametrize(
    ("settings", "size"),
    [({"messages_max": 10}, 4), ({"messages_max": 1000, "bytes_max": 50_000}, 4900)],
    ids=["messages", "bytes"],
)
def test_an_inbox_that_was_filled_exactly_tells_when_there_is_room(
    settings: dict[str, int], size: int, is_redelivered: bool
) -> None:
    """The cell delivers as many messages as there is room for, never more."""
    told: list[int] = []
    inbox = DurableInbox(
        TOPIC, None, None, replace(ConsumerSettings(), **settings), lambda: told.append(inbox.room), print
    )
    taken = 0
    while room := inbox.room:
        inbox.take_frames(LEDGER, taken + 1, frames(min(room, 4), size), is_redelivered=is_redelivered)
        taken += min(room, 4)
    assert not told
    while inbox.held:
        received = inbox.pop() or inbox.again.popleft().received
        inbox.release(received)
    assert len(told) == 1
    assert told[0] >= taken // 2
    assert inbox.room >= 10
