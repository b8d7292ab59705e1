"""The interface of adapters to other systems, and code that the adapters share."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ..workload.messages import END_NUMBER, WORD_BYTES, Maker, word
from ..workload.reception import Reception, messages_at_once
from ..workload.results import EchoResult, PingResult, PubResult, SubResult

HELLO_INTERVAL_S = 0.4
"""Time between two announcements of a subscriber, until messages arrive. A publisher waits for all its subscribers."""
_END_WORD = word(END_NUMBER).to_bytes(8)
END_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerOptions:
    """The task of an adapter. Each adapter uses the options that concern it."""

    publisher: str
    """Address of the publisher, where subscribers and brokers meet."""
    interface: str
    """Interface for multicast, by name or address."""
    group: str
    port: int
    """First of the two ports of the run."""
    size: int
    count: int | None
    seconds: float | None
    warm_up: int
    form: str
    receivers: int
    rate_bps: float | None
    segment_bytes: int
    batch: int
    properties: int
    is_verified: bool
    timeout_s: float


class Peer(Protocol):
    """Adapter of one system: runs it at the tasks of the benchmarks."""

    name: str
    settings: str
    """The system's settings, and what makes the comparison fair."""

    def missing(self) -> str | None:
        """Return the reason why the system cannot run on this machine, or None if it can."""
        ...

    def pub(self, options: PeerOptions) -> PubResult: ...

    def sub(self, options: PeerOptions) -> SubResult:
        """Receive until the publisher ends. Print the line of `print_ready` as soon as messages can be received."""
        ...

    def ping(self, options: PeerOptions) -> PingResult: ...

    def echo(self, options: PeerOptions) -> EchoResult: ...


class PeerTimeoutError(Exception):
    """A step of a run failed, or was not done in time. The message names the step."""


class Deadline:
    """The end of the time for a run."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._at = time.monotonic() + timeout_s

    @property
    def left_s(self) -> float:
        return max(0.0, self._at - time.monotonic())

    @property
    def is_over(self) -> bool:
        return self.left_s == 0.0

    def check(self, doing: str) -> None:
        """Raise PeerTimeoutError if the time is over."""
        if self.is_over:
            raise PeerTimeoutError(f"{doing}: not done within {self._timeout_s:g} s")


def messages_to_send(
    options: PeerOptions, maker: Maker, *, has_views: bool = True
) -> Iterator[list[bytes | memoryview]]:
    """Yield lists of messages until there are enough or the time for sending is over."""
    until = None if options.seconds is None else time.perf_counter() + options.seconds
    for messages in maker.messages(options.count or 1 << 62, has_views=has_views):
        yield messages
        if until is not None and time.perf_counter() >= until:
            return


def end_message(total: int) -> bytes:
    """Return the message that ends a run. It contains the number of messages before it."""
    return _END_WORD + total.to_bytes(END_BYTES - WORD_BYTES)


def total_of(message: bytes) -> int | None:
    """Return the number of messages in the run if this is its last message, else None."""
    return int.from_bytes(message[WORD_BYTES:]) if len(message) == END_BYTES and message.startswith(_END_WORD) else None


def intake(reception: Reception) -> tuple[Callable[[bytes], bool], Callable[[], int]]:
    """Return two functions for a subscriber that receives messages one by one.

    The first takes a message and returns True if it is the last one of the run. Messages are checked in batches; the
    last message ends the batch. The second returns the number of messages so far.
    """
    at_once = messages_at_once(reception.size)
    gathered: list[bytes] = []
    gather = gathered.append
    checked = 0

    def take(message: bytes) -> bool:
        nonlocal checked
        total = total_of(message) if len(message) == END_BYTES else None  # a call for each would cost too much
        if total is None:
            gather(message)
            if len(gathered) < at_once:
                return False
        if gathered:
            checked += len(gathered)
            reception.take_many(gathered)
            gathered.clear()
        if total is not None:
            reception.total, reception.is_ended = total, True
        return total is not None

    return take, lambda: checked + len(gathered)
