"""Tests of limits: no address, no token and no slow reader can keep other clients from using the service."""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from running import Admin, Gateway, make_token, until
from uvicorn.server import ServerState

from fjm2.base.event_loop import uvloop_class
from fjm2admin.config import AdminConfig
from fjm2admin.registry.nodes import Node, Profile
from fjm2admin.registry.service import Service
from fjm2admin.registry.store import Store
from fjm2admin.web import acceptor, server, sockets
from fjm2admin.web.api import PIECE_BYTES, in_pieces, make_app
from fjm2admin.web.limits import ConnectionLimit
from fjm2admin.web.live import Live
from fjm2admin.web.server import HttpProtocol

STUCK_S = 0.5
PIECE = bytes(1 << 20)


def is_open(connection: socket.socket) -> bool:
    """Return True if the other end of a connection has not closed it yet."""
    connection.settimeout(0.3)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def test_connections_are_limited_for_each_address(start: Callable[..., Admin]) -> None:
    admin = start(host="::", connections_per_address=5)
    first = [socket.create_connection(("127.0.0.1", admin.port)) for _ in range(7)]
    assert [is_open(connection) for connection in first] == [True] * 5 + [False] * 2
    with socket.create_connection(("::1", admin.port)) as other:
        assert is_open(other)
    for connection in first:
        connection.close()
    until(lambda: httpx.get(f"{admin.url}/healthz").status_code == 200, 5, "room again")


def test_a_trusted_proxy_has_unlimited_connections(start: Callable[..., Admin]) -> None:
    admin = start(connections_per_address=2, trusted_proxies="127.0.0.1")
    connections = [socket.create_connection(("127.0.0.1", admin.port)) for _ in range(5)]
    assert all(is_open(connection) for connection in connections)
    for connection in connections:
        connection.close()


def test_existing_connections_stay_when_the_limit_is_reached(start: Callable[..., Admin]) -> None:
    admin = start(connections_max=8)
    with httpx.Client(base_url=admin.url) as inside:
        assert inside.get("/healthz").status_code == 200
        crowd = [socket.create_connection(("127.0.0.1", admin.port)) for _ in range(12)]
        assert [is_open(connection) for connection in crowd] == [True] * 7 + [False] * 5
        assert inside.get("/healthz").status_code == 200
    for connection in crowd:
        connection.close()
    assert sum('"too_many_connections"' in line for line in admin.lines) == 1


def test_strangers_cannot_flood_the_log(start: Callable[..., Admin]) -> None:
    admin = start()
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", admin.port), timeout=10) as connection:
            connection.sendall(b"no HTTP\r\n\r\n")
            assert b" 400 " in connection.recv(1000)
        httpx.get(f"{admin.url}/healthz", headers={"Upgrade": "websocket", "Connection": "upgrade"})
    assert not [line for line in admin.lines if "uvicorn" in line]


def test_viewers_without_a_token_have_limits_by_address(start: Callable[..., Admin]) -> None:
    admin = start(page="open", streams_per_token=1, token_per_s=1)
    statuses = {}
    for host in ("127.0.0.2", "127.0.0.3"):
        with httpx.Client(base_url=admin.url, transport=httpx.HTTPTransport(local_address=host)) as client:
            with client.stream("GET", "/api/v1/events") as first:
                statuses[host] = first.status_code, client.get("/api/v1/events").status_code
            for _ in range(8):
                last = client.get("/api/v1/nodes").status_code
            assert last == 429
    assert set(statuses.values()) == {(200, 429)}


def test_leaving_before_the_first_event_releases_the_stream(data: Path) -> None:
    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def to_nobody(_: Any) -> None:
        await asyncio.sleep(0)

    async def scenario() -> None:
        service = Service(AdminConfig(data=str(data)), Store(data), None)
        await service.start()
        _, gate = make_app(service)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "path": "/api/v1/events",
            "root_path": "",
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
            "client": ("127.0.0.1", 1),
        }
        for _ in range(service.config.streams_per_token + 1):
            await gate(scope, gone, to_nobody)
        assert service.streams.count == 0
        assert gate.answers[429] == 0
        await service.close()

    asyncio.run(scenario())


def test_pages_are_limited_for_each_token(start: Callable[..., Admin], data: Path) -> None:
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


def test_nodes_are_limited_for_each_token(start: Callable[..., Admin]) -> None:
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
    """A web application whose answer never ends."""

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


def protocols(app: Any) -> Callable[[], HttpProtocol]:
    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()
    made = type("Protocol", (HttpProtocol,), {"stuck_s": STUCK_S})
    return lambda: made(config=config, server_state=ServerState(), app_state={})


async def watched(reads: bool, seconds: float) -> tuple[Endless, bool]:
    """Request an endless answer, and read it slowly or not at all.

    Return the application, and True if the server closed the connection within `seconds`.
    """
    app, loop = Endless(), asyncio.get_running_loop()
    listening = await loop.create_server(protocols(app), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname(), limit=1 << 20)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    end = time.monotonic() + seconds
    while time.monotonic() < end and not app.is_over:
        await asyncio.sleep(STUCK_S / 5)
        if reads:
            await reader.read(1 << 20)
    was_over = app.is_over
    writer.close()
    listening.close()
    async with asyncio.timeout(5):
        while not app.is_over:  # noqa: ASYNC110, there is no event to wait for
            await asyncio.sleep(0.01)
    return app, was_over


