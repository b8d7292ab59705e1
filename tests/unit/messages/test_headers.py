"""Tests of headers, as far as they concern messages alone.

Names of tests begin with the number of the case: H1 to H17.
"""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from passing import CONNECTION, NOW, TOPIC, encode, opened, passed, read_one, receive

from fjm2.jms import (
    DEFAULT_DELIVERY_DELAY,
    DEFAULT_DELIVERY_MODE,
    DEFAULT_PRIORITY,
    DEFAULT_TIME_TO_LIVE,
    Byte,
    BytesMessage,
    DeliveryMode,
    Destination,
    InvalidDestinationError,
    MapMessage,
    Message,
    MessageFormatError,
    MessageProtocol,
    ObjectMessage,
    Queue,
    StreamMessage,
    TemporaryQueue,
    TemporaryTopic,
    TextMessage,
    Topic,
)
from fjm2.messages.foreign import adopt, stamp_foreign
from fjm2.messages.frame import FrameWriter
from fjm2.messages.header import NO_MESSAGE_ID, NO_TIMESTAMP, PERSISTENT

STAMPED: dict[str, Any] = {
    "destination": Queue("elsewhere"),
    "delivery_mode": DeliveryMode.NON_PERSISTENT,
    "message_id": "ID:mine",
    "timestamp": 5,
    "expiration": 6,
    "delivery_time": 7,
    "priority": 9,
    "redelivered": True,
}


def test_defaults() -> None:
    assert (DEFAULT_DELIVERY_MODE, DEFAULT_PRIORITY, DEFAULT_TIME_TO_LIVE, DEFAULT_DELIVERY_DELAY) == (2, 4, 0, 0)
    message = Message()
    assert {name: getattr(message, name) for name in STAMPED} == {
        "destination": None,
        "delivery_mode": DeliveryMode.PERSISTENT,
        "message_id": None,
        "timestamp": 0,
        "expiration": 0,
        "delivery_time": 0,
        "priority": 4,
        "redelivered": False,
    }
    assert (message.correlation_id, message.correlation_id_bytes, message.reply_to, message.type) == (None,) * 4


@pytest.mark.parametrize("destination", [Topic("t"), Queue("q"), TemporaryTopic("tt"), TemporaryQueue("tq")])
def test_h1_destination_is_that_of_the_send(destination: Destination) -> None:
    message = Message()
    message.destination = Topic("ignored")
    received = receive(encode(message, destination))
    for either in (message, received):
        assert either.destination == destination
        assert type(either.destination) is type(destination)


@pytest.mark.parametrize("mode", DeliveryMode)
def test_h2_delivery_mode_is_that_of_the_send(mode: DeliveryMode) -> None:
    message = Message()
    message.delivery_mode = DeliveryMode(3 - mode)
    received = passed(message, flags=PERSISTENT if mode is DeliveryMode.PERSISTENT else 0)
    assert message.delivery_mode is received.delivery_mode is mode


def test_h3_message_ids_are_new_with_every_send() -> None:
    writer, message, ids = FrameWriter(CONNECTION), Message(), []
    for _ in range(3):
        received = receive(encode(message, writer=writer))
        assert received.message_id == message.message_id
        ids.append(message.message_id)
    forwarded = receive(encode(message, writer=writer))
    ids += [forwarded.message_id, receive(encode(forwarded, writer=writer)).message_id]
    ids.append(receive(encode(message, writer=FrameWriter(CONNECTION + 1))).message_id)
    assert ids[0] == "ID:0123456789abcdef-1"
    assert len(set(ids)) == len(ids)


def test_h4_id_and_timestamp_can_be_disabled() -> None:
    message = Message()
    received = passed(message, flags=PERSISTENT | NO_MESSAGE_ID | NO_TIMESTAMP, delivery_delay=50)
    for either in (message, received):
        assert (either.message_id, either.timestamp, either.delivery_time) == (None, 0, NOW + 50)


