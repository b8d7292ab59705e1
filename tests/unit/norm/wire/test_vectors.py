"""Tests of the codec with the packets of `tests/vectors`: libnorm's packets, and a few made by hand."""

import json
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

import fuzz
import numpy as np
import pcap
import pytest

from fjm2.norm.core.quantize import group_size_of, loss_of, rate_of, rtt_of
from fjm2.norm.core.train import Train
from fjm2.norm.core.wire import (
    STREAM_HEADER,
    VERSION,
    Ack,
    AckRequest,
    Application,
    Auth,
    CcFeedback,
    CongestionControl,
    Data,
    DataReader,
    EndOfTransmission,
    Extension,
    FecId,
    Flush,
    FromReceiver,
    FromSender,
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
    Unknown,
    decode,
    payload_id_format,
)

CAPTURES = sorted(path.stem for path in fuzz.VECTORS.glob("*.json"))
PACKETS = 2597
DATA_PACKETS = 1814


@dataclass(frozen=True, slots=True)
class Golden:
    """One packet of a capture, and its decoded fields by their names in the JSON files."""

    number: int
    wire: bytes
    decoded: dict[str, Any]


@cache
def packets_of(capture: str) -> list[Golden]:
    rows = json.loads((fuzz.VECTORS / f"{capture}.json").read_text())["packets"]
    return [Golden(row["n"], bytes.fromhex(row["hex"]), row["decoded"]) for row in rows]


@cache
def field_bits_of(capture: str) -> int:
    """Return the field size m of FEC id 2 in a capture, or 8 if there is none.

    Only EXT_FTI contains m, but it decides the format of messages without EXT_FTI too.
    """
    found = {extension["m"] for packet in packets_of(capture) for extension in _extensions(packet) if "m" in extension}
    assert len(found) <= 1
    return found.pop() if found else 8


def _extensions(packet: Golden) -> list[dict[str, Any]]:
    extensions: list[dict[str, Any]] = packet.decoded.get("extensions", [])
    return extensions


def described(message: Message, field_bits: int) -> dict[str, Any]:
    """Return all fields of a message, by their names in the JSON files."""
    fields: dict[str, Any] = {
        "version": VERSION,
        "hdr_len": 4 * message.encode()[1],
        "type": message.TYPE.name,
        "sequence": message.sequence,
        "source_id": message.source_id,
    }
    if message.extensions:
        fields["extensions"] = [_extension(extension) for extension in message.extensions]
    if isinstance(message, FromSender):
        fields |= {
            "instance_id": message.instance_id,
            "grtt_q": message.grtt_q,
            "grtt": rtt_of(message.grtt_q),
            "backoff": message.backoff,
            "gsize_q": message.gsize_q,
            "gsize": group_size_of(message.gsize_q),
        }
    if isinstance(message, FromReceiver):
        fields |= {
            "sender_id": message.sender_id,
            "instance_id": message.instance_id,
            "grtt_response_sec": message.grtt_response_s,
            "grtt_response_usec": message.grtt_response_us,
        }
    match message:
        case Info() | Data():
            fields |= _object(message, field_bits)
        case Nack(requests=requests):
            fields |= {"reserved": 0, "repair": [_request(request, field_bits) for request in requests]}
        case Ack(content=content):
            fields |= {"ack_type": message.ack_type, "ack_id": message.ack_id}
            if isinstance(content, Position):
                fields |= {"reserved": 0, **_position(content, field_bits)}
            else:
                fields["content"] = content.hex()
        case _:
            fields |= _command(message, field_bits)
    return fields


def _object(message: Info | Data, field_bits: int) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "flags": [flag.name for flag in ObjectFlag if message.flags & flag],
        "fec_id": message.fec_id,
        "object_id": message.object_id,
    }
    if isinstance(message, Info):
        return {**fields, "payload_len": len(message.content)}
    fields |= _payload_id(message.fec_id, message.payload_id, field_bits)
    fields["payload_len"] = len(message.payload)
    if message.flags & ObjectFlag.STREAM:
        numbers = STREAM_HEADER.unpack_from(message.payload)
        fields |= zip(("stream_payload_len", "stream_msg_start", "stream_offset"), numbers, strict=True)
    return fields


