"""Forge datagrams of a bus on the loopback: from another socket, and, as root, from the sender's own address."""

import socket
import struct
from types import TracebackType
from typing import Self

from buses import GROUP

from fjm2.norm import Address
from fjm2.norm.core.wire import Data, EndOfTransmission, Position, Squelch, decode

_UDP = struct.Struct(">HHHH")
_IP = struct.Struct(">BBHHHBBH4s4s")
_HERE = "127.0.0.1"


class Forger:
    """Listens to a group on the loopback, and sends what it heard again, altered."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.heard: dict[int, bytes] = {}
        """The last DATA of each sender."""

    def __enter__(self) -> Self:
        member = socket.inet_aton(GROUP) + socket.inet_aton(_HERE)
        self._receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._receiver.bind((GROUP, self._port))
        self._receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        self._receiver.setblocking(False)
        self._sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for option, value in (
            (socket.IP_MULTICAST_IF, socket.inet_aton(_HERE)),
            (socket.IP_MULTICAST_TTL, 0),
            (socket.IP_MULTICAST_LOOP, 1),
        ):
            self._sender.setsockopt(socket.IPPROTO_IP, option, value)
        self._sender.bind((_HERE, 0))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._receiver.close()
        self._sender.close()

    @property
    def address(self) -> Address:
        host, port = self._sender.getsockname()
        return host, port

    def listen(self) -> None:
        """Take what has arrived."""
        while True:
            try:
                data = self._receiver.recv(65_536)
            except BlockingIOError:
                return
            if data[:1] == b"\x12":
                self.heard[int.from_bytes(data[4:8])] = data

    def forgeries(self, sender_id: int) -> dict[str, bytes]:
        """Return false messages in a sender's name, one of each kind."""
        data = bytearray(self.heard[sender_id])
        message = decode(bytes(data))
        assert isinstance(message, Data)
        common = {
            "source_id": sender_id,
            "instance_id": message.instance_id,
            "grtt_q": message.grtt_q,
            "backoff": message.backoff,
            "gsize_q": message.gsize_q,
            "sequence": message.sequence,
        }
        object_id = message.object_id
        far = bytearray(data)
        far[16:19] = (int.from_bytes(far[16:19]) + 100_000 & 0xFFFFFF).to_bytes(3)
        other_object = bytearray(data)
        other_object[14:16] = (object_id + 0x7000 & 0xFFFF).to_bytes(2)
        restarted = bytearray(data)
        restarted[8] ^= 0xFF
        return {
            "data far ahead": bytes(far),
            "object far ahead": bytes(other_object),
            "restart": bytes(restarted),
            "goodbye": EndOfTransmission(**common).encode(),
            "squelch": Squelch(**common, position=Position(message.fec_id, object_id + 1 & 0xFFFF, 0)).encode(),
        }

    def send(self, data: bytes, source: Address | None = None) -> None:
        """Send to the group: from our own socket, or, with a raw one, as if from `source`."""
        if source is None:
            self._sender.sendto(data, (GROUP, self._port))
            return
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
            raw.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(_HERE))
            raw.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            ends = socket.inet_aton(source[0]), socket.inet_aton(GROUP)
            udp = _UDP.pack(source[1], self._port, _UDP.size + len(data), 0) + data
            raw.sendto(_IP.pack(0x45, 0, _IP.size + len(udp), 0, 0, 1, socket.IPPROTO_UDP, 0, *ends) + udp, (GROUP, 0))
