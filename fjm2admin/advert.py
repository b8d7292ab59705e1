"""Advertisements of the list's version by UDP, to registered gateways only.

24 bytes, big-endian: "FJM2", version 1, kind (1 advertisement, 2 query), 2 bytes 0, list version (64 bits), and the
first 8 bytes of an HMAC-SHA256 of these 16, by a key made from the node's token. An answer is as long as its query.
"""

import asyncio
import hmac
import socket
import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

from fjm2.base.logs import Log

from .web import sockets

log = Log("fjm2admin.advert")

_LAYOUT = struct.Struct("!4sBBHQ")
_MAC_BYTES = 8
ADVERT_BYTES = _LAYOUT.size + _MAC_BYTES
_MAGIC, _VERSION = b"FJM2", 1
ADVERT, QUERY = 1, 2

Address = tuple[str, int]


class Target(NamedTuple):
    """Address to advertise to, and the key that seals the advertisements for it."""

    address: Address
    key: bytes


def pack(kind: int, list_version: int, key: bytes) -> bytes:
    """Return a sealed datagram of this kind."""
    head = _LAYOUT.pack(_MAGIC, _VERSION, kind, 0, list_version)
    return head + _mac(head, key)


def unpack(datagram: bytes, key: bytes, kind: int) -> int | None:
    """Return the list version in a datagram; None if it is of another kind, or not sealed with the key."""
    if len(datagram) != ADVERT_BYTES:
        return None
    head, mac = datagram[: _LAYOUT.size], datagram[_LAYOUT.size :]
    magic, version, found, reserved, list_version = _LAYOUT.unpack(head)
    if (magic, version, found, reserved) != (_MAGIC, _VERSION, kind, 0):
        return None
    return int(list_version) if hmac.compare_digest(mac, _mac(head, key)) else None


def _mac(head: bytes, key: bytes) -> bytes:
    return hmac.digest(key, head, "sha256")[:_MAC_BYTES]


class Advertiser:
    """Sender of the list's version. It answers queries from the addresses that it advertises to, and no others."""

    _DATAGRAMS_PER_TURN_MAX = 64
    """Maximum number of datagrams read in a turn of the loop, so that a flood does not starve other work."""

    def __init__(self, udp: socket.socket, list_version: Callable[[], int]) -> None:
        self._socket = udp
        self._list_version = list_version
        self._keys: dict[Address, bytes] = {}
        self.sent = 0
        """Advertisements sent, not counting answers to queries."""
        self.answered = 0
        """Queries answered."""
        self.dropped = 0
        """Datagrams received that were not queries of a registered gateway."""
        self.failed = 0
        """Sends and receives that failed."""

    def open(self) -> None:
        """Begin to answer queries, in the running loop."""
        asyncio.get_running_loop().add_reader(self._socket, self._read)

    def close(self) -> None:
        """Stop answering, and close the socket."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def know(self, targets: Iterable[Target]) -> None:
        """Set the addresses to advertise to."""
        self._keys = dict(targets)

    def advertise(self) -> None:
        """Send the list's version to every known address."""
        for address, key in self._keys.items():
            self.sent += self._send(address, key)

    def _send(self, address: Address, key: bytes) -> bool:
        try:
            self._socket.sendto(pack(ADVERT, self._list_version(), key), sockets.as_peer(self._socket, address))
        except OSError as error:
            # This is not worth a warning: a gateway that cannot be reached becomes stale, and that is logged.
            self.failed += 1
            log.debug("advert_failed", to=address[0], error=str(error))
            return False
        return True

    def _read(self) -> None:
        for _ in range(self._DATAGRAMS_PER_TURN_MAX):
            try:
                # Read one byte more than a datagram may have, to recognize those that are too long.
                datagram, address = self._socket.recvfrom(ADVERT_BYTES + 1)
            except BlockingIOError:
                return
            except OSError:
                self.failed += 1
                continue
            self._handle(datagram, (sockets.plain_host(address[0]), address[1]))

    def _handle(self, datagram: bytes, address: Address) -> None:
        key = self._keys.get(address)
        if key is None or unpack(datagram, key, QUERY) is None:
            self.dropped += 1
        else:
            self.answered += self._send(address, key)
