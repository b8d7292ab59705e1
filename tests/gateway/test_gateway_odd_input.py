"""Tests of malformed files, full disks and misbehaving services. None of these may stop a gateway or keep it busy."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fjm2d import config as configuration
from fjm2d.admin import client as admin_client
from fjm2d.admin.directory import Directory
from fjm2d.admin.node_list import FILE_NAME, member_of
from fjm2d.config import AdminConfig, GatewayConfig, WanConfig
from fjm2d.errors import ConfigurationErrors, KeyFileError
from fjm2d.keys import KeyPair
from fjm2d.values import Endpoint

DEEP = b"[" * 100_000
LONG = "1" * 5000
KEYS = KeyPair(bytes(range(32)))
REGISTERED = {"list_version": 5, "heartbeat_s": 10}


# Settings.


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f'[[group]]\naddress = "239.1.1.1:{LONG}"', "group[1].address"),
        (f"x = {LONG}", "file"),
        (f"x = {'[' * 5000}", "file"),
        ('key_file = ""', "key_file"),
    ],
    ids=["port", "number", "depth", "no key file"],
)
def test_input_that_python_cannot_parse_is_reported_like_any_other_mistake(tmp_path: Path, text: str, key: str) -> None:
    file = tmp_path / "fjm2d.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationErrors) as caught:
        configuration.load(file, {})
    assert (str(file), key) in [(error.file, error.key) for error in caught.value.errors]


def test_a_key_that_does_not_fit_on_the_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KeyFileError, match="No space left on device"):
        KEYS.save(tmp_path / "key")
    assert not (tmp_path / "key").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
def test_root_may_read_a_key_that_belongs_to_another_user(tmp_path: Path) -> None:
    KEYS.save(tmp_path / "key")
    os.chown(tmp_path / "key", 12_345, -1)
    assert KeyPair.load(tmp_path / "key").public == KEYS.public


# The status command.


@pytest.fixture
def odd_server() -> Iterator[tuple[list[bytes], int]]:
    """Yield a list, and the port of a server that is not a gateway.

    The server answers any request with the first item of the list.
    """
    says: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(says[0])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield says, server.getsockname()[1]
        thread.join(5)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-Server\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + DEEP,
    ],
    ids=["ssh", "other JSON", "cut short", "deep"],
)
def test_an_answer_that_is_no_gateways_status_is_an_error(
    tmp_path: Path, odd_server: tuple[list[bytes], int], answer: bytes
) -> None:
    says, port = odd_server
    says.append(answer)
    file = tmp_path / "fjm2d.toml"
    file.write_text(f'[status]\nlisten = "127.0.0.1:{port}"\n[[group]]\naddress = "239.192.57.40:5740"\n')
    command = (sys.executable, "-m", "fjm2d", "status", "--config", str(file))
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: what answers at http://127.0.0.1:{port}/status is no gateway: ")
    assert done.stderr.count("\n") == 1


# The node list.


class OddService:
    """A fake node-list service.

    `answers` has the body of the answer for each HTTP method. None stands for a body that never ends.
    """

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers
        self._talks: set[asyncio.Task[Any]] = set()
        self.asked: list[tuple[str, float]] = []

    def count(self, method: str) -> int:
        return sum(asked == method for asked, _ in self.asked)

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        self._talks.add(talk)
        try:
            await self._talk(reader, writer)
        finally:
            self._talks.discard(talk)
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method = head.split(b" ", 1)[0].decode()
        self.asked.append((method, time.monotonic()))
        answer = self._answers[method]
        if answer is None:
            await self._drip(writer)
        else:
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
            await writer.drain()

    async def _drip(self, writer: asyncio.StreamWriter) -> None:
        """Send an answer that never ends, one byte at a time."""
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await asyncio.sleep(0.05)


Holds = Callable[[OddService, Directory], bool]


async def followed(
    answers: dict[str, Any], seconds: float, folder: Path | None = None, until: Holds = lambda *_: False
) -> tuple[OddService, Directory]:
    """Run a directory against a fake service until `seconds` have passed or a condition holds.

    Fail if a task of the directory ends before that. Return the service and the directory.
    """
    web = OddService(answers)
    async with web as url:
        config = GatewayConfig(
            name="paris",
            state_directory=folder,
            wan=WanConfig(endpoints=(Endpoint("127.0.0.1", 5741),)),
            admin=AdminConfig(url=url, token="x"),
        )
        directory = Directory(config, KEYS.public, lambda _: None, dict)
        directory.open()
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until(web, directory):  # noqa: ASYNC110, there is no event to wait for
            await asyncio.sleep(0.02)
        assert not [task for task in directory._tasks if task.done()]
        await directory.close()
    return web, directory


EMPTY_LIST = {"version": 5, "nodes": []}


@pytest.mark.parametrize(
    "answers",
    [
        {"POST": DEEP, "GET": DEEP},
        {"POST": b'{"heartbeat_s": 1%s}' % (b"0" * 400), "GET": EMPTY_LIST},
        {"POST": b'{"heartbeat_s": NaN}', "GET": EMPTY_LIST},
        {"POST": b'{"heartbeat_s": 0.1, "list_version": Infinity}', "GET": b'{"version": 1e999, "nodes": []}'},
    ],
    ids=["deep", "huge", "not a number", "infinite"],
)
def test_nonsense_from_the_service_does_not_stop_the_directory(answers: dict[str, Any]) -> None:
    web, _ = asyncio.run(followed(answers, 30.0, until=lambda web, _: web.count("POST") >= 2))
    assert web.count("POST") >= 2, "it has been given up"


def test_a_service_that_answers_at_once_is_not_polled_in_a_busy_loop() -> None:
    web, directory = asyncio.run(followed({"POST": REGISTERED, "GET": EMPTY_LIST}, 2.0))
    assert directory.is_reached
    assert 2 <= web.count("GET") <= 6


def test_an_answer_that_never_ends_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_client, "_ANSWER_S", 0.5)

    def is_asked_again(web: OddService, directory: Directory) -> bool:
        return bool(directory.problem) and web.count("POST") >= 2 and web.count("GET") >= 2

    web, directory = asyncio.run(followed({"POST": None, "GET": None}, 30.0, until=is_asked_again))
    assert is_asked_again(web, directory), (directory.problem, web.asked)


def test_a_deeply_nested_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(DEEP)
    answers = {"POST": REGISTERED, "GET": EMPTY_LIST}
    _, directory = asyncio.run(followed(answers, 30.0, tmp_path, lambda _, directory: directory.version == 5))
    assert directory.version == 5


def test_a_bad_endpoint_only_discards_its_entry() -> None:
    entry = {"name": "a", "public_key": KEYS.public.text, "groups": []}
    assert member_of({**entry, "endpoints": [f"host:{LONG}"]}) is None
    assert member_of({**entry, "endpoints": ["host:1"]}) is not None
