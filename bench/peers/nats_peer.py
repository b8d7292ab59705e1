"""NATS: core NATS with nats-py. Subscribers' reports hold the publisher back, so that nothing is lost.

The adapter has its own event loop and is no `PolledPeer`: entering an event loop for each message takes 40
microseconds.
"""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from typing import Any, TypeVar

from fjm2.base.interrupts import INTERRUPTED

from ..workload.messages import Maker
from ..workload.reception import Reception
from ..workload.results import EchoResult, PingResult, PubResult, SubResult, ping_result, print_ready, pub_result
from .base import (
    HELLO_INTERVAL_S,
    Deadline,
    PeerOptions,
    PeerTimeoutError,
    end_message,
    intake,
    messages_to_send,
    total_of,
)
from .broker import CONFIGURATION, SharedWatch, broker, lack_of
from .window import Reports, Window

_DATA, _BACK, _REPORTS = "fjm2bench.data", "fjm2bench.back", "fjm2bench.reports"
_MESSAGE_BYTES_MAX = 64 << 20
"""Longest message that the server accepts."""
_TICK_S = 0.1
"""Interval at which a wait checks its deadline."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_T = TypeVar("_T")


class Nats:
    """Adapter of core NATS."""

    name = "nats"
    settings = (
        "Core NATS with nats-py on uvloop; a server of its own beside the publisher. Core NATS delivers at most "
        "once and disconnects slow subscribers, so subscribers report their progress four times per window (16 MiB "
        "or 65,536 messages), and the publisher is at most a window ahead of the slowest. JetStream would store "
        "every message first."
    )

    def missing(self) -> str | None:
        return lack_of("nats-server") or (None if find_spec("nats") else "nats-py is not installed")

    def pub(self, options: PeerOptions) -> PubResult:
        deadline = Deadline(options.timeout_s)
        with _server(options, deadline) as pid:
            return _run(_publish(options, deadline, pid))

    def sub(self, options: PeerOptions) -> SubResult:
        return _run(_subscribe(options))

    def ping(self, options: PeerOptions) -> PingResult:
        deadline = Deadline(options.timeout_s)
        with _server(options, deadline):
            return _run(_ping(options, deadline))

    def echo(self, options: PeerOptions) -> EchoResult:
        return _run(_echo(options))


async def _publish(options: PeerOptions, deadline: Deadline, server: int) -> PubResult:
    maker = Maker(options.size)
    async with _client(options, deadline) as client:
        window, came = await _window(client, options)
        publish = client.publish

        async def wait_until(is_so: Callable[[], bool], what: Callable[[], str]) -> None:
            while not is_so():
                came.clear()
                await _until(came)
                deadline.check(what())

        await wait_until(
            window.has_all, lambda: f"waiting for subscribers, {window.present} of {options.receivers} are there"
        )
        watch = SharedWatch(server)
        for messages in messages_to_send(options, maker, has_views=False):
            if not window.has_room(maker.next_number):
                await wait_until(lambda: window.has_room(maker.next_number), lambda: "sending")
            for message in messages:
                await publish(_DATA, message)
            await asyncio.sleep(0)  # lets the client write
            deadline.check("sending")
        total = maker.next_number
        await publish(_DATA, end_message(total))
        await wait_until(
            lambda: window.is_confirmed(total),
            lambda: f"waiting for confirmations, {window.confirmed(total)} of {options.receivers} are there",
        )
        return pub_result(
            system=Nats.name,
            form="message",
            size=options.size,
            messages=total,
            watch=watch,
            receivers=options.receivers,
        )


async def _subscribe(options: PeerOptions) -> SubResult:
    deadline = Deadline(options.timeout_s)
    reception = Reception(Nats.name, options.size, is_verified=options.is_verified)
    reception.begin(0)
    reports = Reports(options.size)
    take, count = intake(reception)
    is_over = asyncio.Event()
    print_ready(as_json=True)
    async with _client(options, deadline) as client:

        async def take_message(message: Any) -> None:
            take(message.data)
            if reception.is_ended:
                is_over.set()
            elif report := reports.due(count()):
                await client.publish(_REPORTS, report)

        await _listen(client, _DATA, take_message)
        while not is_over.is_set() and not deadline.is_over:
            if not count():
                await client.publish(_REPORTS, reports.report(0))
            await _until(is_over, HELLO_INTERVAL_S)
        if reception.is_ended:
            await client.publish(_REPORTS, reports.report((reception.total or 0) + 1))
            await client.flush()
    return reception.result()


async def _ping(options: PeerOptions, deadline: Deadline) -> PingResult:
    maker = Maker(options.size)
    back: asyncio.Queue[bytes] = asyncio.Queue()
    times = []
    async with _client(options, deadline) as client:

        async def take(message: Any) -> None:
            back.put_nowait(message.data)

        window, came = await _window(client, options)
        await _listen(client, _BACK, take)
        while not window.present:
            await _until(came)
            deadline.check("waiting for an echo")
        for number in range(options.warm_up + (options.count or 1)):
            message = maker.batch(1)
            start = time.perf_counter_ns()
            await client.publish(_DATA, message)
            try:
                answer = await asyncio.wait_for(back.get(), max(0.001, deadline.left_s))
            except TimeoutError:
                raise PeerTimeoutError(f"waiting for message {number} to come back") from None
            times.append(time.perf_counter_ns() - start)
            assert answer == message
        await client.publish(_DATA, end_message(maker.next_number))
        await client.flush()
    return ping_result(Nats.name, options.size, times[options.warm_up :])


async def _echo(options: PeerOptions) -> EchoResult:
    deadline = Deadline(options.timeout_s)
    reports = Reports(options.size)
    count = 0
    is_over = asyncio.Event()
    print_ready(as_json=True)
    async with _client(options, deadline) as client:

        async def take(message: Any) -> None:
            nonlocal count
            if total_of(message.data) is not None:
                is_over.set()
            else:
                await client.publish(_BACK, message.data)
                count += 1

        await _listen(client, _DATA, take)
        while not is_over.is_set() and not deadline.is_over:
            if not count:
                await client.publish(_REPORTS, reports.report(0))
            await _until(is_over, HELLO_INTERVAL_S)
    return EchoResult(system=Nats.name, messages=count)


def _server(options: PeerOptions, deadline: Deadline) -> Any:
    if options.size > _MESSAGE_BYTES_MAX:
        raise OSError(f"messages of {options.size} B: the server takes {_MESSAGE_BYTES_MAX} at most")
    configuration = (
        f"host: {options.publisher}\nport: {options.port}\nmax_payload: {_MESSAGE_BYTES_MAX}\n"
        f"max_pending: {4 * _MESSAGE_BYTES_MAX}\nwrite_deadline: 60s\n"
    )
    return broker(["nats-server", "-c", CONFIGURATION], configuration, options, deadline)


@asynccontextmanager
async def _client(options: PeerOptions, deadline: Deadline) -> AsyncIterator[Any]:
    """Connect, as soon as there is a server, until the context is left."""
    import nats

    async def ignore(_: Exception) -> None:
        """Ignore errors: only the messages that arrive count."""

    while True:
        try:
            client = await nats.connect(
                f"nats://{options.publisher}:{options.port}",
                allow_reconnect=False,
                no_echo=True,
                error_cb=ignore,
                skip_subject_validation=True,
            )
            break
        except (OSError, nats.errors.Error):
            deadline.check("connecting to the server")
            await asyncio.sleep(_TICK_S)
    try:
        yield client
    finally:
        await client.close()


async def _listen(client: Any, subject: str, take: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    """Subscribe, and wait until the server knows the subscription. Queues have no limit, so that nothing is dropped."""
    await client.subscribe(subject, cb=take, pending_msgs_limit=0, pending_bytes_limit=0)
    await client.flush()


async def _window(client: Any, options: PeerOptions) -> tuple[Window, asyncio.Event]:
    """Return a window that subscribers' reports move, and an event that is set with each report."""
    window, came = Window(options.receivers, options.size), asyncio.Event()

    async def note(message: Any) -> None:
        window.note(message.data)
        came.set()

    await _listen(client, _REPORTS, note)
    return window, came


async def _until(event: asyncio.Event, seconds: float = _TICK_S) -> None:
    """Wait until the event is set or the time is over."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


def _run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on uvloop. SIGTERM cancels it, and exits with the code for interruption.

    SIGTERM and Ctrl-C have to wait while the loop is made, prepares to run, and is closed: an exception of their
    handlers would leave half a loop behind, which raises another exception when it is closed.
    """
    terminate = signal.getsignal(signal.SIGTERM)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_terminable(main))
    except asyncio.CancelledError:
        sys.exit(INTERRUPTED)
    finally:
        main.close()
        signal.signal(signal.SIGTERM, terminate)  # the loop has removed it
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


async def _terminable(main: Coroutine[Any, Any, _T]) -> _T:
    task = asyncio.ensure_future(main)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    try:
        return await task
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


PEER = Nats()
