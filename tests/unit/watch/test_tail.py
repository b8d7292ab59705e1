"""Tests of the queue of `fjm2 tail`: it is bounded, and contains only wanted messages."""

from sightings import Node

from fjm2.commands.tail import _WAITING_BYTES_MAX, TailQueue
from fjm2.jms import Message, Queue, Selector, TextMessage, Topic, TopicPattern
from fjm2.messages.frame import FrameWriter
from fjm2.messages.header import HEADER
from fjm2.watch import BusWatch

FEED = 0xFEED


def shown(waiting: TailQueue) -> list[Message]:
    return [waiting.pop()[0] for _ in range(len(waiting))]


def test_a_slow_reader_costs_bounded_memory() -> None:
    waiting = TailQueue(None, None)
    body = "x" * (1 << 20)
    head, encoded = FrameWriter(FEED).write(TextMessage(body), Topic("prices"), 0, 4, 1)
    frame, count = head + encoded, 2 * _WAITING_BYTES_MAX // len(body)
    header = HEADER.unpack_from(frame)
    for _ in range(count):
        waiting.add((frame, 0, len(head), len(frame), header), 5)
    assert 0 < len(waiting) <= _WAITING_BYTES_MAX // len(body)
    assert len(waiting) + waiting.dropped == count
    assert all(isinstance(one, TextMessage) and one.text == body for one in shown(waiting))
    waiting.add((frame, 0, len(head), len(frame), header), 5)
    assert len(waiting) == 1


def test_one_topic_is_followed_but_no_queue_of_the_same_name() -> None:
    waiting = TailQueue(Topic("prices"), None)
    watch = BusWatch(now=0.0, on_frame=waiting.add)
    Node(5, watch).publish(FEED, 3, 0.0, "prices")
    Node(6, watch).publish(FEED, 3, 0.0, "prices.eu")
    queue = Node(7, watch)
    queue.write(FEED, 3, Queue("prices"))
    for segment in queue.segments():
        queue.say(segment, 0.0)
    assert watch.report(1.0).messages == 9
    assert [str(one.destination) for one in shown(waiting)] == ["topic://prices"] * 3


def test_the_topics_of_a_pattern_are_followed() -> None:
    waiting = TailQueue(TopicPattern("prices.>"), None)
    watch = BusWatch(now=0.0, on_frame=waiting.add)
    for node_id, topic in ((5, "prices.eu"), (6, "prices"), (7, "prices.us.spot"), (8, "orders")):
        Node(node_id, watch).publish(FEED, 1, 0.0, topic)
    queue = Node(9, watch)
    queue.write(FEED, 1, Queue("prices.eu"))
    for segment in queue.segments():
        queue.say(segment, 0.0)
    assert [str(one.destination) for one in shown(waiting)] == ["topic://prices.eu", "topic://prices.us.spot"]
    head, body = FrameWriter(FEED).write(TextMessage("a"), Topic("prices.eu"), 0, 4, 1)
    broken = head.replace(b"prices.eu", b"prices.\xff\xff") + body
    waiting.add((broken, 0, len(head), len(broken), HEADER.unpack_from(broken)), 5)
    assert not len(waiting)


def test_a_selector_filters_messages() -> None:
    waiting = TailQueue(None, Selector("filling LIKE 'xxx%'"))
    watch = BusWatch(now=0.0, on_frame=waiting.add)
    for node_id, size in ((5, 2), (6, 3), (7, 4)):
        node = Node(node_id, watch)
        node.write(FEED, 1, Topic("prices"), size)
        for segment in node.segments():
            node.say(segment, 0.0)
    assert [one.get_string_property("filling") for one in shown(waiting)] == ["xxx", "xxxx"]
    assert waiting.unreadable == 0
