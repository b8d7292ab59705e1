"""Messages over NORM: streams that are sent and received message by message."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, Protocol

from fjm2.base.errors import ConfigError, NormError
from fjm2.base.functions import check_bytes
from fjm2.norm.core.events import Event, LossReason, SenderVanished, StreamEnded, StreamLost, StreamReceived

from .framing import LENGTH, MESSAGE_BYTES_MAX, MessageReader
from .outgoing_stream import BATCH_BYTES, BATCH_PARTS, OutgoingBytes
from .transmission import Transmission

_HELD_BYTES_MAX: Final = 4 * MESSAGE_BYTES_MAX
"""Most bytes that are held of incomplete messages of all senders: each of many forged senders can begin one."""


class OutgoingMessages(OutgoingBytes):
    """Stream of messages that a session sends. Receivers take them from `Session.messages`."""

    def __init__(self, transmission: Transmission, object_id: int) -> None:
        super().__init__(transmission, object_id)
        self._message_bytes = 0
        self._head = LENGTH.pack(0)
        """Encoded length of the last message."""

    async def send(self, message: bytes | bytearray | memoryview) -> None:
        """Send a message. Its bytes are not copied: leave them unchanged.

        It leaves at the end of the loop's turn at the latest. Waits only while the stream's buffer is full, or if much
        has been sent in one turn. Raises ConfigError if the message is longer than 64 MiB.
        """
        if self._is_closed:
            raise NormError("send to a closed stream")
        if type(message) is not bytes:
            check_bytes("message", message)
        length = len(message)
        if length != self._message_bytes:
            if length > MESSAGE_BYTES_MAX:
                raise ConfigError.of("message", f"{length} bytes", f"at most {MESSAGE_BYTES_MAX} bytes")
            self._head, self._message_bytes = LENGTH.pack(length), length
        size = self._size
        if not size:
            self._transmission.check_open()
            if isinstance(message, bytes) and self._is_sent_alone(self._head, message):
                return
            self._transmission.wake(self._hand_over)
        parts = self._parts
        self._marks.append(size)
        parts.append(self._head)
        parts.append(message)
        self._size = size = size + LENGTH.size + length
        if size >= BATCH_BYTES or len(parts) >= BATCH_PARTS:
            await self.drain()

    def take_back(self) -> list[bytes]:
        """Remove and return the messages that were not handed over to the engine."""
        return [frame[LENGTH.size :] for frame in super().take_back()]


class EventSource(Protocol):
    """The part of a session that messages are taken from."""

    def take(self) -> Event | None:
        """Return the next event, or None if there is none."""
        ...

    async def __anext__(self) -> Event:
        """Wait for the next event, and return it."""
        ...

    def __aiter__(self) -> AsyncIterator[Event]:
        """Return this object."""
        ...


class IncomingMessages:
    """Messages of all senders of a session. A loop over it can be left and begun again without losing any."""

    def __init__(self, events: EventSource, on_event: Callable[[Event], None] | None = None) -> None:
        self._events = events
        self._on_event = on_event
        self._readers: dict[tuple[int, int], MessageReader] = {}
        """Readers by sender id and object id."""
        self._ends: dict[tuple[int, int], int] = {}
        """Ends of the bytes that each of them has read."""
        self._held_bytes = 0
        self._pending: Iterator[bytes] = iter(())
        """Messages that were received and not taken, all of one sender."""
        self.sender_id = 0
        """Node id of the sender of the message taken last; 0 before the first message."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            for message in self._pending:
                yield message
            event = self._events.take()
            if event is None:
                try:
                    event = await anext(self._events)
                except StopAsyncIteration:
                    return
            if type(event) is StreamReceived:
                self._read(event)
            else:
                self._note(event)

    def _read(self, run: StreamReceived) -> None:
        """Put the messages that end in a run into `_pending`."""
        self.sender_id = run.sender_id
        key = run.sender_id, run.object_id
        reader = self._readers.get(key)
        if reader is None:
            reader = self._readers[key] = MessageReader()
        held_bytes = reader.held_bytes
        self._pending = iter(reader.read(run.data, run.marks))
        self._held_bytes += reader.held_bytes - held_bytes
        self._ends[key] = run.start + len(run.data)
        if self._held_bytes > _HELD_BYTES_MAX:
            self._reset_greediest()
        if reader.bytes_skipped:
            self._tell_skipped(key, reader)

    def _reset_greediest(self) -> None:
        """Forget the longest incomplete message, so that those who hold little keep theirs."""
        key, reader = max(self._readers.items(), key=lambda item: item[1].held_bytes)
        self._held_bytes -= reader.held_bytes
        reader.reset()
        self._tell_skipped(key, reader)

    def _tell_skipped(self, key: tuple[int, int], reader: MessageReader) -> None:
        end = self._ends[key]
        lost = StreamLost(*key, max(end - reader.bytes_skipped, 0), end, LossReason.FAILED)
        reader.bytes_skipped = 0
        self._tell(lost)

    def _note(self, event: Event) -> None:
        match event:
            case StreamLost(sender_id, object_id):
                reader = self._readers.get((sender_id, object_id))
                if reader is not None:
                    self._held_bytes -= reader.held_bytes
                    reader.reset()
                    reader.bytes_skipped = 0
            case StreamEnded(sender_id, object_id):
                self._forget((sender_id, object_id))
            case SenderVanished(sender_id):
                for key in [key for key in self._readers if key[0] == sender_id]:
                    self._forget(key)
            case _:
                pass
        self._tell(event)

    def _forget(self, key: tuple[int, int]) -> None:
        reader = self._readers.pop(key, None)
        self._ends.pop(key, None)
        if reader is not None:
            self._held_bytes -= reader.held_bytes

    def _tell(self, event: Event) -> None:
        if self._on_event is not None:
            self._on_event(event)
