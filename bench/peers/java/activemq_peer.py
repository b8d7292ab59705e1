"""ActiveMQ Classic with its own Java client: see `ActiveMqBench.java`. `activemq-stomp` uses the same broker."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from ...workload.results import PingResult, PubResult
from ..base import Deadline, PeerOptions
from .program import WARM_UP_S, JavaProgram, child, next_line

PROGRAM = JavaProgram(
    "ActiveMqBench",
    "libactivemq-java",
    (
        "activemq-client",
        "activemq-broker",
        "activemq-openwire-legacy",
        "activemq-stomp",
        "geronimo-jms_1.1_spec",
        "geronimo-j2ee-management-1.1-spec",
        "hawtbuf",
        "slf4j-api",
        "slf4j-nop",
    ),
)


class ActiveMq:
    """Adapter of ActiveMQ with its own Java client."""

    name = "activemq"
    settings = (
        "OpenWire over TCP without delay, loosely encoded; non-persistent messages on a topic, sent asynchronously, "
        "without copies, message ids or timestamps; acknowledged lazily and in batches; the largest prefetch; "
        "listeners called by the thread that reads the socket. The broker, a process beside the publisher, keeps "
        "messages in memory (64 MiB a topic); a full topic blocks the publisher. Before each timed run, messages "
        f"are sent for {WARM_UP_S:g} s that do not count, so that all code is compiled."
    )

    def missing(self) -> str | None:
        return PROGRAM.missing()

    def pub(self, options: PeerOptions) -> PubResult:
        more: dict[str, object] = {"--receivers": options.receivers}
        if options.count is not None:
            more["--count"] = options.count
        if options.seconds is not None:
            more |= {"--seconds": options.seconds, "--warm-up-seconds": WARM_UP_S}
        deadline = Deadline(options.timeout_s)
        with java_broker(options, deadline) as pid:
            return PubResult(**PROGRAM.run("pub", options, {**more, "--broker": pid}, deadline))

    def sub(self, options: PeerOptions) -> NoReturn:
        PROGRAM.become("sub", options, {} if options.is_verified else {"--no-verify": 1})

    def ping(self, options: PeerOptions) -> PingResult:
        more = {"--count": options.count or 1, "--warm-up": options.warm_up}
        deadline = Deadline(options.timeout_s)
        with java_broker(options, deadline) as pid:
            return PingResult(**PROGRAM.run("ping", options, {**more, "--broker": pid}, deadline))

    def echo(self, options: PeerOptions) -> NoReturn:
        PROGRAM.become("echo", options, {})


@contextmanager
def java_broker(options: PeerOptions, deadline: Deadline, *, is_stomp: bool = False) -> Iterator[int]:
    """Run a broker until the context is left. Yield its process id as soon as it accepts connections.

    The broker writes no files.
    """
    with child(PROGRAM.argv("broker", options, {"--stomp": 1} if is_stomp else {})) as process:
        next_line(process, deadline, "starting the broker")
        yield process.pid


PEER = ActiveMq()
