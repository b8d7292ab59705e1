"""The cost of a message in `fjm2.jms` by the number of consumers of one session, each with a topic of its own."""

import asyncio
import time
from dataclasses import dataclass
from statistics import median

from fjm2.bus.inbox import ConsumerSettings, Inbox
from fjm2.bus.router import Router
from fjm2.jms import BytesMessage, SessionMode, Topic
from fjm2.jms.dispatcher import Dispatcher
from fjm2.messages.frame import FrameWriter
from fjm2.messages.object_codec import SAFE_CODEC
from fjm2.norm.events import StreamReceived

CONSUMERS = (1, 1_000, 10_000)
_BODY_BYTES = 64
_RUN_MESSAGES = 50
"""Messages of one run of the stream: a train of small messages."""
_RUNS = 400
"""One measurement is of 20,000 messages: some hundredths of a second."""
_SENDER, _STREAM = 7, 1


@dataclass(frozen=True, slots=True)
class ConsumersCost:
    """Cost of a message, from the run of a stream to the listener, and of a consumer."""

    consumers: int
    us: float
    """Microseconds of CPU time per message."""
    ratio: float
    """Cost of a message, divided by that with one consumer."""
    create_us: float
    close_us: float


def run(repeat: int = 5) -> list[ConsumersCost]:
    """Return the medians of `repeat` measurements for each number of consumers, taken in turns."""
    taken: dict[int, list[tuple[float, float, float]]] = {consumers: [] for consumers in CONSUMERS}
    for _ in range(repeat):
        for consumers, times in taken.items():
            times.append(asyncio.run(_measure(consumers)))
    costs = {consumers: [median(column) for column in zip(*times, strict=True)] for consumers, times in taken.items()}
    one = costs[CONSUMERS[0]][0]
    return [ConsumersCost(consumers, us, us / one, made, closed) for consumers, (us, made, closed) in costs.items()]


async def _measure(consumers: int) -> tuple[float, float, float]:
    """Return microseconds per message, per consumer created, and per consumer closed."""
    router = Router(1, lambda _: None)
    dispatcher = Dispatcher(SessionMode.AUTO_ACKNOWLEDGE, SAFE_CODEC, 0, lambda _: None)
    dispatcher.start()
    got = [0]

    def listener(_: object) -> None:
        got[0] += 1

    began = time.process_time()
    inboxes = [_new_inbox(f"fjm2-bench.micro.{number}") for number in range(consumers)]
    for inbox in inboxes:
        router.add(inbox)
        dispatcher.add(inbox)
        dispatcher.listen(inbox, listener)
    created = time.process_time() - began
    runs = _runs([inbox.destination.name for inbox in inboxes])
    place, sent = 0, 0
    began = time.process_time()
    for data in runs:
        router.receive(StreamReceived(_SENDER, _STREAM, place, data, (0,)))
        place, sent = place + len(data), sent + _RUN_MESSAGES
        while got[0] < sent:  # noqa: ASYNC110 - an event for each message would be part of the cost
            await asyncio.sleep(0)
    passed = time.process_time() - began
    began = time.process_time()
    for inbox in inboxes:
        await dispatcher.close_inbox(inbox)
        router.remove(inbox)
    closed = time.process_time() - began
    await dispatcher.close()
    return passed / sent * 1e6, created / consumers * 1e6, closed / consumers * 1e6


def _new_inbox(topic: str) -> Inbox:
    return Inbox(Topic(topic), None, None, ConsumerSettings(), lambda: None, lambda _inbox, _dropped: None)


def _runs(topics: list[str]) -> list[bytes]:
    """Return runs of a stream whose messages go to all topics in turn."""
    writer, message = FrameWriter(1), BytesMessage()
    message.write_bytes(bytes(_BODY_BYTES))
    count = _RUNS * _RUN_MESSAGES
    frames = [b"".join(writer.write(message, Topic(topics[n % len(topics)]), 0, 4, 0, 0)) for n in range(count)]
    return [b"".join(frames[first : first + _RUN_MESSAGES]) for first in range(0, count, _RUN_MESSAGES)]
