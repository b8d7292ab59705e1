"""A program that sends last values, which tests kill. It tells what is stored by lines."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fjm2.jms import ConnectionFactory, TextMessage, Topic, UnconfirmedError

TOPIC = Topic("fjm2.values")
KEYS = 20
AT_ONCE = 10


async def send(uri: str, first: int, count: int) -> None:
    """Send numbers, of which the latest is kept for each remainder by `KEYS`. Print each when it is stored."""
    async with ConnectionFactory(uri).create_connection() as connection:
        producer = connection.create_session().create_producer(TOPIC)
        for number in range(first, first + count, AT_ONCE):
            numbers = range(number, min(number + AT_ONCE, first + count))
            messages = [TextMessage(str(each)) for each in numbers]
            for each, message in zip(numbers, messages, strict=True):
                message.set_int_property("key", each % KEYS)
            print(f"sending {numbers[-1]}", flush=True)
            outcomes = [producer.send_async(message, retain="key") for message in messages]
            for each, outcome in zip(numbers, await asyncio.gather(*outcomes, return_exceptions=True), strict=True):
                if isinstance(outcome, UnconfirmedError):
                    continue  # it may be stored
                if outcome is not None:
                    raise outcome
                print(each, flush=True)


class ValueSender:
    """A running program, and the numbers that it has stored."""

    def __init__(self, uri: str, first: int, count: int) -> None:
        self.stored: list[int] = []
        self.sending = first - 1
        """Last number that it may have sent."""
        self.popen = subprocess.Popen(
            [sys.executable, str(Path(__file__)), uri, str(first), str(count)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            if line.startswith("sending"):
                self.sending = int(line.split()[1])
            else:
                self.stored.append(int(line))

    def until(self, is_true: Callable[[], object], timeout_s: float = 60.0) -> None:
        """Wait until a condition is true."""
        ends_at = time.monotonic() + timeout_s
        while not is_true():
            assert time.monotonic() < ends_at, f"{self.popen.poll()}: {self.stored[-5:]}"
            time.sleep(0.005)

    def wait(self) -> None:
        """Wait until it has sent everything."""
        self.until(lambda: self.popen.poll() is not None)
        assert self.kill() == 0

    def kill(self) -> int:
        """Kill it, unless it has ended. Return its status."""
        self.popen.kill()
        code = self.popen.wait(10)
        self._thread.join(10)
        assert self.popen.stdout is not None
        self.popen.stdout.close()
        return code


if __name__ == "__main__":
    asyncio.run(send(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
