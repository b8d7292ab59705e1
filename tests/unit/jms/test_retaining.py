"""Tests of what a session makes of messages that are sent as last values."""

from typing import Any, cast

import pytest

from fjm2.jms import JMSError, TextMessage, Topic
from fjm2.jms.last_values.need import NOTHING, Need, need_of, need_of_all
from fjm2.jms.last_values.retaining import Retaining
from fjm2.messages.frame import FrameWriter
from fjm2.messages.header import IN_PARTS, PERSISTENT, RETAINED_SEND

TOPIC = Topic("prices")


def retaining() -> Retaining:
    return Retaining(cast(Any, None), False)  # the connection matters only for the room at keepers


def test_a_delayed_message_is_no_last_value() -> None:
    """Keepers would not take it for one."""
    parts = FrameWriter(1).write(TextMessage("later"), TOPIC, PERSISTENT, 4, 1000)
    post = TOPIC, 4, parts, PERSISTENT
    assert retaining().post(post, True)[3] == PERSISTENT | RETAINED_SEND
    with pytest.raises(JMSError, match="retain with a delivery_delay: expected a delay of 0"):
        retaining().post((*post[:3], PERSISTENT | IN_PARTS), True)


@pytest.mark.parametrize("body", [None, "", b"", bytearray(), {}, TextMessage(), TextMessage("")])
def test_removals_need_no_room(body: object) -> None:
    assert need_of(body) == NOTHING


def test_room_is_counted_in_values_and_kib() -> None:
    assert need_of("x") == need_of(b"x") == need_of(TextMessage("x")) == Need(1, 1)
    assert need_of(bytes(10_000)) == Need(1, 10)
    assert need_of(["an", "object"]).values == 1
    assert need_of_all(["x", None, bytes(10_000)]) == Need(2, 11)
