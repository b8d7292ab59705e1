"""Messages that a subscriber cannot deliver are reported to its application and to the publisher, on real sockets."""

import asyncio

import pytest
from buses import TOPIC, Node, node, on, soon

from fjm2.bus.completions import Receipt
from fjm2.bus.confirmation import Confirmation
from fjm2.bus.errors import UnconfirmedError
from fjm2.bus.publication import Publication
from fjm2.bus.reports import LostAfterConfirmation, MessagesUnreadable, TransactionDropped
from fjm2.jms import TextMessage, Topic
from fjm2.messages.frame import seal
from fjm2.messages.header import PERSISTENT, Transaction

LIMIT = 100_000

pytestmark = pytest.mark.calm


class Persistent:
    """Publishes PERSISTENT messages on a node's bus."""

    def __init__(self, sending: Node) -> None:
        self._sending = sending
        self.failures: list[Exception] = []
        self.confirmation = Confirmation(sending.bus, self.failures.append)
        self._publication = Publication(sending.bus.publisher, self.confirmation)

    async def send(self, text: str, topic: Topic = TOPIC, transaction: Transaction | None = None) -> Exception | None:
        """Return the outcome."""
        parts = self._sending.writer.write(TextMessage(text), topic, PERSISTENT, 4, 0)
        receipt = Receipt()
        sealed = parts if transaction is None else seal(parts, transaction)
        waiting = self._publication.publish(topic, 4, sealed, PERSISTENT, receipt)
        if waiting is not None:
            await waiting
        assert receipt.confirmed is not None
        return await receipt.confirmed


def set_limit(receiving: Node) -> None:
    """Let a node accept shorter messages than others send, as if it were of another version."""
    receiving.bus.router.table._frame_bytes_max = LIMIT


@on("asyncio", "uvloop")
async def test_a_message_that_is_too_large_for_the_subscriber_is_told_to_both_and_not_confirmed(port: int) -> None:
    async with node(port) as sending, node(port) as receiving, node(port) as other:
        set_limit(receiving)
        subscriber, healthy = receiving.subscribe(), other.subscribe()
        await asyncio.gather(*(each.bus.ready() for each in (sending, receiving, other)))
        persistent = Persistent(sending)
        assert await persistent.send("first") is None
        error = await persistent.send("x" * 2 * LIMIT)
        assert isinstance(error, UnconfirmedError)
        assert error.unacknowledged_nodes == {receiving.bus.node_id}
        assert await persistent.send("last") is None
        await subscriber.until(2)
        assert subscriber.texts == ["first", "last"]
        assert [each.has_gap for each in subscriber.received] == [False, True]
        await soon(lambda: receiving.all(MessagesUnreadable))
        (discarded,) = receiving.all(MessagesUnreadable)
        assert (discarded.sender_id, discarded.count) == (sending.bus.node_id, 1)
        await asyncio.sleep(0.4)  # the copies of the notice
        (noticed,) = sending.all(LostAfterConfirmation)  # it has confirmed the first one
        assert (noticed.node_id, noticed.lane, noticed.messages) == (receiving.bus.node_id, 0, 1)
        assert len(await healthy.until(3)) == 3
        assert not other.reports


@on("asyncio")
async def test_a_transaction_that_a_subscriber_has_no_memory_for_is_told_to_both(port: int) -> None:
    async with node(port) as sending, node(port) as receiving:
        receiving.bus.router.transactions._bytes_max = LIMIT
        subscriber = receiving.subscribe()
        await asyncio.gather(sending.bus.ready(), receiving.bus.ready())
        persistent = Persistent(sending)
        outcomes = [await persistent.send("x" * 30_000, transaction=Transaction(1, place, 5)) for place in range(5)]
        assert any(isinstance(error, UnconfirmedError) for error in outcomes)
        assert await persistent.send("last") is None
        await subscriber.until(1)
        assert subscriber.texts == ["last"]
        assert subscriber.received[0].has_gap
        assert len(receiving.all(TransactionDropped)) == 1
        assert sending.all(LostAfterConfirmation)