def test_h5_timestamp() -> None:
    message = Message()
    assert passed(message).timestamp == message.timestamp == NOW


@pytest.mark.parametrize("value", ["ID:0123456789abcdef-1", "order 17", "", "\U0001f600\0", None])
def test_h6_correlation_id_as_text(value: str | None) -> None:
    message = Message()
    message.correlation_id = value
    for either in (message, passed(message)):
        assert either.correlation_id == value
        assert either.correlation_id_bytes == (None if value is None else value.encode())


@pytest.mark.parametrize(("value", "text"), [(b"order", "order"), (b"\xff\0", None), (b"", ""), (bytearray(b"x"), "x")])
def test_h6_correlation_id_as_bytes(value: bytes, text: str | None) -> None:
    message = Message()
    message.correlation_id = "replaced"
    message.correlation_id_bytes = value
    for either in (message, passed(message)):
        assert (either.correlation_id_bytes, either.correlation_id) == (value, text)
    message.correlation_id = None
    assert message.correlation_id_bytes is None


def test_h6_correlation_ids_of_other_types_are_refused() -> None:
    message = Message()
    for value in (5, b"x", "\ud800"):
        with pytest.raises(MessageFormatError):
            message.correlation_id = value  # type: ignore[assignment]
    with pytest.raises(MessageFormatError):
        message.correlation_id_bytes = "x"  # type: ignore[assignment]


@pytest.mark.parametrize("reply_to", [Topic("é"), Queue("q"), TemporaryTopic("tt"), TemporaryQueue("tq"), None])
def test_h7_reply_to_arrives_as_a_destination(reply_to: Destination | None) -> None:
    message = Message()
    message.reply_to = reply_to
    received = passed(message)
    assert received.reply_to == reply_to
    assert type(received.reply_to) is type(reply_to)
    with pytest.raises(InvalidDestinationError):
        message.reply_to = "topic://t"  # type: ignore[assignment]


@pytest.mark.parametrize("value", ["order", "", None])
def test_h8_type(value: str | None) -> None:
    message = Message()
    message.type = value
    received = passed(message)
    assert received.type == received.jms_type == value
    received.jms_type = "alias"
    assert received.type == "alias"


@pytest.mark.parametrize(("count", "redelivered"), [(1, False), (2, True), (6, True)])
def test_h9_redelivered(count: int, redelivered: bool) -> None:
    assert receive(encode(Message()), count).redelivered is redelivered


def test_h10_expiration_is_the_same_on_both_sides() -> None:
    message = Message()
    assert passed(message, expiration=NOW + 5000).expiration == message.expiration == NOW + 5000
    assert passed(message).expiration == message.expiration == 0


@pytest.mark.parametrize("priority", range(10))
def test_h11_priority(priority: int) -> None:
    message = Message()
    assert passed(message, priority=priority).priority == message.priority == priority


@pytest.mark.parametrize("delay", [0, 250, 2**40])
def test_h12_delivery_time(delay: int) -> None:
    message = Message()
    assert passed(message, delivery_delay=delay).delivery_time == message.delivery_time == NOW + delay


def test_h13_a_send_overwrites_what_the_client_set() -> None:
    message = Message()
    message.correlation_id, message.type, message.reply_to = "c", "t", Topic("r")
    for name, value in STAMPED.items():
        setattr(message, name, value)
        assert getattr(message, name) == value
    received = passed(message)
    for either in (message, received):
        assert [name for name, value in STAMPED.items() if getattr(either, name) == value] == []
        assert (either.correlation_id, either.type, either.reply_to) == ("c", "t", Topic("r"))


def test_h13_headers_of_a_received_message_change_locally() -> None:
    message = TextMessage("x")
    message.type = "t"
    frame = encode(message)
    received = receive(frame)
    for name, value in STAMPED.items():
        setattr(received, name, value)
        assert getattr(received, name) == value
    received.type = received.correlation_id = "changed"
    other = receive(frame)
    assert (other.type, other.correlation_id, other.destination, other.priority) == ("t", None, TOPIC, 4)


