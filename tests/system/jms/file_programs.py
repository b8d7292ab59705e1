"""Processes that send and receive files, and report what they see."""

import contextlib
import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WAIT_S = 30.0
DELETED_S = 5.0
"""Longest time from the report of a dropped file to its deletion."""

PROGRAM = textwrap.dedent(
    """
    import asyncio, json, sys
    from pathlib import Path
    from fjm2.jms import ConnectionFactory, FileMessage, Topic

    TOPIC = Topic("files")

    def say(**report):
        print(json.dumps(report), flush=True)

    def memory():
        # Not ru_maxrss, which begins with the memory of the process that started this one.
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))

    async def main(role, uri, path):
        async with ConnectionFactory(uri, close_timeout_s=1).create_connection() as connection:
            connection.exception_listener = lambda error: say(error=f"{type(error).__name__}: {error}")
            connection.start()
            session = connection.create_session()
            if role == "publish":
                producer = session.create_producer(TOPIC)
                await connection.ready()
                message = FileMessage(path, lambda progress: say(done=progress.done))
                say(ready=True)
                try:
                    await producer.send_async(message)
                    say(confirmed=True, memory=memory())
                except Exception as error:
                    say(failed=str(error), nodes=[*getattr(error, "unacknowledged_nodes", ())])
                await asyncio.sleep(60)
            else:
                async def beat():
                    for count in range(1, 1_000_000):
                        say(beat=count)
                        await asyncio.sleep(0.1)

                if role == "beat":
                    beating = asyncio.create_task(beat())
                consumer = session.create_consumer(TOPIC)
                consumer.on_progress = lambda progress: say(done=progress.done)
                await consumer.ready()
                say(ready=connection._core.endpoint.bus.node_id)
                async for message in consumer:
                    message.save(path)
                    say(received=message.size, memory=memory())

    asyncio.run(main(*sys.argv[1:]))
    """
)


class Child:
    """A process that reports in lines of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.reports: list[dict[str, Any]] = []

    def wait_for(self, name: str, at_least: int = 0, other: str = "") -> Any:
        """Return the next value under a name, or another, that is large enough. Fail if nothing is reported for a
        while."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + WAIT_S
        for line in self.process.stdout:
            report = json.loads(line)
            self.reports.append(report)
            value = report.get(name, report.get(other))
            if value is not None and not (isinstance(value, int) and value < at_least):
                return value
            assert time.monotonic() < deadline, self.reports[-5:]
            deadline = time.monotonic() + WAIT_S
        raise AssertionError(self.reports[-5:])

    def last(self, name: str) -> Any:
        return next(report[name] for report in reversed(self.reports) if name in report)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def child(role: str, uri_: str, path: Path) -> Iterator[Child]:
    command = [sys.executable, "-c", PROGRAM, role, uri_, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Child(process)
        finally:
            process.kill()


def sparse(path: Path, size: int) -> Path:
    """Make a file that takes no room."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


def place(tmp_path: Path, name: str) -> Path:
    made = tmp_path / name
    made.mkdir()
    return made


def partial(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]


def wait_until_deleted(folder: Path, *others: Path) -> None:
    """Wait until a folder has no partial file, and no file but the others. Whoever drops a file reports it before the
    disk's thread deletes it, so that a disk that hangs does not delay the report."""
    deadline = time.monotonic() + DELETED_S
    while partial(folder) != [*others]:
        assert time.monotonic() < deadline, partial(folder)
        time.sleep(0.01)
