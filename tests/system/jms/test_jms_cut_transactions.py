"""Transactions of publishers that are killed while they commit, and of those that are only slow or paused."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import pytest
from buses import node, run_on, soon, uri
from representatives import representatives

from fjm2.bus.reports import BusReport, TransactionDropped
from fjm2.bus.transactions import SILENT_S

pytestmark = pytest.mark.calm

CHECK_S = 1.0
"""Interval at which a bus looks for transactions that are overdue."""
BUSY_S = 3.0
"""Delay that a busy machine may add."""

PUBLISHER = textwrap.dedent(
    """
    import asyncio, sys
    from fjm2.jms import BytesMessage, ConnectionFactory, Topic

    TOPIC = Topic("prices.eu")

    async def main(uri, messages, client_id):
        connection = await ConnectionFactory(uri, client_id=client_id).create_connection()
        session = connection.create_session(transacted=True)
        producer = session.create_producer(TOPIC)
        await connection.ready()
        # The first PERSISTENT message waits until it is known that there are no keepers. The transaction need not.
        await connection.create_session().create_producer(Topic("first")).send(BytesMessage())
        for number in range(int(messages)):
            message = BytesMessage()
            message.write_bytes(bytes(1000))
            await producer.send(message, priority=(4, 5)[number % 2])
        print("commits", flush=True)
        await session.commit()
        print("committed", flush=True)
        await asyncio.sleep(60)

    asyncio.run(main(*sys.argv[1:]))
    """
)


@contextlib.contextmanager
def publisher(uri_: str, messages: int, client_id: str) -> Iterator[subprocess.Popen[str]]:
    """A process that commits a transaction; killed in the end."""
    command = [sys.executable, "-c", PUBLISHER, uri_, str(messages), client_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "commits\n"
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            process.kill()


@pytest.mark.parametrize("seed", representatives([1, 2, 3], 1))
def test_a_transaction_cut_by_a_kill_is_reported_after_five_seconds(port: int, seed: int) -> None:
    """At 4 Mbit/s a lane, the 4 MB take over four seconds. Each publisher is killed at another moment of them."""
    told: list[tuple[float, BusReport]] = []
    delays = [random.Random(seed).uniform(0.2, 3.0) for _ in range(3)]

    async def main() -> None:
        async with node(port) as receiving:
            subscriber = receiving.subscribe()
            await receiving.bus.ready()
            with contextlib.ExitStack() as stack:
                killed_at = []
                receiving.bus.add_listener(lambda report: told.append((time.monotonic(), report)))
                for number, delay in enumerate(delays):
                    started = stack.enter_context(publisher(uri(port, rate="4mbit"), 4000, f"child-{number}"))
                    await asyncio.sleep(delay)
                    started.kill()
                    started.wait()
                    killed_at.append(time.monotonic())
                await soon(lambda: len(receiving.all(TransactionDropped)) == len(delays))
            dropped_at = [at for at, report in told if isinstance(report, TransactionDropped)]
            for killed, dropped in zip(killed_at, dropped_at, strict=True):
                assert SILENT_S - 1 < dropped - killed < SILENT_S + CHECK_S + BUSY_S
            for report in receiving.all(TransactionDropped):
                assert 0 < report.received < report.size == 4000
                assert "silent" in str(report)
            assert not subscriber.received

    run_on("asyncio", main())


def test_a_slow_transaction_of_a_living_publisher_is_delivered(port: int) -> None:
    """Messages come at 100 kbit/s, eleven a second and lane: nothing is silent, and nothing is dropped."""

    async def main() -> None:
        async with node(port) as receiving:
            subscriber = receiving.subscribe()
            await receiving.bus.ready()
            with publisher(uri(port, rate="100kbit"), 120, "child") as process:
                await soon(lambda: len(subscriber.received) == 120 or receiving.reports or process.poll())
            assert not receiving.reports

    run_on("asyncio", main())


def test_a_subscriber_that_was_paused_drops_no_transaction(port: int) -> None:
    """A subscriber that was stopped for longer than the limit hears the rest before it judges."""

    async def main() -> None:
        async with node(port) as receiving:
            subscriber = receiving.subscribe()
            await receiving.bus.ready()
            with publisher(uri(port, rate="4mbit", ack_timeout_s=20), 2000, "child"):
                await soon(lambda: len(receiving.bus.router.transactions))
                time.sleep(SILENT_S + 2)  # noqa: ASYNC251 - nothing in this process runs meanwhile
                await soon(lambda: len(subscriber.received) == 2000)
            assert not receiving.reports

    run_on("asyncio", main())
