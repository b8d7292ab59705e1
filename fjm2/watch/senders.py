"""NORM senders heard on a bus, and the streams they send."""

from collections import Counter
from collections.abc import ItemsView, KeysView, Set
from typing import Final

from fjm2.messages.frame import Frame
from fjm2.norm.core.wire import DataRun
from fjm2.traces.observed import ObservedSender

from .stream_tap import StreamTap

SENDERS_MAX: Final = 1024
"""Greatest number of senders that are remembered. Further senders are ignored, which bounds the memory that forged node
ids can take."""
_STREAMS_MAX: Final = 4
"""Greatest number of streams that are followed of one sender. FJM2 opens one for each sender; the rest is room for
foreign programs."""
_HELD_BYTES_MAX: Final = 256 << 20
"""Greatest size of the incomplete messages held, for all streams together. A frame may announce any size, so this
bounds memory."""
_SILENCE_MAX_S: Final = 60.0
"""Time of silence after which a sender without a connection is forgotten, long after a screen has shown it as idle."""


class Sender:
    """One NORM sender."""

    __slots__ = ("counts", "heard_at", "instance_id", "is_publishing", "messages", "observed", "streams")

    def __init__(self) -> None:
        self.observed = ObservedSender()
        """Counters of the packets of this sender."""
        self.counts: Counter[str] = Counter()
        """Totals of everything that `observed` has counted."""
        self.messages = 0
        """Number of messages whose last byte was heard."""
        self.streams: dict[int, StreamTap] = {}
        """Taps of the sender's streams, by object id."""
        self.instance_id: int | None = None
        self.is_publishing = False
        """True once the sender has sent data, and not only commands."""
        self.heard_at = 0.0


class Senders:
    """All senders heard recently, bounded in number and in memory held."""

    def __init__(self) -> None:
        self._senders: dict[int, Sender] = {}
        self._held_bytes = 0

    def get(self, node_id: int) -> Sender | None:
        return self._senders.get(node_id)

    def items(self) -> ItemsView[int, Sender]:
        return self._senders.items()

    def node_ids(self) -> KeysView[int]:
        return self._senders.keys()

    def heard(self, node_id: int, instance_id: int, now: float) -> Sender | None:
        """Return the sender with this node id, or None if the table is full. A new instance id starts new streams."""
        sender = self._senders.get(node_id)
        if sender is None:
            if len(self._senders) >= SENDERS_MAX:
                return None
            sender = self._senders[node_id] = Sender()
        if sender.instance_id != instance_id:
            self._release_all(sender)
            sender.streams.clear()
            sender.instance_id = instance_id
        sender.heard_at = now
        return sender

    def read(self, sender: Sender, run: DataRun) -> tuple[list[Frame], int]:
        """Return the frames that a run of segments completes, and the number of bytes that were found missing before
        it."""
        object_id = run.header.message.object_id
        stream = sender.streams.get(object_id)
        if stream is None:
            if len(sender.streams) >= _STREAMS_MAX:
                self._release(sender.streams.pop(next(iter(sender.streams))))
            stream = sender.streams[object_id] = StreamTap()
        held, missed = stream.held_bytes, stream.bytes_missed
        frames = stream.read(run)
        self._held_bytes += stream.held_bytes - held
        if self._held_bytes > _HELD_BYTES_MAX:
            self._release(stream)
        return frames, stream.bytes_missed - missed

    def forget_silent(self, members: Set[int], now: float) -> None:
        """Forget senders that have not been heard for long, except nodes of members of the bus."""
        for node_id, sender in list(self._senders.items()):
            if node_id not in members and now - sender.heard_at > _SILENCE_MAX_S:
                self._release_all(sender)
                del self._senders[node_id]

    def _release_all(self, sender: Sender) -> None:
        for stream in sender.streams.values():
            self._release(stream)

    def _release(self, stream: StreamTap) -> None:
        self._held_bytes -= stream.held_bytes
        stream.release()