def _command(message: Message, field_bits: int) -> dict[str, Any]:
    match message:
        case Flush(position=position, acking_nodes=nodes):
            return {"flavor": "FLUSH", **_position(position, field_bits), "acking_nodes": list(nodes)}
        case EndOfTransmission():
            return {"flavor": "EOT", "content": ""}
        case Squelch(position=position, invalid_objects=objects):
            return {"flavor": "SQUELCH", **_position(position, field_bits), "invalid_objects": list(objects)}
        case CongestionControl():
            return {
                "flavor": "CC",
                "reserved": message.reserved,
                "cc_sequence": message.cc_sequence,
                "send_time_sec": message.send_time_s,
                "send_time_usec": message.send_time_us,
                "cc_nodes": [
                    {
                        "node_id": node.node_id,
                        "flags": node.flags,
                        "rtt_q": node.rtt_q,
                        "rtt": rtt_of(node.rtt_q),
                        "rate_q": node.rate_q,
                        "rate": rate_of(node.rate_q),
                    }
                    for node in message.nodes
                ],
            }
        case RepairAdv(flags=flags, requests=requests):
            repair = [_request(request, field_bits) for request in requests]
            return {"flavor": "REPAIR_ADV", "flags": flags, "repair": repair}
        case AckRequest(ack_type=ack_type, ack_id=ack_id, acking_nodes=nodes):
            content = b"".join(node.to_bytes(4) for node in nodes).hex()
            return {"flavor": "ACK_REQ", "ack_type": ack_type, "ack_id": ack_id, "content": content}
        case Application(content=content):
            return {"flavor": "APPLICATION", "content": content.hex()}
        case _:
            raise AssertionError(f"no such packet is in the vectors: {message}")


def _extension(extension: Extension) -> dict[str, Any]:
    raw = {"raw": extension.encode().hex()}
    match extension:
        case Fti(fec_id=fec_id):
            fields: dict[str, Any] = {
                "het": 64,
                "name": "EXT_FTI",
                "object_size": extension.object_bytes,
                "segment_size": extension.segment_bytes,
                "max_source_block_len": extension.block_segments,
                "num_parity": extension.parity_segments,
            }
            if fec_id == FecId.REED_SOLOMON_M:
                fields |= {"m": extension.field_bits, "g": extension.group}
            if fec_id == FecId.SMALL_BLOCK_SYSTEMATIC:
                fields["fec_instance_id"] = extension.instance
            return fields | raw
        case CcFeedback(loss_q=loss_q):
            return raw | {
                "het": 3,
                "name": "EXT_CC",
                "cc_sequence": extension.cc_sequence,
                "cc_flags": extension.flags,
                "cc_rtt": extension.rtt_q,
                "cc_rtt_s": rtt_of(extension.rtt_q),
                "cc_loss_16": loss_q >> 16,
                "cc_loss_low": loss_q & 0xFFFF,
                "cc_loss": loss_of(loss_q),
                "cc_rate_q": extension.rate_q,
                "cc_rate": rate_of(extension.rate_q),
            }
        case Rate(rate_q=rate_q):
            rate = {"send_rate_q": rate_q, "send_rate": rate_of(rate_q)}
            return raw | rate | {"het": 128, "name": "EXT_RATE", "reserved": 0}
        case Unknown(het=het):
            return raw | {"het": het}
        case Auth() | _:
            raise AssertionError(f"no such extension is in the vectors: {extension}")


def _request(request: RepairRequest, field_bits: int) -> dict[str, Any]:
    items = [{"reserved": 0, **_position(item, field_bits)} for item in request.items]
    if request.form == RepairForm.RANGES:
        assert len(items) % 2 == 0
    return {
        "form": RepairForm(request.form).name,
        "flags": [flag.name for flag in RepairFlag if request.flags & flag],
        "length": sum(len(item.encode()) for item in request.items),
        "items": items,
    }


def _position(position: Position, field_bits: int) -> dict[str, Any]:
    parts = _payload_id(position.fec_id, position.payload_id, field_bits)
    return {"fec_id": position.fec_id, "object_id": position.object_id, **parts}


def _payload_id(fec_id: int, payload_id: int, field_bits: int) -> dict[str, Any]:
    form = payload_id_format(fec_id, field_bits if fec_id == FecId.REED_SOLOMON_M else 8)
    parts = {
        "source_block_number": form.block(payload_id),
        "encoding_symbol_id": form.symbol(payload_id),
    }
    if form.length_bits:
        parts["source_block_length"] = form.length(payload_id)
    assert _packed(form, parts) == payload_id
    return parts