def test_a_connection_that_reads_nothing_is_closed() -> None:
    app, was_over = asyncio.run(watched(False, 10 * STUCK_S))
    assert was_over
    assert app.pieces < 64


def test_a_connection_that_reads_slowly_stays() -> None:
    _, was_over = asyncio.run(watched(True, 5 * STUCK_S))
    assert not was_over


async def greets(_: Any, __: Any, send: Any) -> None:
    """Answer a request, as a web application, before the body of the request has arrived."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


def test_a_slow_body_after_its_answer_does_not_keep_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "KEEP_ALIVE_S", 0.2)
    monkeypatch.setattr(server, "REQUEST_HEAD_S", 0.2)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(protocols(greets), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
        await reader.readuntil(b"hi")
        over = asyncio.ensure_future(reader.read())
        with contextlib.suppress(ConnectionError):
            for _ in range(30):
                writer.write(b"x")
                await asyncio.sleep(0.1)
                if over.done():
                    break
        assert over.done()
        writer.close()
        listening.close()

    asyncio.run(scenario())


class Once:
    """A web application that sends only as much as the kernel buffers, and then waits until the client is gone."""

    def __init__(self) -> None:
        self.is_over = asyncio.Event()

    async def __call__(self, _: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(50_000), "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        self.is_over.set()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux tells")
def test_a_connection_that_leaves_data_in_the_kernel_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "STUCK_S", STUCK_S)

    async def scenario() -> None:
        app, limit, listener = Once(), ConnectionLimit(10, 10, ()), sockets.listen("127.0.0.1", 0)
        accepting = acceptor.Acceptor(listener, limit, None, protocols(app))
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, listener.getsockname())
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            async with asyncio.timeout(20):
                await app.is_over.wait()
        while limit.count:  # noqa: ASYNC110, there is no event to wait for
            await asyncio.sleep(0.01)
        accepting.close()

    asyncio.run(scenario())


def test_a_busy_loop_accepts_many_connections_in_a_turn() -> None:
    async def be_busy() -> None:
        for _ in range(150):
            time.sleep(0.02)  # noqa: ASYNC251, blocking the event loop is intended
            await asyncio.sleep(0)

    async def scenario() -> None:
        limit, listener = ConnectionLimit(1000, 1000, ()), sockets.listen("127.0.0.1", 0)
        accepting = acceptor.Acceptor(listener, limit, None, protocols(greets))
        clients = [socket.create_connection(listener.getsockname()) for _ in range(300)]
        busy = asyncio.create_task(be_busy())
        async with asyncio.timeout(2):
            while limit.count < len(clients):  # noqa: ASYNC110, there is no event to wait for
                await asyncio.sleep(0)
        busy.cancel()
        for client in clients:
            client.close()
        while limit.count:  # noqa: ASYNC110, there is no event to wait for
            await asyncio.sleep(0.01)
        accepting.close()

    with asyncio.Runner(loop_factory=uvloop_class()) as runner:
        runner.run(scenario())


class Counted:
    """A collection of nodes that counts how often it is iterated over."""

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes
        self.times = 0

    def __iter__(self) -> Iterator[Node]:
        self.times += 1
        return iter(self._nodes)


def test_pages_that_open_between_two_ticks_share_one_snapshot_and_miss_nothing() -> None:
    async def next_of(events: AsyncIterator[bytes]) -> Any:
        text = b""
        while not text.endswith(b"\n\n"):
            part = await anext(events)
            parts.append(part)
            text += part
        return json.loads(text.split(b"data: ")[1])

    parts: list[bytes] = []

    async def scenario() -> None:
        node = Node(Profile("0000000a", "a", "key", (), (), None, "1"), "token", "::1", 0.0, 0.0, 0.0)
        nodes = Counted([node])
        live = Live(nodes, lambda _: node, {})
        streams = [live.events(lambda: True) for _ in range(10)]
        first = [await next_of(stream) for stream in streams[:9]]
        node.profile = replace(node.profile, name="b")
        live.note(node.id)
        last = await next_of(streams[9])
        assert nodes.times == 1
        assert len({id(part) for part in parts if part.startswith(b"event: snapshot")}) == 1
        assert [event["nodes"][0]["name"] for event in (*first, last)] == ["a"] * 10
        assert abs(last["now"] - time.time()) < 5
        live.tick()
        for stream in streams:
            assert (await next_of(stream))["nodes"][0]["name"] == "b"
        assert (await next_of(live.events(lambda: True)))["nodes"][0]["name"] == "b"
        assert nodes.times == 2
        for stream in streams:
            await stream.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize("length", [0, 1, PIECE_BYTES, 2 * PIECE_BYTES + 1])
def test_long_events_come_in_pieces(length: int) -> None:
    async def scenario() -> None:
        async def events() -> AsyncIterator[bytes]:
            yield bytes(length)

        pieces = [bytes(piece) async for piece in in_pieces(events())]
        assert b"".join(pieces) == bytes(length)
        assert all(len(piece) <= PIECE_BYTES for piece in pieces)

    asyncio.run(scenario())
