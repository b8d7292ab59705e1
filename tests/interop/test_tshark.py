"""Tests of every kind of message against another decoder: tshark's NORM dissector.

tshark 4.0 does not decode everything that it shows. Comments below say what is left out, and where. In the stream
header of a segment tshark shows the length as "Reserved", and the message start as "Payload Len".
"""

import subprocess
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import pcap
import pytest

from fjm2.norm.core.quantize import group_size_of, loss_of, rate_of, rtt_of
from fjm2.norm.core.wire import (
    NODE_NONE,
    REPAIR_ADV_LIMIT,
    STREAM_HEADER,
    Ack,
    AckRequest,
    AckType,
    Application,
    Auth,
    CcFeedback,
    CcFlag,
    CcNode,
    CongestionControl,
    Data,
    EndOfTransmission,
    Extension,
    FecId,
    Flavor,
    Flush,
    FromReceiver,
    FromSender,
    Fti,
    Info,
    Message,
    MessageType,
    Nack,
    ObjectFlag,
    Position,
    Rate,
    RepairAdv,
    RepairFlag,
    RepairForm,
    RepairRequest,
    Report,
    Squelch,
    Unknown,
    decode,
    payload_id_format,
)

Fields = dict[str, list[Any]]

SENDER_ID = 0x0A0B0C0D
SENDER: dict[str, Any] = {
    "sequence": 0xFEDC,
    "source_id": SENDER_ID,
    "instance_id": 4242,
    "grtt_q": 120,
    "backoff": 4,
    "gsize_q": 2,
}
RECEIVER: dict[str, Any] = {
    "source_id": 0x01020304,
    "sender_id": SENDER_ID,
    "instance_id": 4242,
    "grtt_response_s": 1_700_000_000,
    "grtt_response_us": 123_456,
}
CC_FEEDBACK = CcFeedback(
    cc_sequence=513, flags=int(CcFlag.CLR | CcFlag.RTT), rtt_q=148, loss_q=0x0CCD0000, rate_q=0x4005
)
TRANSPARENT = {FecId.COMPACT_NO_CODE, FecId.SMALL_BLOCK_SYSTEMATIC}
"""FEC ids whose payload ids tshark decodes, so that it also finds the fields after them.

For FEC id 5, tshark takes everything up to the end of the message for the payload id. For FEC id 2, it reads the symbol
as 32 bits.
"""


def position(fec_id: int, block: int = 0x0304, symbol: int = 17) -> Position:
    return Position(fec_id, 0xBEEF, payload_id_format(fec_id).pack(block, symbol, 64))


def fti(fec_id: int) -> Fti:
    parity = 0 if fec_id == FecId.COMPACT_NO_CODE else 8
    return Fti(
        fec_id=fec_id,
        object_bytes=0x0102_0304_0506,
        segment_bytes=1400,
        block_segments=64,
        parity_segments=parity,
    )


def _of_object(fec_id: int) -> dict[str, Message]:
    where = position(fec_id)
    common: dict[str, Any] = {**SENDER, "fec_id": fec_id, "object_id": where.object_id, "extensions": (fti(fec_id),)}
    stream = int(ObjectFlag.STREAM | ObjectFlag.REPAIR)
    messages: dict[str, Message] = {
        "INFO": Info(**common, flags=int(ObjectFlag.INFO), content=b"about it"),
        "DATA": Data(
            **common, flags=int(ObjectFlag.INFO | ObjectFlag.FILE), payload_id=where.payload_id, payload=b"content"
        ),
        "FLUSH": Flush(**SENDER, position=where),
        "FLUSH with nodes": Flush(**SENDER, position=where, acking_nodes=(2, 3)),
        # The list of objects is left out: tshark reads 4 bytes for each id, which has only 2.
        "SQUELCH": Squelch(**SENDER, position=where),
        "REPAIR_ADV": RepairAdv(
            **SENDER,
            flags=REPAIR_ADV_LIMIT,
            extensions=(CC_FEEDBACK,),
            requests=(RepairRequest(RepairForm.ITEMS, int(RepairFlag.BLOCK), (position(fec_id, 4, 0),)),),
        ),
        "NACK": Nack(
            **RECEIVER,
            extensions=(CC_FEEDBACK,),
            requests=(
                RepairRequest(RepairForm.ITEMS, int(RepairFlag.SEGMENT), (where, position(fec_id, 5, 1))),
                RepairRequest(RepairForm.RANGES, int(RepairFlag.BLOCK | RepairFlag.INFO), (where, where)),
                RepairRequest(RepairForm.RANGES, int(RepairFlag.OBJECT), (Position(fec_id, 7, 0),) * 2),
                RepairRequest(RepairForm.ERASURES, int(RepairFlag.SEGMENT), (position(fec_id, 6, 2),)),
                RepairRequest(RepairForm.ITEMS, int(RepairFlag.INFO), (Position(fec_id, 8, 0),)),
            ),
        ),
        "ACK(FLUSH)": Ack(**RECEIVER, ack_type=int(AckType.FLUSH), ack_id=9, extensions=(CC_FEEDBACK,), content=where),
    }
    if fec_id != FecId.REED_SOLOMON_8:  # tshark looks for the stream header behind the wrong payload id
        payload = STREAM_HEADER.pack(5, 1, 0xFFFF0000) + b"bytes"
        messages["DATA of a stream"] = Data(**common, flags=stream, payload_id=where.payload_id, payload=payload)
    return {f"{name}, FEC id {fec_id}": message for name, message in messages.items()}


