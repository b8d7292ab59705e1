"""ActiveMQ Classic over STOMP: the broker of `activemq`, with stomp.py instead of its Java client."""

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from ..workload.results import StopWatch
from .base import Deadline, PeerOptions
from .broker import SharedWatch
from .java.activemq_peer import PROGRAM, java_broker
from .polling import PolledPeer, Role, Topic

_TICK_S = 0.1
_PREFETCH = 32766


class ActiveMqStomp(PolledPeer):
    """Adapter of ActiveMQ over STOMP."""

    name = "activemq-stomp"
    settings = (
        "ActiveMQ as in activemq, without warm-up; STOMP 1.2 over TCP without delay with stomp.py, without heart "
        "beats or receipts; non-persistent messages on a topic, acknowledged by the broker as it sends them, "
        f"prefetch {_PREFETCH}. A full topic (64 MiB) blocks the publisher's connection."
    )
    is_windowed = False

    def missing(self) -> str | None:
        return PROGRAM.missing() or (None if find_spec("stomp") else "stomp.py is not installed")

    @contextmanager
    def companion(self, options: PeerOptions, deadline: Deadline) -> Iterator[Callable[[], StopWatch]]:
        with java_broker(options, deadline, is_stomp=True) as pid:
            yield lambda: SharedWatch(pid)

    @contextmanager
    def link(self, options: PeerOptions, deadline: Deadline, role: Role) -> Iterator["_Link"]:  # noqa: ARG002
        link = _Link(options, deadline)
        try:
            yield link
        finally:
            link.close()


class _Link:
    """A connection to the broker. Its own thread receives messages."""

    def __init__(self, options: PeerOptions, deadline: Deadline) -> None:
        import stomp

        logging.getLogger("stomp.py").addHandler(logging.NullHandler())  # it would log each attempt to connect
        self._came = threading.Event()
        self._lost = ""
        self._takers: dict[str, Callable[[bytes], object]] = {}
        self._receipts: set[str] = set()
        self._deadline = deadline
        while True:
            self._connection: Any = stomp.StompConnection12(
                [(options.publisher, options.port)],
                reconnect_attempts_max=1,
                reconnect_sleep_initial=0.0,
                timeout=options.timeout_s,
                auto_decode=False,
            )
            try:
                self._connection.connect(wait=True)
                break
            except stomp.exception.ConnectFailedException:
                deadline.check("connecting to the broker")
                self._came.wait(_TICK_S)
        self._connection.transport.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection.set_listener("", self)

    def on_send(self, frame: Any) -> None:
        """Do nothing. Without this method, stomp.py raises and catches an exception for each message."""

    def on_error(self, frame: Any) -> None:
        self._lost = f"the broker says: {frame.headers.get('message')}"
        self._came.set()

    def on_message(self, frame: Any) -> None:
        self._takers[frame.headers["destination"]](frame.body)
        self._came.set()

    def on_receipt(self, frame: Any) -> None:
        self._receipts.add(frame.headers["receipt-id"])
        self._came.set()

    def on_disconnected(self) -> None:
        self._lost = self._lost or "the connection to the broker is lost"
        self._came.set()

    def listen(self, topic: Topic, take: Callable[[bytes], object]) -> None:
        self._takers[_destination(topic)] = take
        headers = {"activemq.prefetchSize": str(_PREFETCH), "receipt": topic.value}
        self._connection.subscribe(_destination(topic), id=topic.value, ack="auto", headers=headers)
        while topic.value not in self._receipts:
            self.poll(_TICK_S)
            self._deadline.check("subscribing")

    def publisher(self, topic: Topic) -> Callable[[bytes | memoryview], object]:
        send, destination = self._connection.send, _destination(topic)
        return lambda message: send(destination, bytes(message), content_type="application/octet-stream")

    def poll(self, seconds: float) -> None:
        if self._lost:
            raise OSError(self._lost)
        if seconds and self._came.wait(seconds):
            self._came.clear()

    def is_written(self) -> bool:
        return True  # sending waits until the kernel has taken the message

    def close(self) -> None:
        if not self._lost:
            self._connection.disconnect(receipt="end")


def _destination(topic: Topic) -> str:
    return f"/topic/fjm2-bench.{topic.value}"


PEER = ActiveMqStomp()
