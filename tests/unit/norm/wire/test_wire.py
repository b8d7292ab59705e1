"""Tests of encoding and decoding messages, one datagram at a time."""

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import fuzz
import pytest
import strategies
from hypothesis import example, given
from hypothesis import strategies as st

from fjm2.errors import NormError, WireError
from fjm2.norm.core.wire import (
    Ack,
    AckRequest,
    Application,
    Auth,
    CcFeedback,
    CcNode,
    CongestionControl,
    Data,
    Extension,
    FecId,
    Flush,
    Fti,
    Info,
    Message,
    Nack,
    PayloadIdFormat,
    Position,
    Rate,
    RepairAdv,
    RepairForm,
    RepairRequest,
    Report,
    Squelch,
    Status,
    Unknown,
    decode,
    payload_id_format,
)

SENDER: dict[str, Any] = {"source_id": 1, "instance_id": 4242, "grtt_q": 120, "backoff": 4, "gsize_q": 2}
RECEIVER: dict[str, Any] = {"source_id": 2, "sender_id": 1, "instance_id": 4242}
OBJECT: dict[str, Any] = {**SENDER, "flags": 0, "fec_id": 5, "object_id": 0}
POSITION = Position(5, 1, 0x0205)

FORMATS = {
    "0": (payload_id_format(0), 4),
    "2, m=8": (payload_id_format(2), 4),
    "2, m=16": (payload_id_format(2, 16), 4),
    "5": (payload_id_format(5), 4),
    "129": (payload_id_format(129), 8),
}


# Round trips


