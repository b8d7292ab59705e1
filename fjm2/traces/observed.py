"""Counters of a NORM sender as its packets show them: what it sends, how much of that is repair, and the answers it
gets."""

from collections import Counter, OrderedDict
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fjm2.norm.core.partition import ObjectPartition, Partition, StreamPartition
from fjm2.norm.core.quantize import rtt_of
from fjm2.norm.core.wire import (
    STREAM_HEADER,
    Ack,
    Application,
    CongestionControl,
    DataRun,
    EndOfTransmission,
    Flush,
    FromReceiver,
    FromSender,
    Fti,
    Info,
    Message,
    Nack,
    ObjectFlag,
    PayloadIdFormat,
    RepairAdv,
    RunHeader,
    Squelch,
    payload_id_format,
)

from .sequences import Sequences

_OBJECTS_MAX: Final = 256
"""Greatest number of objects of a sender that are remembered: the latest ones."""
_PLACE_MAX: Final = 1 << 60
"""Highest index of a segment that is believed. Only a forged stream gets that far."""
_COMMANDS: Final[dict[type[Message], str]] = {
    Flush: "flushes_sent",
    Squelch: "squelches_sent",
    CongestionControl: "probes_sent",
    RepairAdv: "repair_adverts_sent",
    EndOfTransmission: "ends_sent",
    Application: "application_commands_sent",
}