def test_h14_headers_are_filled_when_the_frame_is_made() -> None:
    message = Message()
    FrameWriter(CONNECTION, number=41).write(message, TOPIC, 0, 7, NOW, NOW + 1)
    assert (message.message_id, message.timestamp, message.expiration, message.priority, message.destination) == (
        "ID:0123456789abcdef-42",
        NOW,
        NOW + 1,
        7,
        TOPIC,
    )


def _map(value: int) -> MapMessage:
    message = MapMessage()
    message.set_int("k", value)
    return message


def _bytes(value: int) -> BytesMessage:
    message = BytesMessage()
    message.write_int(value)
    return message


def _stream(value: int) -> StreamMessage:
    message = StreamMessage()
    message.write_int(value)
    return message


def test_h16_the_sent_message_is_a_snapshot() -> None:
    content = bytearray(b"first")
    sent = BytesMessage()
    sent.write_bytes(content)
    sent.set_int_property("p", 1)
    first = encode(sent)
    content[:] = b"other"
    sent.write_bytes(b" more")
    sent.set_int_property("p", 2)
    sent.type = "later"
    received, again = receive(first), passed(sent)
    assert (received.get_body(bytes), received.get_int_property("p"), received.type) == (b"first", 1, None)
    assert (again.get_body(bytes), again.get_int_property("p"), again.type) == (b"first more", 2, "later")


def test_h16_every_kind_shows_its_changes_in_the_next_send() -> None:
    text, mapping, stream, thing = TextMessage("1"), _map(1), _stream(1), ObjectMessage([1])
    frames = [encode(message) for message in (text, mapping, stream, thing)]
    text.text = "2"
    mapping.set_int("k", 2)
    stream.write_int(2)
    thing.object = [2]
    was = [receive(frame) for frame in frames]
    assert was[0].get_body(str) == "1"
    assert was[1].get_body(dict) == {"k": 1}
    assert isinstance(was[2], StreamMessage)
    assert was[2].read_int() == 1
    assert was[3].get_body(list) == [1]
    assert passed(text).text == "2"
    assert passed(mapping)["k"] == 2
    assert [passed(stream).read_object()] == [1]
    assert passed(thing).object == [2]


@pytest.mark.parametrize(
    "sent", [TextMessage("x"), _map(3), _bytes(3), _stream(3), ObjectMessage({"a": (1,)}), Message()]
)
def test_h16_received_messages_are_forwarded_unchanged(sent: Message) -> None:
    sent.set_object_property("p", Byte(3))
    sent.correlation_id, sent.reply_to = "c", Queue("q")
    received = passed(sent)
    forwarded = passed(received)
    assert forwarded.get_object_property("p") == Byte(3)
    assert (forwarded.correlation_id, forwarded.reply_to) == ("c", Queue("q"))
    if isinstance(sent, StreamMessage):
        assert isinstance(forwarded, StreamMessage)
        assert forwarded.read_int() == 3
    else:
        assert forwarded.get_body(object) == receive(encode(sent)).get_body(object)
    assert passed(forwarded).get_object_property("p") == Byte(3)


def test_h16_partly_read_bodies_are_forwarded_whole() -> None:
    received = passed(_bytes(7))
    assert received.read_short() == 0
    assert passed(received).read_int() == 7
    assert received.read_short() == 7


class Foreign:
    """A message whose class does not belong to FJM2."""

    def __init__(self, **body: Any) -> None:
        self.correlation_id, self.reply_to, self.type = "c", Topic("r"), "t"
        self.__dict__.update(body)

    def property_names(self) -> list[str]:
        return ["n", "JMSXDeliveryCount", "JMSXGroupID"]

    def get_object_property(self, name: str) -> object:
        return {"n": Byte(5), "JMSXDeliveryCount": 1, "JMSXGroupID": "g"}[name]


class ForeignBytes(Foreign):
    body_length = 3

    def reset(self) -> None:
        self.left = b"abc"

    def read_bytes(self) -> bytes | None:
        return self.left


