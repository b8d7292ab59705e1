"""What an adapter is, and what all of them share."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ..workload.messages import END_NUMBER, WORD_BYTES, Maker, word
from ..workload.reception import Reception, messages_at_once
from ..workload.results import EchoResult, PingResult, PubResult, SubResult

HELLO_INTERVAL_S = 0.4
_END_WORD = word(END_NUMBER).to_bytes(8)
END_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerOptions:
    """What an adapter is asked to do; each takes what concerns it."""

    publisher: str
    """Address of the publisher, for those that connect to it."""
    interface: str
    """For those that use multicast."""
    group: str
    port: int
    """This one and the next belong to the run."""
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
    """One system."""

    name: str
    settings: str
    """What it is set to, and what keeps it honest."""

    def missing(self) -> str | None:
        """What it lacks here, or None."""
        ...

    def pub(self, options: PeerOptions) -> PubResult: ...

    def sub(self, options: PeerOptions) -> SubResult:
        """Prints that it is ready as soon as it is."""
        ...

    def ping(self, options: PeerOptions) -> PingResult: ...

    def echo(self, options: PeerOptions) -> EchoResult: ...


class PeerTimeoutError(Exception):
    """Something did not happen in time; says what."""


class Deadline:
    """Bounds a run in time."""

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
        """Raise PeerTimeoutError if it is over."""
        if self.is_over:
            raise PeerTimeoutError(f"{doing}: not done within {self._timeout_s:g} s")


def messages_to_send(
    options: PeerOptions, maker: Maker, *, has_views: bool = True
) -> Iterator[list[bytes | memoryview]]:
    """Lists of messages, until there were enough of them or time is up."""
    until = None if options.seconds is None else time.perf_counter() + options.seconds
    for messages in maker.messages(options.count or 1 << 62, has_views=has_views):
        yield messages
        if until is not None and time.perf_counter() >= until:
            return


def end_message(total: int) -> bytes:
    """What tells that no more will come, and how many there were."""
    return _END_WORD + total.to_bytes(END_BYTES - WORD_BYTES)


def total_of(message: bytes) -> int | None:
    """How many messages there were, if this is the one that says so."""
    return int.from_bytes(message[WORD_BYTES:]) if len(message) == END_BYTES and message.startswith(_END_WORD) else None


def intake(reception: Reception) -> tuple[Callable[[bytes], bool], Callable[[], int]]:
    """For a subscriber that gets messages one by one: what takes them, and what tells how many there were so far.

    They are checked many at a time; with the one that tells of the end, of which it is true, all that are left.
    """
    at_once = messages_at_once(reception.size)
    gathered: list[bytes] = []
    gather = gathered.append
    checked = 0

    def take(message: bytes) -> bool:
        nonlocal checked
        total = total_of(message) if len(message) == END_BYTES else None  # a call for each would be felt
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
