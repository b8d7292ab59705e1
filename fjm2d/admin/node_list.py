"""The node list: decoded from an answer of the service, and kept in a file for a start without the service."""

import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from fjm2.base.logs import Log

from .. import values as reading
from ..keys import PublicKey
from ..roster import Member
from ..values import Endpoint, UnfitError
from .client import NONSENSE

FILE_NAME: Final = "nodes.json"
_MEMBERS_MAX: Final = 10_000
"""Maximum number of entries of a list that are read. A gateway connects to no more than 1024 peers."""
_ENDPOINTS_MAX: Final = 8
"""Maximum number of endpoints of an entry that are read. A configuration may have as many."""
_WRITE_S: Final = 5.0
"""Longest time that `NodeListFile.close` waits for the file to be written. A disk may hang, and a lost file does no
harm."""

log = Log("fjm2d.admin")


class NodeList(NamedTuple):
    """A decoded node list."""

    version: int
    members: list[Member]
    refused: int
    """Entries left out because they are malformed, or because the list is too long."""
    content: dict[str, Any]
    """All fields of the list, as the service sent them."""


def decode(text: bytes) -> NodeList:
    """Decode a node list from JSON. Raise one of NONSENSE if it is malformed."""
    content = json.loads(text)
    version, nodes = content["version"], content["nodes"]
    if not isinstance(version, int) or not isinstance(nodes, list):
        raise ValueError("a list without version or nodes")
    members = [member for node in nodes[:_MEMBERS_MAX] if (member := member_of(node)) is not None]
    return NodeList(version, members, len(nodes) - len(members), content)


def member_of(node: Any) -> Member | None:
    """Decode an entry of the list. Return None if it is malformed."""
    try:
        return Member(
            public_key=PublicKey.from_text(node["public_key"]),
            name=reading.TEXT.read(node["name"]),
            endpoints=tuple(_endpoint(text) for text in node["endpoints"][:_ENDPOINTS_MAX]),
            lan="" if node.get("lan") is None else reading.TEXT.read(node["lan"]),
            groups=frozenset(map(str, node["groups"])),
        )
    except (UnfitError, AttributeError, *NONSENSE):
        return None


class NodeListFile:
    """File that keeps the last node list. Problems with the file are only logged: the gateway works without it."""

    def __init__(self, directory: Path | None, url: str) -> None:
        """Keep no file if `directory` is None. `url` identifies the service: lists of other services are not read."""
        self._path = None if directory is None else directory / FILE_NAME
        self._url = url
        self._writing: asyncio.Future[None] | None = None
        self._unwritten: dict[str, Any] | None = None
        """List that the disk did not take."""

    def read(self) -> NodeList | None:
        """Return the list that the file keeps; None if it keeps no list of this service."""
        if self._path is None:
            return None
        try:
            found = decode(self._path.read_bytes())
            return found if found.content["url"] == self._url else None
        except FileNotFoundError:
            return None
        except (OSError, *NONSENSE) as error:
            log.warning("list_file_unreadable", file=str(self._path), problem=str(error))
            return None

    async def save(self, content: dict[str, Any]) -> None:
        """Keep a list for the next start. It is written even if the caller is cancelled."""
        self._writing = asyncio.ensure_future(asyncio.to_thread(self._write, content))
        await asyncio.shield(self._writing)

    async def save_again(self) -> None:
        """Write the list that the disk did not take, if there is one: there may be room by now."""
        if self._unwritten is not None:
            await self.save(self._unwritten)

    async def close(self) -> None:
        """Wait for the file to be written, but no longer than `_WRITE_S`."""
        if self._writing is not None:
            await asyncio.wait((self._writing,), timeout=_WRITE_S)

    def _write(self, content: dict[str, Any]) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _replace(self._path, json.dumps({**content, "url": self._url}).encode())
            self._unwritten = None
        except OSError as error:
            self._unwritten = content
            log.warning("list_file_not_written", file=str(self._path), problem=str(error))


def _endpoint(text: str) -> Endpoint:
    endpoint: Endpoint = reading.ENDPOINT.read(text)
    return endpoint


def _replace(path: Path, content: bytes) -> None:
    """Replace a file at once by one with new content, so that it is never incomplete."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).rename(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
