"""The node-list service, as a gateway uses it: register, say that it lives and what it measures, follow the list.

Nothing waits for it. While it is away the last list counts, which a file keeps for the next start.
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import os
import socket
import ssl
import struct
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import httpx

from fjm2 import __version__
from fjm2.base.logs import Log

from . import values as reading
from .config import GatewayConfig
from .keys import PublicKey, readable_by_others
from .roster import Member
from .values import Endpoint, UnfitError, show

FILE_NAME: Final = "nodes.json"
_API: Final = "/api/v1/nodes"
_WAIT_S: Final = 25
_TIMEOUT_S: Final = 10.0
_KEEP_ALIVE_S: Final = 60.0
"""Longer than from one heartbeat to the next: not each of them should take a connection of its own."""
_ANSWER_S: Final = 30.0
"""The whole of an answer has to come within this time, however lively it is."""
_ANSWER_BYTES_MAX: Final = 16 << 20
_RETRY_S, _RETRY_MAX_S = 0.5, 15.0
"""What fails is tried again after so long, then twice that, and so on. So is a token: it may be made good."""
_WRITE_S: Final = 5.0
_HEARTBEAT_S_MIN, _HEARTBEAT_S_MAX = 0.1, 300.0
_POLL_S: Final = 0.5
"""We ask no more often than this, whatever is advertised or answered."""
_MEMBERS_MAX: Final = 10_000
_ENDPOINTS_MAX: Final = 8
_NONSENSE: Final = (ValueError, KeyError, TypeError, OverflowError, RecursionError)
"""What comes of reading what makes no sense."""
_AWAY: Final = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, *_NONSENSE)
"""What comes of a service that is away, or answers what it should not."""
_ADVERT = struct.Struct("!4sBBHQ8s")
_ADVERT_HEAD: Final = (b"FJM2", 1, 1, 0)
_ADVERT_LABEL: Final = b"fjm2 advert"

log = Log("fjm2d.admin")


class _RefusedError(Exception):
    """The service has said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Directory:
    """Two tasks: one keeps us on the list, the other follows it."""

    def __init__(
        self,
        config: GatewayConfig,
        key: PublicKey,
        on_list: Callable[[Iterable[Member]], None],
        sample: Callable[[], dict[str, Any]],
    ) -> None:
        """`on_list` gets every new list; `sample` tells what was measured."""
        self.version: int | None = None
        """Of the list that counts."""
        self.is_reached = False
        """Whether the service answered the last time."""
        self.problem = ""
        """Why not."""
        self.is_from_file = False
        """Whether the list is that of an earlier run."""
        self._config = config
        self._key = key
        self._on_list = on_list
        self._sample = sample
        self._random = Random()
        self._etag: str | None = None
        self._told_endpoints: list[str] = []
        self._advert_key = b""
        self._http: httpx.AsyncClient | None = None
        self._trust: ssl.SSLContext | None = None
        self._is_newer = asyncio.Event()
        """There is a newer list than ours."""
        self._polled_at = float("-inf")
        self._tasks: list[asyncio.Task[None]] = []
        self._writing: asyncio.Future[None] | None = None
        """The file, which is written beside the loop."""

    # Life.

    def open(self) -> None:
        """Begin, with the last list that is kept. The loop has to be running."""
        self._read_file()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep_registered()), loop.create_task(self._follow_list())]

    async def close(self) -> None:
        """Stop. We stay on the list until the service has missed us for long enough: a restart is no change."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []
        if self._writing is not None:
            await asyncio.wait((self._writing,), timeout=_WRITE_S)
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    def receive_advert(self, datagram: bytes) -> None:
        """Something came that looks like an advertisement. The most a forged one could do is to make us ask."""
        if len(datagram) != _ADVERT.size or not self._advert_key:
            return
        *head, version, mac = _ADVERT.unpack(datagram)
        expected = hmac.digest(self._advert_key, datagram[:-8], "sha256")[:8]
        if tuple(head) == _ADVERT_HEAD and hmac.compare_digest(mac, expected) and version > (self.version or 0):
            self._is_newer.set()

    # The two tasks.

    async def _keep_registered(self) -> None:
        retry_s = _RETRY_S
        while True:
            try:
                client = self._client()
                heartbeat_s = await self._register(client)
                retry_s = _RETRY_S
                while True:
                    await asyncio.sleep(heartbeat_s)
                    await self._heartbeat(client)
            except _RefusedError as error:
                if error.status == 404 and self.is_reached:
                    self.is_reached = False
                    continue  # it has forgotten us
                self._note_failure(f"{error.status}: {error}")
            except _AWAY as error:
                self._note_failure(_reason(error))
            await asyncio.sleep(retry_s * self._random.uniform(0.8, 1.2))
            retry_s = min(2 * retry_s, _RETRY_MAX_S)

    async def _follow_list(self) -> None:
        retry_s = _RETRY_S
        while True:
            try:
                client = self._client()
                while True:
                    await self._poll(client)
                    retry_s = _RETRY_S
            except (_RefusedError, *_AWAY) as error:
                # What is wrong is told by the other task.
                log.debug("list_not_got", problem=_reason(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(retry_s * self._random.uniform(0.8, 1.2)):
                    await self._is_newer.wait()
            self._is_newer.clear()  # it is a reason for one try, even if that does not come as far as to ask
            retry_s = min(2 * retry_s, _RETRY_MAX_S)

    async def _poll(self, client: httpx.AsyncClient) -> None:
        """One question for the list, which waits for it to change; an advertisement of a newer one cuts it short."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._polled_at + _POLL_S - loop.time()))
        self._polled_at = loop.time()
        is_waiting = self._etag is not None and not self._is_newer.is_set()
        self._is_newer.clear()
        question = asyncio.ensure_future(self._fetch(client, _WAIT_S if is_waiting else 0))
        newer = asyncio.ensure_future(self._is_newer.wait())
        try:
            await asyncio.wait((question, newer), return_when=asyncio.FIRST_COMPLETED)
            if not question.done():
                # The answer to it is most likely on its way.
                await asyncio.wait((question,), timeout=_POLL_S)
            if question.done():
                question.result()
        finally:
            question.cancel()
            newer.cancel()
            # Not awaited themselves: their being cancelled must not be taken for ours, nor ours for theirs.
            await asyncio.wait((question, newer))
            if not question.cancelled():
                question.exception()

    async def _fetch(self, client: httpx.AsyncClient, wait_s: int) -> None:
        headers = {} if self._etag is None else {"If-None-Match": self._etag}
        parameters = {"wait": wait_s} if wait_s else {}
        status, answer = await self._ask(client, "GET", _API, headers=headers, params=parameters, wait_s=wait_s)
        if status == 304:
            return
        # In a thread: a long list would stop the forwarding.
        found = await asyncio.to_thread(_read_list, answer)
        self._take_list(found)
        self._etag = f'"{found.version}"'
        self._writing = asyncio.ensure_future(asyncio.to_thread(self._write_file, found.content))
        await asyncio.shield(self._writing)

    # Requests.

    def _client(self) -> httpx.AsyncClient:
        """What to ask with, by the token and the certificates that their files hold now."""
        admin = self._config.admin
        if self._http is None:
            # Reading all of the system's certificates takes a while: once, and only for TLS.
            self._trust = ssl.create_default_context() if admin.url.startswith("https:") else None
            self._http = httpx.AsyncClient(
                base_url=admin.url,
                headers={"User-Agent": f"fjm2d/{__version__}"},
                verify=self._trust or False,
                timeout=_TIMEOUT_S,
                limits=httpx.Limits(keepalive_expiry=_KEEP_ALIVE_S),
            )
        if self._trust is not None and admin.ca_file is not None:
            self._trust.load_verify_locations(admin.ca_file)
        token = self._token()
        self._http.headers["Authorization"] = f"Bearer {token}"
        self._advert_key = hmac.digest(hashlib.sha256(token.encode()).digest(), _ADVERT_LABEL, "sha256")
        return self._http

    def _token(self) -> str:
        admin = self._config.admin
        if admin.token_file is None:
            return admin.token
        warning = readable_by_others(admin.token_file)
        if warning:
            log.seldom(logging.WARNING, "token_file_open", None, problem=warning)
        return admin.token_file.read_text(encoding="ascii").strip()

    async def _register(self, client: httpx.AsyncClient) -> float:
        config = self._config
        self._told_endpoints = await self._endpoints()
        body = {
            "name": config.shown_name,
            "public_key": self._key.text,
            "endpoints": self._told_endpoints,
            "groups": [show(group.address) for group in config.groups],
            "lan": config.lan.label or None,
            "version": __version__,
        }
        _, answer = await self._ask(client, "POST", _API, json=body)
        content = json.loads(answer)
        self._note_success()
        self._is_newer.set()  # the list is there to be had
        log.info("registered", url=config.admin.url)
        heartbeat_s = float(content["heartbeat_s"])
        if not heartbeat_s > 0:  # nor is it NaN, which would be slept for ever
            raise ValueError(f"heartbeat_s={heartbeat_s}: expected seconds")
        return min(max(heartbeat_s, _HEARTBEAT_S_MIN), _HEARTBEAT_S_MAX)

    async def _heartbeat(self, client: httpx.AsyncClient) -> None:
        path = f"{_API}/{self._key.id_text}/heartbeat"
        body: dict[str, Any] = {"metrics": self._sample()}
        endpoints = await self._endpoints()
        if endpoints != self._told_endpoints:
            self._told_endpoints = body["endpoints"] = endpoints
        _, answer = await self._ask(client, "POST", path, json=body)
        self._note_success()
        if int(json.loads(answer)["list_version"]) > (self.version or 0):
            self._is_newer.set()

    async def _endpoints(self) -> list[str]:
        """Where others reach us: as the settings say, or else where we would reach the service from."""
        wan = self._config.wan
        if wan.endpoints:
            return [str(endpoint) for endpoint in wan.endpoints]
        url = httpx.URL(self._config.admin.url)
        hosts = await _sources_towards(url.host, url.port or 443)
        places = {":" in host: port for host, port in wan.listen}
        found = [str(Endpoint(host, places[":" in host])) for host in hosts if (":" in host) in places]
        if not found:
            raise ValueError(f"no way to {url.host} from where wan.listen is: say wan.endpoints")
        return found[:_ENDPOINTS_MAX]

    async def _ask(
        self, client: httpx.AsyncClient, method: str, path: str, *, wait_s: float = 0.0, **options: Any
    ) -> tuple[int, bytes]:
        """Status and body of an answer. Raises _RefusedError for any but 200 and 304."""
        body = bytearray()
        async with (
            asyncio.timeout(_ANSWER_S + wait_s),
            client.stream(method, path, timeout=_TIMEOUT_S + wait_s, **options) as response,
        ):
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > _ANSWER_BYTES_MAX:
                    raise ValueError(f"an answer of more than {_ANSWER_BYTES_MAX} bytes")
        if response.status_code not in (200, 304):
            raise _RefusedError(response.status_code, _told(body))
        return response.status_code, bytes(body)

    def _note_success(self) -> None:
        if not self.is_reached:
            log.info("admin_reached", url=self._config.admin.url)
        self.is_reached, self.problem = True, ""

    def _note_failure(self, problem: str) -> None:
        if self.is_reached or problem != self.problem:
            log.warning("admin_away", url=self._config.admin.url, problem=problem)
        self.is_reached, self.problem = False, problem

    # The list.

    def _take_list(self, found: "_List") -> None:
        if found.version != self.version:
            log.info("list_changed", version=found.version, nodes=len(found.members), refused=found.refused)
        self.version, self.is_from_file = found.version, False
        self._on_list(found.members)

    @property
    def _file(self) -> Path | None:
        directory = self._config.state_directory
        return None if directory is None else directory / FILE_NAME

    def _read_file(self) -> None:
        if self._file is None:
            return
        try:
            found = _read_list(self._file.read_bytes())
            # It is the list of one service: with another one, or none, it means nothing.
            if found.content["url"] == self._config.admin.url:
                self._take_list(found)
                self.is_from_file = True
        except FileNotFoundError:
            return
        except (OSError, *_NONSENSE) as error:
            log.warning("list_file_unreadable", file=str(self._file), problem=str(error))

    def _write_file(self, content: dict[str, Any]) -> None:
        if self._file is None:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            _replace(self._file, json.dumps({**content, "url": self._config.admin.url}).encode())
        except OSError as error:
            log.warning("list_file_not_written", file=str(self._file), problem=str(error))


