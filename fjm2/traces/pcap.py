"""Reader of packet captures in the formats pcap and pcapng. It reads forward, packet by packet.

Lengths in a file are believed up to a limit. If the file breaks off or contradicts itself, reading ends there, and
`problem` says why.
"""

import struct
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from fjm2.base.errors import CaptureError

PACKET_BYTES_MAX: Final = 1 << 18
"""Size of the longest packet that is read: libpcap's own limit."""
_BLOCK_BYTES_MAX: Final = 16 << 20
_INTERFACES_MAX: Final = 1 << 16
_TIME_MAX_S: Final = 1 << 33
"""Latest Unix time of a packet, in the year 2242. A later time is corrupt."""

_PCAP_MAGIC: Final = {
    b"\xd4\xc3\xb2\xa1": ("<", 1e-6),
    b"\xa1\xb2\xc3\xd4": (">", 1e-6),
    b"\x4d\x3c\xb2\xa1": ("<", 1e-9),
    b"\xa1\xb2\x3c\x4d": (">", 1e-9),
}
_PCAPNG_MAGIC: Final = b"\x0a\x0d\x0d\x0a"
_SECTION, _INTERFACE, _OLD_PACKET, _SIMPLE, _PACKET = 0x0A0D0D0A, 1, 2, 3, 6
_BYTE_ORDER = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
_OPTION_TSRESOL, _OPTION_TSOFFSET = 9, 14


class Packet(NamedTuple):
    """One packet as it was captured, link header first."""

    time_s: float
    """Unix time at which the packet was captured."""
    link_type: int
    data: bytes
    """The part of the packet that was captured."""
    length: int
    """Length of the whole packet in bytes."""


class _Interface(NamedTuple):
    link_type: int
    snap_bytes: int
    tick_s: float
    offset_s: int


class _BrokenOffError(Exception):
    """Reading has to end. The message of the exception has the reason."""


class PcapReader:
    """Iterator over the packets of a capture. It holds one packet at a time, whatever the size of the file."""

    def __init__(self, stream: BinaryIO) -> None:
        """Read the magic number. Raise CaptureError if the stream is not a capture. The stream need not be seekable."""
        self.problem = ""
        """Reason why reading ended before the end of the file, or within a packet; empty if it did not."""
        self._stream = stream
        self._offset = 0
        try:
            magic = self._read(4)
        except _BrokenOffError as error:
            raise CaptureError("not a packet capture: the file is empty or cut short") from error
        if magic in _PCAP_MAGIC:
            self._packets = self._read_pcap(*_PCAP_MAGIC[magic])
        elif magic == _PCAPNG_MAGIC:
            self._packets = self._read_pcapng()
        else:
            raise CaptureError(f"not a packet capture: expected pcap or pcapng, found {magic.hex(' ')}")

    def __iter__(self) -> Iterator[Packet]:
        try:
            yield from self._packets
        except _BrokenOffError as error:
            self.problem = str(error)
        except (OSError, EOFError, ValueError) as error:  # a failing disk, or a corrupt gzip file
            self.problem = f"reading failed at byte {self._offset}: {error}"

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        while len(data) < size:
            more = self._stream.read(size - len(data))
            if not more:
                raise _BrokenOffError(f"breaks off at byte {self._offset + len(data)}")
            data += more
        self._offset += size
        return data

    def _read_or_end(self, size: int) -> bytes | None:
        """Read `size` bytes as `_read` does, or return None at the end of the file."""
        first = self._stream.read(1)
        if not first:
            return None
        self._offset += 1
        return first + self._read(size - 1)

    def _read_pcap(self, order: str, tick_s: float) -> Iterator[Packet]:
        link_type = struct.unpack(order + "HHiIII", self._read(20))[5] & 0xFFFF
        header = struct.Struct(order + "IIII")
        while (raw := self._read_or_end(header.size)) is not None:
            seconds, ticks, captured, length = header.unpack(raw)
            if captured > PACKET_BYTES_MAX:
                raise _BrokenOffError(
                    f"a packet of {captured} bytes at byte {self._offset - header.size}: not a capture"
                )
            yield Packet(seconds + ticks * tick_s, link_type, self._read(captured), max(length, captured))

    def _read_pcapng(self) -> Iterator[Packet]:
        order = self._read_section_head()
        interfaces: list[_Interface] = []
        while (raw := self._read_or_end(4)) is not None:
            if raw == _PCAPNG_MAGIC:
                order, interfaces = self._read_section_head(), []
                continue
            (kind,) = struct.unpack(order + "I", raw)
            body = self._read_body(order)
            if kind == _INTERFACE and len(interfaces) < _INTERFACES_MAX:
                interfaces.append(_interface(order, body))
            elif kind in (_PACKET, _OLD_PACKET, _SIMPLE):
                packet = _packet(order, kind, body, interfaces)
                if packet is None:
                    raise _BrokenOffError(f"a packet block at byte {self._offset - len(body) - 12} is malformed")
                yield packet

    def _read_section_head(self) -> str:
        """Read a section header block, whose type has been read. Return the byte order of the section."""
        raw = self._read(8)
        order = _BYTE_ORDER.get(raw[4:])
        if order is None:
            raise _BrokenOffError(f"a section at byte {self._offset - 12} of unknown byte order")
        (length,) = struct.unpack(order + "I", raw[:4])
        self._read(self._checked(length, 28) - 12)
        return order

    def _read_body(self, order: str) -> bytes:
        """Read a block whose type has been read. Return its body, without its two lengths."""
        (length,) = struct.unpack(order + "I", self._read(4))
        return self._read(self._checked(length, 12) - 8)[:-4]

    def _checked(self, length: int, least: int) -> int:
        if not least <= length <= _BLOCK_BYTES_MAX or length % 4:
            raise _BrokenOffError(f"a block of {length} bytes before byte {self._offset}: not a capture")
        return length