def _packed(form: PayloadIdFormat, parts: dict[str, int]) -> int:
    length = parts.get("source_block_length", 0)
    return form.pack(parts["source_block_number"], parts["encoding_symbol_id"], length)


@pytest.mark.parametrize("capture", CAPTURES)
def test_every_field_is_decoded_as_listed(capture: str) -> None:
    for packet in packets_of(capture):
        fields = described(decode(packet.wire), field_bits_of(capture))
        assert _rounded(fields) == _rounded(packet.decoded), packet.number


def _rounded(value: Any) -> Any:
    """Return a value with all nested floats rounded to 12 digits."""
    match value:
        case float():
            return f"{value:.11e}"
        case dict():
            return {name: _rounded(part) for name, part in value.items()}
        case list():
            return [_rounded(part) for part in value]
        case _:
            return value


@pytest.mark.parametrize("capture", CAPTURES)
def test_every_packet_is_encoded_to_the_same_bytes(capture: str) -> None:
    for packet in packets_of(capture):
        assert decode(packet.wire).encode() == packet.wire, packet.number


@pytest.mark.parametrize("capture", CAPTURES)
def test_payload_starts_where_the_header_ends(capture: str) -> None:
    for packet in packets_of(capture):
        message = decode(packet.wire)
        if isinstance(message, Data):
            assert message.payload == packet.wire[packet.decoded["hdr_len"] :]


@pytest.mark.parametrize("capture", CAPTURES)
def test_pcap_and_json_files_have_the_same_packets(capture: str) -> None:
    frames = pcap.read(fuzz.VECTORS / f"{capture}.pcap")
    assert [frame.payload for frame in frames] == [packet.wire for packet in packets_of(capture)]


def test_nothing_is_left_out() -> None:
    packets = [packet.decoded for capture in CAPTURES for packet in packets_of(capture)]
    kinds = Counter((packet["type"], packet.get("flavor")) for packet in packets)
    assert len(CAPTURES) == 31
    assert kinds == {
        ("INFO", None): 52,
        ("DATA", None): DATA_PACKETS,
        ("CMD", "FLUSH"): 331,
        ("CMD", "EOT"): 1,
        ("CMD", "SQUELCH"): 1,
        ("CMD", "CC"): 165,
        ("CMD", "REPAIR_ADV"): 15,
        ("CMD", "ACK_REQ"): 2,
        ("CMD", "APPLICATION"): 6,
        ("NACK", None): 38,
        ("ACK", None): 172,
    }
    assert kinds.total() == PACKETS
    assert sum(len(packet.get("cc_nodes", ())) for packet in packets) == 256
    assert sum(len(packet.get("acking_nodes", ())) for packet in packets) == 15
    requests = [request for packet in packets for request in packet.get("repair", ())]
    assert Counter(request["form"] for request in requests) == {"ITEMS": 143, "RANGES": 8, "ERASURES": 1}
    assert sum(len(request["items"]) for request in requests) == 194
    extensions = Counter(extension["het"] for packet in packets for extension in packet.get("extensions", ()))
    assert extensions == {0: 1, 3: 216, 64: 1860, 128: 165}
    assert {field_bits_of(capture) for capture in CAPTURES} == {8, 16}
    assert {packet.get("fec_id") for packet in packets} == {None, 2, 5, 129}


def test_trains_of_data_read_as_their_datagrams_do() -> None:
    reader = DataReader()
    trains = datagrams = runs = streams = tails = 0
    for capture in CAPTURES:
        wires = [packet.wire for packet in packets_of(capture) if packet.decoded["type"] == "DATA"]
        for joined, segment_bytes in fuzz.as_trains(wires):
            train = Train(np.frombuffer(joined, np.uint8), segment_bytes, fuzz.ADDRESS)
            expected = [decode(wire) for wire in fuzz.datagrams(joined, segment_bytes)]
            assert list(fuzz.unrolled(reader, train)) == expected
            for run in reader.read(train):
                assert not isinstance(run, bytes)
                assert run.header.fti == _fti_of(expected[0])
                del expected[: run.count]
                runs += 1
                streams += run.header.is_stream
                tails += run.tail.size > 0
            trains += 1
            datagrams += train.count
    assert datagrams == DATA_PACKETS
    assert (trains, runs, streams, tails) == (128, 203, 34, 93)


def _fti_of(message: Message) -> Fti | None:
    return next((extension for extension in message.extensions if isinstance(extension, Fti)), None)
