"""Commands of the cell, NORM_CMD(APPLICATION) by the kind in byte 0: heartbeat, vote, fetch, founding, counted, and
those of `catch_up`, `replacement` and `table`.

Kind 1 is the announcement of a connection (docs/bus.md), which is none of the cell's.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import ClassVar, Final, NamedTuple

from .catch_up import CatchUpPage, CatchUpQuery, decode_page, decode_query
from .fields import (
    MEMBER_BYTES,
    FieldReader,
    MalformedError,
    Member,
    check_count,
    check_keeper_id,
    pack,
    read_members,
    require,
)
from .kinds import Kind
from .ranges import RANGES_MAX, Range, encode_ranges, read_ranges
from .replacement import Replacement, decode_replacement
from .table import (
    CellQuestion,
    TableHashes,
    TableQuery,
    decode_cell_question,
    decode_table_hashes,
    decode_table_query,
)

MEMBERS_MAX: Final = 8
"""Most members in a heartbeat: five, and those that a change of members adds."""
FOUNDERS_MAX: Final = 5
"""Largest number of members that a cell is founded with."""

_HEARTBEAT = struct.Struct(">BBBBIQIIQQI")
_MEMBER = struct.Struct(">16sIBBHQQ")
_VOTE = struct.Struct(">BBHIQ16sIIQ")
_FETCH = struct.Struct(">BBHIQ")
_FOUNDING = struct.Struct(">BBBBQ")
_COUNTED = struct.Struct(">BBHIQQ")


class HeartbeatFlag(IntFlag):
    """Flags of a heartbeat."""

    SERVING = 1


class MemberFlag(IntFlag):
    """Flags of a member in a heartbeat."""

    LIVE = 1
    AMNESIAC = 2


class HeartbeatMember(NamedTuple):
    """A member as the manager sees it."""

    keeper_id: bytes
    node_id: int
    flags: int
    incarnation: int
    durable_lsn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The manager's sign of life, with the members of the cell."""

    kind: ClassVar = Kind.HEARTBEAT
    flags: int
    epoch: int
    cell_id: int
    configuration: int
    number: int
    """Counts the heartbeats of an epoch from 1 on."""
    committed: int
    """Index of the last committed entry of the decision log."""
    table_version: int
    members: tuple[HeartbeatMember, ...]
    committed_epoch: int = 0
    """Epoch of that entry. A member that has an entry of this epoch there has the same log up to it."""

    def encode(self) -> bytes:
        check_count("members", len(self.members), 0, MEMBERS_MAX)
        head = pack(
            _HEARTBEAT,
            self.kind,
            self.flags,
            len(self.members),
            0,
            self.epoch,
            self.cell_id,
            self.configuration,
            self.number,
            self.committed,
            self.table_version,
            self.committed_epoch,
        )
        parts = [head]
        for keeper_id, node_id, flags, incarnation, durable_lsn in self.members:
            parts.append(pack(_MEMBER, check_keeper_id(keeper_id), node_id, flags, 0, 0, incarnation, durable_lsn))
        return b"".join(parts)


