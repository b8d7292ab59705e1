"""Hand-made packets of a bus, for tests of a watch."""

from typing import Any

import numpy as np

from fjm2.bus.presence import Announcement
from fjm2.jms import Message, Topic
from fjm2.messages.destination import Destination
from fjm2.messages.frame import FrameWriter
from fjm2.norm import Train
from fjm2.norm.core.wire import (
    STREAM_HEADER,
    Ack,
    AckType,
    Application,
    Data,
    Flush,
    Fti,
    Nack,
    ObjectFlag,
    Position,
    Status,
    StatusFlag,
)
from fjm2.norm.core.wire import Message as NormMessage
from fjm2.watch import BusWatch

SEGMENT = 100
FTI = Fti(fec_id=0, object_bytes=1 << 20, segment_bytes=SEGMENT, block_segments=64)
PARITY_FTI = Fti(fec_id=5, object_bytes=1 << 20, segment_bytes=SEGMENT, block_segments=4, parity_segments=2)


def train(*messages: NormMessage, host: str = "10.0.0.1", port: int = 1000) -> Train:
    """Return a train of datagrams of equal length. The last one may be shorter."""
    wires = [message.encode() for message in messages]
    return Train(np.frombuffer(b"".join(wires), np.uint8), len(wires[0]), (host, port))


def common(node_id: int, sequence: int) -> dict[str, Any]:
    return {
        "source_id": node_id,
        "sequence": sequence & 0xFFFF,
        "instance_id": 1,
        "grtt_q": 100,
        "backoff": 4,
        "gsize_q": 2,
    }


class Node:
    """A member of a bus, as a watch hears it."""

    def __init__(self, node_id: int, watch: BusWatch, *, host: str = "10.0.0.1", port: int | None = None) -> None:
        self.node_id = node_id
        self._watch = watch
        self._address = {"host": host, "port": 1000 + node_id if port is None else port}
        self._sequence = 0
        self._stream = b""
        self._marks: list[int] = []
        self._sent = 0

    def _next(self) -> dict[str, Any]:
        self._sequence += 1
        return common(self.node_id, self._sequence)

    def say(self, message: NormMessage, now: float) -> None:
        self._watch.take(train(message, **self._address), now)

    def announce(self, connection_id: int, now: float, **fields: Any) -> None:
        content = Announcement(connection_id, **fields).encode(1400)
        self.command(content, now)

    def command(self, content: bytes, now: float) -> None:
        self.say(Application(**self._next(), content=content), now)

    def write(self, connection_id: int, count: int, destination: Destination, size: int = 10) -> None:
        """Append messages to the node's stream, without sending them."""
        writer = FrameWriter(connection_id)
        for _ in range(count):
            message = Message()
            message.set_string_property("filling", "x" * size)
            head, body = writer.write(message, destination, 0, 4, 1)
            self._marks.append(len(self._stream))
            self._stream += head + body

    def segments(self, fti: Fti = FTI) -> list[Data]:
        """Return the segments of the stream that were written since the last call."""
        made = []
        while self._sent < len(self._stream):
            at, index = self._sent, self._sent // SEGMENT
            content = self._stream[at : at + SEGMENT]
            start = next((mark - at + 1 for mark in self._marks if at <= mark < at + len(content)), 0)
            made.append(self.data(index, STREAM_HEADER.pack(len(content), start, at) + content, fti))
            self._sent += SEGMENT
        return made

    def data(self, index: int, payload: bytes, fti: Fti = FTI, flags: int = ObjectFlag.STREAM) -> Data:
        block, symbol = divmod(index, fti.block_segments)
        return Data(
            **self._next(),
            flags=flags,
            fec_id=fti.fec_id,
            object_id=1,
            payload_id=block << (8 if fti.fec_id else 16) | symbol,
            payload=payload,
            extensions=(fti,),
        )

    def publish(self, connection_id: int, count: int, now: float, topic: str = "prices") -> None:
        self.write(connection_id, count, Topic(topic))
        self._watch.take(train(*self.segments(), **self._address), now)

    def ask(self, payload_id: int, nodes: tuple[int, ...], now: float) -> None:
        self.say(Flush(**self._next(), position=Position(0, 1, payload_id), acking_nodes=nodes), now)

    def confirm(self, sender_id: int, payload_id: int, now: float) -> None:
        content = Position(0, 1, payload_id)
        ack = Ack(source_id=self.node_id, sender_id=sender_id, instance_id=1, ack_type=AckType.FLUSH, content=content)
        self.say(ack, now)

    def confirm_full(self, sender_id: int, now: float, is_full: bool = True) -> None:
        """Answer a probe, and say if the application takes nothing."""
        status = Status(flags=StatusFlag.FULL if is_full else 0, progress=0)
        ack = Ack(source_id=self.node_id, sender_id=sender_id, instance_id=1, ack_type=AckType.CC, extensions=(status,))
        self.say(ack, now)

    def miss(self, sender_id: int, now: float) -> None:
        self.say(Nack(source_id=self.node_id, sender_id=sender_id, instance_id=1, requests=()), now)
