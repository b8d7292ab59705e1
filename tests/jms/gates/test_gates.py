"""Tests of a gate in front of a connection.

A gate sees frames before the network does, and decides when messages count as sent.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from adapter import QUIET_S, WAIT_S, eventually

from fjm2.bus.bus import BUS_DEFAULTS
from fjm2.jms import (
    Connection,
    ConnectionFactory,
    DeliveryMode,
    JMSError,
    ResourceAllocationError,
    SessionMode,
    TextMessage,
    Topic,
    TransactionRolledBackError,
    UnconfirmedError,
)
from fjm2.jms.connection import ConnectionCore
from fjm2.jms.settings import ClientSettings
from fjm2.messages.batches.frame_array import FrameArray
from fjm2.messages.destination import Destination
from fjm2.messages.frame import Parts
from fjm2.messages.header import FLAGS, IN_TRANSACTION
from fjm2.uri import BusConfig

TOPIC = Topic("fjm2.gates")


def uri(port: int) -> str:
    return f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0&grtt_s=1ms"


class Store:
    """A gate that keeps every frame. It reports frames as stored at once, or only when `store` is called."""

    is_waiting = False

    def __init__(self, is_slow: bool = True) -> None:
        self.frames: list[bytes] = []
        self.is_slow = is_slow
        self.is_full = False
        self.bytes_max = 1 << 30
        self.on_room: Callable[[], None] = lambda: None
        self.refusal: JMSError | None = None
        self.on_admit: Callable[[], None] = lambda: None
        self.waiting: list[asyncio.Future[None]] = []

    def holds(self, destination: Destination, flags: int) -> bool:
        return self.is_slow and destination == TOPIC and flags >= 0

    def admit(self, destination: Destination, parts: Parts) -> tuple[Parts, asyncio.Future[None] | None] | None:
        assert destination == TOPIC
        if self.refusal is not None:
            raise self.refusal
        if self.is_full:
            return None
        self.frames.append(b"".join(parts))
        self.on_admit()
        if not self.is_slow:
            return parts, None
        self.waiting.append(asyncio.get_running_loop().create_future())
        return parts, self.waiting[-1]

    def admit_many(
        self, destination: Destination, frames: FrameArray
    ) -> tuple[FrameArray, asyncio.Future[None] | None] | None:
        stored: asyncio.Future[None] | None = None
        for parts in frames.parts():
            admitted = self.admit(destination, parts)
            if admitted is None:
                return None
            stored = admitted[1]
            if self.is_slow and len(self.waiting) > 1:
                stored = self.waiting[0]  # a batch has one future
                del self.waiting[1:]
        return frames, stored

    def store(self, error: Exception | None = None) -> None:
        """Report all frames so far as stored, or as failed with an error."""
        for future in self.waiting:
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
        self.waiting.clear()


async def gated(port: int, store: Store, **settings: Any) -> tuple[Connection, Connection]:
    """Open two connections: one that publishes through the store as its gate, and a started one that subscribes."""
    config = BusConfig.from_uri(uri(port), BUS_DEFAULTS)
    sending = await Connection(ConnectionCore(config, ClientSettings(**settings), store))
    receiving = await ConnectionFactory(uri(port), dscp=8).create_connection()
    receiving.start()
    return sending, receiving


async def subscribe(sending: Connection, receiving: Connection) -> list[str]:
    """Subscribe, and return a list to which the texts of received messages are added."""
    heard: list[str] = []
    consumer = receiving.create_session().create_consumer(TOPIC)
    consumer.message_listener = lambda message: heard.append(message.text)
    await consumer.ready()
    await sending.ready()
    return heard


async def close(*connections: Connection) -> None:
    for connection in connections:
        await connection.close()


async def test_a_gate_holds_a_send_back_but_not_the_message(port: int) -> None:
    store = Store()
    sending, receiving = await gated(port, store)
    heard = await subscribe(sending, receiving)
    send = asyncio.ensure_future(sending.create_session().create_producer(TOPIC).send(TextMessage("a")))
    await eventually(lambda: heard == ["a"])
    assert not send.done()
    store.store()
    await asyncio.wait_for(send, WAIT_S)
    await close(sending, receiving)


async def test_a_gate_sees_a_frame_before_consumers_do(port: int) -> None:
    store = Store(is_slow=False)
    sending, receiving = await gated(port, store)
    heard: list[str] = []
    consumer = sending.create_session().create_consumer(TOPIC)
    consumer.message_listener = lambda message: heard.append(message.text)
    sending.start()
    before: list[int] = []
    store.on_admit = lambda: before.append(sending.statistics().bus.messages_sent + sending.statistics().messages_held)
    await sending.create_session().create_producer(TOPIC).send(TextMessage("a"))
    await eventually(lambda: heard == ["a"])
    assert before == [0]
    assert len(store.frames) == 1
    await close(sending, receiving)


async def test_a_gate_sees_each_message_of_a_batch_and_holds_the_batch_back(port: int) -> None:
    store = Store()
    sending, receiving = await gated(port, store)
    heard = await subscribe(sending, receiving)
    producer = sending.create_session().create_producer(TOPIC)
    send = asyncio.ensure_future(producer.send_many(["a", "b", "c"]))
    await eventually(lambda: heard == ["a", "b", "c"])
    assert [frame[-1:] for frame in store.frames] == [b"a", b"b", b"c"]
    assert not send.done()
    store.store()
    await asyncio.wait_for(send, WAIT_S)
    failing = asyncio.ensure_future(producer.send_many(["d", "e"]))
    await eventually(lambda: len(store.waiting) == 1)
    store.store(ResourceAllocationError("the disk is full"))
    with pytest.raises(ResourceAllocationError, match="the disk is full"):
        await asyncio.wait_for(failing, WAIT_S)
    store.refusal = ResourceAllocationError("no more")
    with pytest.raises(ResourceAllocationError, match="no more"):
        await producer.send_many(["f", "g"])
    await eventually(lambda: heard == ["a", "b", "c", "d", "e"])
    await close(sending, receiving)


@pytest.mark.parametrize("bytes_max", [100, 1 << 30])
@pytest.mark.parametrize("has_room", [True, False])
async def test_failures_to_confirm_a_batch_that_no_gate_holds_are_reported(
    port: int, bytes_max: int, has_room: bool
) -> None:
    store = Store(is_slow=False)
    store.bytes_max, store.is_full = bytes_max, not has_room
    sending, receiving = await gated(port, store)
    heard = await subscribe(sending, receiving)
    confirmation = sending._core.check_open().confirmation
    numbers = [str(number) for number in range(10)]
    send = asyncio.ensure_future(sending.create_session().create_producer(TOPIC).send_many(numbers))
    unasked: list[int] = []
    store.on_admit = lambda: unasked.append(confirmation.unasked)
    if not has_room:
        await asyncio.sleep(QUIET_S)
        assert not store.frames
        store.is_full = False
        store.on_room()
    await asyncio.wait_for(send, WAIT_S)
    unasked.append(confirmation.unasked)
    assert confirmation.accepted == 10
    # Nobody asks for these messages, so a report tells of them. A round may begin after the one that waited for room.
    assert max(unasked) >= (10 if has_room else 9)
    await eventually(lambda: heard == numbers)
    assert [frame[-1:].decode() for frame in store.frames] == numbers
    await close(sending, receiving)


async def test_a_gate_holds_a_confirmation_back(port: int) -> None:
    store = Store()
    sending, receiving = await gated(port, store)
    heard = await subscribe(sending, receiving)
    outcome = asyncio.ensure_future(sending.create_session().create_producer(TOPIC).send_async(TextMessage("a")))
    await eventually(lambda: heard == ["a"])
    await sending._core.check_open().confirmation.outcome()  # the subscriber has confirmed the message
    await asyncio.sleep(QUIET_S)
    assert not outcome.done()
    store.store()
    await asyncio.wait_for(outcome, WAIT_S)
    await close(sending, receiving)


async def test_a_gate_also_holds_the_outcome_of_a_message_without_confirmation_back(port: int) -> None:
    store = Store()
    sending, receiving = await gated(port, store)
    heard = await subscribe(sending, receiving)
    session = sending.create_session()
    send = session.create_producer(TOPIC).send_async
    outcome = asyncio.ensure_future(send(TextMessage("a"), delivery_mode=DeliveryMode.NON_PERSISTENT))
    await eventually(lambda: heard == ["a"])
    await asyncio.sleep(QUIET_S)
    assert not outcome.done()
    assert session.statistics().outcomes_awaited == 1
    store.store()
    await asyncio.wait_for(outcome, WAIT_S)
    await close(sending, receiving)


async def test_an_error_of_the_store_is_the_outcome_of_the_send(port: int) -> None:
    store = Store()
    sending, receiving = await gated(port, store)
    producer = sending.create_session().create_producer(TOPIC)
    outcomes = [asyncio.ensure_future(producer.send_async(TextMessage("a"))), asyncio.ensure_future(_send(producer))]
    await eventually(lambda: len(store.waiting) == 2)
    store.store(ResourceAllocationError("the disk is full"))
    for outcome in outcomes:
        with pytest.raises(ResourceAllocationError, match="the disk is full"):
            await asyncio.wait_for(outcome, WAIT_S)
    await close(sending, receiving)


async def test_each_outcome_is_that_of_its_own_future(port: int) -> None:
    """Messages that share a future fail and succeed together, with those before and behind them on their own."""
    store = Store()
    sending, receiving = await gated(port, store)
    producer = sending.create_session().create_producer(TOPIC)
    futures = [asyncio.get_running_loop().create_future() for _ in range(4)]
    admit, of_message = store.admit, iter([0, 1, 1, 1, 2, 2, 3])
    store.admit = lambda _, parts: (parts, futures[next(of_message)])  # type: ignore[method-assign]
    outcomes = [asyncio.ensure_future(producer.send_async(TextMessage(text))) for text in "abcdefg"]
    futures[1].set_exception(ResourceAllocationError("the disk is full"))
    futures[0].set_result(None)
    _, waiting = await asyncio.wait(outcomes[:4], timeout=WAIT_S)
    assert not waiting
    assert [type(outcome.exception()) for outcome in outcomes[:4]] == [type(None)] + 3 * [ResourceAllocationError]
    futures[3].set_result(None)
    await asyncio.sleep(QUIET_S)
    assert not any(outcome.done() for outcome in outcomes[4:]), "one waits, and those behind it for their turn"
    futures[2].set_result(None)
    await asyncio.wait_for(asyncio.gather(*outcomes[4:]), WAIT_S)
    store.admit = admit  # type: ignore[method-assign]
    await close(sending, receiving)


async def _send(producer: Any) -> None:
    await producer.send(TextMessage("b"))


async def test_a_message_that_is_never_stored_is_in_doubt(port: int) -> None:
    store = Store()
    sending, receiving = await gated(port, store, confirm_timeout_s=0.2)
    producer = sending.create_session().create_producer(TOPIC)
    with pytest.raises(UnconfirmedError) as caught:
        await asyncio.wait_for(producer.send_async(TextMessage("a")), WAIT_S)
    assert caught.value.in_doubt
    await close(sending, receiving)


async def test_a_cancelled_send_leaves_a_shared_future_alone(port: int) -> None:
    store = Store()
    sending, receiving = await gated(port, store, confirm_timeout_s=0.2)
    config = BusConfig.from_uri(uri(port), BUS_DEFAULTS)
    patient = await Connection(ConnectionCore(config, ClientSettings(), store))
    producer = sending.create_session().create_producer(TOPIC)
    cancelled = asyncio.ensure_future(_send(producer))
    await eventually(lambda: len(store.waiting) == 1)
    store.admit = lambda _, parts: (parts, store.waiting[0])  # type: ignore[method-assign]
    waiting = asyncio.ensure_future(_send(patient.create_session().create_producer(TOPIC)))
    timed_out = producer.send_async(TextMessage("c"))
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    with pytest.raises(UnconfirmedError):
        await asyncio.wait_for(timed_out, WAIT_S)
    assert not waiting.done()
    store.store()
    await asyncio.wait_for(waiting, WAIT_S)
    await close(sending, patient, receiving)


async def test_what_the_gate_gives_up_is_in_doubt(port: int) -> None:
    store = Store()
    sending, receiving = await gated(port, store)
    producer = sending.create_session().create_producer(TOPIC)
    transacted = sending.create_session(SessionMode.SESSION_TRANSACTED)
    await transacted.create_producer(TOPIC).send(TextMessage("a"))
    outcomes = [
        asyncio.ensure_future(_send(producer)),
        asyncio.ensure_future(producer.send_async(TextMessage("a"))),
        asyncio.ensure_future(transacted.commit()),
    ]
    await eventually(lambda: len(store.waiting) == 3)
    for stored in store.waiting:
        stored.cancel()
    for outcome in outcomes:
        with pytest.raises(UnconfirmedError):
            await asyncio.wait_for(outcome, WAIT_S)
    await close(sending, receiving)


async def test_a_refused_message_is_not_sent(port: int) -> None:
    store = Store(is_slow=False)
    sending, receiving = await gated(port, store)
    heard = await subscribe(sending, receiving)
    producer = sending.create_session().create_producer(TOPIC)
    store.refusal = ResourceAllocationError("the store is full")
    with pytest.raises(ResourceAllocationError, match="the store is full"):
        await producer.send(TextMessage("refused"))
    assert sending.statistics().messages_unconfirmed == 0
    transacted = sending.create_session(SessionMode.SESSION_TRANSACTED)
    await transacted.create_producer(TOPIC).send(TextMessage("refused, too"))
    with pytest.raises(TransactionRolledBackError, match="the store is full"):
        await transacted.commit()
    store.refusal = None
    await producer.send(TextMessage("a"))
    await eventually(lambda: heard == ["a"])
    await close(sending, receiving)


async def test_a_commit_waits_until_all_its_messages_are_stored(port: int) -> None:
    store = Store()
    sending, receiving = await gated(port, store)
    heard = await subscribe(sending, receiving)
    session = sending.create_session(SessionMode.SESSION_TRANSACTED)
    producer = session.create_producer(TOPIC)
    for text in "abc":
        await producer.send(TextMessage(text))
    assert not store.frames
    commit = asyncio.ensure_future(session.commit())
    await eventually(lambda: heard == ["a", "b", "c"])
    assert len(store.frames) == 3
    assert all(frame[FLAGS] & IN_TRANSACTION for frame in store.frames)
    await asyncio.sleep(QUIET_S)
    assert not commit.done()
    store.store()
    await asyncio.wait_for(commit, WAIT_S)
    await close(sending, receiving)
