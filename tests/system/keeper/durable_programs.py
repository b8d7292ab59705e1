"""Programs with durable subscriptions, which tests kill: a reader and senders. They tell what they do by lines."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fjm2.jms import ConnectionFactory, IllegalStateError, SessionMode, TextMessage, Topic, blocking

TOPIC = Topic("fjm2.durable")
NAME = "all"
ACKED_TOGETHER = 50
SHARED, PASSING = "-", "+"
"""Stand for a client id: readers without one, of a shared subscription that is durable, and of one that is not."""
OUTBOX_BYTES = 32 << 20


async def read(uri: str, client_id: str, mode: SessionMode, work_s: float) -> None:
    """Print each message with its flag, and a line after each acknowledgement. Work on each message for a time."""
    factory = ConnectionFactory(uri) if client_id in (SHARED, PASSING) else ConnectionFactory(uri, client_id=client_id)
    async with factory.create_context(mode) as context:
        context.exception_listener = lambda error: print(type(error).__name__, flush=True)
        creates = {SHARED: context.create_shared_durable_consumer, PASSING: context.create_shared_consumer}
        consumer = await creates.get(client_id, context.create_durable_consumer)(TOPIC, NAME)
        print("ready", flush=True)
        count = 0
        async for message in consumer:
            count += 1
            print(message.get_body(str), int(message.redelivered), flush=True)
            if work_s:
                await asyncio.sleep(work_s)
            if count % ACKED_TOGETHER == 0 and mode in (SessionMode.CLIENT_ACKNOWLEDGE, SessionMode.SESSION_TRANSACTED):
                try:
                    await (message.acknowledge() if mode is SessionMode.CLIENT_ACKNOWLEDGE else context.commit())
                except IllegalStateError as error:
                    print(error.error_code, flush=True)
                else:
                    print("acknowledged", flush=True)


def read_in_a_thread(uri: str, mode: SessionMode, work_s: float) -> None:
    """Print each message of a shared subscription with its flag, by the blocking API."""
    with blocking.ConnectionFactory(uri).create_context(mode) as context:
        consumer = context.create_shared_durable_consumer(TOPIC, NAME)
        print("ready", flush=True)
        for message in consumer:
            print(message.get_body(str), int(message.redelivered), flush=True)
            time.sleep(work_s)


async def send(uri: str, first: int, count: int) -> None:
    """Print each number when it is stored."""
    async with ConnectionFactory(uri).create_connection() as connection:
        await connection.ready()
        producer = connection.create_session().create_producer(TOPIC)
        print("ready", flush=True)
        for number in range(first, first + count, 10):
            outcomes = [producer.send_async(TextMessage(str(each))) for each in range(number, number + 10)]
            await asyncio.gather(*outcomes)
            print("\n".join(str(each) for each in range(number, number + 10)), flush=True)


async def send_by_outbox(uri: str, directory: str, first: int) -> None:
    """Send until killed. Print each number when its send returned. The outbox sends what earlier programs left."""
    async with ConnectionFactory(
        uri, outbox=directory, outbox_bytes_max=OUTBOX_BYTES
    ).create_connection() as connection:
        producer = connection.create_session().create_producer(TOPIC)
        print("ready", flush=True)
        for number in range(first, first + 1_000_000, 5):
            outcomes = [producer.send_async(TextMessage(str(each))) for each in range(number, number + 5)]
            await asyncio.gather(*outcomes)
            print("\n".join(str(each) for each in range(number, number + 5)), flush=True)
            await asyncio.sleep(0.005)


class Program:
    """A running program, and the lines that it has printed."""

    def __init__(self, *arguments: object, before: tuple[str, ...] = ()) -> None:
        """Start it, behind the words of another command."""
        self.lines: list[str] = []
        self.popen = subprocess.Popen(
            [*before, sys.executable, str(Path(__file__)), *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.lines.append(line.strip())

    def until(self, is_true: Callable[[], object], timeout_s: float = 30.0) -> None:
        """Wait until a condition is true."""
        ends_at = time.monotonic() + timeout_s
        while not is_true():
            assert time.monotonic() < ends_at, f"{self.popen.poll()}: {self.lines[-5:]}, {len(self.lines)} lines"
            time.sleep(0.005)

    def until_ready(self) -> None:
        self.until(lambda: "ready" in self.lines)

    @property
    def messages(self) -> list[tuple[int, bool]]:
        """Messages that were received so far: number, and flag. A line that a kill cut off does not count."""
        parts = [line.split() for line in self.lines]
        return [(int(one[0]), one[1] == "1") for one in parts if len(one) == 2 and one[0].isdigit()]

    @property
    def acknowledged(self) -> list[int]:
        """Messages that were received before the last acknowledgement returned."""
        marks = [place for place, line in enumerate(self.lines) if line == "acknowledged"]
        before = self.lines[: marks[-1]] if marks else []
        return [int(line.split()[0]) for line in before if line[:1].isdigit()]

    @property
    def held(self) -> list[int]:
        """Messages that were received after the last acknowledgement was asked for."""
        numbers = [number for number, _ in self.messages]
        return numbers[len(numbers) // ACKED_TOGETHER * ACKED_TOGETHER :]

    def kill(self) -> None:
        """Kill the program, if it runs."""
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait(10)
        self._thread.join(10)
        assert self.popen.stdout is not None
        self.popen.stdout.close()


def reader(
    uri: str, client_id: str = "desk", mode: SessionMode = SessionMode.CLIENT_ACKNOWLEDGE, work_s: float = 0.0
) -> Program:
    """Start a reader. SHARED and PASSING stand for a client id."""
    return Program("read", uri, client_id, int(mode), work_s)


def thread_reader(uri: str, mode: SessionMode, work_s: float) -> Program:
    """Start a reader of a shared subscription that uses the blocking API."""
    return Program("read_in_a_thread", uri, int(mode), work_s)


def sender(uri: str, first: int, count: int) -> Program:
    """Start a sender of a multiple of ten messages."""
    return Program("send", uri, first, count)


def outbox_sender(uri: str, directory: Path, first: int, *before: str) -> Program:
    """Start a sender with an outbox."""
    return Program("outbox", uri, directory, first, before=before)


if __name__ == "__main__":
    if sys.argv[1] == "read":
        asyncio.run(read(sys.argv[2], sys.argv[3], SessionMode(int(sys.argv[4])), float(sys.argv[5])))
    elif sys.argv[1] == "read_in_a_thread":
        read_in_a_thread(sys.argv[2], SessionMode(int(sys.argv[3])), float(sys.argv[4]))
    elif sys.argv[1] == "outbox":
        asyncio.run(send_by_outbox(sys.argv[2], sys.argv[3], int(sys.argv[4])))
    else:
        asyncio.run(send(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
