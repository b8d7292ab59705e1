"""Show the NORM packets of a capture, one line per packet.

Try it on one of the captures that come with the tests:

    python examples/peek_capture.py tests/vectors/loss-multicast-nack.pcap --limit 20
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import BinaryIO, NamedTuple

import click

from fjm2.errors import WireError
from fjm2.norm.core.partition import ObjectPartition
from fjm2.norm.core.quantize import loss_of, rate_of, rtt_of
from fjm2.norm.core.wire import (
    STREAM_HEADER,
    Ack,
    AckRequest,
    Application,
    CcFeedback,
    CongestionControl,
    Data,
    EndOfTransmission,
    FecId,
    Flush,
    FromReceiver,
    Fti,
    Info,
    Message,
    Nack,
    ObjectFlag,
    PayloadIdFormat,
    Position,
    Rate,
    RepairAdv,
    RepairFlag,
    RepairForm,
    RepairRequest,
    Squelch,
    decode,
    payload_id_format,
)

ROW = "{:>11}  {:<21}  {:>10}  {:<16}  {:>6}  {:>8}  {:>6}  {}"
TITLES = ("seconds", "from", "node", "message", "object", "block", "symbol", "")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N packets.")
def main(file: Path, limit: int | None) -> None:
    """Show the NORM packets of FILE, a classic pcap as `tcpdump -w` writes it."""
    narrator = Narrator()
    shown = others = 0
    with file.open("rb") as capture:
        for seconds, source, payload in read_pcap(capture, str(file)):
            try:
                message = decode(payload)
            except WireError:
                others += 1
                continue
            if shown == 0:
                click.echo(ROW.format(*TITLES).rstrip())
            line = narrator.describe(message)
            click.echo(ROW.format(f"{seconds:.6f}", source, message.source_id, *line).rstrip())
            shown += 1
            if shown == limit:
                break
    if others or not shown:
        click.echo(f"NORM packets: {shown}, other UDP datagrams: {others}", err=True)


class Line(NamedTuple):
    """The columns of the line that shows one message."""

    kind: str
    object_id: int | str = ""
    block: int | str = ""
    symbol: int | str = ""
    words: str = ""


class Narrator:
    """Description of messages in words.

    It remembers facts from earlier messages, such as an object's size and its FEC code.
    """

    def __init__(self) -> None:
        self._ftis: dict[tuple[int, int], Fti] = {}
        self._field_bits: dict[int, int] = {}

    def describe(self, message: Message) -> Line:
        match message:
            case Info():
                self._note(message)
                return Line("INFO", message.object_id, words=_text(message.content))
            case Data():
                self._note(message)
                return self._data(message)
            case Flush(position=position, acking_nodes=nodes):
                words = f"all sent up to here; {_nodes(nodes)} to acknowledge" if nodes else "all sent up to here"
                return Line("CMD(FLUSH)", *self._place(message.source_id, position), words)
            case Squelch(position=position, invalid_objects=objects):
                gone = f", nor objects {_list(objects)}" if objects else ""
                place = self._place(message.source_id, position)
                return Line("CMD(SQUELCH)", *place, f"nothing before this can be repaired{gone}")
            case CongestionControl():
                return Line("CMD(CC)", words=_congestion_control(message))
            case RepairAdv(requests=requests):
                asked = self._asked(message.source_id, requests) or "nothing"
                return Line("CMD(REPAIR_ADV)", words=f"receivers ask for {asked}")
            case AckRequest(ack_type=ack_type, acking_nodes=nodes):
                return Line("CMD(ACK_REQ)", words=f"{_nodes(nodes)} to acknowledge type {ack_type}")
            case Application(content=content):
                return Line("CMD(APPLICATION)", words=_text(content))
            case EndOfTransmission():
                return Line("CMD(EOT)", words="the sender leaves")
            case Nack(requests=requests):
                asked = self._asked(message.sender_id, requests) or "nothing"
                return Line("NACK", words=f"asks node {message.sender_id} for {asked}{_feedback(message)}")
            case Ack(content=Position() as position):
                place = self._place(message.sender_id, position)
                return Line("ACK(FLUSH)", *place, f"has all of node {message.sender_id} up to here{_feedback(message)}")
            case Ack(ack_type=1):
                return Line("ACK(CC)", words=f"answers node {message.sender_id}{_feedback(message)}")
            case Ack(ack_type=ack_type, content=bytes() as content):
                return Line(f"ACK({ack_type})", words=f"answers node {message.sender_id}: {_text(content)}")
            case _:
                return Line(message.TYPE.name)

    def _note(self, message: Info | Data) -> None:
        for extension in message.extensions:
            if isinstance(extension, Fti):
                self._ftis[message.source_id, message.object_id] = extension
                self._field_bits[message.source_id] = extension.field_bits

    def _data(self, message: Data) -> Line:
        position = Position(message.fec_id, message.object_id, message.payload_id)
        object_id, block, symbol = self._place(message.source_id, position)
        sources = self._source_symbols(message, block)
        words = f"{len(message.payload)} bytes"
        if sources is not None and symbol >= sources:
            words += f", parity {symbol - sources}"
        elif message.flags & ObjectFlag.STREAM and len(message.payload) >= STREAM_HEADER.size:
            words = _stream_segment(message.payload)
        flags = [flag.name for flag in ObjectFlag if message.flags & flag and flag.name]
        return Line("DATA", object_id, block, symbol, f"{words} [{' '.join(flags)}]" if flags else words)

    def _source_symbols(self, message: Data, block: int) -> int | None:
        """Return the number of source symbols in a block, or None if it is unknown.

        The block's further symbols are parity.
        """
        if message.fec_id == FecId.SMALL_BLOCK_SYSTEMATIC:
            return payload_id_format(message.fec_id).length(message.payload_id)
        fti = self._ftis.get((message.source_id, message.object_id))
        if fti is None or not fti.segment_bytes or not fti.block_segments:
            return None
        if message.flags & ObjectFlag.STREAM:
            return fti.block_segments
        return ObjectPartition(fti.object_bytes, fti.segment_bytes, fti.block_segments).block_length(block)

    def _format(self, sender_id: int, fec_id: int) -> PayloadIdFormat:
        field_bits = self._field_bits.get(sender_id, 8)
        return payload_id_format(fec_id, 16 if fec_id == FecId.REED_SOLOMON_M and field_bits == 16 else 8)

    def _place(self, sender_id: int, position: Position) -> tuple[int, int, int]:
        form = self._format(sender_id, position.fec_id)
        return position.object_id, form.block(position.payload_id), form.symbol(position.payload_id)

    def _asked(self, sender_id: int, requests: Iterable[RepairRequest]) -> str:
        return "; ".join(part for request in requests for part in self._asked_in(sender_id, request))

    def _asked_in(self, sender_id: int, request: RepairRequest) -> list[str]:
        """Describe one repair request in words. Items for the same block or object are joined."""
        places = [self._place(sender_id, item) for item in request.items]
        if request.form == RepairForm.ERASURES:
            return [f"any {symbol} symbols of object {o} block {block}" for o, block, symbol in places]
        is_ranges = request.form == RepairForm.RANGES
        ends = zip(places[::2], places[1::2], strict=True) if is_ranges else zip(places, places, strict=True)
        found: dict[str, list[str]] = {}
        for first, last in ends:
            object_id, block, _ = first
            if request.flags & RepairFlag.SEGMENT:
                what, level = f"object {object_id} block {block} symbol", 2
            elif request.flags & RepairFlag.BLOCK:
                what, level = f"object {object_id} block", 1
            else:
                what, level = "object" if request.flags & RepairFlag.OBJECT else "info of object", 0
            span = f"{first[level]} to {last[level]}" if is_ranges else str(first[level])
            found.setdefault(what, []).append(span)
        has_info = request.flags & RepairFlag.INFO and request.flags != RepairFlag.INFO
        plural = "s" if is_ranges else ""
        return [
            f"{what}{plural or 's' * (len(spans) > 1)} {', '.join(spans)}{' and its info' if has_info else ''}"
            for what, spans in found.items()
        ]


def _stream_segment(payload: bytes) -> str:
    length, message_start, offset = STREAM_HEADER.unpack_from(payload)
    if length == 0:
        return f"end of stream at byte {offset}" if message_start == 0 else f"stream control {message_start}"
    words = f"{length} bytes from byte {offset} on"
    return f"{words}, a message starts at byte {offset + message_start - 1}" if message_start else words


def _congestion_control(message: CongestionControl) -> str:
    rates = [f"sends {_rate(extension.rate_q)}, " for extension in message.extensions if isinstance(extension, Rate)]
    nodes = [f"; node {node.node_id}: {_time(rtt_of(node.rtt_q))}, {_rate(node.rate_q)}" for node in message.nodes]
    return "".join((f"probe {message.cc_sequence}: ", *rates, f"GRTT {_time(rtt_of(message.grtt_q))}", *nodes))


def _feedback(message: FromReceiver) -> str:
    for extension in message.extensions:
        if isinstance(extension, CcFeedback):
            rtt, rate = _time(rtt_of(extension.rtt_q)), _rate(extension.rate_q)
            return f" ({rtt}, {rate}, loss {loss_of(extension.loss_q):.2%})"
    return ""


def _text(content: bytes) -> str:
    start = content[:40].decode("ascii", "replace")
    more = "..." if len(content) > len(start) else ""
    return f"{len(content)} bytes" + (f': "{start}{more}"' if start.isprintable() and start else "")


def _nodes(nodes: Sequence[int]) -> str:
    return f"node{'s' * (len(nodes) != 1)} {_list(nodes)}"


def _list(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"


def _rate(rate_q: int) -> str:
    return f"{8 * rate_of(rate_q) / 1e6:.3g} Mbit/s"


# Captures

PCAP_MAGICS = {
    bytes.fromhex("d4c3b2a1"): ("<", 1e6),
    bytes.fromhex("a1b2c3d4"): (">", 1e6),
    bytes.fromhex("4d3cb2a1"): ("<", 1e9),
    bytes.fromhex("a1b23c4d"): (">", 1e9),
}
"""Byte order of a capture, and units of its fractions of a second, by the first four bytes of the file."""
PCAPNG_MAGIC = bytes.fromhex("0a0d0d0a")
IP_STARTS = {0: 4, 1: 14, 12: 0, 101: 0, 113: 16, 276: 20}
"""Offset of the IP header in a frame, by link type: loopback, Ethernet, two types of raw IP, two of Linux cooked."""
VLAN = bytes.fromhex("8100")
UDP = 17


def read_pcap(file: BinaryIO, name: str) -> Iterator[tuple[float, str, bytes]]:
    """Yield every UDP datagram of a capture: the seconds since the first datagram, its source and its payload."""
    head = file.read(24)
    if head[:4] == PCAPNG_MAGIC:
        raise click.ClickException(f"{name} is a pcapng file; `tshark -F pcap -r {name} -w NEW` makes a pcap of it")
    if len(head) < 24 or head[:4] not in PCAP_MAGICS:
        raise click.ClickException(f"{name} is not a pcap file")
    order, parts = PCAP_MAGICS[head[:4]]
    link = struct.unpack(f"{order}I", head[20:])[0] & 0xFFFF
    if link not in IP_STARTS:
        raise click.ClickException(f"{name} has link type {link}, expected one of {_list(IP_STARTS)}")
    record = struct.Struct(f"{order}IIII")
    began_s: float | None = None
    number = 0
    while raw := file.read(record.size):
        number += 1
        seconds, fraction, captured, _ = record.unpack(raw) if len(raw) == record.size else (0, 0, 1 << 32, 0)
        frame = file.read(captured) if captured < 1 << 20 else b""
        if len(frame) < captured:
            raise click.ClickException(f"{name} ends within packet {number}")
        time_s: float = seconds + fraction / parts
        began_s = time_s if began_s is None else began_s
        datagram = _udp(frame, IP_STARTS[link] + (4 if link == 1 and frame[12:14] == VLAN else 0))
        if datagram is not None:
            yield time_s - began_s, *datagram


def _udp(frame: bytes, start: int) -> tuple[str, bytes] | None:
    """Return the source and payload of the UDP datagram in a frame.

    Return None for any other packet and for IP fragments.
    """
    ip = frame[start:]
    if len(ip) >= 40 and ip[0] >> 4 == 6 and ip[6] == UDP:
        source, udp = f"[{ip_address(ip[8:24])}]", ip[40:]
    elif len(ip) >= 20 and ip[0] >> 4 == 4 and ip[9] == UDP and not int.from_bytes(ip[6:8]) & 0x3FFF:
        source, udp = str(ip_address(ip[12:16])), ip[4 * (ip[0] & 15) :]
    else:
        return None
    if len(udp) < 8:
        return None
    port, _, length, _ = struct.unpack_from(">HHHH", udp)
    return f"{source}:{port}", udp[8:length]


if __name__ == "__main__":
    main()
