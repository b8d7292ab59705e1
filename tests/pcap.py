"""Classic pcap files of UDP in IPv4 over Ethernet, with only the features that the tests need."""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_MAGIC = 0xA1B2C3D4
_ETHERNET = 1
_FILE = struct.Struct("<IHHiIII")
_RECORD = struct.Struct("<IIII")
_ETHERNET_HEADER = struct.Struct(">6s6sH")
_IP_HEADER = struct.Struct(">BBHHHBBH4s4s")
_UDP_HEADER = struct.Struct(">HHHH")
_IPV4 = 0x0800
_UDP = 17

GROUP = "224.1.2.3"
PORT = 6003


class Packet(NamedTuple):
    """One UDP datagram of a capture, and its capture time."""

    time_s: float
    source: str
    """IP address and port of the sender, such as "10.99.0.1:6003"."""
    destination: str
    payload: bytes


def read(path: Path) -> list[Packet]:
    """Read all packets of a capture file. Fail if one of them is not UDP."""
    data = path.read_bytes()
    magic, _, _, _, _, _, link = _FILE.unpack_from(data)
    assert (magic, link) == (_MAGIC, _ETHERNET), path
    packets: list[Packet] = []
    offset = _FILE.size
    while offset < len(data):
        seconds, microseconds, captured, length = _RECORD.unpack_from(data, offset)
        offset += _RECORD.size
        assert captured == length, f"{path}: packet {len(packets) + 1} is cut short"
        packets.append(_packet(seconds + microseconds / 1e6, data[offset : offset + length]))
        offset += length
    return packets


def _packet(time_s: float, frame: bytes) -> Packet:
    ip = frame[_ETHERNET_HEADER.size :]
    assert _ETHERNET_HEADER.unpack_from(frame)[2] == _IPV4
    header = 4 * (ip[0] & 15)
    protocol, source, destination = _IP_HEADER.unpack_from(ip)[6], ip[12:16], ip[16:20]
    assert protocol == _UDP
    from_port, to_port, length, _ = _UDP_HEADER.unpack_from(ip, header)
    payload = ip[header + _UDP_HEADER.size : header + length]
    return Packet(time_s, f"{_dotted(source)}:{from_port}", f"{_dotted(destination)}:{to_port}", payload)


def _dotted(address: bytes) -> str:
    return ".".join(map(str, address))


def write(path: Path, payloads: Iterable[bytes]) -> None:
    """Write a capture file of datagrams that one host sends to one group, one second apart."""
    with path.open("wb") as file:
        file.write(_FILE.pack(_MAGIC, 2, 4, 0, 0, 65535, _ETHERNET))
        for second, payload in enumerate(payloads):
            frame = _frame(payload)
            file.write(_RECORD.pack(second, 0, len(frame), len(frame)) + frame)


def _frame(payload: bytes) -> bytes:
    source, group = bytes((10, 99, 0, 1)), bytes(map(int, GROUP.split(".")))
    udp = _UDP_HEADER.pack(PORT, PORT, _UDP_HEADER.size + len(payload), 0) + payload
    ip = _IP_HEADER.pack(0x45, 0, _IP_HEADER.size + len(udp), 0, 0, 4, _UDP, 0, source, group)
    ethernet = _ETHERNET_HEADER.pack(bytes((1, 0, 0x5E)) + group[1:], bytes((2, 0, 0, 0, 0, 1)), _IPV4)
    return ethernet + ip + udp
