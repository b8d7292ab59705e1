"""What a layer is: one of our own APIs, at the tasks that `fjm2-bench pub`, `sub`, `ping` and `echo` are."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..workload.reception import Reception
from ..workload.results import PubResult

LINGER_S = 3.0
"""So long a subscriber that has all it was to get answers the publisher, if that does not end."""

Ready = Callable[[], None]
"""To be called as soon as nothing is missed any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PubOptions:
    """What a publisher is to do; each layer takes what concerns it."""

    uri: str
    size: int
    count: int | None
    seconds: float | None
    receivers: int
    rate: str | None
    form: str
    """Of the NORM layer, "stream" or "data"."""
    batch: int
    """Of the NORM layer: messages in one write."""
    properties: int
    """Of the JMS layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubOptions:
    """What a subscriber is to do."""

    uri: str
    size: int
    count: int | None
    is_verified: bool
    timeout_s: float
    properties: int
    """Here and below, of the JMS layer."""
    selector: str | None
    api: str
    """"listener", "receive" or "iterate"."""


class Publisher(Protocol):
    """Waits for receivers, sends, and waits for their confirmation."""

    doing: str
    """What it is waiting for."""

    async def publish(self) -> PubResult: ...


class Subscriber(Protocol):
    """Takes what the publisher sends."""

    reception: Reception

    async def receive(self, ready: Ready) -> None:
        """Until the publisher has ended, or time is up."""
        ...


class Pinger(Protocol):
    """One end of the round trips."""

    doing: str

    async def measure(self, count: int) -> list[int]:
        """Nanoseconds of each round trip."""
        ...


class Echoer(Protocol):
    """The other end."""

    messages: int
    is_ended: bool

    async def serve(self, ready: Ready, timeout_s: float) -> None:
        """Until the partner ends, or time is up."""
        ...


class Layer(Protocol):
    """One of our APIs."""

    system: str
    """Its name in results."""

    def publisher(self, options: PubOptions) -> Publisher: ...

    def subscriber(self, options: SubOptions) -> Subscriber: ...

    def pinger(self, uri: str, size: int) -> Pinger: ...

    def echoer(self, uri: str) -> Echoer: ...
