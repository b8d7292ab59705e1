"""Requests to the node-list service, and the check of its advertisements."""

import asyncio
import hashlib
import hmac
import json
import logging
import ssl
import struct
from typing import Any, Final

import httpx

from fjm2 import __version__
from fjm2.base.logs import Log

from ..config import AdminConfig
from ..keys import readable_by_others

_TIMEOUT_S: Final = 10.0
"""Longest wait for each step of a request: a service that needs longer counts as away, and is asked again."""
_KEEP_ALIVE_S: Final = 60.0
"""Time for which an idle connection is kept: longer than a heartbeat interval, so that heartbeats share it."""
_ANSWER_S: Final = 30.0
"""Longest time for a whole answer. `_TIMEOUT_S` alone would let a service send a byte now and then for ever."""
_ANSWER_BYTES_MAX: Final = 16 << 20
"""Longest answer: room for 10,000 gateways with 1.6 kB each."""
_REASON_CHARS_MAX: Final = 300
"""Maximum number of characters shown of the service's reason for a refusal: the text comes from outside, and goes into
logs."""
_ADVERT = struct.Struct("!4sBBHQ8s")
_ADVERT_HEAD: Final = (b"FJM2", 1, 1, 0)
_ADVERT_LABEL: Final = b"fjm2 advert"

NONSENSE: Final = (ValueError, KeyError, TypeError, OverflowError, RecursionError)
"""Exceptions that reading a malformed answer may raise."""
AWAY: Final = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, *NONSENSE)
"""Exceptions that a request may raise if the service cannot be reached, or if its answer is malformed."""

log = Log("fjm2d.admin")


class RefusedError(Exception):
    """The service refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class AdminClient:
    """A client of the node-list service."""

    def __init__(self, config: AdminConfig) -> None:
        self._config = config
        self._advert_key = b""
        self._http: httpx.AsyncClient | None = None
        self._trust: ssl.SSLContext | None = None

    def refresh(self) -> None:
        """Read token and certificates again, for the next requests. Raise one of AWAY if they cannot be read."""
        config = self._config
        if self._http is None:
            # Reading the system's certificates takes a while: do it once, and only for TLS.
            self._trust = ssl.create_default_context() if config.url.startswith("https:") else None
            self._http = httpx.AsyncClient(
                base_url=config.url,
                headers={"User-Agent": f"fjm2d/{__version__}"},
                verify=self._trust or False,
                timeout=_TIMEOUT_S,
                limits=httpx.Limits(keepalive_expiry=_KEEP_ALIVE_S),
            )
        if self._trust is not None and config.ca_file is not None:
            self._trust.load_verify_locations(config.ca_file)
        token = self._token()
        self._http.headers["Authorization"] = f"Bearer {token}"
        self._advert_key = hmac.digest(hashlib.sha256(token.encode()).digest(), _ADVERT_LABEL, "sha256")

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def request(self, method: str, path: str, *, wait_s: float = 0.0, **options: Any) -> tuple[int, bytes]:
        """Send a request, and return status and body of the answer. The service may hold the request for `wait_s`.

        Raise RefusedError for any status but 200 and 304, and one of AWAY if there is no answer. Call `refresh` first.
        """
        assert self._http is not None
        body = bytearray()
        async with (
            asyncio.timeout(_ANSWER_S + wait_s),
            self._http.stream(method, path, timeout=_TIMEOUT_S + wait_s, **options) as response,
        ):
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > _ANSWER_BYTES_MAX:
                    raise ValueError(f"an answer of more than {_ANSWER_BYTES_MAX} bytes")
        if response.status_code not in (200, 304):
            raise RefusedError(response.status_code, _reason_of(body))
        return response.status_code, bytes(body)

    def advertised_version(self, datagram: bytes) -> int | None:
        """Return the version of the node list that an advertisement names; None if the advertisement is not genuine."""
        if len(datagram) != _ADVERT.size or not self._advert_key:
            return None
        *head, version, mac = _ADVERT.unpack(datagram)
        expected = hmac.digest(self._advert_key, datagram[:-8], "sha256")[:8]
        return int(version) if tuple(head) == _ADVERT_HEAD and hmac.compare_digest(mac, expected) else None

    def _token(self) -> str:
        file = self._config.token_file
        if file is None:
            return self._config.token
        warning = readable_by_others(file)
        if warning:
            log.seldom(logging.WARNING, "token_file_open", None, problem=warning)
        return file.read_text(encoding="ascii").strip()


def _reason_of(body: bytearray) -> str:
    """Return the service's explanation of a refusal."""
    try:
        return str(json.loads(body)["message"])[:_REASON_CHARS_MAX]
    except NONSENSE:
        return "no reason given"