MESSAGES: dict[str, Message] = {
    **{name: message for fec_id in FecId for name, message in _of_object(fec_id).items()},
    "INFO with all flags": Info(
        **SENDER, fec_id=129, object_id=0xFFFF, flags=0x7F, content=b"", extensions=(fti(129),)
    ),
    "INFO with extensions to skip": Info(
        **SENDER,
        fec_id=129,
        object_id=1,
        flags=int(ObjectFlag.INFO),
        content=b"x",
        extensions=(Unknown(0, bytes(2)), fti(129), Auth(1, b"\x10\x00abcd"), Unknown(65, bytes(6)), Rate(0x4005)),
    ),
    "EOT": EndOfTransmission(**SENDER),
    "CC": CongestionControl(
        **SENDER,
        cc_sequence=0xFFFE,
        send_time_s=1_700_000_000,
        send_time_us=999_999,
        extensions=(Rate(0x4005),),
        nodes=(
            CcNode(node_id=2, flags=int(CcFlag.CLR | CcFlag.RTT), rtt_q=100, rate_q=0x4005),
            CcNode(node_id=3, flags=int(CcFlag.RTT), rtt_q=101, rate_q=0x4006),
        ),
    ),
    "CC without rate and nodes": CongestionControl(**SENDER, cc_sequence=0, send_time_s=1, send_time_us=2),
    "ACK_REQ": AckRequest(**SENDER, ack_type=int(AckType.FLUSH), ack_id=3, acking_nodes=(2, 3)),
    "ACK_REQ of the application": AckRequest(**SENDER, ack_type=16, ack_id=255),
    "APPLICATION": Application(**SENDER, content=b"a word"),
    "NACK without requests": Nack(**{**RECEIVER, "grtt_response_s": 0, "grtt_response_us": 0}, requests=()),
    "ACK(CC)": Ack(**RECEIVER, ack_type=int(AckType.CC), extensions=(CC_FEEDBACK,)),
    "ACK of the application": Ack(**RECEIVER, ack_type=99, ack_id=7, content=b"yes"),
    "REPORT": Report(source_id=NODE_NONE, sequence=6, content=b"any"),
}


def expected(message: Message) -> Fields:
    """Return the fields that tshark should show for a message, by name, each with its values in order."""
    fields = _header(message)
    match message:
        case Info() | Data():
            fields |= _object(message)
        case Flush() | Squelch():
            fields |= {"norm.flavor": [int(message.FLAVOR)], **_position(message.position)}
            if isinstance(message, Flush) and message.position.fec_id in TRANSPARENT:
                fields["norm.payload"] = _payload(b"".join(node.to_bytes(4) for node in message.acking_nodes))
        case EndOfTransmission():
            fields["norm.flavor"] = [int(Flavor.EOT)]
        case CongestionControl():
            fields |= {
                "norm.flavor": [int(Flavor.CC)],
                "norm.ccsequence": [message.cc_sequence],
                "norm.cc_sts": [message.send_time_s],
                "norm.cc_stus": [message.send_time_us],
                # tshark shows the node list, but does not decode it.
                "norm.payload": _payload(message.encode()[4 * message.encode()[1] :]),
                **_extensions(message.extensions),
            }
        case RepairAdv():
            fields |= {"norm.flavor": [int(Flavor.REPAIR_ADV)], "norm.flags": [message.flags]}
            fields |= _extensions(message.extensions) | _requests(message.requests)
        case AckRequest():
            fields |= {
                "norm.flavor": [int(Flavor.ACK_REQ)],
                "norm.ack.type": [message.ack_type],
                "norm.ack.id": [message.ack_id],
                "norm.payload": _payload(b"".join(node.to_bytes(4) for node in message.acking_nodes)),
            }
        case Application():
            # tshark takes the last three bytes of the header for payload.
            fields |= {"norm.flavor": [int(Flavor.APPLICATION)], "norm.payload": _payload(bytes(3) + message.content)}
        case Nack():
            fields |= {"norm.nack.server": [_dotted(message.sender_id)]}
            fields |= _extensions(message.extensions) | _requests(message.requests)
        case Ack(content=content):
            fields |= {
                "norm.ack.source": [_dotted(message.sender_id)],
                "norm.ack.type": [message.ack_type],
                "norm.ack.id": [message.ack_id],
                "norm.payload": _payload(content.encode() if isinstance(content, Position) else content),
                **_extensions(message.extensions),
            }
        case Report():
            fields["norm.payload"] = _payload(message.content)
        case _:
            raise AssertionError(message)
    return fields


