"""The cost of a message in `fjm2.jms`: framing, routing, and selecting."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from fjm2.bus.inbox import ConsumerSettings, Inbox
from fjm2.bus.router import Router
from fjm2.jms import BytesMessage, Selector, Topic
from fjm2.messages.frame import FrameWriter
from fjm2.norm.events import StreamReceived

from ..workload.messages import Maker, property_values

SIZE = 1024
PROPERTIES = 2
SELECTOR = "p0 = 3"
"""Selector that rejects nine of ten messages."""
_MESSAGES = 250
_RUNS = 40
"""Runs of `_MESSAGES` messages in one measurement: 10,000 messages, which take some hundredths of a second."""
_TOPIC = Topic("fjm2-bench.micro")
_SENDER, _STREAM = 7, 1


@dataclass(frozen=True, slots=True)
class MessageCost:
    """Cost of one step of a message's way, in microseconds per message."""

    step: str
    us: float


def run(repeat: int = 5) -> list[MessageCost]:
    """Return the median of `repeat` measurements of each step, taken in turns."""
    steps: dict[str, Callable[[], object]] = {
        "set properties and body, frame": _frames,
        "route, not subscribed": _Routing(is_subscribed=False).run,
        f"route, selected by {SELECTOR}": _Routing(Selector(SELECTOR)).run,
        "route, all selected": _Routing().run,
    }
    times: dict[str, list[float]] = {step: [] for step in steps}
    for _ in range(repeat):
        for step, function in steps.items():
            times[step].append(_us(function))
    costs = {step: median(taken) for step, taken in times.items()}
    not_subscribed, selected = list(costs.values())[1:3]
    costs["what that selector adds"] = selected - not_subscribed
    return [MessageCost(step, us) for step, us in costs.items()]


def _us(function: Callable[[], object]) -> float:
    function()
    start = time.perf_counter()
    for _ in range(_RUNS):
        function()
    return (time.perf_counter() - start) / (_RUNS * _MESSAGES) * 1e6


def _frames() -> bytes:
    """Frame messages as a publisher in a hurry does: with one message object that is used again and again."""
    writer, message = FrameWriter(1), BytesMessage()
    columns = list(property_values(PROPERTIES).items())
    parts: list[bytes] = []
    for number, body in enumerate(_BODIES):
        message.clear_body()
        message.write_bytes(body)
        for name, values in columns:
            message.set_object_property(name, values[number % len(values)])
        parts += writer.write(message, _TOPIC, 0, 4, 0, 0)
    return b"".join(parts)


_BODIES = [bytes(body) for bodies in Maker(SIZE).messages(_MESSAGES) for body in bodies]


class _Routing:
    """A router with its input. The messages that it delivers are taken and released."""

    def __init__(self, selector: Selector | None = None, *, is_subscribed: bool = True) -> None:
        self._data = _frames()
        self._place = 0
        self._router = Router(1, lambda _: None)
        self._inbox = Inbox(_TOPIC, selector, None, ConsumerSettings(), lambda: None, lambda _inbox, _dropped: None)
        if is_subscribed:
            self._router.add(self._inbox)

    def run(self) -> None:
        self._router.receive(StreamReceived(_SENDER, _STREAM, self._place, self._data, (0,)))
        self._place += len(self._data)
        while (received := self._inbox.pop()) is not None:
            self._inbox.release(received)
