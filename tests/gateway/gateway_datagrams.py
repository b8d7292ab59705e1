"""NORM datagrams as nodes on a LAN send them, for tests of forwarding."""

import numpy as np
from numpy.typing import NDArray

from fjm2.bus.presence import Announcement
from fjm2.norm.core.wire import (
    Ack,
    AckType,
    Application,
    Data,
    Nack,
    ObjectFlag,
)

GROUP, ALWAYS = 4711, 815

SENDER = {"instance_id": 7, "grtt_q": 100, "backoff": 4, "gsize_q": 2}


def data(source: int, size: int = 100, number: int = 0) -> bytes:
    return Data(
        **SENDER, source_id=source, flags=ObjectFlag.FILE, fec_id=5, object_id=1, payload_id=number, payload=bytes(size)
    ).encode()


def presence(source: int, topics: set[int], connection: int | None = None, flags: int = 0) -> bytes:
    content = Announcement(connection or source, topics=frozenset(topics), flags=flags).encode(1000)
    return Application(**SENDER, source_id=source, content=content).encode()


def nack(source: int, sender: int) -> bytes:
    return Nack(source_id=source, sender_id=sender, instance_id=7, requests=()).encode()


def ack(source: int, sender: int) -> bytes:
    return Ack(source_id=source, sender_id=sender, instance_id=7, ack_type=AckType.CC, ack_id=0, content=b"").encode()


def joined(*datagrams: bytes) -> tuple[NDArray[np.uint8], int]:
    return np.frombuffer(b"".join(datagrams), np.uint8), len(datagrams[0])
