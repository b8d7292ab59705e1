"""The temporary destinations of one connection: only it consumes from them, and they are gone when it is closed."""

from fjm2.messages.destination import Destination, TemporaryQueue, TemporaryTopic
from fjm2.messages.errors import IllegalStateError, InvalidDestinationError

from .endpoint import Endpoint
from .local_queue import LocalQueue


class Temporaries:
    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._alive = endpoint.temporaries
        self._count = 0
        self._queues: dict[Destination, LocalQueue] = {}

    def create_topic(self) -> TemporaryTopic:
        topic = TemporaryTopic(self._next_name(), self.delete)
        self._alive.add(topic)
        return topic

    def create_queue(self) -> TemporaryQueue:
        """It keeps what is sent to it from now on."""
        queue = TemporaryQueue(self._next_name(), self.delete)
        self._alive.add(queue)
        self._queues[queue] = LocalQueue(
            self.endpoint.subscribe(queue, None, False, self.endpoint.settings.consumer),
        )
        return queue

    def _next_name(self) -> str:
        self._count += 1
        return f"{self.endpoint.temporary_prefix}{self._count}"

    def queue_of(self, destination: Destination) -> LocalQueue | None:
        return self._queues.get(destination)

    def check_own(self, destination: Destination) -> None:
        """InvalidDestinationError unless this connection may consume from it."""
        if not destination.name.startswith(self.endpoint.temporary_prefix):
            raise InvalidDestinationError(f"{destination} belongs to another connection")
        if destination not in self._alive:
            raise InvalidDestinationError(f"{destination} was deleted")

    async def delete(self, destination: Destination) -> None:
        """IllegalStateError while it has consumers. Twice does no harm."""
        if destination not in self._alive:
            return
        queue = self._queues.get(destination)
        if queue.is_consumed if queue is not None else self.endpoint.is_consumed(destination):
            raise IllegalStateError(f"{destination} has consumers")
        self._alive.remove(destination)
        if queue is not None:
            del self._queues[destination]
            self.endpoint.unsubscribe(queue.shared)

    def close(self) -> None:
        self._alive.clear()
        for queue in self._queues.values():
            self.endpoint.unsubscribe(queue.shared)
        self._queues.clear()
