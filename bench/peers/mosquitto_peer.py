"""Mosquitto: MQTT with paho-mqtt, in one thread."""

import getpass
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

from ..workload.results import StopWatch
from .base import Deadline, PeerOptions
from .broker import CONFIGURATION, SharedWatch, broker, lack_of
from .polling import PolledPeer, Role, Topic

_MESSAGE_BYTES_MAX = 268_435_000
"""Longest message: MQTT's limit of a packet, less room for its header."""
_TICK_S = 0.1
"""Interval at which a wait checks its deadline."""
_PACKETS_A_TURN = 256
"""Maximum number of packets read in a turn. It bounds the time between two checks of the deadline."""


class Mosquitto(PolledPeer):
    """Adapter of Mosquitto."""

    name = "mosquitto"
    settings = (
        "Mosquitto beside the publisher, nothing stored, unlimited queues; paho-mqtt in one thread, without delay. "
        "QoS 0: QoS 1, which acknowledges each message, reached 0.30 of its throughput at 64 B, 0.39 at 1 KiB and "
        "0.64 at 8 KiB (medians of three, in turns). Nothing is lost, because TCP loses nothing and the publisher "
        "waits: subscribers report their progress four times per window (16 MiB or 65,536 messages), and the "
        "publisher is at most a window ahead of the slowest."
    )
    is_windowed = True

    def missing(self) -> str | None:
        return lack_of("mosquitto") or (None if find_spec("paho") else "paho-mqtt is not installed")

    @contextmanager
    def companion(self, options: PeerOptions, deadline: Deadline) -> Iterator[Callable[[], StopWatch]]:
        if options.size > _MESSAGE_BYTES_MAX:
            raise OSError(f"messages of {options.size} B: MQTT allows {_MESSAGE_BYTES_MAX}")
        configuration = (
            f"listener {options.port} {options.publisher}\n"
            # Started by root, Mosquitto would change its user, and then would not be killed together with us.
            f"user {getpass.getuser()}\n"
            "allow_anonymous true\npersistence false\nset_tcp_nodelay true\nlog_dest stderr\nlog_type error\n"
            "max_queued_messages 0\nmax_queued_bytes 0\nmax_inflight_messages 0\nsys_interval 0\n"
        )
        with broker(["mosquitto", "-c", CONFIGURATION], configuration, options, deadline) as pid:
            yield lambda: SharedWatch(pid)

    @contextmanager
    def link(self, options: PeerOptions, deadline: Deadline, role: Role) -> Iterator["_Link"]:  # noqa: ARG002
        link = _Link(options, deadline)
        try:
            yield link
        finally:
            link.close()


class _Link:
    """A connection to the broker."""

    def __init__(self, options: PeerOptions, deadline: Deadline) -> None:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        client: Any = Client(CallbackAPIVersion.VERSION2)
        self._client = client
        self._takers: dict[str, Callable[[bytes], object]] = {}
        self._taken = 0
        self._is_listening = False
        self._deadline = deadline
        self._client.on_message = self._take
        self._client.on_subscribe = self._note_subscription
        while True:
            try:
                client.connect(options.publisher, options.port, keepalive=0)
                break
            except OSError:
                deadline.check("connecting to the broker")
                time.sleep(_TICK_S)
        self._socket: Any = client.socket()
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not self._client.is_connected():
            self.poll(_TICK_S)
            deadline.check("connecting to the broker")

    def listen(self, topic: Topic, take: Callable[[bytes], object]) -> None:
        self._takers[topic.value] = take
        self._is_listening = False
        self._client.subscribe(topic.value, qos=0)
        while not self._is_listening:
            self.poll(_TICK_S)
            self._deadline.check("subscribing")

    def publisher(self, topic: Topic) -> Callable[[bytes | memoryview], object]:
        return partial(self._client.publish, topic.value)

    def poll(self, seconds: float) -> None:
        client, file = self._client, self._socket
        if client.socket() is None:
            raise OSError("the connection to the broker is lost")
        readable, writable, _ = select.select([file], [file] if client.want_write() else [], [], seconds)
        if writable:
            client.loop_write()
        if readable:
            # `loop_read` reads one packet and does not tell if there was one.
            for _ in range(_PACKETS_A_TURN):
                before = self._taken
                client.loop_read()
                if self._taken == before:
                    break

    def is_written(self) -> bool:
        return not self._client.want_write()

    def close(self) -> None:
        self._client.disconnect()

    def _take(self, _client: object, _data: object, message: Any) -> None:
        self._taken += 1
        self._takers[message.topic](message.payload)

    def _note_subscription(self, *_: object) -> None:
        self._is_listening = True


PEER = Mosquitto()
