"""Zenoh in Python: peers over TCP without shared memory or scouting. A full queue makes the publisher wait."""

import json
import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any

from .base import Deadline, PeerOptions
from .polling import PolledPeer, Role, Topic


class Zenoh(PolledPeer):
    """Adapter of Zenoh."""

    name = "zenoh"
    settings = (
        "Peers over TCP with eclipse-zenoh, without scouting, and without shared memory, which does not cross a "
        "network. Reliable publishers with congestion control BLOCK: a full queue blocks them. Express for round "
        "trips only."
    )
    is_windowed = False

    def missing(self) -> str | None:
        return None if find_spec("zenoh") else "eclipse-zenoh is not installed"

    @contextmanager
    def link(self, options: PeerOptions, deadline: Deadline, role: Role) -> Iterator["_Link"]:  # noqa: ARG002
        import zenoh

        endpoint, is_speaker = [f"tcp/{options.publisher}:{options.port}"], role in ("pub", "ping")
        settings: dict[str, Any] = {
            "mode": "peer",
            "listen/endpoints": endpoint if is_speaker else [],
            "connect/endpoints": [] if is_speaker else endpoint,
            "scouting/multicast/enabled": False,
            "scouting/gossip/enabled": False,
            "transport/shared_memory/enabled": False,
        }
        config = zenoh.Config()
        for name, value in settings.items():
            config.insert_json5(name, json.dumps(value))
        with zenoh.open(config) as session:
            yield _Link(session, is_express=role in ("ping", "echo"))


class _Link:
    """A Zenoh session. Messages arrive in a thread of Zenoh's, one after another."""

    def __init__(self, session: Any, *, is_express: bool) -> None:
        self._session = session
        self._is_express = is_express
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()

    def listen(self, topic: Topic, take: Callable[[bytes], object]) -> None:
        wake = self._woken.put

        def handle(sample: Any) -> None:
            if take(sample.payload.to_bytes()):
                wake(None)

        def handle_and_wake(sample: Any) -> None:
            take(sample.payload.to_bytes())
            wake(None)

        self._session.declare_subscriber(_key(topic), handle if topic is Topic.DATA else handle_and_wake)

    def publisher(self, topic: Topic) -> Callable[[bytes | memoryview], object]:
        """Return a function that publishes a message, and waits instead of dropping it. `express` avoids batches."""
        import zenoh

        publisher = self._session.declare_publisher(
            _key(topic),
            congestion_control=zenoh.CongestionControl.BLOCK,
            reliability=zenoh.Reliability.RELIABLE,
            express=self._is_express,
        )
        put: Callable[[bytes | memoryview], object] = publisher.put
        return put

    def poll(self, seconds: float) -> None:
        if seconds:
            with suppress(queue.Empty):
                self._woken.get(timeout=seconds)

    def is_written(self) -> bool:
        return True  # a put waits by itself until there is room


def _key(topic: Topic) -> str:
    return f"fjm2bench/{topic.value}"


PEER = Zenoh()