def _header(message: Message) -> Fields:
    """Return the fields of the header that messages of a sender, or those of a receiver, have in common."""
    fields: dict[str, list[Any]] = {
        "norm.version": [1],
        "norm.type": [int(message.TYPE)],
        "norm.hlen": [message.encode()[1]],
        "norm.sequence": [message.sequence],
        "norm.source_id": [_dotted(message.source_id)],
    }
    match message:
        case FromSender():
            fields |= {
                "norm.instance_id": [message.instance_id],
                "norm.grtt": [pytest.approx(rtt_of(message.grtt_q))],
                "norm.backoff": [message.backoff],
                "norm.gsize": [group_size_of(message.gsize_q)],
            }
        case FromReceiver():
            kind = "nack" if isinstance(message, Nack) else "ack"
            fields |= {
                "norm.instance_id": [message.instance_id],
                f"norm.{kind}.grtt_sec": [message.grtt_response_s],
                f"norm.{kind}.grtt_usec": [message.grtt_response_us],
            }
    return fields


def _object(message: Info | Data) -> Fields:
    names = ("repair", "explicit", "info", "unreliable", "file", "stream", "msgstart")
    fields: dict[str, list[Any]] = {
        "norm.flags": [message.flags],
        **{f"norm.flag.{name}": [message.flags >> bit & 1] for bit, name in enumerate(names)},
    }
    if isinstance(message, Info):
        return fields | {
            "norm.fec_encoding_id": [message.fec_id],
            "norm.object_transport_id": [message.object_id],
            "norm.payload": _payload(message.content),
            **_extensions(message.extensions),
        }
    fields |= _position(Position(message.fec_id, message.object_id, message.payload_id))
    if message.fec_id not in TRANSPARENT:
        return fields
    payload = message.payload
    if message.flags & ObjectFlag.STREAM:
        length, message_start, offset = STREAM_HEADER.unpack_from(payload)
        fields |= {
            "norm.reserved": [length],
            "norm.payload.len": [message_start],
            "norm.payload.offset": [offset],
        }
        payload = payload[STREAM_HEADER.size :]
    return fields | {"norm.payload": _payload(payload), **_extensions(message.extensions)}


def _extensions(extensions: tuple[Extension, ...]) -> Fields:
    fields: defaultdict[str, list[Any]] = defaultdict(list)
    for extension in extensions:
        fields["rmt-lct.hec.type"].append(extension.encode()[0])
        match extension:
            case Fti():
                fields["rmt-fec.fti.transfer_length"].append(extension.object_bytes)
                if extension.fec_id in TRANSPARENT:  # tshark knows no more of the others
                    fields["rmt-fec.fti.encoding_symbol_length"].append(extension.segment_bytes)
                    fields["rmt-fec.fti.max_source_block_length"].append(extension.block_segments)
                if extension.fec_id == FecId.SMALL_BLOCK_SYSTEMATIC:
                    fields["rmt-fec.instance_id"].append(extension.instance)
                    fields["rmt-fec.fti.max_number_encoding_symbols"].append(extension.parity_segments)
            case CcFeedback():
                fields["rmt-lct.cc_sequence"].append(extension.cc_sequence)
                fields["rmt-lct.cc_flags"].append(extension.flags)
                fields["rmt-lct.cc_rtt"].append(extension.rtt_q)
                fields["rmt-lct.cc_loss"].append(pytest.approx(loss_of(extension.loss_q), rel=1e-4))
                fields["rmt-lct.cc_rate"].append(extension.rate_q)
            case Rate():
                fields["rmt-lct.send_rate"].append(pytest.approx(rate_of(extension.rate_q)))
    return fields


def _requests(requests: tuple[RepairRequest, ...]) -> Fields:
    """Return the fields of each repair request's head and first item. tshark shows no more than that."""
    fields: defaultdict[str, list[Any]] = defaultdict(list)
    for request in requests:
        fields["norm.nack.form"].append(int(request.form))
        fields["norm.nack.flags"].append(request.flags)
        for bit, name in enumerate(("segment", "block", "info", "object")):
            fields[f"norm.nack.flags.{name}"].append(request.flags >> bit & 1)
        fields["norm.nack.length"].append(len(request.encode()) - 4)
        for name, values in _position(request.items[0]).items():
            fields[name] += values
    return fields