class VoteFlag(IntFlag):
    """Flags of vote requests and answers."""

    PRE_VOTE = 1
    """Asks, or answers, how the vote would be. Nothing is promised."""
    GRANTED = 2
    """In an answer: the vote is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest:
    """A candidate's request for a vote, or for a pre-vote."""

    kind: ClassVar = Kind.VOTE_REQUEST
    flags: int
    epoch: int
    """The epoch in which the candidate wants to be manager."""
    cell_id: int
    candidate: bytes
    configuration: int
    last_epoch: int
    """Epoch of the last entry of the candidate's log."""
    last_index: int

    def encode(self) -> bytes:
        return _encode_vote(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteAnswer:
    """A voter's answer. It repeats the request, but for its own configuration and log."""

    kind: ClassVar = Kind.VOTE_ANSWER
    flags: int
    epoch: int
    """The epoch asked for if the vote is granted, otherwise the epoch that the voter has promised."""
    cell_id: int
    candidate: bytes
    configuration: int
    last_epoch: int
    last_index: int
    voter: Member
    """The voter with its incarnation: a store that was lost since has promised nothing."""

    def encode(self) -> bytes:
        return _encode_vote(self) + self.voter.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """A request for frames, which are sent unchanged on the replay group."""

    kind: ClassVar = Kind.FETCH
    reply_to: int
    """Node id of the keeper that asks."""
    cell_id: int
    ranges: tuple[Range, ...]

    def encode(self) -> bytes:
        check_count("ranges", len(self.ranges), 1, RANGES_MAX)
        head = pack(_FETCH, self.kind, 0, len(self.ranges), self.reply_to, self.cell_id)
        return head + encode_ranges(self.ranges)


class CountedFlag(IntFlag):
    """Flags of a COUNTED."""

    HEARSAY = 1
    """The sender may have learned of the sequences after it heard of a subscription that asks for them."""
    FENCED = 2
    """The sender lacks the frames, and refuses them unless another member sends them: their ledgers are fenced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """An answer to a fetch: sequences of which no frame is kept, because nobody asked for it or it was released."""

    kind: ClassVar = Kind.COUNTED
    flags: int = 0
    cell_id: int
    table_version: int
    """Newest table whose frames the sender keeps. It tells nothing to a keeper with a newer one."""
    ranges: tuple[Range, ...]

    def encode(self) -> bytes:
        check_count("ranges", len(self.ranges), 1, RANGES_MAX)
        head = pack(_COUNTED, self.kind, self.flags, len(self.ranges), 0, self.cell_id, self.table_version)
        return head + encode_ranges(self.ranges)


class FoundingStep(IntEnum):
    """Steps of the founding of a cell."""

    HERE = 1
    """A keeper without a cell is there. It names itself."""
    PREPARE = 2
    """The proposer asks all founders to keep the configuration for ever."""
    PREPARED = 3
    """A founder has it on disk. It names itself."""
    FOUND = 4
    """All founders have it on disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Founding:
    """A step of the founding of a cell."""

    kind: ClassVar = Kind.FOUNDING
    step: int
    members_wanted: int
    """K: the number of members that the cell is founded with."""
    cell_id: int
    """0 in a HERE."""
    members: tuple[Member, ...]

    def encode(self) -> bytes:
        check_count("members", self.members_wanted, 1, FOUNDERS_MAX)
        check_count("founders", len(self.members), 1, FOUNDERS_MAX)
        head = pack(_FOUNDING, self.kind, self.step, self.members_wanted, 0, self.cell_id)
        return head + b"".join(member.encode() for member in self.members)


def _encode_vote(vote: VoteRequest | VoteAnswer) -> bytes:
    return pack(
        _VOTE,
        vote.kind,
        vote.flags,
        0,
        vote.epoch,
        vote.cell_id,
        check_keeper_id(vote.candidate),
        vote.configuration,
        vote.last_epoch,
        vote.last_index,
    )


def _decode_heartbeat(reader: FieldReader) -> Heartbeat:
    _, flags, count, zero, epoch, cell_id, configuration, number, committed, table_version, committed_epoch = (
        reader.unpack(_HEARTBEAT)
    )
    require(not flags & ~_HEARTBEAT_FLAGS and not zero and count <= MEMBERS_MAX)
    return Heartbeat(
        flags=flags,
        epoch=epoch,
        cell_id=cell_id,
        configuration=configuration,
        number=number,
        committed=committed,
        table_version=table_version,
        members=tuple(_read_heartbeat_member(reader) for _ in range(count)),
        committed_epoch=committed_epoch,
    )


def _read_heartbeat_member(reader: FieldReader) -> HeartbeatMember:
    keeper_id, node_id, flags, zero, more_zeros, incarnation, durable_lsn = reader.unpack_any(_MEMBER)
    require(not flags & ~_MEMBER_FLAGS and not zero and not more_zeros)
    return HeartbeatMember(keeper_id, node_id, flags, incarnation, durable_lsn)


def _decode_vote_request(reader: FieldReader) -> VoteRequest:
    _, flags, zero, epoch, cell_id, candidate, configuration, last_epoch, last_index = reader.unpack_any(_VOTE)
    require(not flags & ~VoteFlag.PRE_VOTE and not zero)
    return VoteRequest(
        flags=flags,
        epoch=epoch,
        cell_id=cell_id,
        candidate=candidate,
        configuration=configuration,
        last_epoch=last_epoch,
        last_index=last_index,
    )


def _decode_vote_answer(reader: FieldReader) -> VoteAnswer:
    _, flags, zero, epoch, cell_id, candidate, configuration, last_epoch, last_index = reader.unpack_any(_VOTE)
    require(not flags & ~_ANSWER_FLAGS and not zero)
    return VoteAnswer(
        flags=flags,
        epoch=epoch,
        cell_id=cell_id,
        candidate=candidate,
        configuration=configuration,
        last_epoch=last_epoch,
        last_index=last_index,
        voter=read_members(reader, 1)[0],
    )


def _decode_fetch(reader: FieldReader) -> Fetch:
    _, zero, count, reply_to, cell_id = reader.unpack(_FETCH)
    require(not zero and count >= 1)
    return Fetch(reply_to=reply_to, cell_id=cell_id, ranges=read_ranges(reader, count))


def _decode_founding(reader: FieldReader) -> Founding:
    _, step, members_wanted, zero, cell_id = reader.unpack(_FOUNDING)
    count, odd = divmod(reader.remaining, MEMBER_BYTES)
    require(step in _STEPS and not zero and not odd)
    require(1 <= members_wanted <= FOUNDERS_MAX and 1 <= count <= FOUNDERS_MAX)
    return Founding(step=step, members_wanted=members_wanted, cell_id=cell_id, members=read_members(reader, count))


def _decode_counted(reader: FieldReader) -> Counted:
    _, flags, count, zero, cell_id, table_version = reader.unpack(_COUNTED)
    require(not flags & ~_COUNTED_FLAGS and not zero and count >= 1)
    ranges = read_ranges(reader, count)
    return Counted(flags=flags, cell_id=cell_id, table_version=table_version, ranges=ranges)


_HEARTBEAT_FLAGS = int(HeartbeatFlag.SERVING)
_COUNTED_FLAGS = int(CountedFlag.HEARSAY | CountedFlag.FENCED)
_MEMBER_FLAGS = int(MemberFlag.LIVE | MemberFlag.AMNESIAC)
_ANSWER_FLAGS = int(VoteFlag.PRE_VOTE | VoteFlag.GRANTED)
_STEPS = frozenset(FoundingStep)
_DECODERS: Final[dict[int, Callable[[FieldReader], "Command"]]] = {
    Kind.HEARTBEAT: _decode_heartbeat,
    Kind.VOTE_REQUEST: _decode_vote_request,
    Kind.VOTE_ANSWER: _decode_vote_answer,
    Kind.FETCH: _decode_fetch,
    Kind.FOUNDING: _decode_founding,
    Kind.COUNTED: _decode_counted,
    Kind.TABLE_HASHES: decode_table_hashes,
    Kind.TABLE_QUERY: decode_table_query,
    Kind.CATCH_UP_QUERY: decode_query,
    Kind.CATCH_UP_PAGE: decode_page,
    Kind.CELL_QUESTION: decode_cell_question,
    Kind.REPLACEMENT: decode_replacement,
}

Command = (
    Heartbeat
    | VoteRequest
    | VoteAnswer
    | Fetch
    | Founding
    | Counted
    | TableHashes
    | TableQuery
    | CatchUpQuery
    | CatchUpPage
    | CellQuestion
    | Replacement
)


def decode_command(content: bytes) -> Command | None:
    """Return the command that `content` encodes, or None if it is malformed or of an unknown kind."""
    if not content:
        return None
    decode = _DECODERS.get(content[0])
    if decode is None:
        return None
    reader = FieldReader(content)
    try:
        command = decode(reader)
        reader.end()
    except MalformedError:
        return None
    return command
