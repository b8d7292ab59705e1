"""A small HTTP server on a local address: /healthz, /metrics and /status."""

import asyncio
import contextlib
import ipaddress
import json
import os
from collections.abc import Callable
from typing import Any, Final

from fjm2.base.logs import Log
from fjm2.norm import Address

from .errors import GatewayError
from .values import show

_REQUEST_BYTES_MAX: Final = 8192
"""Length of the longest request head, as in common web servers."""
_TIMEOUT_S: Final = 5.0
"""Longest time for a request and its answer, so that idle connections do not keep others out."""
_CONNECTIONS_MAX: Final = 32
"""Maximum number of connections at a time: enough for a few health checks and scrapers."""
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}
_HEAD_END: Final = b"\r\n\r\n"
_JSON, _TEXT = "application/json", "text/plain; version=0.0.4; charset=utf-8"

log = Log("fjm2d.status")

Answer = tuple[int, str, str]
"""Status code, content type and body."""


class StatusServer:
    """The status server. It answers one request on each connection."""

    def __init__(
        self, status: Callable[[], dict[str, Any]], metrics: Callable[[], str], faults: Callable[[], list[str]]
    ) -> None:
        """`faults` is separate from `status`: health checks ask for faults often, so that they must cost little."""
        self._faults = faults
        self._status = status
        self._metrics = metrics
        self._server: asyncio.Server | None = None
        self._connections = 0
        self.place: Address | None = None
        """Address at which the server listens; None while it is closed."""

    async def open(self, place: Address | None) -> None:
        """Listen at `place`, and no longer at the previous address. None closes the server.

        Raise GatewayError if the server cannot listen there.
        """
        if place == self.place:
            return
        await self.close()
        if place is None:
            return
        host, port = place
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=_REQUEST_BYTES_MAX)
        except OSError as error:
            # asyncio puts the address and a sentence of its own before the reason.
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise GatewayError(f"status.listen: cannot listen at TCP {show(place)}: {reason}") from error
        self.place = place

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self.place = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= _CONNECTIONS_MAX:
                async with asyncio.timeout(_TIMEOUT_S):
                    head = await reader.readuntil(_HEAD_END)
                    answer = _encoded(*self._answer(head))
                    is_head = head.startswith(b"HEAD ")
                    writer.write(answer.partition(_HEAD_END)[0] + _HEAD_END if is_head else answer)
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        except Exception as error:
            log.failure("unexpected", error, doing="answering")
        finally:
            self._connections -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _answer(self, head: bytes) -> Answer:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return 400, _TEXT, "expected HTTP/1.1\n"
        method, path = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return 405, _TEXT, "expected GET\n"
        if not _is_for_here(lines[1:]):
            return 403, _TEXT, "expected this host's own name or address as Host\n"
        match path:
            case "/healthz":
                faults = self._faults()
                body = {"status": "failing" if faults else "ok", "faults": faults}
                return 503 if faults else 200, _JSON, json.dumps(body) + "\n"
            case "/metrics":
                return 200, _TEXT, self._metrics()
            case "/status" | "/":
                return 200, _JSON, json.dumps(self._status(), indent=2) + "\n"
            case _:
                return 404, _TEXT, "expected /healthz, /metrics or /status\n"


def _is_for_here(headers: list[str]) -> bool:
    """Return True if the Host header names this host.

    This refuses requests of web pages whose own name was made to resolve to this host.
    """
    fields = [line.partition(":") for line in headers]
    return all(_is_local(value.strip()) for name, _, value in fields if name.strip().lower() == "host")


def _is_local(host: str) -> bool:
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name.lower() == "localhost"


def _encoded(status: int, kind: str, body: str) -> bytes:
    content = body.encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + content
