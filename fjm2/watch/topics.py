"""Destinations: what is published to them, by whom, and what they are called."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from fjm2.jms import Destination, Queue, Topic
from fjm2.messages.destination import destination_from
from fjm2.messages.errors import InvalidDestinationError
from fjm2.messages.frame import Frame
from fjm2.messages.header import CONNECTION_ID, DESTINATION_HASH, FLAGS, HEADER_BYTES, NAME_BYTES

TOPICS_MAX: Final = 4096
"""Those that come later are not told apart."""
_PUBLISHERS_MAX: Final = 256
_PUBLISHER_S: Final = 60.0
"""Who has published nothing for so long is no publisher any more."""


@dataclass(slots=True)
class PassingTopic:
    """One destination."""

    hash: int
    destination: Destination | None = None
    messages: int = 0
    bytes: int = 0
    publishers: dict[int, float] = field(default_factory=dict)
    """Connection id, and when it published last."""

    @property
    def name(self) -> str | None:
        """As people write it: a topic by its name, all else with what it is."""
        one = self.destination
        return None if one is None else one.name if type(one) is Topic else str(one)


class Topics:
    """All that were heard of."""

    def __init__(self, known: Iterable[Destination] = ()) -> None:
        self._names = {one.frame_hash: one for one in known}
        self._topics: dict[int, PassingTopic] = {}

    def __iter__(self) -> Iterator[PassingTopic]:
        return iter(self._topics.values())

    def topic(self, number: int) -> PassingTopic | None:
        """That of a hash; None if there is no room for it."""
        topic = self._topics.get(number)
        if topic is None and len(self._topics) < TOPICS_MAX:
            topic = self._topics[number] = PassingTopic(number, self._names.get(number))
        return topic

    def note(self, frame: Frame, now: float) -> None:
        """A message was published."""
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
        """Connections that have left, and those that have been silent for long."""
        for topic in self._topics.values():
            for connection_id, at in list(topic.publishers.items()):
                if connection_id in gone or now - at > _PUBLISHER_S:
                    del topic.publishers[connection_id]


def _destination(buffer: bytes, start: int, flags: int, name_bytes: int) -> Destination | None:
    try:
        return destination_from(flags, buffer[start + HEADER_BYTES : start + HEADER_BYTES + name_bytes])
    except InvalidDestinationError:
        return None


def known_as(names: Iterable[str]) -> list[Destination]:
    """Names that people say, as the topics and queues that they may be."""
    return [kind(name) for name in names for kind in (Topic, Queue)]