class _Object:
    """Progress of an object that the sender sends."""

    __slots__ = ("format", "fti", "partition", "top")

    def __init__(self, fti: Fti | None, fec_id: int, is_stream: bool) -> None:
        self.fti = fti
        self.format: PayloadIdFormat = payload_id_format(fec_id, 16 if fti is not None and fti.field_bits == 16 else 8)
        self.partition = _partition(fti, is_stream)
        self.top = -1
        """Highest index of a segment that was seen; -1 before the first."""

    def indexes(self, payload_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indexes of source segments in the object. Parity segments have negative indexes."""
        form = self.format
        symbols = payload_ids & ((1 << form.symbol_bits) - 1)
        blocks = payload_ids >> (form.symbol_bits + form.length_bits) & ((1 << form.block_bits) - 1)
        if isinstance(self.partition, StreamPartition):
            blocks = _unwrap(blocks, max(self.top, 0) // self.partition.block_segments, form.block_bits)
        indexes = self.partition.indexes(blocks, symbols)
        if form.length_bits:
            lengths = payload_ids >> form.symbol_bits & ((1 << form.length_bits) - 1)
            indexes[symbols >= lengths] = -1
        return indexes

    def index(self, payload_id: int) -> int:
        """Return the index of one segment. Most packets hold one segment, for which this is faster than `indexes`."""
        form, partition = self.format, self.partition
        block, symbol = form.block(payload_id), form.symbol(payload_id)
        if isinstance(partition, StreamPartition):
            half = 1 << (form.block_bits - 1)
            near = max(self.top, 0) // partition.block_segments
            block = near + ((block - near + half) & ((1 << form.block_bits) - 1)) - half
        length = partition.block_length(block) if block < partition.blocks else 0
        if symbol >= length or (form.length_bits and symbol >= form.length(payload_id)):
            return -1
        return partition.first_segment(block) + symbol


def _partition(fti: Fti | None, is_stream: bool) -> Partition:
    """Return the partition of an object. If too little is known of the object, return a partition that keeps its
    segments in order."""
    if fti is None or fti.block_segments < 1 or fti.segment_bytes < 1:
        return StreamPartition(1 << 16)
    if is_stream:
        return StreamPartition(fti.block_segments)
    return ObjectPartition(fti.object_bytes, fti.segment_bytes, fti.block_segments)


def _unwrap(blocks: NDArray[np.int64], near: int, bits: int) -> NDArray[np.int64]:
    """Return the full block numbers of a stream: those closest to `near` that have the low bits sent on the wire."""
    half = 1 << (bits - 1)
    return near + ((blocks - near + half) & ((1 << bits) - 1)) - half


class ObservedSender:
    """Counters of a sender, named as in `fjm2.norm.Stats`."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Counts since the last call of `take_counts`, by name."""
        self.grtt_s: float | None = None
        """Round-trip time that the sender advertises."""
        self._instance: int | None = None
        self._begin()

    def _begin(self) -> None:
        self._sequences = Sequences()
        self._objects: OrderedDict[int, _Object] = OrderedDict()
        self._fti: Fti | None = None

    def take_counts(self) -> dict[str, int]:
        """Return the counts since the last call, by name."""
        sequences = self._sequences
        self.counts["sequence_missed"] += sequences.missed
        self.counts["sequence_late"] += sequences.late
        sequences.missed = sequences.late = 0
        counts = {name: count for name, count in self.counts.items() if count}
        self.counts.clear()
        return counts

    def note_sent(self, kind: str, message: FromSender, length: int) -> None:
        """Count one message of the sender other than DATA."""
        if not self._note(kind, message, message.sequence, 1, length):
            return
        name = _COMMANDS.get(type(message))
        if name is not None:
            self.counts[name] += 1
        if isinstance(message, Info):
            fti = next((one for one in message.extensions if isinstance(one, Fti)), None)
            if fti is not None:
                self._object(message.object_id, message.fec_id, bool(message.flags & ObjectFlag.STREAM), fti)

    def note_run(self, run: DataRun) -> None:
        """Count the segments of a train."""
        headers, payloads = run.headers, run.payloads
        if run.count == 1:
            size = payloads.shape[1] if len(payloads) else run.tail.size
            self.note_segment(run.header, int(headers["sequence"][0]), int(headers["payload_id"][0]), size)
            return
        sequences = headers["sequence"].astype(np.int64)
        payload_ids = headers["payload_id"].astype(np.int64)
        sizes = np.full(run.count, payloads.shape[1], np.int64)
        if run.count > len(payloads):
            sizes[-1] = run.tail.size
        cuts = (np.flatnonzero(np.diff(sequences) % 65536 != 1) + 1).tolist()
        for start, end in zip([0, *cuts], [*cuts, run.count], strict=True):
            self.note_data(run.header, int(sequences[start]), payload_ids[start:end], sizes[start:end])

    def note_data(
        self, header: RunHeader, first_sequence: int, payload_ids: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> None:
        """Count segments of one object with consecutive sequence numbers. `sizes` has the size of each payload.

        If there are fewer payload ids than sizes, the missing ids follow the last.
        """
        message, count = header.message, len(sizes)
        total = int(sizes.sum()) + count * header.norm_bytes
        fresh = self._note("data", message, first_sequence, count, total)
        if not fresh:
            return
        if fresh < count:  # captured twice, as on two interfaces: the first copy is already counted
            payload_ids, sizes = payload_ids[count - fresh :], sizes[count - fresh :]
        item = self._object(message.object_id, message.fec_id, header.is_stream, header.fti)
        indexes = item.indexes(payload_ids)
        if 0 < len(indexes) < fresh:
            more = np.arange(1, fresh - len(indexes) + 1)
            indexes = np.concatenate((indexes, indexes[-1] + more if indexes[-1] >= 0 else np.full(len(more), -1)))
        is_source = indexes >= 0
        sources = int(is_source.sum())
        self.counts["parity_segments_sent"] += fresh - sources
        if not sources:
            return
        indexes, sizes = indexes[is_source], sizes[is_source]
        before = np.maximum.accumulate(np.concatenate(([item.top], indexes[:-1])))
        is_new = indexes > before
        if message.flags & ObjectFlag.REPAIR:
            is_new[:] = False
        top = max(item.top, int(indexes.max()))
        item.top = top if top < _PLACE_MAX else -1
        new = int(is_new.sum())
        self.counts["segments_sent"] += new
        self.counts["repair_segments_sent"] += sources - new
        content = sizes[is_new] - (STREAM_HEADER.size if header.is_stream else 0)
        self.counts["payload_bytes_sent"] += int(content.clip(min=0).sum())

    def note_segment(self, header: RunHeader, sequence: int, payload_id: int, size: int) -> None:
        """Count one segment. Most packets hold one segment, for which this is faster than `note_data`."""
        message = header.message
        if not self._note("data", message, sequence, 1, size + header.norm_bytes):
            return
        item = self._object(message.object_id, message.fec_id, header.is_stream, header.fti)
        index = item.index(payload_id)
        if index < 0:
            self.counts["parity_segments_sent"] += 1
            return
        if index <= item.top or message.flags & ObjectFlag.REPAIR:
            self.counts["repair_segments_sent"] += 1
        else:
            self.counts["segments_sent"] += 1
            self.counts["payload_bytes_sent"] += max(size - (STREAM_HEADER.size if header.is_stream else 0), 0)
        top = max(item.top, index)
        item.top = top if top < _PLACE_MAX else -1

    def _note(self, kind: str, message: FromSender, sequence: int, count: int, length: int) -> int:
        """Count messages with consecutive sequence numbers. Return the number of messages that were not seen before."""
        if message.instance_id != self._instance:
            if self._instance is not None:
                self.counts["restarts"] += 1
                self._keep_sequences()
            self._instance = message.instance_id
            self._begin()
        self.grtt_s = rtt_of(message.grtt_q)
        twice = len(self._sequences.note(sequence, count))
        self.counts["datagrams_twice"] += twice
        fresh = count - twice
        if fresh:
            size = length * fresh // count
            for name, number in ((f"{kind}_datagrams", fresh), (f"{kind}_bytes", size)):
                self.counts[name] += number
            self.counts["datagrams_sent"] += fresh
            self.counts["bytes_sent"] += size
        return fresh

    def _keep_sequences(self) -> None:
        self.counts["sequence_missed"] += self._sequences.missed
        self.counts["sequence_late"] += self._sequences.late

    def _object(self, object_id: int, fec_id: int, is_stream: bool, fti: Fti | None) -> _Object:
        item = self._objects.get(object_id)
        if fti is not None:
            self._fti = fti
        if item is None or (fti is not None and fti != item.fti):
            top = -1 if item is None else item.top
            known = fti or (self._fti if is_stream else None)
            item = self._objects[object_id] = _Object(known, fec_id, is_stream)
            item.top = top if known is None else -1
            if len(self._objects) > _OBJECTS_MAX:
                self._objects.popitem(last=False)
        self._objects.move_to_end(object_id)
        return item

    def note_answer(self, kind: str, message: FromReceiver, length: int) -> None:
        """Count a message of a receiver to the sender."""
        self.counts[f"{kind}_datagrams"] += 1
        self.counts[f"{kind}_bytes"] += length
        self.counts["datagrams_received"] += 1
        self.counts["bytes_received"] += length
        if isinstance(message, Nack):
            self.counts["nacks_received"] += 1
            self.counts["repair_requests_received"] += len(message.requests)
        elif isinstance(message, Ack):
            self.counts["acks_received"] += 1
