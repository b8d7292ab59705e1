"""Advertisements: the list's version by UDP, to registered gateways only.

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
    """Where to send, and the key to seal with."""

    address: Address
    key: bytes


def pack(kind: int, list_version: int, key: bytes) -> bytes:
    head = _LAYOUT.pack(_MAGIC, _VERSION, kind, 0, list_version)
    return head + _mac(head, key)


def unpack(datagram: bytes, key: bytes, kind: int) -> int | None:
    """The list version, if the datagram is of this kind and was sealed with the key."""
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
    """Sends the version, and answers queries of those it would send it to."""

    _DATAGRAMS_PER_TURN = 64

    def __init__(self, udp: socket.socket, list_version: Callable[[], int]) -> None:
        self._socket = udp
        self._list_version = list_version
        self._keys: dict[Address, bytes] = {}
        self.sent = 0
        self.answered = 0
        self.dropped = 0
        self.failed = 0

    def open(self) -> None:
        asyncio.get_running_loop().add_reader(self._socket, self._read)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def know(self, targets: Iterable[Target]) -> None:
        """From now on these are the registered addresses."""
        self._keys = dict(targets)

    def advertise(self) -> None:
        """Tell everyone."""
        for address, key in self._keys.items():
            self.sent += self._send(address, key)

    def _send(self, address: Address, key: bytes) -> bool:
        try:
            self._socket.sendto(pack(ADVERT, self._list_version(), key), sockets.as_peer(self._socket, address))
        except OSError as error:
            # A gateway that cannot be reached is no news here: its silence is.
            self.failed += 1
            log.debug("advert_failed", to=address[0], error=str(error))
            return False
        return True

    def _read(self) -> None:
        for _ in range(self._DATAGRAMS_PER_TURN):
            try:
                # One byte more than fits shows what is too long.
                datagram, address = self._socket.recvfrom(ADVERT_BYTES + 1)
            except BlockingIOError:
                return
            except OSError:
                self.failed += 1
                continue
            self._take(datagram, (sockets.plain_host(address[0]), address[1]))

    def _take(self, datagram: bytes, address: Address) -> None:
        key = self._keys.get(address)
        if key is None or unpack(datagram, key, QUERY) is None:
            self.dropped += 1
        else:
            self.answered += self._send(address, key)
