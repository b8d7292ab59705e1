"""The interface of layers. A layer is one of FJM2's APIs at the tasks of `fjm2-bench pub`, `sub`, `ping` and `echo`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..workload.reception import Reception
from ..workload.results import PubResult

LINGER_S = 3.0
"""Time for which a subscriber that has all messages still answers a publisher that does not end."""

Ready = Callable[[], None]
"""Callback for the moment from which on the process misses no message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PubOptions:
    """The task of a publisher. Each layer uses the options that concern it."""

    uri: str
    size: int
    count: int | None
    seconds: float | None
    receivers: int
    rate: str | None
    form: str
    """"stream" or "data" (NORM layer)."""
    batch: int
    """Messages in one write (NORM layer), or in one `send_many` (JMS layer)."""
    properties: int
    """Number of properties of each message (JMS layer)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubOptions:
    """The task of a subscriber."""

    uri: str
    size: int
    count: int | None
    is_verified: bool
    timeout_s: float
    properties: int
    """Number of properties of each message. This and the options below are for the JMS layer."""
    selector: str | None
    api: str
    """"listener", "receive", "iterate" or "batches"."""


class Publisher(Protocol):
    """Publisher that waits for receivers, sends messages, and waits until the receivers confirm."""

    doing: str
    """Current activity, for the message of a time-out."""

    async def publish(self) -> PubResult: ...


class Subscriber(Protocol):
    """Subscriber that receives and checks the publisher's messages."""

    reception: Reception

    async def receive(self, ready: Ready) -> None:
        """Receive until the publisher has ended or time is up."""
        ...


class Pinger(Protocol):
    """The measuring end of round trips: it sends messages, and waits for them to come back."""

    doing: str

    async def measure(self, count: int) -> list[int]:
        """Return the nanoseconds of each round trip."""
        ...


class Echoer(Protocol):
    """The echoing end of round trips: it sends messages back."""

    messages: int
    is_ended: bool

    async def serve(self, ready: Ready, timeout_s: float) -> None:
        """Send messages back until the partner ends or time is up."""
        ...


class Layer(Protocol):
    """One of FJM2's APIs, as the commands of the benchmarks use it."""

    system: str
    """Name of the system in results."""

    def publisher(self, options: PubOptions) -> Publisher: ...

    def subscriber(self, options: SubOptions) -> Subscriber: ...

    def pinger(self, uri: str, size: int) -> Pinger: ...

    def echoer(self, uri: str) -> Echoer: ...