class ForeignStream(Foreign):
    def reset(self) -> None:
        self.values = _stream(1)
        self.values.write_string("two")
        self.values.reset()

    def read_object(self) -> object:
        return self.values.read_object()


def test_h17_foreign_messages_are_copied_by_type_headers_and_properties() -> None:
    foreign = Foreign(text="hello")
    assert isinstance(foreign, MessageProtocol)
    copy = adopt(foreign)
    assert isinstance(copy, TextMessage)
    received = passed(copy)
    assert (received.text, received.correlation_id, received.reply_to, received.type) == ("hello", "c", Topic("r"), "t")
    assert received.get_object_property("n") == Byte(5)
    assert received.property_names() == {"n", "JMSXGroupID", "JMSXDeliveryCount"}
    stamp_foreign(foreign, copy)
    assert vars(foreign)["message_id"] == copy.message_id == received.message_id
    assert vars(foreign)["destination"] == TOPIC


def test_h17_every_kind_of_foreign_body() -> None:
    assert type(adopt(Foreign())) is Message
    thing = adopt(Foreign(object=[1]))
    assert isinstance(thing, ObjectMessage)
    assert thing.object == [1]
    items = {"a": 1, "b": b"x"}
    mapping = adopt(Foreign(map_names=lambda: items.keys(), get_object=items.get))
    assert isinstance(mapping, MapMessage)
    assert dict(mapping) == items
    assert passed(adopt(ForeignBytes())).get_body(bytes) == b"abc"
    stream = adopt(ForeignStream())
    assert isinstance(stream, StreamMessage)
    stream.reset()
    assert (stream.read_int(), stream.read_string()) == (1, "two")


def test_h17_own_messages_are_not_copied_and_others_are_refused() -> None:
    message = TextMessage()
    assert adopt(message) is message
    assert isinstance(message, MessageProtocol)
    for value in (None, "text", object()):
        with pytest.raises(MessageFormatError):
            adopt(value)


def test_a6_a_redelivered_message_is_the_original() -> None:
    sent = TextMessage("original")
    sent.set_int_property("p", 1)
    frame = read_one(encode(sent))
    first_id, first = sent.message_id, opened(frame)
    assert isinstance(first, TextMessage)
    first.clear_body()
    first.clear_properties()
    first.text, first.type, first.priority = "changed", "changed", 0
    encode(first)  # the message is sent on as well
    second = opened(frame, 2)
    assert isinstance(second, TextMessage)
    assert (second.text, second.type, second.priority, second.get_int_property("p")) == ("original", None, 4, 1)
    assert (second.redelivered, second.delivery_count, second.message_id) == (True, 2, first_id)


def test_a2_acknowledge_reaches_the_session() -> None:
    calls = []

    async def acknowledge() -> None:
        calls.append("acknowledged")

    async def use() -> None:
        await opened(read_one(encode(Message())), acknowledge=acknowledge).acknowledge()
        await Message().acknowledge()  # does nothing, as there is nothing to acknowledge

    asyncio.run(use())
    assert calls == ["acknowledged"]
    Message().acknowledge()


TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=50)


@given(TEXTS, TEXTS | st.binary(max_size=50), st.integers(0, 9), st.integers(0, 2**62), st.integers(0, 2**40))
def test_headers_survive_encoding(
    kind: str | None, correlation: str | bytes | None, priority: int, expiration: int, delay: int
) -> None:
    message = Message()
    message.type = kind
    if isinstance(correlation, bytes):
        message.correlation_id_bytes = correlation
    else:
        message.correlation_id = correlation
    received = passed(message, priority=priority, expiration=expiration, delivery_delay=delay)
    for name in (*STAMPED, "type", "correlation_id", "correlation_id_bytes"):
        assert getattr(received, name) == getattr(message, name)
    assert (received.priority, received.expiration, received.delivery_time) == (priority, expiration, NOW + delay)
