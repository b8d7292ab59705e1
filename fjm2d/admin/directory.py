"""Tasks that register the gateway at the node-list service, send heartbeats with measurements, and follow the list.

Nothing else in the gateway waits for the service. While the service is away, the gateway uses the last list, which a
file keeps for the next start.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

import httpx

from fjm2 import __version__
from fjm2.base.logs import Log

from ..config import GatewayConfig
from ..keys import PublicKey
from ..roster import Member
from ..values import Endpoint, show
from .client import AWAY, AdminClient, RefusedError
from .node_list import NodeList, NodeListFile, decode

_API: Final = "/api/v1/nodes"
_WAIT_S: Final = 25
"""Seconds for which the service may hold a request until the list changes. Proxies close idle requests after 30 s or
more."""
_RETRY_S, _RETRY_MAX_S = 0.5, 15.0
"""First and longest wait after a failure. The wait doubles with each failure. A refused token is tried again as well:
its file may be corrected."""
_HEARTBEAT_S_MIN, _HEARTBEAT_S_MAX = 0.1, 300.0
"""Bounds of the heartbeat interval, which the service chooses."""
_POLL_S: Final = 0.5
"""Least time between two requests for the list, whatever is advertised or answered."""
_ENDPOINTS_MAX: Final = 8
"""Maximum number of endpoints that are registered. A configuration may have as many."""

log = Log("fjm2d.admin")


class Directory:
    """The gateway's use of the node-list service. One task keeps the gateway registered, another follows the list."""

    def __init__(
        self,
        config: GatewayConfig,
        key: PublicKey,
        on_list: Callable[[Iterable[Member]], None],
        sample: Callable[[], dict[str, Any]],
    ) -> None:
        """`on_list` is called with the members of every new list. `sample` returns the measurements for a heartbeat."""
        self.version: int | None = None
        """Version of the list in use."""
        self.is_reached = False
        """True if the last heartbeat was answered."""
        self.problem = ""
        """Reason why the last heartbeat failed; empty if it was answered."""
        self.is_from_file = False
        """True if the list is the one kept from an earlier run."""
        self._config = config
        self._key = key
        self._on_list = on_list
        self._sample = sample
        self._random = Random()
        self._client = AdminClient(config.admin)
        self._file = NodeListFile(config.state_directory, config.admin.url)
        self._registered_endpoints: list[str] = []
        self._is_newer = asyncio.Event()
        """Set when the service has a newer list than this gateway."""
        self._polled_at = float("-inf")
        self._tasks: list[asyncio.Task[None]] = []

    def open(self) -> None:
        """Use the list that the file keeps, and start both tasks. The loop must be running."""
        kept = self._file.read()
        if kept is not None:
            self._use_list(kept)
            self.is_from_file = True
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep_registered()), loop.create_task(self._follow_list())]

    async def close(self) -> None:
        """Stop both tasks. The gateway stays on the list until heartbeats are overdue: a restart changes nothing."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []
        await self._file.close()
        await self._client.close()

    def receive_advert(self, datagram: bytes) -> None:
        """Ask for the list if an advertisement names a newer version. A forged one can cause a request at most."""
        version = self._client.advertised_version(datagram)
        if version is not None and version > (self.version or 0):
            self._is_newer.set()

    async def _keep_registered(self) -> None:
        retry_s = _RETRY_S
        while True:
            try:
                self._client.refresh()
                heartbeat_s = await self._register()
                retry_s = _RETRY_S
                while True:
                    await asyncio.sleep(heartbeat_s)
                    await self._heartbeat()
            except RefusedError as error:
                if error.status == 404 and self.is_reached:
                    self.is_reached = False
                    continue  # the service has forgotten us: register again
                self._note_failure(f"{error.status}: {error}")
            except AWAY as error:
                self._note_failure(_reason(error))
            await asyncio.sleep(retry_s * self._random.uniform(0.8, 1.2))
            retry_s = min(2 * retry_s, _RETRY_MAX_S)

    async def _follow_list(self) -> None:
        retry_s = _RETRY_S
        while True:
            try:
                self._client.refresh()
                while True:
                    await self._poll()
                    retry_s = _RETRY_S
            except (RefusedError, *AWAY) as error:
                log.debug("list_not_got", problem=_reason(error))  # the other task logs what is wrong
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(retry_s * self._random.uniform(0.8, 1.2)):
                    await self._is_newer.wait()
            self._is_newer.clear()  # a newer list is reason for one attempt, even for one that fails before it asks
            retry_s = min(2 * retry_s, _RETRY_MAX_S)

    async def _poll(self) -> None:
        """Ask once for the list, and wait for it to change. An advertisement of a newer list ends the wait."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._polled_at + _POLL_S - loop.time()))
        self._polled_at = loop.time()
        has_list = self.version is not None and not self.is_from_file
        wait_s = _WAIT_S if has_list and not self._is_newer.is_set() else 0
        self._is_newer.clear()
        question = asyncio.ensure_future(self._fetch(wait_s))
        newer = asyncio.ensure_future(self._is_newer.wait())
        try:
            await asyncio.wait((question, newer), return_when=asyncio.FIRST_COMPLETED)
            if not question.done():
                # The answer is most likely on its way.
                await asyncio.wait((question,), timeout=_POLL_S)
            if question.done():
                question.result()
        finally:
            question.cancel()
            newer.cancel()
            # Do not await these tasks directly: their cancellation could not be told from that of this task.
            await asyncio.wait((question, newer))
            if not question.cancelled():
                question.exception()

    async def _fetch(self, wait_s: int) -> None:
        has_list = self.version is not None and not self.is_from_file
        headers = {"If-None-Match": f'"{self.version}"'} if has_list else {}
        parameters = {"wait": wait_s} if wait_s else {}
        status, answer = await self._client.request("GET", _API, headers=headers, params=parameters, wait_s=wait_s)
        if status == 304:
            await self._file.save_again()
            return
        # Decode in a thread: a long list would delay the trains.
        found = await asyncio.to_thread(decode, answer)
        self._use_list(found)
        await self._file.save(found.content)

    async def _register(self) -> float:
        """Register, and return the interval of heartbeats."""
        config = self._config
        self._registered_endpoints = await self._endpoints()
        body = {
            "name": config.shown_name,
            "public_key": self._key.text,
            "endpoints": self._registered_endpoints,
            "groups": [show(group.address) for group in config.groups],
            "lan": config.lan.label or None,
            "version": __version__,
        }
        _, answer = await self._client.request("POST", _API, json=body)
        content = json.loads(answer)
        self._note_success()
        self._is_newer.set()  # now the list can be read
        log.info("registered", url=config.admin.url)
        heartbeat_s = float(content["heartbeat_s"])
        if not heartbeat_s > 0:  # also refuses NaN, which would never end
            raise ValueError(f"heartbeat_s={heartbeat_s}: expected seconds")
        return min(max(heartbeat_s, _HEARTBEAT_S_MIN), _HEARTBEAT_S_MAX)

    async def _heartbeat(self) -> None:
        path = f"{_API}/{self._key.id_text}/heartbeat"
        body: dict[str, Any] = {"metrics": self._sample()}
        endpoints = await self._endpoints()
        if endpoints != self._registered_endpoints:
            self._registered_endpoints = body["endpoints"] = endpoints
        _, answer = await self._client.request("POST", path, json=body)
        self._note_success()
        if int(json.loads(answer)["list_version"]) > (self.version or 0):
            self._is_newer.set()

    async def _endpoints(self) -> list[str]:
        """Return this gateway's endpoints: as configured, or else the source addresses of packets to the service."""
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

    def _note_success(self) -> None:
        if not self.is_reached:
            log.info("admin_reached", url=self._config.admin.url)
        self.is_reached, self.problem = True, ""

    def _note_failure(self, problem: str) -> None:
        if self.is_reached or problem != self.problem:
            log.warning("admin_away", url=self._config.admin.url, problem=problem)
        self.is_reached, self.problem = False, problem

    def _use_list(self, found: NodeList) -> None:
        if found.version != self.version:
            log.info("list_changed", version=found.version, nodes=len(found.members), refused=found.refused)
        self._on_list(found.members)
        self.version, self.is_from_file = found.version, False


async def _sources_towards(host: str, port: int) -> list[str]:
    """Return the addresses of this host from which the kernel would send to `host`. Nothing is sent."""
    found: dict[str, None] = {}
    loop = asyncio.get_running_loop()
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            found[probe.getsockname()[0].partition("%")[0]] = None
    return list(found)


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
