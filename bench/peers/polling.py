"""Publisher, subscriber, ping and echo for systems that can be polled: each system only implements a `Link`."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from typing import ClassVar, Literal, Protocol

from ..workload.messages import Maker
from ..workload.reception import Reception
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
from .base import HELLO_INTERVAL_S, Deadline, PeerOptions, end_message, intake, messages_to_send, total_of
from .window import Reports, Window

_TICK_S = 0.1
"""Interval at which a wait checks its deadline."""
Role = Literal["pub", "sub", "ping", "echo"]


class Topic(Enum):
    """The topics of a run."""

    DATA = "data"
    BACK = "back"
    """Messages that an echo sends back."""
    REPORTS = "reports"


class Link(Protocol):
    """A connection of one end to the others."""

    def listen(self, topic: Topic, take: Callable[[bytes], object]) -> None:
        """Call `take` with each message of a topic from now on, during `poll` or between two calls.

        For data, `take` returns True if the message is the last one.
        """
        ...

    def publisher(self, topic: Topic) -> Callable[[bytes | memoryview], object]:
        """Return a function that publishes a message on a topic."""
        ...

    def poll(self, seconds: float) -> None:
        """Read and write as much as is possible at once. If there is nothing to do, wait for at most `seconds`."""
        ...

    def is_written(self) -> bool:
        """Return True if there is room to publish more. Closing the link sends all published messages."""
        ...


class PolledPeer(ABC):
    """An adapter that polls a link."""

    name: ClassVar[str]
    settings: ClassVar[str]
    is_windowed: ClassVar[bool]
    """True if subscribers' reports have to hold the publisher back. Otherwise the system does so itself."""

    @abstractmethod
    def missing(self) -> str | None: ...

    @abstractmethod
    def link(self, options: PeerOptions, deadline: Deadline, role: Role) -> AbstractContextManager[Link]:
        """Return a context that connects as soon as the other end accepts connections."""

    @contextmanager
    def companion(self, options: PeerOptions, deadline: Deadline) -> Iterator[Callable[[], StopWatch]]:  # noqa: ARG002
        """Run a process that a publisher needs beside it, such as a broker.

        Yield a function that makes a stop watch, which includes the CPU time of that process.
        """
        yield StopWatch

    def pub(self, options: PeerOptions) -> PubResult:
        deadline = Deadline(options.timeout_s)
        maker = Maker(options.size)
        window = Window(options.receivers, options.size)
        with self.companion(options, deadline) as start_watch, self.link(options, deadline, "pub") as link:
            link.listen(Topic.REPORTS, window.note)
            _wait(
                link,
                window.has_all,
                deadline,
                lambda: f"waiting for subscribers, {window.present} of {options.receivers} are there",
            )
            publish = link.publisher(Topic.DATA)
            watch = start_watch()
            for messages in messages_to_send(options, maker, has_views=False):
                for message in messages:
                    publish(message)
                link.poll(0.0)
                if self.is_windowed:
                    _wait(link, lambda: window.has_room(maker.next_number), deadline, lambda: "sending")
                _wait(link, link.is_written, deadline, lambda: "sending")
                deadline.check("sending")
            total = maker.next_number
            publish(end_message(total))
            _wait(
                link,
                lambda: window.is_confirmed(total),
                deadline,
                lambda: f"waiting for confirmations, {window.confirmed(total)} of {options.receivers} are there",
            )
            return pub_result(
                system=self.name,
                form="message",
                size=options.size,
                messages=total,
                watch=watch,
                receivers=options.receivers,
            )

    def sub(self, options: PeerOptions) -> SubResult:
        deadline = Deadline(options.timeout_s)
        reception = Reception(self.name, options.size, is_verified=options.is_verified)
        reception.begin(0)
        reports = Reports(options.size)
        take, count = intake(reception)
        print_ready(as_json=True)
        with self.link(options, deadline, "sub") as link:
            link.listen(Topic.DATA, take)
            report = link.publisher(Topic.REPORTS)
            _announce(link, report, reports, lambda: count() > 0 or reception.is_ended, deadline)
            while not reception.is_ended and not deadline.is_over:
                link.poll(_TICK_S)
                if self.is_windowed and (due := reports.due(count())):
                    report(due)
            if reception.total is not None:
                report(reports.report(reception.total + 1))
                _wait(link, link.is_written, deadline, lambda: "confirming")
        return reception.result()

    def ping(self, options: PeerOptions) -> PingResult:
        deadline = Deadline(options.timeout_s)
        maker = Maker(options.size)
        window = Window(1, options.size)
        back: list[bytes] = []
        times = []
        with self.companion(options, deadline), self.link(options, deadline, "ping") as link:
            link.listen(Topic.REPORTS, window.note)
            link.listen(Topic.BACK, back.append)
            _wait(link, window.has_all, deadline, lambda: "waiting for an echo")
            publish = link.publisher(Topic.DATA)
            for _ in range(options.warm_up + (options.count or 1)):
                message = maker.batch(1)
                start = time.perf_counter_ns()
                publish(message)
                while not back:
                    link.poll(_TICK_S)
                    deadline.check("waiting for a message to come back")
                times.append(time.perf_counter_ns() - start)
                assert back.pop() == message
            total = maker.next_number
            publish(end_message(total))
            _wait(link, lambda: window.is_confirmed(total), deadline, lambda: "waiting for the echo to end")
        return ping_result(self.name, options.size, times[options.warm_up :])

    def echo(self, options: PeerOptions) -> EchoResult:
        deadline = Deadline(options.timeout_s)
        reports = Reports(options.size)
        count = 0
        total: int | None = None
        print_ready(as_json=True)
        with self.link(options, deadline, "echo") as link:
            give_back = link.publisher(Topic.BACK)

            def take(message: bytes) -> bool:
                nonlocal count, total
                total = total_of(message)
                if total is None:
                    give_back(message)
                    count += 1
                return total is not None

            link.listen(Topic.DATA, take)
            report = link.publisher(Topic.REPORTS)
            _announce(link, report, reports, lambda: count > 0 or total is not None, deadline)
            while total is None and not deadline.is_over:
                link.poll(_TICK_S)
            if total is not None:
                report(reports.report(total + 1))
                _wait(link, link.is_written, deadline, lambda: "confirming")
        return EchoResult(system=self.name, messages=count)


def _announce(
    link: Link, report: Callable[[bytes], object], reports: Reports, is_heard: Callable[[], bool], deadline: Deadline
) -> None:
    """Announce the subscriber to the publisher until a message arrives."""
    while not is_heard() and not deadline.is_over:
        report(reports.report(0))
        again_at = time.monotonic() + HELLO_INTERVAL_S
        while not is_heard() and (left_s := again_at - time.monotonic()) > 0:
            link.poll(min(left_s, _TICK_S))


def _wait(link: Link, condition: Callable[[], bool], deadline: Deadline, doing: Callable[[], str]) -> None:
    while not condition():
        link.poll(_TICK_S)
        if deadline.is_over:
            deadline.check(doing())