class _List(NamedTuple):
    """The node list, read."""

    version: int
    members: list[Member]
    refused: int
    """Entries that make no sense, or are too many."""
    content: dict[str, Any]


def _read_list(text: bytes) -> _List:
    """Raises one of _NONSENSE."""
    content = json.loads(text)
    version, nodes = content["version"], content["nodes"]
    if not isinstance(version, int) or not isinstance(nodes, list):
        raise ValueError("a list without version or nodes")
    members = [member for node in nodes[:_MEMBERS_MAX] if (member := member_of(node)) is not None]
    return _List(version, members, len(nodes) - len(members), content)


def member_of(node: Any) -> Member | None:
    """An entry of the list; None for what makes no sense."""
    try:
        return Member(
            public_key=PublicKey.from_text(node["public_key"]),
            name=reading.TEXT.read(node["name"]),
            endpoints=tuple(_endpoint(text) for text in node["endpoints"][:8]),
            lan="" if node.get("lan") is None else reading.TEXT.read(node["lan"]),
            groups=frozenset(map(str, node["groups"])),
        )
    except (UnfitError, AttributeError, *_NONSENSE):
        return None


async def _sources_towards(host: str, port: int) -> list[str]:
    """Our addresses that the kernel would use to reach a host. Nothing is sent."""
    found: dict[str, None] = {}
    loop = asyncio.get_running_loop()
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            found[probe.getsockname()[0].partition("%")[0]] = None
    return list(found)


def _reason(error: BaseException) -> str:
    """For people."""
    return str(error) or type(error).__name__


def _endpoint(text: str) -> Endpoint:
    endpoint: Endpoint = reading.ENDPOINT.read(text)
    return endpoint


def _told(body: bytearray) -> str:
    """What the service says of a refusal."""
    try:
        return str(json.loads(body)["message"])[:300]
    except _NONSENSE:
        return "no reason given"


def _replace(path: Path, content: bytes) -> None:
    """Write a file so that it is never half there."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).rename(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
