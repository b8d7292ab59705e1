"""Forge datagrams of a bus: from another socket, and, as root, from the sender's own address."""

import socket
import struct
from collections import deque
from types import TracebackType
from typing import Self

from fjm2.norm import Address
from fjm2.norm.core.wire import (
    Ack,
    AckType,
    CongestionControl,
    Data,
    EndOfTransmission,
    Position,
    Squelch,
    decode,
)

_UDP = struct.Struct(">HHHH")
_IP = struct.Struct(">BBHHHBBH4s4s")
_DATA, _COMMAND = 0x12, 0x13
"""First bytes of NORM messages."""


class Forger:
    """Listens to a group, and sends what it heard again, altered."""

    def __init__(self, group: str, port: int, host: str = "127.0.0.1") -> None:
        """Listen and send on the interface with the address `host`."""
        self._group, self._port, self._host = group, port, host
        self.heard: dict[int, bytes] = {}
        """The last DATA of each sender."""
        self.addresses: dict[int, Address] = {}
        """Address of each sender."""
        self.probes: dict[int, CongestionControl] = {}
        """The last probe of each sender."""
        self.spoke: set[int] = set()
        """Senders that were heard since something was sent in their names from their own address."""
        self._forged: deque[bytes] = deque(maxlen=64)
        """Datagrams sent from the address of another, which come back to us."""

    def __enter__(self) -> Self:
        member = socket.inet_aton(self._group) + socket.inet_aton(self._host)
        self._receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._receiver.bind((self._group, self._port))
        self._receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        self._receiver.setblocking(False)
        self._sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for option, value in (
            (socket.IP_MULTICAST_IF, socket.inet_aton(self._host)),
            (socket.IP_MULTICAST_TTL, 0 if self._host.startswith("127.") else 1),
            (socket.IP_MULTICAST_LOOP, 1),
        ):
            self._sender.setsockopt(socket.IPPROTO_IP, option, value)
        self._sender.bind((self._host, 0))
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
                data, address = self._receiver.recvfrom(65_536)
            except BlockingIOError:
                return
            if address == self.address or data[:1] not in (bytes((_DATA,)), bytes((_COMMAND,))):
                continue
            if data in self._forged:
                continue
            sender_id = int.from_bytes(data[4:8])
            self.spoke.add(sender_id)
            self.addresses.setdefault(sender_id, address)
            if data[0] == _DATA:
                self.heard[sender_id] = data
            elif isinstance(message := decode(data), CongestionControl):
                self.probes[sender_id] = message

    def answer_probes(self, node_id: int) -> None:
        """Answer the last probe of each sender in the name of a node that is there, and confirms nothing."""
        for sender_id, probe in self.probes.items():
            ack = Ack(
                source_id=node_id,
                sender_id=sender_id,
                instance_id=probe.instance_id,
                grtt_response_s=probe.send_time_s,
                grtt_response_us=probe.send_time_us,
                ack_type=AckType.CC,
                extensions=(),
                content=b"",
            )
            self.send(ack.encode())

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
            self._sender.sendto(data, (self._group, self._port))
            return
        self._forged.append(data)
        self.spoke.discard(int.from_bytes(data[4:8]))
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
            raw.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(self._host))
            raw.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            ends = socket.inet_aton(source[0]), socket.inet_aton(self._group)
            udp = _UDP.pack(source[1], self._port, _UDP.size + len(data), 0) + data
            raw.sendto(
                _IP.pack(0x45, 0, _IP.size + len(udp), 0, 0, 1, socket.IPPROTO_UDP, 0, *ends) + udp, (self._group, 0)
            )
