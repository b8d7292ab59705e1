"""The gate that every request passes: limits, the caller's token, the length of the body, and headers of the answer."""

import asyncio
import ipaddress
import logging
from collections import Counter
from time import monotonic

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from fjm2.base.logs import Log

from ..config import AdminConfig, Viewers
from ..errors import Refusal
from ..registry.service import Caller, Service
from ..registry.tokens import Token, anonymous_viewer
from . import sockets
from .limits import RateLimit, address_key
from .problems import problem

log = Log("fjm2admin.http")

BODY_S = 15.0
"""Longest time for the body of a request to arrive."""
_SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_FORWARDING = ("x-forwarded-for", "forwarded", "x-real-ip", "via")


class Gate:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, config: AdminConfig, service: Service) -> None:
        self._app = app
        self._body_bytes = config.body_bytes
        self._proxies = config.proxies
        self._lookers = config.viewers
        self._service = service
        self._addresses = RateLimit(config.address_per_s)
        self._tokens = RateLimit(config.token_per_s)
        self.answers: Counter[int] = Counter()
        """Requests answered, by status."""

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, scope["path"])
        began_at = monotonic()
        try:
            await self._pass(scope, receive, answer)
        except Refusal as refusal:
            await problem(refusal)(scope, receive, answer)
        except Exception as error:
            log.failure("request_failed", error, method=scope["method"], path=scope["path"])
            if answer.status:
                raise
            await problem(Refusal(500, "failed", "the service failed; its log has the details"))(scope, receive, answer)
        finally:
            if answer.status:
                self.answers[answer.status] += 1
            if log.is_debugging:
                self._log(scope, answer.status, monotonic() - began_at)

    def _log(self, scope: AsgiScope, status: int, took_s: float) -> None:
        log.debug(
            "request",
            method=scope["method"],
            path=scope["path"],
            status=status,
            address=self._address_of(scope, Headers(scope=scope)),
            took_ms=round(1000 * took_s, 2),
        )

    async def _pass(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        address = self._address_of(scope, headers)
        self._check_rate(self._addresses, address_key(address), "from this address")
        path: str = scope["path"]
        if path.startswith("/api/") or path == "/metrics":
            token = await self._token_of(scope, headers, address)
            self._check_rate(self._tokens, token.id, "with this token")
            scope.setdefault("state", {})["caller"] = Caller(token, address)
        if scope["method"] not in ("GET", "HEAD"):
            receive = await self._with_body(headers, receive)
        await self._app(scope, receive, send)

    def _check_rate(self, limit: RateLimit, key: str, origin: str) -> None:
        wait_s = limit.wait_s(key, monotonic())
        if wait_s:
            raise Refusal(429, "too_often", f"too many requests {origin}", wait_s)

    def _address_of(self, scope: AsgiScope, headers: Headers) -> str:
        """Return the address that a request comes from; behind a trusted proxy, the address that the proxy names."""
        client = scope.get("client")
        address = sockets.plain_host(client[0]) if client else "unknown"
        if address not in self._proxies:
            return address
        hops = [hop.strip() for line in headers.getlist("x-forwarded-for") for hop in line.split(",")]
        for hop in reversed(hops):
            if not sockets.is_address(hop):
                break
            host = sockets.plain_address(hop)
            if host not in self._proxies:
                return host
        return address

    async def _token_of(self, scope: AsgiScope, headers: Headers, address: str) -> Token:
        kind, _, text = headers.get("authorization", "").partition(" ")
        if kind:
            token = await self._service.token_of(text.strip()) if kind.lower() == "bearer" else None
            if token is not None:
                return token
        elif self._is_open(scope, headers):
            return anonymous_viewer(address_key(address))
        log.seldom(logging.INFO, "unauthorised", address_key(address), address=address, with_token=bool(kind))
        raise Refusal(401, "unauthorised", "send a good token as Authorization: Bearer TOKEN")

    def _is_open(self, scope: AsgiScope, headers: Headers) -> bool:
        """Return True if a request may read without a token.

        If only people on this host may, this returns False for a request that came through a proxy, and for another
        host's name that was made to resolve to this host. HTTP/1.0 is a sign of a proxy: nginx speaks it by default.
        """
        if self._lookers is not Viewers.THIS_HOST:
            return self._lookers is Viewers.EVERYONE
        if scope["http_version"] == "1.0" or any(name in headers for name in _FORWARDING):
            return False
        return _is_this_host(headers.get("host", ""))

    async def _with_body(self, headers: Headers, receive: Receive) -> Receive:
        """Read the body within its limits, and return a `receive` that gives it to the application."""
        try:
            async with asyncio.timeout(BODY_S):
                body = await self._body(headers, receive)
        except TimeoutError:
            raise Refusal(408, "too_slow", f"the body did not arrive within {BODY_S:g} s") from None
        is_read = False

        async def again() -> Message:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        return again

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        bytes_max = self._body_bytes
        too_long = Refusal(413, "too_long", f"the body is too long: at most {bytes_max} bytes are allowed")
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length[:20]) > bytes_max:
            raise too_long
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise Refusal(400, "unreadable", "the connection was closed before the body was complete")
            part = message.get("body", b"")
            size += len(part)
            if size > bytes_max:
                raise too_long
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)


class _Answer:
    """ASGI `send` that adds the headers of every answer, and notes its status."""

    def __init__(self, send: Send, path: str) -> None:
        self._send = send
        self._is_api = path.startswith("/api/")
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in _SECURITY.items():
                headers[name] = value
            if self._is_api:
                headers.setdefault("Cache-Control", "no-store")
        await self._send(message)


def _is_this_host(host: str) -> bool:
    """Return True if a Host header names this host."""
    name = (host if host.endswith("]") else host.rpartition(":")[0] or host).strip("[]")
    return name == "localhost" or (sockets.is_address(name) and ipaddress.ip_address(name).is_loopback)
