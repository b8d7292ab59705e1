"""Zenoh in Python: peers over TCP without shared memory or scouting; a full queue makes the publisher wait."""

import json
import os
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from ..commands.results import (
    EchoResult,
    PingResult,
    PubResult,
    Reception,
    StopWatch,
    SubResult,
    ping_result,
    print_ready,
    pub_result,
)
from ..workload import Maker
from .base import (
    HELLO_INTERVAL_S,
    Deadline,
    PeerOptions,
    PeerTimeoutError,
    end_message,
    messages_at_once,
    messages_to_send,
    total_of,
)

_DATA, _BACK, _HERE, _DONE = "fjm2bench/data", "fjm2bench/back", "fjm2bench/here", "fjm2bench/done"
_TICK_S = 0.1


class Zenoh:
    """The adapter."""

    name = "zenoh"
    settings = (
        "Peers over TCP by eclipse-zenoh, without scouting, and without shared memory, which crosses no network. "
        "Reliable publishers with congestion control BLOCK: a queue that is full makes them wait. Express for round "
        "trips only."
    )

    def missing(self) -> str | None:
        return None if find_spec("zenoh") else "eclipse-zenoh is not installed"

    def pub(self, options: PeerOptions) -> PubResult:
        deadline = Deadline(options.timeout_s)
        maker = Maker(options.size)
        with _session(options, is_listening=True) as session:
            here, done = _Roll(session, _HERE), _Roll(session, _DONE)
            publisher = _publisher(session, _DATA)
            here.wait_for(options.receivers, deadline, "subscribers")
            put = publisher.put
            watch = StopWatch()
            for messages in messages_to_send(options, maker, has_views=False):
                for message in messages:
                    put(message)
                deadline.check("sending")
            put(end_message(maker.next_number))
            done.wait_for(options.receivers, deadline, "confirmations")
            return pub_result(
                system=self.name,
                form="message",
                size=options.size,
                messages=maker.next_number,
                watch=watch,
                receivers=options.receivers,
            )

    def sub(self, options: PeerOptions) -> SubResult:
        deadline = Deadline(options.timeout_s)
        reception = Reception(self.name, options.size, is_verified=options.is_verified)
        reception.begin(0)
        at_once = messages_at_once(options.size)
        gathered: list[bytes] = []
        is_over = threading.Event()

        def take(sample: Any) -> None:
            """Called in a thread of Zenoh's, one message after the other."""
            message = sample.payload.to_bytes()
            reception.total = total_of(message)
            if reception.total is None:
                gathered.append(message)
                if len(gathered) < at_once:
                    return
            if gathered:
                reception.take_many(gathered)
                gathered.clear()
            if reception.total is not None:
                reception.is_ended = True
                is_over.set()

        with _session(options, is_listening=False) as session:
            subscriber = session.declare_subscriber(_DATA, take)
            print_ready(as_json=True)
            number = os.getpid()
            while not is_over.wait(HELLO_INTERVAL_S) and not deadline.is_over:
                if not reception.messages and not gathered:
                    session.put(f"{_HERE}/{number}", b"")
            if reception.is_ended:
                session.put(f"{_DONE}/{number}", b"")
            subscriber.undeclare()
            return reception.result()

    def ping(self, options: PeerOptions) -> PingResult:
        deadline = Deadline(options.timeout_s)
        maker = Maker(options.size)
        back: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        times = []
        with _session(options, is_listening=True) as session:
            session.declare_subscriber(_BACK, lambda sample: back.put(sample.payload.to_bytes()))
            here = _Roll(session, _HERE)
            publisher = _publisher(session, _DATA, is_express=True)
            here.wait_for(1, deadline, "an echo")
            for number in range(options.warm_up + (options.count or 1)):
                message = maker.batch(1)
                start = time.perf_counter_ns()
                publisher.put(message)
                try:
                    answer = back.get(timeout=max(0.001, deadline.left_s))
                except queue.Empty:
                    raise PeerTimeoutError(f"waiting for message {number} to come back") from None
                times.append(time.perf_counter_ns() - start)
                assert answer == message
            publisher.put(end_message(maker.next_number))
        return ping_result(self.name, options.size, times[options.warm_up :])

    def echo(self, options: PeerOptions) -> EchoResult:
        deadline = Deadline(options.timeout_s)
        count = 0
        is_over = threading.Event()
        with _session(options, is_listening=False) as session:
            publisher = _publisher(session, _BACK, is_express=True)

            def take(sample: Any) -> None:
                nonlocal count
                message = sample.payload.to_bytes()
                if total_of(message) is not None:
                    is_over.set()
                else:
                    publisher.put(message)
                    count += 1

            session.declare_subscriber(_DATA, take)
            print_ready(as_json=True)
            while not is_over.wait(HELLO_INTERVAL_S) and not deadline.is_over:
                if not count:
                    session.put(f"{_HERE}/{os.getpid()}", b"")
        return EchoResult(system=self.name, messages=count)


class _Roll:
    """Counts those who have put their number under a key."""

    def __init__(self, session: Any, key: str) -> None:
        self._seen: set[str] = set()
        self._came = threading.Event()
        self._subscriber = session.declare_subscriber(f"{key}/*", self._take)

    def _take(self, sample: Any) -> None:
        self._seen.add(str(sample.key_expr))
        self._came.set()

    def wait_for(self, count: int, deadline: Deadline, what: str) -> None:
        while len(self._seen) < count:
            self._came.clear()
            self._came.wait(_TICK_S)
            deadline.check(f"waiting for {what}, {len(self._seen)} of {count} are there")


@contextmanager
def _session(options: PeerOptions, *, is_listening: bool) -> Iterator[Any]:
    import zenoh

    endpoint = [f"tcp/{options.publisher}:{options.port}"]
    settings: dict[str, Any] = {
        "mode": "peer",
        "listen/endpoints": endpoint if is_listening else [],
        "connect/endpoints": [] if is_listening else endpoint,
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "transport/shared_memory/enabled": False,
    }
    config = zenoh.Config()
    for name, value in settings.items():
        config.insert_json5(name, json.dumps(value))
    with zenoh.open(config) as session:
        yield session


def _publisher(session: Any, key: str, *, is_express: bool = False) -> Any:
    """One that waits rather than drops; an express one does not wait for more to send at once."""
    import zenoh

    return session.declare_publisher(
        key,
        congestion_control=zenoh.CongestionControl.BLOCK,
        reliability=zenoh.Reliability.RELIABLE,
        express=is_express,
    )


PEER = Zenoh()
