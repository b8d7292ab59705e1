"""Lone messages: they leave and arrive by a short way of their own, which must not differ from the general one."""

from itertools import accumulate
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.norm.core.config import Fec, ReceiverConfig, SenderConfig, SessionConfig
from fjm2.norm.core.engine import Engine
from fjm2.norm.core.events import StreamReceived
from fjm2.norm.core.train import Train

GROUP = ("239.192.7.9", 5740)
SOURCE = ("127.0.0.1", 9)
SEGMENT_BYTES = 64
STEP_S = 0.0001

Message = tuple[bytes, bytes, bool]
"""Head and body of a message, and whether it is tried as a lone one."""
messages_or_none = st.lists(
    st.tuples(st.binary(min_size=1, max_size=40), st.binary(max_size=2 * SEGMENT_BYTES), st.booleans()), max_size=60
)


def engine(node_id: int, **settings: Any) -> Engine:
    sender = SenderConfig(**{"segment_bytes": SEGMENT_BYTES, "block_segments": 8, "rate_bps": None, **settings})
    return Engine(
        SessionConfig(node_id=node_id, sender=sender, receiver=ReceiverConfig()), GROUP, random=Random(node_id)
    )


def kept(train: Train) -> Train:
    return Train(train.data.copy(), train.segment_bytes, train.address)


def of_one(datagram: memoryview) -> Train:
    return Train(np.frombuffer(bytes(datagram), np.uint8), len(datagram), GROUP)


def drain(sender: Engine, now: float) -> list[Train]:
    trains = []
    while (train := sender.poll_train(now)) is not None:
        trains.append(kept(train))
    return trains


def publish(sender: Engine, stream: int, message: Message, now: float) -> list[Train]:
    """Send a message, by the short way if it is tried and possible, and return the trains sent."""
    head, body, is_tried = message
    sent: list[Train] = []
    if is_tried and sender.write_alone(stream, head, body, now, lambda datagram: sent.append(of_one(datagram))):
        return [*sent, *drain(sender, now)]
    assert not sent
    whole = memoryview(head + body)
    assert sender.write(stream, whole, [0]) == len(whole)
    sender.flush(stream)
    return drain(sender, now)


def wire(trains: list[Train]) -> list[tuple[bytes, int]]:
    return [(train.data.tobytes(), min(train.segment_bytes, train.data.size)) for train in trains]


@pytest.mark.parametrize(
    "settings",
    [
        {"fec": Fec.NONE},
        {"fec": Fec.NOCODE},
        {"fec": Fec.RS, "parity_segments": 4},
        {"rate_bps": 1e6},
        {"rate_bps": 1e8},
        {"cc": True},
    ],
    ids=str,
)
@given(messages=messages_or_none)
def test_datagrams_are_those_of_the_general_way(settings: dict[str, Any], messages: list[Message]) -> None:
    short, general = engine(1, **settings), engine(1, **settings)
    streams = short.open_stream(None, 0.0), general.open_stream(None, 0.0)
    for number, (head, body, is_tried) in enumerate(messages):
        now = number * STEP_S
        for each in (short, general):
            each.handle_timeout(now)
        assert wire(drain(short, now)) == wire(drain(general, now))
        ours = publish(short, streams[0], (head, body, is_tried), now)
        assert wire(ours) == wire(publish(general, streams[1], (head, body, False), now))
        assert short.poll_timeout() == general.poll_timeout()
    assert short.stats == general.stats


@pytest.mark.parametrize("settings", [{}, {"rate_bps": 1e8}], ids=str)
@given(messages=messages_or_none)
def test_short_messages_take_the_short_way(settings: dict[str, Any], messages: list[Message]) -> None:
    """Without this, the test above would test nothing."""
    sender = engine(1, **settings)
    stream = sender.open_stream(None, 0.0)
    drain(sender, 0.0)
    for number, (head, _, _) in enumerate(messages):
        assert sender.write_alone(stream, head, b"", number * STEP_S, lambda _: None)
        drain(sender, number * STEP_S)


@given(messages=messages_or_none, random=st.randoms(use_true_random=False))
def test_a_receiver_delivers_every_byte_in_its_place(messages: list[Message], random: Random) -> None:
    """Datagrams that come alone take the short way at the receiver. Some are lost, doubled or overtaken."""
    sender, receiver = engine(1), engine(2)
    stream = sender.open_stream(None, 0.0)
    sent = b"".join(head + body for head, body, _ in messages)
    starts = set(accumulate((len(head) + len(body) for head, body, _ in messages), initial=0))
    datagrams: list[bytes] = []
    for number, message in enumerate(messages):
        for train in publish(sender, stream, message, number * STEP_S):
            whole, step = train.data.tobytes(), train.segment_bytes
            datagrams += [whole[at : at + step] for at in range(0, len(whole), step)]
    arriving = [each for each in datagrams for _ in range(random.choice([1, 1, 1, 1, 1, 1, 1, 0, 2]))]
    for at in random.sample(range(len(arriving)), len(arriving) // 8):
        arriving.insert(random.randrange(len(arriving)), arriving.pop(at))
    if random.random() < 0.5:
        arriving = datagrams
    got = bytearray()
    for number, datagram in enumerate(arriving):
        data = np.frombuffer(datagram, np.uint8)
        receiver.receive_train(Train(data, len(datagram), SOURCE), number * STEP_S)
        while (event := receiver.poll_event()) is not None:
            if isinstance(event, StreamReceived):
                got += event.data
                assert event.data == sent[event.start : event.start + len(event.data)]
                assert {event.start + mark for mark in event.marks} <= starts
    if arriving is datagrams:
        assert bytes(got) == sent
