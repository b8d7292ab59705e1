"""Hostile datagrams, made from the RFC's tables of fields. Many are invalid, so the codec would refuse to write them.

`Fake` is a sender that follows no rules. The functions make payload ids, EXT_FTIs, NACKs and ACKs.
"""

import struct
from dataclasses import dataclass

from fjm2.norm.core.train import Address

_COMMON = struct.Struct(">BBHI")
_SENDER = struct.Struct(">HBB")
_OBJECT = struct.Struct(">BBH")
_RECEIVER = struct.Struct(">IHBBII")


@dataclass(slots=True)
class Fake:
    """A fake sender, and the datagrams that it sends."""

    node_id: int
    instance_id: int
    address: Address
    grtt_q: int = 106
    backoff_gsize: int = 0x42
    sequence: int = 0
    object_id: int = 0

    def message(self, kind: int, rest: bytes, extensions: bytes = b"", content: bytes = b"", words: int = 0) -> bytes:
        """Return an INFO, DATA or CMD message. `rest` follows the fields that all three have."""
        self.sequence = self.sequence + 1 & 0xFFFF
        head = _SENDER.pack(self.instance_id, self.grtt_q, self.backoff_gsize) + rest + extensions
        words = words or (8 + len(head)) // 4
        return _COMMON.pack(0x10 | kind, words & 255, self.sequence, self.node_id) + head + content

    def data(
        self, block: int, symbol: int, payload: bytes, *, fti: bytes = b"", flags: int = 0, fec_id: int = 5
    ) -> bytes:
        rest = _OBJECT.pack(flags, fec_id, self.object_id) + payload_id(fec_id, block, symbol)
        return self.message(2, rest, fti, payload)

    def info(self, content: bytes, fti: bytes, flags: int = 4, fec_id: int = 5) -> bytes:
        return self.message(1, _OBJECT.pack(flags, fec_id, self.object_id), fti, content)

    def command(self, flavor: int, rest: bytes = b"\0\0\0", extensions: bytes = b"", content: bytes = b"") -> bytes:
        return self.message(3, bytes((flavor,)) + rest, extensions, content)

    def flush(self, block: int, symbol: int, nodes: bytes = b"", fec_id: int = 5, flavor: int = 1) -> bytes:
        rest = struct.pack(">BH", fec_id, self.object_id) + payload_id(fec_id, block, symbol)
        return self.command(flavor, rest, content=nodes)

    def probe(self, nodes: bytes = b"", rate: bool = True) -> bytes:
        rest = struct.pack(">BHII", 0, self.sequence, 1000 + self.sequence, 5)
        return self.command(4, rest, b"\x80\0\x40\x05" if rate else b"", nodes)


def payload_id(fec_id: int, block: int, symbol: int, length: int = 64) -> bytes:
    match fec_id:
        case 129:
            return struct.pack(">IHH", block & 0xFFFFFFFF, length & 0xFFFF, symbol & 0xFFFF)
        case 0:
            return struct.pack(">HH", block & 0xFFFF, symbol & 0xFFFF)
        case _:
            return struct.pack(">I", (block << 8 | symbol & 255) & 0xFFFFFFFF)


def fti(fec_id: int, size: int, segment: int, block: int, parity: int = 0, bits: int = 8, group: int = 1) -> bytes:
    head = struct.pack(">HI", size >> 32 & 0xFFFF, size & 0xFFFFFFFF)
    match fec_id:
        case 0:
            return b"\x40\x04" + head + struct.pack(">HHI", 0, segment, block & 0xFFFFFFFF)
        case 2:
            return b"\x40\x04" + head + struct.pack(">BBHHH", bits, group, segment, block & 0xFFFF, parity & 0xFFFF)
        case 129:
            return (
                b"\x40\x04" + head + struct.pack(">HHHH", group - 1 & 0xFFFF, segment, block & 0xFFFF, parity & 0xFFFF)
            )
        case _:
            return b"\x40\x03" + head + struct.pack(">HBB", segment, block & 255, parity & 255)


def feedback(
    kind: int,
    source: int,
    sender: int,
    instance: int,
    content: bytes = b"",
    ack: tuple[int, int] = (0, 0),
    response: tuple[int, int] = (0, 0),
    extensions: bytes = b"",
) -> bytes:
    """Return a NACK or an ACK."""
    words = 6 + len(extensions) // 4
    fields = _RECEIVER.pack(sender, instance, *ack, *response)
    return _COMMON.pack(0x10 | kind, words, 0, source) + fields + extensions + content


def request(form: int, flags: int, items: bytes, length: int | None = None) -> bytes:
    return struct.pack(">BBH", form, flags, (len(items) if length is None else length) & 0xFFFF) + items


def item(object_id: int, block: int = 0, symbol: int = 0, fec_id: int = 5) -> bytes:
    return struct.pack(">BBH", fec_id, 0, object_id & 0xFFFF) + payload_id(fec_id, block, symbol)
