"""The cost of a train's headers, beside the two system calls that carry the train."""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from fjm2.norm.core.train import Train
from fjm2.norm.core.wire import STREAM_HEADER, Data, DataReader, Fti, HeaderStamp, ObjectFlag

SEGMENTS = 45
SEGMENT_BYTES = 1400
TURNS = 2_000
"""Repetitions in one measurement, which take some hundredths of a second."""
UDP_SEGMENT, UDP_GRO = 103, 104
"""Socket options of <linux/udp.h> that Python does not name."""


@dataclass(frozen=True, slots=True)
class TrainCost:
    """Cost of one step of a train's way, in microseconds per train."""

    step: str
    us: float


def run(repeat: int = 5) -> list[TrainCost]:
    """Return the median of `repeat` measurements of each step."""
    buffer, stamp, payload_ids, offsets = _stamped_train(SEGMENTS)
    segment_bytes = stamp.row_bytes
    train = Train(buffer, segment_bytes, ("127.0.0.1", 0))
    reader = DataReader()
    (datarun,) = reader.read(train)
    assert not isinstance(datarun, bytes)
    store = np.empty(datarun.payloads.shape, np.uint8)

    def write_headers() -> None:
        stamp.stamp(4711, payload_ids)
        stamp.stamp_stream(SEGMENT_BYTES, 0, offsets)

    def check_headers() -> None:
        for _ in reader.read(train):
            pass

    def move_payload() -> None:
        store[:] = datarun.payloads

    steps: list[tuple[str, Callable[[], object]]] = [
        ("write headers", write_headers),
        ("parse and check headers", check_headers),
        ("move payload", move_payload),
    ]
    costs = [TrainCost(step, _median_us(function, repeat)) for step, function in steps]
    return costs + _socket_costs(buffer, segment_bytes, repeat)


def stamped_train(segments: int) -> tuple[NDArray[np.uint8], int]:
    """Return a train of a stream's segments, and the length of each segment."""
    buffer, stamp, _, _ = _stamped_train(segments)
    return buffer, stamp.row_bytes


def _stamped_train(
    segments: int,
) -> tuple[NDArray[np.uint8], HeaderStamp, NDArray[np.uint32], NDArray[np.uint32]]:
    fti = Fti(fec_id=5, object_bytes=32 << 20, segment_bytes=SEGMENT_BYTES, block_segments=64)
    header = Data(
        source_id=1,
        instance_id=1,
        grtt_q=76,
        backoff=4,
        gsize_q=2,
        flags=ObjectFlag.STREAM,
        fec_id=fti.fec_id,
        object_id=0,
        payload_id=0,
        payload=b"",
        extensions=(fti,),
    )
    segment_bytes = len(header.encode()) + STREAM_HEADER.size + SEGMENT_BYTES
    buffer = np.zeros(segments * segment_bytes, np.uint8)
    stamp = HeaderStamp(buffer, segment_bytes, header)
    payload_ids = np.arange(segments, dtype=np.uint32)
    offsets = payload_ids * np.uint32(SEGMENT_BYTES)
    stamp.stamp(0, payload_ids)
    stamp.stamp_stream(SEGMENT_BYTES, 0, offsets)
    return buffer, stamp, payload_ids, offsets


def _median_us(function: Callable[[], object], repeat: int) -> float:
    return median(_mean_us(function) for _ in range(repeat))


def _mean_us(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(TURNS):
        function()
    return (time.perf_counter() - start) / TURNS * 1e6


def _socket_costs(buffer: NDArray[np.uint8], segment_bytes: int, repeat: int) -> list[TrainCost]:
    """Measure the system calls that carry the train over the loopback. Return an empty list without offload."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
    ):
        try:
            sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, segment_bytes)
            receiver.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        except OSError:
            return []
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(1.0)
        sender.connect(receiver.getsockname())
        inbox = bytearray(1 << 16)
        sends, receives = [], []
        for _ in range(repeat):
            send_s = receive_s = 0.0
            for _ in range(TURNS):
                start = time.perf_counter()
                sender.send(buffer.data)
                sent = time.perf_counter()
                receiver.recvmsg_into([inbox], 64)
                receive_s += time.perf_counter() - sent
                send_s += sent - start
            sends.append(send_s / TURNS * 1e6)
            receives.append(receive_s / TURNS * 1e6)
    return [TrainCost("send (UDP_SEGMENT)", median(sends)), TrainCost("recvmsg_into (UDP_GRO)", median(receives))]