@pytest.mark.parametrize("kind", strategies.BY_KIND, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_messages_survive_a_round_trip(kind: type[Message], data: st.DataObject) -> None:
    message = data.draw(strategies.BY_KIND[kind])
    assert isinstance(message, kind)
    wire = message.encode()
    assert decode(wire) == message
    assert decode(wire).encode() == wire


@pytest.mark.parametrize("fec_id", FecId)
@given(data=st.data())
def test_fti_of_each_fec_id_survives_a_round_trip(fec_id: FecId, data: st.DataObject) -> None:
    fti = data.draw(strategies.ftis(fec_id))
    for message in (
        Info(**{**OBJECT, "fec_id": int(fec_id)}, content=b"", extensions=(fti,)),
        Data(**{**OBJECT, "fec_id": int(fec_id)}, payload_id=0, payload=b"", extensions=(fti,)),
    ):
        assert decode(message.encode()).extensions == (fti,)


@given(
    st.lists(
        strategies.cc_feedbacks
        | strategies.rates
        | strategies.auths
        | strategies.statuses
        | strategies.unknowns({1, 3, 102, 128}),
        max_size=6,
    )
)
def test_extensions_survive_a_round_trip_in_order(extensions: list[Extension]) -> None:
    message = Nack(**RECEIVER, requests=(), extensions=tuple(extensions))
    wire = message.encode()
    assert wire[24:] == b"".join(extension.encode() for extension in extensions)
    assert wire[1] == len(wire) // 4
    assert decode(wire) == message


@given(strategies.requests())
def test_repair_requests_say_how_long_their_items_are(request: RepairRequest) -> None:
    wire = request.encode()
    assert (wire[0], wire[1], int.from_bytes(wire[2:4])) == (request.form, request.flags, len(wire) - 4)
    assert len(wire) - 4 == sum(12 if item.fec_id == FecId.SMALL_BLOCK_SYSTEMATIC else 8 for item in request.items)


@pytest.mark.parametrize(("form", "size"), FORMATS.values(), ids=FORMATS)
@given(data=st.data())
def test_payload_ids_come_apart_as_they_were_put_together(
    form: PayloadIdFormat, size: int, data: st.DataObject
) -> None:
    assert form.size == size
    assert form.block_bits + form.length_bits + form.symbol_bits == 8 * size
    block = data.draw(st.integers(0, 2**form.block_bits - 1))
    symbol = data.draw(st.integers(0, 2**form.symbol_bits - 1))
    length = data.draw(st.integers(0, 2**form.length_bits - 1))
    payload_id = form.pack(block, symbol, length)
    assert 0 <= payload_id < 2 ** (8 * size)
    assert (form.block(payload_id), form.symbol(payload_id), form.length(payload_id)) == (block, symbol, length)


@pytest.mark.parametrize(("form", "size"), FORMATS.values(), ids=FORMATS)
@given(*[st.integers(-(2**40), 2**40)] * 3)
def test_parts_of_a_payload_id_that_are_too_large_wrap_and_leave_the_others_alone(
    form: PayloadIdFormat, size: int, block: int, symbol: int, length: int
) -> None:
    payload_id = form.pack(block, symbol, length)
    assert 0 <= payload_id < 2 ** (8 * size)
    assert form.block(payload_id) == block % 2**form.block_bits
    assert form.symbol(payload_id) == symbol % 2**form.symbol_bits
    assert form.length(payload_id) == length % 2**form.length_bits


def test_the_flush_of_an_empty_object_stands_at_minus_one() -> None:
    assert payload_id_format(FecId.REED_SOLOMON_8).pack(-1, -1).to_bytes(4) == bytes.fromhex("ffffffff")


@pytest.mark.parametrize(("fec_id", "field_bits"), [(1, 8), (5, 16), (2, 12), (0, 16), (129, 16), (130, 8)])
def test_payload_ids_without_a_known_format_are_a_key_error(fec_id: int, field_bits: int) -> None:
    with pytest.raises(KeyError):
        payload_id_format(fec_id, field_bits)


# Messages byte by byte


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (
            CongestionControl(
                **SENDER,
                cc_sequence=0,
                send_time_s=0x6AFD4348,
                send_time_us=0x00086DF4,
                extensions=(Rate(0x4005),),
                nodes=(CcNode(node_id=2, flags=0x0D, rtt_q=0x2A, rate_q=0x4374),),
            ),
            "1307 0000 00000001 1092 78 42 04 00 0000 6afd4348 00086df4 80 00 4005 00000002 0d 2a 4374",
        ),
        (
            Data(
                **OBJECT,
                sequence=1,
                payload_id=0,
                payload=b"\xaa",
                extensions=(Fti(fec_id=5, object_bytes=300, segment_bytes=1024, block_segments=64),),
            ),
            "1208 0001 00000001 1092 78 42 00 05 0000 000000 00 40 03 00000000012c 0400 40 00 aa",
        ),
        (
            Flush(**SENDER, sequence=2, position=Position(5, 0, 0), acking_nodes=(2, 99)),
            "1305 0002 00000001 1092 78 42 01 05 0000 000000 00 00000002 00000063",
        ),
        (
            Nack(
                **RECEIVER,
                grtt_response_s=0x6AFD435B,
                grtt_response_us=0x000A32F8,
                extensions=(CcFeedback(cc_sequence=0, flags=0, rtt_q=0x94, loss_q=0x0000F990, rate_q=0x2FB5),),
                requests=(RepairRequest(RepairForm.ITEMS, 1, (Position(5, 1, 0x110), Position(5, 1, 0x111))),),
            ),
            "1409 0000 00000002 00000001 1092 0000 6afd435b 000a32f8 03 03 0000 00 94 0000 2fb5 f990"
            "01 01 0010 05 00 0001 000001 10 05 00 0001 000001 11",
        ),
        (
            Ack(
                source_id=3,
                sender_id=1,
                instance_id=4242,
                ack_type=2,
                grtt_response_s=0x6AFD43A0,
                grtt_response_us=0x000CECED,
                extensions=(CcFeedback(cc_sequence=0, flags=0x20, rtt_q=0x94, loss_q=0x0000F74E, rate_q=0x6CC4),),
                content=Position(5, 1, 5),
            ),
            "1509 0000 00000003 00000001 1092 02 00 6afd43a0 000ceced 03 03 0000 20 94 0000 6cc4 f74e"
            "05 00 0001 000000 05",
        ),
        (
            Ack(
                **RECEIVER,
                ack_type=1,
                grtt_response_s=0x6AFD43A0,
                grtt_response_us=0x000CECED,
                extensions=(Status(flags=1, progress=0xFEDCBA98),),
            ),
            "1508 0000 00000002 00000001 1092 01 00 6afd43a0 000ceced 66 02 0001 fedcba98",
        ),
        (Report(source_id=7, sequence=9, content=b"ab"), "1602 0009 00000007 6162"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else "",
)
def test_messages_of_the_reference_are_made_of_these_bytes(message: Message, wire: str) -> None:
    assert message.encode() == bytes.fromhex(wire)
    assert decode(bytes.fromhex(wire)) == message


# Faults on the wire

CMD = "00000001 1092 78 42"
NACK = "1406 0000 00000002 00000001 1092 0000 00000000 00000000"
ACK_FLUSH = "1506 0000 00000002 00000001 1092 0200 00000000 00000000"

FAULTS: dict[str, tuple[str, str, int]] = {
    "nothing": ("", "datagram of 0 bytes, expected 8 at least", 0),
    "less than a common header": ("1202 0000 000000", "datagram of 7 bytes, expected 8 at least", 0),
    "version 2": (f"2304 0000 {CMD} 02 000000", "NORM version 2, expected 1", 0),
    "type 0": ("1002 0000 00000001", "unknown message type 0", 0),
    "type 7": ("1702 0000 00000001", "unknown message type 7", 0),
    "header of no words": ("1600 0000 00000001", "header of 0 bytes in a message of 8", 1),
    "header past the message": (f"1305 0000 {CMD} 02 000000", "header of 20 bytes in a message of 16", 1),
    "CMD header too short": (f"1303 0000 {CMD} 02 000000", "header of 12 bytes, expected 16 at least", 1),
    "INFO header too short": (f"1103 0000 {CMD} 00 05 0000", "header of 12 bytes, expected 16 at least", 1),
    "NACK header too short": (f"1405 {NACK[5:]}", "header of 20 bytes, expected 24 at least", 1),
    "DATA header too short": (f"1204 0000 {CMD} 00 05 0000 00000000", "header of 16 bytes, expected 20 at least", 1),
    "DATA header too short for its FEC id": (
        f"1205 0000 {CMD} 00 81 0000 00000000 00000000",
        "header of 20 bytes, expected 24 at least",
        1,
    ),
    "CC header too short": (
        f"1304 0000 {CMD} 04 00 0000 00000000 00000000",
        "header of 16 bytes, expected 24 at least",
        1,
    ),
    "unknown flavor": (f"1304 0000 {CMD} 08 000000", "unknown CMD flavor 8", 12),
    "unknown FEC id of DATA": (f"1205 0000 {CMD} 00 06 0000 00000000", "unknown FEC id 6", 13),
    "unknown FEC id of INFO": (f"1104 0000 {CMD} 00 80 0000", "unknown FEC id 128", 13),
    "unknown FEC id of FLUSH": (f"1305 0000 {CMD} 01 01 0000 00000000", "unknown FEC id 1", 13),
    "extension of no words": (f"1305 0000 {CMD} 02 000000 00 00 0000", "extension 0 of length 0", 17),
    "extension past the header": (
        f"1305 0000 {CMD} 02 000000 09 02 0000 00000000",
        "extension 9 of 2 words runs past the header",
        17,
    ),
    "second extension past the header": (
        f"1306 0000 {CMD} 02 000000 80 00 0000 01 02 0000",
        "extension 1 of 2 words runs past the header",
        21,
    ),
    "EXT_FTI of another FEC id": (
        f"1107 0000 {CMD} 00 81 0000 40 03 00000000012c 0400 40 00",
        "EXT_FTI of 3 words, expected 4 for FEC id 129",
        17,
    ),
    "EXT_STATUS too short": (
        "1507 0000 00000002 00000001 1092 0100 00000000 00000000 66 01 0001",
        "EXT_STATUS of 1 words, expected 2",
        25,
    ),
    "EXT_CC too long": (
        f"1308 0000 {CMD} 05 000000 03 04 0000 00000000 00000000 00000000",
        "EXT_CC of 4 words, expected 3",
        17,
    ),
    "node id cut short": (f"1305 0000 {CMD} 01 05 0000 00000000 00000002 0000", "node id cut short", 24),
    "object id cut short": (f"1305 0000 {CMD} 03 05 0000 00000000 0001 00", "object id cut short", 22),
    "node of CMD(CC) cut short": (
        f"1306 0000 {CMD} 04 00 0000 00000000 00000000 00000002 0d2a4374 00000003",
        "CC node cut short",
        32,
    ),
    "asked node cut short": (f"1304 0000 {CMD} 06 00 1000 000002", "node id cut short", 16),
    "repair request cut short": (f"{NACK} 01 01 00", "repair request cut short", 24),
    "unknown form": (f"{NACK} 04 01 0000", "unknown repair request form 4", 24),
    "request past the message": (
        f"{NACK} 01 01 0010 05 00 0001 00000110",
        "repair request of 16 bytes runs past the message",
        26,
    ),
    "unknown FEC id of an item": (f"{NACK} 01 01 0008 07 00 0001 00000110", "unknown FEC id 7", 28),
    "item cut short": (f"{NACK} 01 01 0004 05 00 0001", "position cut short", 28),
    "second item cut short": (f"{NACK} 01 01 000c 05 00 0001 00000110 05 00 0001", "position cut short", 36),
    "second item of unknown FEC id": (f"{NACK} 01 01 000c 05 00 0001 00000110 09 00 0001", "unknown FEC id 9", 36),
    "range without an end": (
        f"{NACK} 01 01 0008 05 00 0001 00000110 02 08 0008 05 00 0007 00000000",
        "range without an end",
        40,
    ),
    "advertised range without an end": (
        f"1304 0000 {CMD} 05 00 0000 02 08 0008 05 00 0007 00000000",
        "range without an end",
        20,
    ),
    "ACK(FLUSH) without a position": (ACK_FLUSH, "position missing", 24),
    "ACK(FLUSH) of unknown FEC id": (f"{ACK_FLUSH} 03 00 0001 00000000", "unknown FEC id 3", 24),
    "ACK(FLUSH) with half a position": (f"{ACK_FLUSH} 81 00 0001 00000000 0000", "position cut short", 24),
}


@pytest.mark.parametrize(("wire", "what", "offset"), FAULTS.values(), ids=FAULTS)
def test_faults_are_named_with_their_place(wire: str, what: str, offset: int) -> None:
    with pytest.raises(WireError) as caught:
        decode(bytes.fromhex(wire))
    assert (caught.value.what, caught.value.offset) == (what, offset)
    assert str(caught.value) == f"{what} at offset {offset}"
    assert isinstance(caught.value, NormError)


def test_unknown_extensions_are_carried_along() -> None:
    wire = bytes.fromhex(f"1308 0000 {CMD} 07 000000 00 01 0000 c8 aabbcc 09 02 0001 00000002 6869")
    message = decode(wire)
    assert message == Application(
        **SENDER,
        extensions=(Unknown(0, bytes(2)), Unknown(200, b"\xaa\xbb\xcc"), Unknown(9, bytes.fromhex("000100000002"))),
        content=b"hi",
    )
    assert message.encode() == wire


def test_authentication_is_recognised_by_its_scheme() -> None:
    message = decode(bytes.fromhex(f"1306 0000 {CMD} 07 000000 01 02 5abc 01020304"))
    assert message.extensions == (Auth(5, bytes.fromhex("5abc01020304")),)


def test_an_fti_is_ignored_without_a_fec_id() -> None:
    message = decode(bytes.fromhex(f"1307 0000 {CMD} 07 000000 40 03 00000000012c 0400 40 00"))
    assert message.extensions == (Unknown(64, bytes.fromhex("00000000012c04004000")),)


def test_requests_may_mix_fec_ids_and_be_empty() -> None:
    items = (Position(5, 1, 7), Position(129, 2, 1 << 40), Position(0, 3, 9))
    message = Nack(**RECEIVER, requests=(RepairRequest(RepairForm.ITEMS, 1, items), RepairRequest(2, 8, ())))
    assert decode(message.encode()) == message


def test_bytes_after_the_position_of_an_acknowledgement_are_ignored() -> None:
    wire = bytes.fromhex(f"{ACK_FLUSH} 05 00 0001 00000205 ffff")
    message = decode(wire)
    assert isinstance(message, Ack)
    assert message.content == POSITION


# Faults of the caller

UNENCODABLE: dict[str, Message] = {
    "sequence": Report(source_id=1, sequence=0x10000, content=b""),
    "negative sequence": Report(source_id=1, sequence=-1, content=b""),
    "source_id": Report(source_id=1 << 32, content=b""),
    "instance_id": Application(**{**SENDER, "instance_id": 1 << 16}, content=b""),
    "grtt_q": Application(**{**SENDER, "grtt_q": 256}, content=b""),
    "backoff": Application(**{**SENDER, "backoff": 16}, content=b""),
    "negative gsize_q": Application(**{**SENDER, "gsize_q": -1}, content=b""),
    "flags": Info(**{**OBJECT, "flags": 256}, content=b""),
    "object_id": Info(**{**OBJECT, "object_id": 1 << 16}, content=b""),
    "fec_id": Data(**{**OBJECT, "fec_id": 3}, payload_id=0, payload=b""),
    "payload_id": Data(**OBJECT, payload_id=1 << 32, payload=b""),
    "payload_id of FEC id 129": Data(**{**OBJECT, "fec_id": 129}, payload_id=1 << 64, payload=b""),
    "position's FEC id": Flush(**SENDER, position=Position(3, 0, 0)),
    "position's FEC id beyond a byte": Squelch(**SENDER, position=Position(300, 0, 0)),
    "position's object id": Flush(**SENDER, position=Position(5, 1 << 16, 0)),
    "acking node": Flush(**SENDER, position=POSITION, acking_nodes=(1 << 32,)),
    "invalid object": Squelch(**SENDER, position=POSITION, invalid_objects=(-1,)),
    "cc_sequence": CongestionControl(**SENDER, cc_sequence=1 << 16, send_time_s=0, send_time_us=0),
    "CC node": CongestionControl(
        **SENDER,
        cc_sequence=0,
        send_time_s=0,
        send_time_us=0,
        nodes=(CcNode(node_id=1, flags=256, rtt_q=0, rate_q=0),),
    ),
    "flags of REPAIR_ADV": RepairAdv(**SENDER, flags=256),
    "ack_type of ACK_REQ": AckRequest(**SENDER, ack_type=256, ack_id=0),
    "ack_id of ACK_REQ": AckRequest(**SENDER, ack_type=16, ack_id=-1),
    "ack_type": Ack(**RECEIVER, ack_type=256),
    "acknowledged FEC id": Ack(**RECEIVER, ack_type=2, content=Position(3, 0, 0)),
    "grtt_response_us": Nack(**RECEIVER, grtt_response_us=1 << 32, requests=()),
    "request's flags": Nack(**RECEIVER, requests=(RepairRequest(1, 256, ()),)),
    "request's FEC id": Nack(**RECEIVER, requests=(RepairRequest(1, 1, (Position(6, 0, 0),)),)),
    "request's length": Nack(**RECEIVER, requests=(RepairRequest(1, 1, (POSITION,) * 8192),)),
}

BAD_EXTENSIONS: dict[str, Extension] = {
    "FTI's FEC id": Fti(fec_id=1, object_bytes=0, segment_bytes=0, block_segments=0),
    "FTI's object size": Fti(fec_id=5, object_bytes=1 << 48, segment_bytes=0, block_segments=0),
    "FTI's negative object size": Fti(fec_id=5, object_bytes=-1, segment_bytes=0, block_segments=0),
    "FTI's segment size": Fti(fec_id=129, object_bytes=0, segment_bytes=1 << 16, block_segments=0),
    "FTI's block length": Fti(fec_id=5, object_bytes=0, segment_bytes=0, block_segments=256),
    "FTI's parity": Fti(fec_id=2, object_bytes=0, segment_bytes=0, block_segments=0, parity_segments=1 << 16),
    "EXT_CC's loss": CcFeedback(cc_sequence=0, flags=0, rtt_q=0, loss_q=1 << 32, rate_q=0),
    "EXT_CC's rtt_q": CcFeedback(cc_sequence=0, flags=0, rtt_q=256, loss_q=0, rate_q=0),
    "EXT_STATUS's progress": Status(flags=0, progress=1 << 32),
    "EXT_STATUS's flags": Status(flags=1 << 16, progress=0),
    "EXT_RATE's rate": Rate(1 << 16),
    "type beyond a byte": Unknown(256, bytes(3)),
    "negative type": Unknown(-1, bytes(2)),
    "no whole words": Unknown(9, bytes(3)),
    "not the one word": Unknown(200, bytes(7)),
    "more words than a byte counts": Unknown(9, bytes(4 * 256 - 2)),
    "more than a header holds": Unknown(9, bytes(4 * 255 - 2)),
}


@pytest.mark.parametrize("message", UNENCODABLE.values(), ids=UNENCODABLE)
def test_fields_out_of_range_are_refused(message: Message) -> None:
    with pytest.raises(WireError):
        message.encode()


@pytest.mark.parametrize("extension", BAD_EXTENSIONS.values(), ids=BAD_EXTENSIONS)
def test_extensions_out_of_range_are_refused(extension: Extension) -> None:
    message = Info(**OBJECT, content=b"", extensions=(extension,))
    with pytest.raises(WireError):
        message.encode()


def test_the_longest_header_goes_through_and_a_longer_one_does_not() -> None:
    longest = Info(**OBJECT, content=b"x", extensions=(Unknown(9, bytes(1004 - 2)),))
    wire = longest.encode()
    assert (wire[1], len(wire)) == (255, 1021)
    assert decode(wire) == longest
    too_long = replace(longest, extensions=(*longest.extensions, Rate(1)))
    with pytest.raises(WireError, match=re.escape("header of 1024 bytes, at most 1020 at offset 1")):
        too_long.encode()


def test_a_refusal_says_which_field() -> None:
    with pytest.raises(WireError, match=re.escape("backoff=16, gsize_q=2: expected 0 to 15 at offset 11")):
        UNENCODABLE["backoff"].encode()


# Any bytes


@given(st.binary(max_size=80))
@example(b"")
def test_any_bytes_are_a_message_or_a_wire_error(data: bytes) -> None:
    fuzz.check_datagram(data)


@given(
    st.integers(1, 6),
    st.integers(0, 12),
    st.sampled_from([0, 1, 2, 5, 129, 200]),
    st.integers(0, 8),
    st.binary(max_size=60),
)
def test_anything_behind_a_plausible_header_is_a_message_or_a_wire_error(
    kind: int, words: int, fec_id: int, flavor: int, rest: bytes
) -> None:
    fuzz.check_datagram(bytes([0x10 | kind, words, 0, 0, 0, 0, 0, 1, 0, 1, 120, 0x42, flavor, fec_id]) + rest)


@given(strategies.messages, st.data())
def test_a_message_with_wrong_bytes_is_a_message_or_a_wire_error(message: Message, data: st.DataObject) -> None:
    wire = bytearray(message.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    fuzz.check_datagram(bytes(wire))


@given(strategies.messages)
def test_a_message_cut_anywhere_is_a_message_or_a_wire_error(message: Message) -> None:
    wire = message.encode()
    for length in range(len(wire)):
        fuzz.check_datagram(wire[:length])


def test_mutated_packets_of_real_captures_keep_the_invariants() -> None:
    counts = Counter(fuzz.outcomes(20_000, seed=5740))
    assert counts.total() == 20_000
    # Mutations that are too wild, or not wild enough, would miss some of these outcomes.
    assert {kind.__name__ for kind in strategies.BY_KIND} <= set(counts)
    assert {"train of DATA", "train of DATA and others", "train without DATA"} <= set(counts)
    assert sum(outcome.startswith("error") for outcome in counts) >= 15


def test_a_failing_case_is_reported_with_its_bytes(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    def decode_nothing(_data: bytes) -> Message:
        raise IndexError("out of range")

    monkeypatch.setattr(fuzz, "decode", decode_nothing)
    assert fuzz.main(["--cases", "10", "--seed", "1"]) == 1
    replay = re.search(r"--replay ([0-9a-f]+)(?: --segment-bytes (\d+))?", capsys.readouterr().err)
    assert replay is not None
    assert fuzz.main(["--replay", replay[1], *(["--segment-bytes", replay[2]] if replay[2] else [])]) == 1
    monkeypatch.undo()
    assert fuzz.main(["--replay", replay[1]]) == 0
