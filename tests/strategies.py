"""Hypothesis strategies for everything that can be sent on the wire."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fjm2.norm.core.wire import (
    Ack,
    AckRequest,
    AckType,
    Application,
    Auth,
    CcFeedback,
    CcNode,
    CongestionControl,
    Data,
    EndOfTransmission,
    Extension,
    FecId,
    Flush,
    Fti,
    Info,
    Message,
    Nack,
    Passing,
    Position,
    Rate,
    RepairAdv,
    RepairForm,
    RepairRequest,
    Report,
    Squelch,
    Status,
    Unknown,
)

u4 = st.integers(0, 0xF)
u8 = st.integers(0, 0xFF)
u16 = st.integers(0, 0xFFFF)
u32 = st.integers(0, 0xFFFFFFFF)
u48 = st.integers(0, 0xFFFFFFFFFFFF)
u64 = st.integers(0, 0xFFFFFFFFFFFFFFFF)

fec_ids: SearchStrategy[int] = st.sampled_from([int(fec_id) for fec_id in FecId])
contents = st.binary(max_size=64)


def payload_ids(fec_id: int) -> SearchStrategy[int]:
    """Return a strategy for payload ids: integers as wide as the payload id of this FEC id."""
    return u64 if fec_id == FecId.SMALL_BLOCK_SYSTEMATIC else u32


positions = fec_ids.flatmap(
    lambda fec_id: st.builds(Position, st.just(fec_id), object_id=u16, payload_id=payload_ids(fec_id))
)


@st.composite
def ftis(draw: Callable[[SearchStrategy[Any]], Any], fec_id: int) -> Fti:
    """Draw an EXT_FTI with the fields that its FEC id has."""
    sizes: dict[str, int] = {"fec_id": fec_id, "object_bytes": draw(u48), "segment_bytes": draw(u16)}
    match fec_id:
        case FecId.COMPACT_NO_CODE:
            return Fti(**sizes, block_segments=draw(u32))
        case FecId.REED_SOLOMON_M:
            sizes |= {"block_segments": draw(u16), "parity_segments": draw(u16)}
            return Fti(**sizes, field_bits=draw(u8), group=draw(u8))
        case FecId.REED_SOLOMON_8:
            return Fti(**sizes, block_segments=draw(u8), parity_segments=draw(u8))
        case _:
            return Fti(**sizes, block_segments=draw(u16), parity_segments=draw(u16), instance=draw(u16))


cc_feedbacks = st.builds(CcFeedback, cc_sequence=u16, flags=u8, rtt_q=u8, loss_q=u32, rate_q=u16)
rates = st.builds(Rate, u16)
statuses = st.builds(Status, flags=u16, progress=u32)


def _whole_words(words: int) -> SearchStrategy[bytes]:
    """Return a strategy for the content of a header extension of `words` words: all bytes after its type and length."""
    return st.binary(min_size=4 * words - 2, max_size=4 * words - 2)


auths = st.integers(1, 6).flatmap(_whole_words).map(lambda content: Auth(content[0] >> 4, content))


def unknowns(known: set[int]) -> SearchStrategy[Unknown]:
    """Return a strategy for short and long header extensions of types that are not in `known`."""
    long = st.builds(
        Unknown, st.integers(0, 127).filter(lambda het: het not in known), st.integers(1, 6).flatmap(_whole_words)
    )
    short = st.builds(
        Unknown, st.integers(128, 255).filter(lambda het: het not in known), st.binary(min_size=3, max_size=3)
    )
    return long | short


def extensions(fec_id: int | None = None) -> SearchStrategy[tuple[Extension, ...]]:
    """Return a strategy for header extensions.

    They include EXT_FTI only if the message has a FEC id, which decides the format of EXT_FTI.
    """
    known = {CcFeedback.HET, Rate.HET, Auth.HET, Status.HET, Passing.HET}
    kinds: list[SearchStrategy[Any]] = [cc_feedbacks, rates, auths, statuses, st.just(Passing())]
    if fec_id is not None:
        known.add(Fti.HET)
        kinds.append(ftis(fec_id))
    return st.lists(st.one_of(*kinds, unknowns(known)), max_size=3).map(tuple)


@st.composite
def requests(draw: Callable[[SearchStrategy[Any]], Any]) -> RepairRequest:
    """Draw a repair request of any form. A range always has its last item."""
    form = draw(st.sampled_from(list(RepairForm)))
    items = draw(st.lists(positions, max_size=6))
    if form == RepairForm.RANGES and len(items) % 2:
        items.append(items[-1])
    return RepairRequest(form, draw(u8), tuple(items))


request_lists = st.lists(requests(), max_size=4).map(tuple)

_common: dict[str, SearchStrategy[Any]] = {"sequence": u16, "source_id": u32}
_from_sender = {**_common, "instance_id": u16, "grtt_q": u8, "backoff": u4, "gsize_q": u4}
_command = {**_from_sender, "extensions": extensions()}
_from_receiver = {
    **_common,
    "extensions": extensions(),
    "sender_id": u32,
    "instance_id": u16,
    "grtt_response_s": u32,
    "grtt_response_us": u32,
}
_cc_nodes = st.builds(CcNode, node_id=u32, flags=u8, rtt_q=u8, rate_q=u16)
_nodes = st.lists(u32, max_size=5).map(tuple)


def data_of(fec_id: int, payload: SearchStrategy[bytes] = contents) -> SearchStrategy[Data]:
    """Return a strategy for DATA with this FEC id, of a stream or another object."""
    return st.builds(
        Data,
        **_from_sender,
        extensions=extensions(fec_id),
        flags=u8,
        fec_id=st.just(fec_id),
        object_id=u16,
        payload_id=payload_ids(fec_id),
        payload=payload,
    )


def _info_of(fec_id: int) -> SearchStrategy[Info]:
    return st.builds(
        Info,
        **_from_sender,
        extensions=extensions(fec_id),
        flags=u8,
        fec_id=st.just(fec_id),
        object_id=u16,
        content=contents,
    )


def _at_position(kind: type[Flush | Squelch], **fields: SearchStrategy[Any]) -> SearchStrategy[Any]:
    return positions.flatmap(
        lambda position: st.builds(
            kind, **_from_sender, extensions=extensions(position.fec_id), position=st.just(position), **fields
        )
    )


_acks = st.builds(
    Ack, **_from_receiver, ack_type=u8.filter(lambda kind: kind != AckType.FLUSH), ack_id=u8, content=contents
) | st.builds(Ack, **_from_receiver, ack_type=st.just(int(AckType.FLUSH)), ack_id=u8, content=positions)

BY_KIND: dict[type[Message], SearchStrategy[Any]] = {
    Info: fec_ids.flatmap(_info_of),
    Data: fec_ids.flatmap(data_of),
    Nack: st.builds(Nack, **_from_receiver, requests=request_lists),
    Ack: _acks,
    Report: st.builds(Report, **_common, extensions=extensions(), content=contents),
    Flush: _at_position(Flush, acking_nodes=_nodes),
    EndOfTransmission: st.builds(EndOfTransmission, **_command),
    Squelch: _at_position(Squelch, invalid_objects=st.lists(u16, max_size=5).map(tuple)),
    CongestionControl: st.builds(
        CongestionControl,
        **_command,
        reserved=u8,
        cc_sequence=u16,
        send_time_s=u32,
        send_time_us=u32,
        nodes=st.lists(_cc_nodes, max_size=5).map(tuple),
    ),
    RepairAdv: st.builds(RepairAdv, **_command, flags=u8, requests=request_lists),
    AckRequest: st.builds(AckRequest, **_command, ack_type=u8, ack_id=u8, acking_nodes=_nodes),
    Application: st.builds(Application, **_command, content=contents),
}
"""A strategy for each class of message."""

messages: SearchStrategy[Message] = st.one_of(*BY_KIND.values())