def _interface(order: str, body: bytes) -> _Interface:
    if len(body) < 8:
        raise _BrokenOffError("an interface block without content")
    link_type, _, snap_bytes = struct.unpack_from(order + "HHI", body)
    tick_s, offset_s, at = 1e-6, 0, 8
    while at + 4 <= len(body):
        code, size = struct.unpack_from(order + "HH", body, at)
        value = body[at + 4 : at + 4 + size]
        if code == _OPTION_TSRESOL and len(value) == 1:
            exponent = value[0] & 0x7F
            tick_s = 2.0**-exponent if value[0] & 0x80 else 10.0**-exponent
        elif code == _OPTION_TSOFFSET and len(value) == 8:
            (offset_s,) = struct.unpack(order + "q", value)
        at += 4 + -(-size // 4) * 4
    return _Interface(link_type, snap_bytes or PACKET_BYTES_MAX, tick_s, offset_s)


def _packet(order: str, kind: int, body: bytes, interfaces: list[_Interface]) -> Packet | None:
    """Return the packet in a block, or None if the block contradicts itself."""
    number = high = low = 0
    if kind == _SIMPLE:  # it has no time
        if len(body) < 4 or not interfaces:
            return None
        (length,) = struct.unpack_from(order + "I", body)
        captured, data = min(length, interfaces[0].snap_bytes), body[4:]
    else:
        if len(body) < 20:
            return None
        form = "IIIII" if kind == _PACKET else "HxxIIII"
        number, high, low, captured, length = struct.unpack_from(order + form, body)
        data = body[20:]
    if captured > len(data) or captured > PACKET_BYTES_MAX or number >= len(interfaces):
        return None
    interface = interfaces[number]
    time_s = (high << 32 | low) * interface.tick_s + interface.offset_s
    if not 0 <= time_s < _TIME_MAX_S:
        return None
    return Packet(time_s, interface.link_type, data[:captured], max(length, captured))
