"""Destinations that are used on a bus: the traffic to them, their publishers, and their names."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from fjm2.jms import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from fjm2.messages.destination import destination_from
from fjm2.messages.errors import InvalidDestinationError
from fjm2.messages.frame import Frame
from fjm2.messages.header import CONNECTION_ID, DESTINATION_HASH, FLAGS, HEADER_BYTES, NAME_BYTES

TOPICS_MAX: Final = 4096
"""Greatest number of destinations that are remembered. Further ones are ignored, which bounds the memory that forged
frames can take."""
_PUBLISHERS_MAX: Final = 256
"""Greatest number of publishers remembered for one destination. It bounds the memory that forged connection ids can
take."""
_PUBLISHER_MAX_S: Final = 60.0
"""Time after which a connection that has not published to a destination is no longer shown as its publisher."""


@dataclass(slots=True)
class TopicActivity:
    """Traffic of one destination."""

    hash: int
    destination: Destination | None = None
    messages: int = 0
    bytes: int = 0
    publishers: dict[int, float] = field(default_factory=dict)
    """Time at which each publisher last published, by connection id."""

    @property
    def name(self) -> str | None:
        """Name of the destination as people write it: plain for a topic, otherwise with the scheme. None if it is
        unknown."""
        one = self.destination
        return None if one is None else one.name if type(one) is Topic else str(one)

    @property
    def is_private(self) -> bool:
        """True if only the connection that made the destination can consume from it."""
        return isinstance(self.destination, TemporaryTopic | TemporaryQueue)


class Topics:
    """All destinations that were heard of on a bus."""

    def __init__(self, known: Iterable[Destination] = ()) -> None:
        self._names = {one.frame_hash: one for one in known}
        self._topics: dict[int, TopicActivity] = {}

    def __iter__(self) -> Iterator[TopicActivity]:
        return iter(self._topics.values())

    def topic(self, number: int) -> TopicActivity | None:
        """Return the destination with this hash, adding it if it is new; None if there is no room for it."""
        topic = self._topics.get(number)
        if topic is None and len(self._topics) < TOPICS_MAX:
            topic = self._topics[number] = TopicActivity(number, self._names.get(number))
        return topic

    def note(self, frame: Frame, now: float) -> None:
        """Count a published message."""
        buffer, start, _, end, header = frame
        topic = self._topics.get(header[DESTINATION_HASH]) or self.topic(header[DESTINATION_HASH])
        if topic is None:
            return
        if topic.destination is None:
            topic.destination = _destination(buffer, start, header[FLAGS], header[NAME_BYTES])
        topic.messages += 1
        topic.bytes += end - start
        publishers, connection_id = topic.publishers, header[CONNECTION_ID]
        if connection_id in publishers or len(publishers) < _PUBLISHERS_MAX:
            publishers[connection_id] = now

    def forget_publishers(self, gone: set[int], now: float) -> None:
        """Remove publishers that have left, or have not published for long."""
        for topic in self._topics.values():
            for connection_id, at in list(topic.publishers.items()):
                if connection_id in gone or now - at > _PUBLISHER_MAX_S:
                    del topic.publishers[connection_id]


def _destination(buffer: bytes, start: int, flags: int, name_bytes: int) -> Destination | None:
    try:
        return destination_from(flags, buffer[start + HEADER_BYTES : start + HEADER_BYTES + name_bytes])
    except InvalidDestinationError:
        return None


def known_as(names: Iterable[str]) -> list[Destination]:
    """Return the topics and queues that these names may stand for."""
    return [kind(name) for name in names for kind in (Topic, Queue)]
