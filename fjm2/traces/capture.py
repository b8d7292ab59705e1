"""Samples of the NORM traffic in a packet capture: a series for each sender, and one series of the capture itself.

Memory is bounded for any capture. One packet is held at a time, and the number of senders, and of objects of each, is
limited.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO, Final

import numpy as np

from fjm2.base.errors import WireError
from fjm2.norm import Train
from fjm2.norm.core.wire import (
    STREAM_HEADER,
    DataReader,
    DataRun,
    FromReceiver,
    FromSender,
    Message,
    MessageType,
    RunHeader,
    decode,
)

from . import lines
from .frames import Datagram, NoDatagram, datagram_of
from .labels import Labels
from .observed import ObservedSender
from .pcap import Packet, PcapReader
from .recorder import INTERVAL_S, check_interval

SENDERS_MAX: Final = 4096
"""Greatest number of senders with a series of their own. Senders that come later are counted together, as `others`."""
IDLE_MAX_S: Final = 60
"""Longest silence of a sender that is filled with empty samples."""
_DATA_BYTE = 1 << 4 | MessageType.DATA
"""First byte of a NORM_DATA message: version 1 and the type."""
_HEADER_BYTES_MIN = 8
"""Length of the header that all NORM messages have in common."""
_NOWHERE = ("", 0)


def samples_of(
    stream: BinaryIO, labels: Labels, interval_s: float = INTERVAL_S, *, ports: Collection[int] = ()
) -> Iterator[dict[str, Any]]:
    """Yield the lines of all samples in a capture, in order of time, of traffic at `ports` only if any are given.

    Raises CaptureError if the stream is not a capture, and ConfigError if the interval is out of range. If the capture
    breaks off, the samples end there.
    """
    return CaptureSampler(stream, labels, interval_s, ports).samples()


class CaptureSampler:
    """Sampler of a capture, which also has totals of the whole capture."""

    def __init__(
        self, stream: BinaryIO, labels: Labels, interval_s: float = INTERVAL_S, ports: Collection[int] = ()
    ) -> None:
        check_interval("interval_s", interval_s)
        self.packets = 0
        """Number of packets read so far."""
        self.first_at: float | None = None
        """Unix time of the first packet; None before a packet was read."""
        self.last_at = 0.0
        """Unix time of the last packet."""
        self.drops: Counter[str] = Counter()
        """Number of packets that are in no sender's series, by reason."""
        self._capture = PcapReader(stream)
        self._labels = labels
        self._interval_s = interval_s
        self._ports = frozenset(ports)
        self._reader = DataReader()
        self._senders: dict[str, ObservedSender] = {}
        self._touched: dict[str, ObservedSender] = {}
        """Senders that sent or received a message in this interval, by the name of their series."""
        self._own: Counter[str] = Counter()
        self._own_drops: Counter[str] = Counter()
        self._seqs: Counter[str] = Counter()
        self._ends: dict[str, int] = {}
        """Number of the interval after the last sample of each series, by name."""

    @property
    def problem(self) -> str:
        """Reason why reading the capture ended early; empty if it did not end early."""
        return self._capture.problem

    @property
    def senders(self) -> int:
        """Number of senders found."""
        return len(self._senders)

    def samples(self) -> Iterator[dict[str, Any]]:
        """Yield all samples. This can be called only once."""
        interval = -1
        for packet in self._capture:
            at = int(packet.time_s / self._interval_s)
            if at > interval:
                if interval >= 0:
                    yield from self._flush(interval)
                interval = at
            self._receive_packet(packet)
        if self.problem:
            self._own_drops["torn"] += 1
        if interval >= 0:
            yield from self._flush(interval)

    def _receive_packet(self, packet: Packet) -> None:
        self.packets += 1
        if self.first_at is None:
            self.first_at = packet.time_s
        self.last_at = max(self.last_at, packet.time_s)
        self._own["packets"] += 1
        self._own["bytes"] += packet.length
        found = datagram_of(packet.link_type, packet.data, packet.length)
        if isinstance(found, NoDatagram):
            self._drop(found.name.lower())
        elif self._ports and self._ports.isdisjoint((found.source_port, found.destination_port)):
            self._drop("other_port")
        else:
            self._receive_datagram(found)

    def _drop(self, reason: str) -> None:
        self.drops[reason] += 1
        self._own_drops[reason] += 1

    def _receive_datagram(self, datagram: Datagram) -> None:
        payload, length = datagram.payload, datagram.length
        if len(payload) < _HEADER_BYTES_MIN or payload[0] >> 4 != 1 or not 1 <= payload[0] & 15 <= MessageType.REPORT:
            self._drop("not_norm" if len(payload) == length else "cut_short")
        elif payload[0] == _DATA_BYTE:
            self._receive_data(payload, length)
        elif len(payload) < length and payload[0] & 15 != MessageType.INFO:
            self._drop("cut_short")
        else:
            self._receive_message(payload, length)

    def _receive_message(self, data: bytes, length: int) -> None:
        try:
            message = decode(data)
        except WireError:
            self._drop("malformed" if len(data) == length else "cut_short")
            return
        kind = message.TYPE.name.lower()
        match message:
            case FromSender():
                self._sender(message.source_id).note_sent(kind, message, length)
            case FromReceiver():
                self._sender(message.sender_id).note_answer(kind, message, length)
            case Message():
                self._own["report_datagrams"] += 1

    def _receive_data(self, data: bytes, length: int) -> None:
        """Count the DATA message in a packet, or several messages: with segmentation offload, captures show datagrams
        joined."""
        array = np.frombuffer(data, np.uint8)
        first = next(self._reader.read(Train(array, array.size, _NOWHERE)))
        if not isinstance(first, DataRun):
            self._drop("malformed" if len(data) == length else "cut_short")
            return
        row_bytes = _row_bytes(first.header) or length
        if len(data) < length:
            self._count_cut(first, min(row_bytes, length), length)
            return
        if row_bytes >= length:
            self._count_run(first)
            return
        for part in self._reader.read(Train(array, row_bytes, _NOWHERE)):
            if isinstance(part, DataRun):
                self._count_run(part)
            else:
                self._receive_datagram(Datagram(b"", 0, b"", 0, part, len(part)))

    def _count_run(self, run: DataRun) -> None:
        self._sender(run.header.message.source_id).note_run(run)

    def _count_cut(self, run: DataRun, row_bytes: int, length: int) -> None:
        """Count joined segments of which little more than the first header was captured, as if the others followed the
        first."""
        count = -(-length // row_bytes)
        first = run.headers[0]
        payload_ids = np.array([int(first["payload_id"])], np.int64)
        sizes = np.full(count, row_bytes - run.header.norm_bytes, np.int64)
        sizes[-1] = max(length - (count - 1) * row_bytes - run.header.norm_bytes, 0)
        sender = self._sender(run.header.message.source_id)
        sender.note_data(run.header, int(first["sequence"]), payload_ids, sizes)

    def _sender(self, node_id: int) -> ObservedSender:
        name = f"sender:{node_id:08x}"
        sender = self._senders.get(name)
        if sender is None:
            if len(self._senders) >= SENDERS_MAX:
                name = "others"
            sender = self._senders.setdefault(name, ObservedSender())
        self._touched[name] = sender
        return sender

    def _flush(self, interval: int) -> Iterator[dict[str, Any]]:
        """Yield the samples of an interval, and begin the next interval."""
        own, own_drops = dict(self._own), dict(self._own_drops)
        self._own.clear()
        self._own_drops.clear()
        yield from self._samples("capture", interval, own, {}, own_drops)
        touched, self._touched = self._touched, {}
        for name, sender in touched.items():
            yield from self._samples(name, interval, sender.take_counts(), {"grtt_s": sender.grtt_s}, {})

    def _samples(
        self, source: str, interval: int, counts: dict[str, int], gauges: dict[str, float | None], drops: dict[str, int]
    ) -> Iterator[dict[str, Any]]:
        """Yield a sample of the interval. Before it, yield empty samples for the silence before the interval, unless
        that was too long."""
        idle_from, step = self._ends.get(source, interval), max(round(1 / self._interval_s), 1)
        if (interval - idle_from) * self._interval_s <= IDLE_MAX_S:
            while idle_from < interval:
                until = min(idle_from + step, interval)
                yield self._line(source, idle_from, until, {}, gauges, {})
                idle_from = until
        self._ends[source] = interval + 1
        yield self._line(source, interval, interval + 1, counts, gauges, drops)

    def _line(
        self,
        source: str,
        start: int,
        end: int,
        counts: dict[str, int],
        gauges: dict[str, float | None],
        drops: dict[str, int],
    ) -> dict[str, Any]:
        seq = self._seqs[source]
        self._seqs[source] = seq + 1
        dt, role = (end - start) * self._interval_s, self._labels.role or "capture"
        t = end * self._interval_s
        return lines.sample(self._labels, source, seq, dt, counts, gauges, drops, t, role=role)


def _row_bytes(header: RunHeader) -> int | None:
    """Return the length of a full DATA message of the sender; None if the header does not tell it."""
    if header.fti is None or not header.fti.segment_bytes:
        return None
    return header.norm_bytes + (STREAM_HEADER.size if header.is_stream else 0) + header.fti.segment_bytes
