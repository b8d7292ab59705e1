"""ZeroMQ with pyzmq: PUB/SUB over TCP, where a full queue makes the publisher wait, and PUSH/PULL for answers."""

import time
from importlib.util import find_spec
from typing import Any

from ..workload.messages import Maker
from ..workload.reception import Reception, messages_at_once
from ..workload.results import (
    EchoResult,
    PingResult,
    PubResult,
    StopWatch,
    SubResult,
    ping_result,
    print_ready,
    pub_result,
)
from .base import END_BYTES, Deadline, PeerOptions, end_message, messages_to_send, total_of

_TICK_MS = 100
"""Interval at which a wait checks its deadline."""
_QUEUE_BYTES = 64 << 20
"""Capacity of each queue, at both ends."""
_COPY_BELOW = 64 << 10
"""Length below which messages are copied into ZeroMQ, which is cheaper than tracking them."""
_LINGER_MS = 1000
"""Longest time to send queued messages when a socket is closed."""


class PyZmq:
    """Adapter of ZeroMQ."""

    name = "pyzmq"
    settings = (
        "PUB/SUB over TCP with pyzmq. XPUB_NODROP: a full queue (64 MiB or 100,000 messages per subscriber, at "
        "either end) blocks the publisher. Messages below 64 KiB are copied into ZeroMQ, larger ones are not. "
        "Confirmations and echoes use PUSH/PULL."
    )

    def missing(self) -> str | None:
        return None if find_spec("zmq") else "pyzmq is not installed"

    def pub(self, options: PeerOptions) -> PubResult:
        import zmq

        deadline = Deadline(options.timeout_s)
        maker = Maker(options.size)
        with zmq.Context() as context, _publisher(context, options) as out, _answers(context, options) as answers:
            _count_to(options.receivers, out, deadline, "subscribers")
            out.sndtimeo = int(options.timeout_s * 1000)
            is_copied = options.size < _COPY_BELOW
            watch = StopWatch()
            for messages in messages_to_send(options, maker):
                for message in messages:
                    out.send(message, copy=is_copied)
                deadline.check("sending")
            out.send(end_message(maker.next_number))
            _count_to(options.receivers, answers, deadline, "confirmations")
            return pub_result(
                system=self.name,
                form="message",
                size=options.size,
                messages=maker.next_number,
                watch=watch,
                receivers=options.receivers,
            )

    def sub(self, options: PeerOptions) -> SubResult:
        import zmq

        deadline = Deadline(options.timeout_s)
        reception = Reception(self.name, options.size, is_verified=options.is_verified)
        reception.begin(0)
        at_once = messages_at_once(options.size)
        with zmq.Context() as context, _subscriber(context, options) as inlet, _answerer(context, options) as answerer:
            print_ready(as_json=True)
            inlet.rcvtimeo = _TICK_MS
            receive = inlet.recv
            while not reception.is_ended and not deadline.is_over:
                messages: list[bytes] = []
                try:
                    while len(messages) < at_once:
                        message = receive()
                        if len(message) == END_BYTES and (total := total_of(message)) is not None:
                            reception.total, reception.is_ended = total, True
                            break
                        messages.append(message)
                except zmq.Again:
                    pass
                if messages:
                    reception.take_many(messages)
            if reception.is_ended:
                answerer.send(b"done")
            return reception.result()

    def ping(self, options: PeerOptions) -> PingResult:
        import zmq

        deadline = Deadline(options.timeout_s)
        maker = Maker(options.size)
        times = []
        with zmq.Context() as context, _publisher(context, options) as out, _answers(context, options) as answers:
            _count_to(1, out, deadline, "an echo")
            answers.rcvtimeo = int(options.timeout_s * 1000)
            for _ in range(options.warm_up + (options.count or 1)):
                message = maker.batch(1)
                start = time.perf_counter_ns()
                out.send(message)
                back = answers.recv()
                times.append(time.perf_counter_ns() - start)
                assert back == message
            out.send(end_message(maker.next_number))
        return ping_result(self.name, options.size, times[options.warm_up :])

    def echo(self, options: PeerOptions) -> EchoResult:
        import zmq

        deadline = Deadline(options.timeout_s)
        count = 0
        with zmq.Context() as context, _subscriber(context, options) as inlet, _answerer(context, options) as answerer:
            print_ready(as_json=True)
            while not deadline.is_over:
                if not inlet.poll(_TICK_MS):
                    continue
                message = inlet.recv()
                if total_of(message) is not None:
                    break
                answerer.send(message)
                count += 1
        return EchoResult(system=self.name, messages=count)


def _publisher(context: Any, options: PeerOptions) -> Any:
    import zmq

    out = context.socket(zmq.XPUB)
    out.setsockopt(zmq.XPUB_NODROP, 1)
    out.setsockopt(zmq.XPUB_VERBOSE, 1)  # report each subscriber
    out.sndhwm = _queue(options)
    out.linger = _LINGER_MS
    out.bind(f"tcp://{options.publisher}:{options.port}")
    return out


def _subscriber(context: Any, options: PeerOptions) -> Any:
    import zmq

    inlet = context.socket(zmq.SUB)
    inlet.rcvhwm = _queue(options)
    inlet.linger = 0
    inlet.reconnect_ivl = 50
    inlet.subscribe(b"")
    inlet.connect(f"tcp://{options.publisher}:{options.port}")
    return inlet


def _answers(context: Any, options: PeerOptions) -> Any:
    import zmq

    inlet = context.socket(zmq.PULL)
    inlet.linger = 0
    inlet.bind(f"tcp://{options.publisher}:{options.port + 1}")
    return inlet


def _answerer(context: Any, options: PeerOptions) -> Any:
    import zmq

    out = context.socket(zmq.PUSH)
    out.linger = _LINGER_MS
    out.reconnect_ivl = 50
    out.connect(f"tcp://{options.publisher}:{options.port + 1}")
    return out


def _queue(options: PeerOptions) -> int:
    return max(8, min(100_000, _QUEUE_BYTES // options.size))


def _count_to(count: int, inlet: Any, deadline: Deadline, what: str) -> None:
    """Wait until `count` messages have arrived."""
    seen = 0
    while seen < count:
        if inlet.poll(_TICK_MS):
            inlet.recv()
            seen += 1
        deadline.check(f"waiting for {what}, {seen} of {count} are there")


PEER = PyZmq()
