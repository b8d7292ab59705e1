"""Programs for the congestion tests: NORM and TCP flows that report what arrived and when, and a delay line.

Each is one process in a namespace: `python flows.py PROGRAM ARGUMENTS`. Times are those of the monotonic clock, which
all namespaces share.
"""

import asyncio
import contextlib
import json
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine

from fjm2.norm import Session
from fjm2.norm.events import ReceiverEvicted, SenderVanished, StreamLost, StreamReceived
from fjm2.uri import BusConfig

BIN_S = 0.1
_CHUNK_BYTES = 1 << 16
_PERIOD = 251
_PATTERN = bytes(range(_PERIOD)) * (2 * _CHUNK_BYTES // _PERIOD + 2)
"""Content of streams, which repeats after `_PERIOD` bytes.

It is long enough to contain a chunk that starts anywhere in the period.
"""
_FRAME_BYTES = 1 << 17
_PACKET_ADD_MEMBERSHIP, _PACKET_VNET_HDR, _PACKET_MR_PROMISC, _SOL_PACKET = 1, 15, 1, 263
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_ETH_P_ALL = 0x0003
_PACKET_OUTGOING = 4
_FRAMES_PER_TURN = 64


class Log:
    """Number of received bytes in each tenth of a second."""

    def __init__(self) -> None:
        self.bins: dict[int, int] = {}
        self.faults: list[str] = []

    def add(self, size: int) -> None:
        at = int(time.monotonic() / BIN_S)
        self.bins[at] = self.bins.get(at, 0) + size

    def print(self, **more: object) -> None:
        print(json.dumps({"bins": self.bins, "faults": self.faults[:10], **more}), flush=True)


def _open(uri: str) -> Session:
    bus = BusConfig.from_uri(uri)
    return Session(
        bus.group,
        bus.port,
        interface=bus.interface,
        sender=bus.sender,
        receiver=bus.receiver,
        loopback=bus.loopback,
    )


async def send(uri: str, until: str) -> None:
    """Write to a stream as fast as possible. Then wait until no receiver requests repairs."""
    async with _open(uri) as session:
        evicted: list[int] = []
        listener = asyncio.create_task(_note_evictions(session, evicted))
        sent = 0
        async with await session.open_stream() as stream:
            while time.monotonic() < float(until):
                phase = sent % _PERIOD
                await stream.write(_PATTERN[phase : phase + _CHUNK_BYTES])
                await stream.drain()
                sent += _CHUNK_BYTES
        await session.flushed()
        listener.cancel()
        print(json.dumps({"bytes": sent, "evicted": evicted, "repairs": session.stats.repair_segments_sent}))


async def _note_evictions(session: Session, evicted: list[int]) -> None:
    async for event in session:
        if isinstance(event, ReceiverEvicted):
            evicted.append(event.node_id)  # noqa: PERF401, the loop never ends


async def receive(uri: str, until: str) -> None:
    """Log received bytes and faults until the sender leaves."""
    log = Log()
    async with _open(uri) as session:
        print(session.node_id, flush=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(float(until) - time.monotonic()):
                await _log_stream(session, log)
    log.print()


async def _log_stream(session: Session, log: Log) -> None:
    position = 0
    async for event in session:
        match event:
            case StreamReceived(start=start, data=data):
                if start != position or not _is_right(start, data):
                    log.faults.append(f"{len(data)} bytes at {start}, expected at {position}")
                position = start + len(data)
                log.add(len(data))
            case StreamLost(start=start, end=end, reason=reason):
                log.faults.append(f"lost {start} to {end}: {reason.value}")
            case SenderVanished():
                return


def _is_right(start: int, data: bytes | memoryview) -> bool:
    view = memoryview(data)
    for at in range(0, len(view), _CHUNK_BYTES):
        piece = view[at : at + _CHUNK_BYTES]
        phase = (start + at) % _PERIOD
        if piece != _PATTERN[phase : phase + len(piece)]:
            return False
    return True


async def tcp_send(host: str, port: str, algorithm: str, until: str) -> None:
    """Write to a TCP connection as fast as possible."""
    with socket.create_connection((host, int(port)), timeout=5.0) as flow:
        flow.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, algorithm.encode())
        while time.monotonic() < float(until):
            flow.sendall(bytes(_CHUNK_BYTES))  # raises an exception after 5 s


async def tcp_receive(port: str) -> None:
    """Log received bytes until the TCP connection ends."""
    log = Log()
    with socket.create_server(("0.0.0.0", int(port))) as server:
        print("ready", flush=True)
        flow, _ = server.accept()
        with flow:
            while data := flow.recv(_CHUNK_BYTES):
                log.add(len(data))
    log.print()


async def relay(left: str, right: str, delay_s: str) -> None:
    """Carry every frame between two devices, in both directions, after a delay. Run until killed."""
    devices = [_raw(left), _raw(right)]
    waiting: tuple[deque[tuple[float, bytes]], ...] = (deque(), deque())
    delay = float(delay_s)
    poll = select.poll()
    for device in devices:
        poll.register(device, select.POLLIN)
    print("ready", flush=True)
    while True:
        due = min((queue[0][0] for queue in waiting if queue), default=None)
        poll.poll(None if due is None else max(0.0, due - time.monotonic()) * 1e3)
        now = time.monotonic()
        for device, queue, other in zip(devices, waiting, reversed(devices), strict=True):
            for _ in range(_FRAMES_PER_TURN):
                try:
                    frame, address = device.recvfrom(_FRAME_BYTES)
                except BlockingIOError:
                    break
                if address[2] != _PACKET_OUTGOING:
                    queue.append((now + delay, frame))
            while queue and queue[0][0] <= now:
                with contextlib.suppress(OSError):  # a full queue drops the frame, as a switch would
                    other.send(queue.popleft()[1])


def _raw(device: str) -> socket.socket:
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    raw.bind((device, _ETH_P_ALL))
    index = socket.if_nametoindex(device)
    membership = index.to_bytes(4, sys.byteorder) + _PACKET_MR_PROMISC.to_bytes(2, sys.byteorder) + bytes(10)
    raw.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
    # Keep the header that says what a frame still lacks, such as its checksum.
    raw.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    for option in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
        raw.setsockopt(socket.SOL_SOCKET, option, 16 << 20)
    raw.setblocking(False)
    return raw


PROGRAMS: dict[str, Callable[..., Coroutine[None, None, None]]] = {
    "send": send,
    "receive": receive,
    "tcp-send": tcp_send,
    "tcp-receive": tcp_receive,
    "relay": relay,
}

if __name__ == "__main__":
    asyncio.run(PROGRAMS[sys.argv[1]](*sys.argv[2:]))