def _position(where: Position) -> Fields:
    fields: dict[str, list[Any]] = {
        "norm.fec_encoding_id": [where.fec_id],
        "norm.object_transport_id": [where.object_id],
    }
    if where.fec_id in TRANSPARENT:
        form = payload_id_format(where.fec_id)
        fields["rmt-fec.sbn"] = [form.block(where.payload_id)]
        fields["rmt-fec.esi"] = [form.symbol(where.payload_id)]
    if where.fec_id == FecId.SMALL_BLOCK_SYSTEMATIC:
        fields["rmt-fec.sbl"] = [form.length(where.payload_id)]
    return fields


def _dotted(node_id: int) -> str:
    """Return a node id as an IPv4 address, which is how tshark shows it."""
    return ".".join(map(str, node_id.to_bytes(4)))


def _payload(content: bytes) -> list[str]:
    return [content.hex(":")] if content else []


@dataclass(frozen=True)
class Dissection:
    """The protocols, fields and labels that tshark shows for one packet."""

    protocols: list[str]
    fields: defaultdict[str, list[str]]
    labels: list[str]


@pytest.fixture(scope="module")
def dissections(
    require_tool: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Dissection]:
    """Return tshark's view of each message, from one run of tshark for all of them."""
    tshark = require_tool("tshark")
    path = tmp_path_factory.mktemp("tshark") / "messages.pcap"
    pcap.write(path, [message.encode() for message in MESSAGES.values()])
    argv = [tshark, "-r", str(path), "-d", f"udp.port=={pcap.PORT},norm", "-T", "pdml"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    packets = ElementTree.fromstring(done.stdout).iter("packet")
    return dict(zip(MESSAGES, map(_dissection, packets), strict=True))


def _dissection(packet: ElementTree.Element) -> Dissection:
    fields: defaultdict[str, list[str]] = defaultdict(list)
    labels: list[str] = []
    for field in packet.iter("field"):
        fields[field.get("name", "")].append(field.get("show", ""))
        labels.append(field.get("showname", ""))
    return Dissection([proto.get("name", "") for proto in packet.iter("proto")], fields, labels)


def _value(shown: str, like: Any) -> Any:
    """Convert a value that tshark shows to the type of the expected value `like`."""
    if isinstance(like, str):
        return shown
    return int(shown, 0) if isinstance(like, int) else float(shown)


@pytest.mark.parametrize("name", MESSAGES)
def test_tshark_sees_the_fields_that_were_encoded(name: str, dissections: Mapping[str, Dissection]) -> None:
    dissection = dissections[name]
    for field, values in expected(MESSAGES[name]).items():
        shown = dissection.fields[field]
        assert len(shown) == len(values), (field, shown)
        assert [_value(text, value) for text, value in zip(shown, values, strict=True)] == values, field


@pytest.mark.parametrize("name", MESSAGES)
def test_tshark_finds_nothing_wrong(name: str, dissections: Mapping[str, Dissection]) -> None:
    dissection = dissections[name]
    assert "norm" in dissection.protocols
    if not _ends_in_payload_id_2(MESSAGES[name]):
        assert "_ws.malformed" not in dissection.protocols
    # tshark names only the extension types of ALC, and no acknowledgement types of applications.
    nameless = ("Header Extension Type (HET): Unknown", "Ack Type: Unknown (16)", "Ack Type: Unknown (99)")
    assert [label for label in dissection.labels if "Unknown" in label and not label.startswith(nameless)] == []


def _ends_in_payload_id_2(message: Message) -> bool:
    """Return True if tshark runs past the end of a message.

    tshark reads 6 bytes for the payload id of FEC id 2, which has only 4.
    """
    match message:
        case Flush(position=where, acking_nodes=()) | Squelch(position=where):
            return where.fec_id == FecId.REED_SOLOMON_M
        case Nack(requests=(*_, last)) | RepairAdv(requests=(*_, last)):
            return last.items[-1].fec_id == FecId.REED_SOLOMON_M
        case _:
            return False


def test_every_type_flavor_form_and_fec_id_is_shown() -> None:
    messages = list(MESSAGES.values())
    assert {message.TYPE for message in messages} == set(MessageType)
    assert {message.encode()[12] for message in messages if message.TYPE == MessageType.CMD} == set(Flavor)
    assert {message.fec_id for message in messages if isinstance(message, Info | Data)} == set(FecId)
    requests = [request for message in messages if isinstance(message, Nack) for request in message.requests]
    assert {request.form for request in requests} == set(RepairForm)
    assert {type(extension) for message in messages for extension in message.extensions} == {
        Auth,
        CcFeedback,
        Fti,
        Rate,
        Unknown,
    }
    assert all(decode(message.encode()) == message for message in messages)
