"""One address, one token, and one that does not read: none of them keeps the others out."""

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from running import Admin, Gateway, make_token, until
from uvicorn.server import ServerState

from fjm2admin.limits import Doors
from fjm2admin.server import _Protocol

STUCK_S = 0.5
PIECE = bytes(1 << 20)


def is_open(connection: socket.socket) -> bool:
    """Whether the other end has left it open, as far as one can tell."""
    connection.settimeout(0.3)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def test_an_address_has_so_many_connections_and_others_have_theirs(start: Callable[..., Admin]) -> None:
    admin = start(host="::", connections_per_address=5)
    first = [socket.create_connection(("127.0.0.1", admin.port)) for _ in range(7)]
    assert [is_open(connection) for connection in first] == [True] * 5 + [False] * 2
    with socket.create_connection(("::1", admin.port)) as other:
        assert is_open(other)
    for connection in first:
        connection.close()
    until(lambda: httpx.get(f"{admin.url}/healthz").status_code == 200, 5, "room again")


def test_a_trusted_proxy_has_as_many_as_it_likes(start: Callable[..., Admin]) -> None:
    admin = start(connections_per_address=2, trusted_proxies="127.0.0.1")
    connections = [socket.create_connection(("127.0.0.1", admin.port)) for _ in range(5)]
    assert all(is_open(connection) for connection in connections)
    for connection in connections:
        connection.close()


def test_a_token_watches_on_so_many_pages(start: Callable[..., Admin], data: Path) -> None:
    admin = start(page="token", streams_max=4, streams_per_token=2)
    one, other = (make_token(data, name, "--scope", "view") for name in ("one", "other"))
    with httpx.Client(base_url=admin.url) as client:
        streams = []
        for token, status in ((one, 200), (one, 200), (one, 429), (other, 200)):
            headers = {"Authorization": f"Bearer {token}"}
            streams.append(client.send(client.build_request("GET", "/api/v1/events", headers=headers), stream=True))
            assert streams[-1].status_code == status
        for stream in streams:
            stream.close()


def test_a_token_registers_so_many_nodes(start: Callable[..., Admin]) -> None:
    admin = start(nodes_per_token=2)
    token = admin.token("all")
    for name, status in (("a", 200), ("b", 200), ("c", 403)):
        with Gateway(admin.url, token, name) as gateway:
            answer = gateway.register()
            assert answer.status_code == status
    assert answer.json()["code"] == "too_many_nodes"
    with Gateway(admin.url, admin.token("another"), "c") as gateway:
        assert gateway.register().status_code == 200


class Endless:
    """An application whose answer has no end."""

    def __init__(self) -> None:
        self.pieces = 0
        self.is_over = False

    async def __call__(self, _: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        gone = asyncio.ensure_future(self._gone(receive))
        while not gone.done():
            await send({"type": "http.response.body", "body": PIECE, "more_body": True})
            self.pieces += 1
            await asyncio.sleep(0)
        self.is_over = True

    async def _gone(self, receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass


async def watched(reads: bool, seconds: float) -> tuple[Endless, bool]:
    """Someone asks for it, who reads a little now and then, or not at all; and whether it was given up."""
    app, loop = Endless(), asyncio.get_running_loop()
    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()
    state = ServerState()
    protocol = type("Protocol", (_Protocol,), {"doors": Doors(10, (), STUCK_S)})
    server = await loop.create_server(lambda: protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), limit=1 << 20)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    end = time.monotonic() + seconds
    while time.monotonic() < end and not app.is_over:
        await asyncio.sleep(STUCK_S / 5)
        if reads:
            await reader.read(1 << 20)
    was_over = app.is_over
    writer.close()
    server.close()
    async with asyncio.timeout(5):
        while not app.is_over:  # noqa: ASYNC110, it tells nobody
            await asyncio.sleep(0.01)
    return app, was_over


def test_what_takes_nothing_is_given_up() -> None:
    app, was_over = asyncio.run(watched(False, 10 * STUCK_S))
    assert was_over
    assert app.pieces < 64


def test_what_takes_little_is_not() -> None:
    _, was_over = asyncio.run(watched(True, 5 * STUCK_S))
    assert not was_over
