"""Tests of the cell's messages as bytes: round trips, layouts, truncation, hostile bytes and bounds."""

import struct
from collections.abc import Callable
from typing import Any

import cell_messages
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.base.ledger import Ledger
from fjm2.cell.wire import catch_up, commands, records, replacement, requests, table
from fjm2.cell.wire.fields import Member
from fjm2.cell.wire.leases import LEASES_MAX, decode_leases, encode_leases
from fjm2.cell.wire.ranges import RANGES_MAX, Range, encode_ledger
from fjm2.cell.wire.stored import LEDGERS_MAX, Progress, Stored, StoredFlag, decode_stored, progress_array
from fjm2.messages.destination import Destination, Queue, Topic

KEEPERS = tuple(bytes((number,)) * 16 for number in range(1, 8))
LEDGER = Ledger(0x0102030405060708, 9, 2)
RANGE = Range(LEDGER, 5, 3, 7, 1)
PLACE = requests.Place(0, "orders")


def encode(message: Any) -> bytes:
    """Return a message of any group as bytes."""
    return requests.encode_request(message) if isinstance(message, requests.Request) else message.encode()


DECODERS: dict[str, Callable[[bytes], Any]] = {
    "command": commands.decode_command,
    "stored": decode_stored,
    "request": requests.decode_request,
    "entry": records.decode_entry,
}


def stored(*progresses: Progress, flags: int = 0) -> Stored:
    return Stored(
        flags=flags,
        configuration=0x101,
        cell_id=3,
        keeper_id=KEEPERS[0],
        incarnation=4,
        table_version=5,
        durable_lsn=6,
        promised_epoch=7,
        heartbeat=8,
        ledgers=progress_array(progresses),
    )


# Round trips


@given(cell_messages.command_strategy)
def test_commands_survive(command: commands.Command) -> None:
    assert commands.decode_command(command.encode()) == command


@given(cell_messages.stored)
def test_stored_survives(message: Stored) -> None:
    back = decode_stored(message.encode())
    assert back is not None
    assert back.encode() == message.encode()
    assert back.progresses() == message.progresses()
    for name in ("flags", "configuration", "cell_id", "keeper_id", "incarnation", "table_version", "durable_lsn"):
        assert getattr(back, name) == getattr(message, name)
    assert (back.promised_epoch, back.heartbeat) == (message.promised_epoch, message.heartbeat)


@given(cell_messages.request_strategy)
def test_requests_survive(request: requests.Request) -> None:
    assert requests.decode_request(requests.encode_request(request)) == request


@given(cell_messages.entries)
def test_entries_survive(entry: records.EntryBody) -> None:
    assert records.decode_entry(entry.encode()) == entry


# Layouts, byte by byte as the page of the format has them


def test_the_name_of_a_ledger_has_16_bytes() -> None:
    assert encode_ledger(LEDGER).hex() == "01020304050607080000000902000000"


def test_a_range_has_32_bytes() -> None:
    assert RANGE.encode().hex() == "0102030405060708000000090201000000000000000000050000000300000007"


def test_stored_has_a_head_of_64_bytes_and_32_for_each_ledger() -> None:
    data = stored(Progress(LEDGER, 10, 12, is_closed=True), flags=1).encode()
    assert data[:16].hex() == "01010001000001010000000000000003"
    assert data[16:32] == KEEPERS[0]
    assert struct.unpack(">QQQII", data[32:64]) == (4, 5, 6, 7, 8)
    assert data[64:].hex() == "01020304050607080000000902010000000000000000000a000000000000000c"


def test_a_heartbeat_has_a_head_of_44_bytes_and_40_for_each_member() -> None:
    member = commands.HeartbeatMember(KEEPERS[0], 2, 1, 3, 4)
    heartbeat = commands.Heartbeat(
        flags=1,
        epoch=5,
        cell_id=6,
        configuration=7,
        number=8,
        committed=9,
        table_version=10,
        members=(member,),
        committed_epoch=11,
    )
    data = heartbeat.encode()
    assert struct.unpack(">BBBBIQIIQQI", data[:44]) == (2, 1, 1, 0, 5, 6, 7, 8, 9, 10, 11)
    assert struct.unpack(">16sIB3sQQ", data[44:]) == (KEEPERS[0], 2, 1, b"\0\0\0", 3, 4)


def test_votes_have_48_and_72_bytes() -> None:
    vote = {"epoch": 1, "cell_id": 2, "candidate": KEEPERS[0], "configuration": 3, "last_epoch": 4, "last_index": 5}
    request = commands.VoteRequest(flags=1, **vote).encode()
    answer = commands.VoteAnswer(flags=2, **vote, voter=Member(KEEPERS[1], 6)).encode()
    assert struct.unpack(">BBHIQ16sIIQ", request) == (3, 1, 0, 1, 2, KEEPERS[0], 3, 4, 5)
    assert struct.unpack(">BBHIQ16sIIQ16sQ", answer) == (4, 2, 0, 1, 2, KEEPERS[0], 3, 4, 5, KEEPERS[1], 6)


def test_a_part_of_a_table_has_a_head_of_24_bytes_and_8_for_each_hash() -> None:
    data = table.TableHashes(part=1, parts=2, cell_id=3, version=4, hashes=(5, 6)).encode()
    assert struct.unpack(">BBHHHQQQQ", data) == (8, 0, 1, 2, 2, 3, 4, 5, 6)
    query = table.TableQuery(node_id=1, cell_id=2, version=3).encode()
    assert struct.unpack(">B3sIQQ", query) == (9, b"\0\0\0", 1, 2, 3)


def test_a_page_has_a_head_of_104_bytes_and_16_for_each_span() -> None:
    data = SAMPLES["catch-up page"][1].encode()
    assert len(data) == 104 + 2 * 16
    assert struct.unpack(">BBHIIIQQ", data[:32]) == (13, 1, 2, 1, 2, 0, 3, 4)
    assert struct.unpack(">QQQQQQQ", data[80:]) == (5, 20, 30, 6, 7, 9, 20)


def test_a_table_is_told_in_parts_of_which_none_is_longer_than_a_datagram() -> None:
    parts = table.table_parts(1, 2, list(range(301)))
    assert [len(part.hashes) for part in parts] == [150, 150, 1]
    assert [(part.part, part.parts) for part in parts] == [(0, 3), (1, 3), (2, 3)]
    assert all(len(part.encode()) <= 1400 for part in parts)
    assert [part.hashes for part in table.table_parts(1, 2, [])] == [()]


def test_hashes_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="ascending order"):
        table.TableHashes(part=0, parts=1, cell_id=1, version=1, hashes=(2, 1)).encode()
    data = bytearray(table.TableHashes(part=0, parts=1, cell_id=1, version=1, hashes=(1, 2)).encode())
    data[-1] = 1
    assert commands.decode_command(bytes(data)) is None


def test_leases_name_sessions_of_8_bytes_each() -> None:
    assert encode_leases((1, 2)) == struct.pack(">QQ", 1, 2)
    assert decode_leases(struct.pack(">QQ", 1, 2)) == (1, 2)
    for content in (b"", bytes(9), bytes(8 * (LEASES_MAX + 1))):
        assert decode_leases(content) is None
    for sessions in ((), (1,) * (LEASES_MAX + 1), (1 << 64,)):
        with pytest.raises(ValueError, match="expected"):
            encode_leases(sessions)


@pytest.mark.parametrize("destination", [Topic("orders"), Queue("orders"), Topic("größe.*")])
def test_a_place_has_the_hash_that_frames_carry(destination: Destination) -> None:
    place = requests.Place(destination.kind_flags, destination.name)
    assert place.frame_hash == destination.frame_hash


def test_an_entry_has_a_head_of_16_bytes_and_4_for_each_record() -> None:
    entry = records.EntryBody(3, 4, (records.OpenRecord(), records.TimeRecord(5)))
    assert entry.encode().hex() == "00000003000000020000000000000004010000000b0000080000000000000005"


def test_a_hand_record_has_40_bytes_for_each_range() -> None:
    assert len(records.HandRecord((records.Hand(RANGE, 1),) * 3).encode()) == 120


# Truncation, additions and hostile bytes

SAMPLES: dict[str, tuple[str, Any]] = {
    "heartbeat": (
        "command",
        commands.Heartbeat(
            flags=1,
            epoch=1,
            cell_id=2,
            configuration=3,
            number=4,
            committed=5,
            table_version=6,
            members=tuple(commands.HeartbeatMember(keeper, 1, 1, 2, 3) for keeper in KEEPERS[:3]),
        ),
    ),
    "vote request": (
        "command",
        commands.VoteRequest(
            flags=0, epoch=1, cell_id=2, candidate=KEEPERS[0], configuration=3, last_epoch=4, last_index=5
        ),
    ),
    "vote answer": (
        "command",
        commands.VoteAnswer(
            flags=2,
            epoch=1,
            cell_id=2,
            candidate=KEEPERS[0],
            configuration=3,
            last_epoch=4,
            last_index=5,
            voter=Member(KEEPERS[1], 6),
        ),
    ),
    "fetch": ("command", commands.Fetch(reply_to=1, cell_id=2, ranges=(RANGE, RANGE))),
    "table hashes": ("command", table.TableHashes(part=0, parts=1, cell_id=1, version=2, hashes=(3, 9))),
    "table query": ("command", table.TableQuery(node_id=1, cell_id=2, version=3)),
    "replacement": (
        "command",
        replacement.Replacement(cell_id=2, lost=KEEPERS[0], spare=Member(KEEPERS[1], 6)),
    ),
    "catch-up query": (
        "command",
        catch_up.CatchUpQuery(
            is_exact=True,
            reply_to=1,
            keeper_node=2,
            consumer=3,
            cell_id=4,
            session=5,
            ledger=LEDGER,
            first=7,
        ),
    ),
    "catch-up page": (
        "command",
        catch_up.CatchUpPage(
            is_hint=False,
            reply_to=1,
            consumer=2,
            cell_id=3,
            session=4,
            ledger=LEDGER,
            first=5,
            through=20,
            acknowledged=30,
            is_final=False,
            older_ledger=None,
            next_ledger=Ledger(1, 2, 3),
            spans=((6, 7), (9, 20)),
        ),
    ),
    "last catch-up page of a later ledger": (
        "command",
        catch_up.CatchUpPage(
            is_hint=False,
            reply_to=1,
            consumer=2,
            cell_id=3,
            session=4,
            ledger=LEDGER,
            first=5,
            through=4,
            acknowledged=0,
            is_final=True,
            older_ledger=LEDGER._replace(producer_epoch=0),
            next_ledger=None,
            spans=(),
        ),
    ),
    "stored": ("stored", stored(Progress(LEDGER, 1, 2), Progress(LEDGER, 3, 3))),
    "open": ("request", requests.Open(1, 2, "client")),
    "subscribe": ("request", requests.Subscribe(1, 1, 256, PLACE, "name", "a > 1")),
    "ack": ("request", requests.Ack(1, (RANGE,))),
    "commit": ("request", requests.Commit(1, 2, (RANGE,), (RANGE, RANGE))),
    "unsubscribe": ("request", requests.Unsubscribe(1, "name")),
    "outcome": ("request", requests.Outcome(1, 2)),
    "end": ("request", requests.End(0, 3)),
    "close": ("request", requests.Close(1)),
    "close of consumers": ("request", requests.Close(1, (2, 3))),
    "entry": (
        "entry",
        records.EntryBody(
            1,
            2,
            (
                records.OpenRecord(),
                records.ConfigureRecord(257, 3, tuple(Member(keeper, 1) for keeper in KEEPERS[:3]), True),
                records.TableRecord(1, True, records.Subscription(1, PLACE, "client", "name", ""), ()),
                records.ApplyRecord(LEDGER, 9, (records.Verdict(7, 1),)),
                records.HandRecord((records.Hand(RANGE, 1),)),
                records.ReturnRecord(1, 2),
                records.MoveRecord(RANGE, PLACE),
                records.ExpireRecord(RANGE),
                records.FenceRecord(LEDGER),
                records.CloseRecord(LEDGER, ((1, 4), (6, 9))),
                records.TimeRecord(5),
            ),
        ),
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_every_truncation_is_refused(name: str) -> None:
    group, message = SAMPLES[name]
    data = encode(message)
    assert DECODERS[group](data) is not None
    for end in range(len(data)):
        assert DECODERS[group](data[:end]) is None, end
    assert DECODERS[group](data + b"\0") is None


def test_every_truncation_of_a_founding_is_refused_but_between_members() -> None:
    """A founding has no count: its end tells how many members it names."""
    members = tuple(Member(keeper, 1) for keeper in KEEPERS[:3])
    data = commands.Founding(step=2, members_wanted=3, cell_id=9, members=members).encode()
    for end in range(len(data) + 1):
        back = commands.decode_command(data[:end])
        count, odd = divmod(end - 12, 24)
        assert (back is not None) == (count >= 1 and not odd), end


@pytest.mark.parametrize("name", SAMPLES)
def test_every_changed_byte_is_refused_or_means_something_else(name: str) -> None:
    """Bytes that decode are the encoding of the result, so no byte is ignored."""
    group, message = SAMPLES[name]
    data = bytearray(encode(message))
    for at, byte in enumerate(data):
        for flip in (1, 0x80, 0xFF):
            data[at] = byte ^ flip
            back = DECODERS[group](bytes(data))
            assert back is None or encode(back) == bytes(data), (at, flip)
        data[at] = byte


@given(st.binary(max_size=300), st.sampled_from(sorted(DECODERS)))
def test_hostile_bytes_are_refused_or_have_this_one_encoding(data: bytes, group: str) -> None:
    back = DECODERS[group](data)
    assert back is None or encode(back) == data


@given(st.data())
def test_mutations_are_refused_or_have_this_one_encoding(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(SAMPLES)))
    group, message = SAMPLES[name]
    mutated = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    back = DECODERS[group](bytes(mutated))
    assert back is None or encode(back) == bytes(mutated)


# Bounds


def test_forged_counts_take_no_memory() -> None:
    """A count that the bytes cannot fill is refused before anything is made of it."""
    huge = 0xFFFFFFFF
    closed = records.CloseRecord(LEDGER, ()).encode()[:-4] + struct.pack(">I", huge)
    applied = encode_ledger(LEDGER) + struct.pack(">QI", 1, huge)
    for number, content in ((10, closed), (4, applied)):
        body = struct.pack(">IIQ", 0, 1, 0) + bytes((number,)) + len(content).to_bytes(3) + content
        assert records.decode_entry(body) is None
    assert records.decode_entry(struct.pack(">IIQ", 0, huge, 0)) is None
    assert requests.decode_request(struct.pack(">BBHQ", 3, 0, 0xFFFF, 1)) is None
    assert requests.decode_request(struct.pack(">BBHQQI", 4, 0, 1, 1, 1, huge)) is None


def test_counts_are_bounded_on_the_way_in_and_out() -> None:
    too_many = (RANGE,) * (RANGES_MAX + 1)
    with pytest.raises(ValueError, match="2001 ranges: expected 1 to 2000"):
        commands.Fetch(reply_to=1, cell_id=2, ranges=too_many).encode()
    head = commands.Fetch(reply_to=1, cell_id=2, ranges=(RANGE,)).encode()[:16]
    forged = head[:2] + struct.pack(">H", len(too_many)) + head[4:] + RANGE.encode() * len(too_many)
    assert commands.decode_command(forged) is None
    with pytest.raises(ValueError, match="2001 ledgers"):
        stored(*[Progress(LEDGER, 1, 1)] * (LEDGERS_MAX + 1)).encode()
    members = tuple(commands.HeartbeatMember(KEEPERS[0], 1, 1, 2, 3) for _ in range(9))
    with pytest.raises(ValueError, match="9 members: expected 0 to 8"):
        commands.Heartbeat(
            flags=0, epoch=1, cell_id=2, configuration=3, number=4, committed=5, table_version=6, members=members
        ).encode()


def test_mistakes_of_the_caller_raise() -> None:
    with pytest.raises(ValueError, match="count=0 from sequence 5: expected one or more"):
        Range(LEDGER, 5, 0).encode()
    with pytest.raises(ValueError, match="expected spans in ascending order"):
        records.CloseRecord(LEDGER, ((1, 4), (5, 9))).encode()
    with pytest.raises(ValueError, match="a text of 65536 bytes: expected at most 65535"):
        requests.encode_request(requests.Unsubscribe(1, "x" * 65536))
    with pytest.raises(ValueError, match="keeper id 0102: expected 16 bytes"):
        Member(b"\1\2", 1).encode()
    with pytest.raises(ValueError, match="expected values that fit"):
        encode_ledger(Ledger(-1, 0, 0))


def test_contradictions_are_refused() -> None:
    more_on_disk_than_seen = stored(Progress(LEDGER, 3, 2)).encode()
    assert decode_stored(more_on_disk_than_seen) is None
    same_keeper_twice = records.ConfigureRecord(1, 3, (Member(KEEPERS[0], 1), Member(KEEPERS[0], 2)), True)
    assert records.decode_entry(records.EntryBody(0, 0, (same_keeper_twice,)).encode()) is None
    beyond_the_last_sequence = bytearray(RANGE.encode())
    beyond_the_last_sequence[16:24] = b"\xff" * 8
    assert requests.decode_request(struct.pack(">BBHQ", 3, 0, 1, 1) + bytes(beyond_the_last_sequence)) is None


@pytest.mark.parametrize("count", [1, 16, 17, 60])
@pytest.mark.parametrize("wrong", [{"zero": 1}, {"closed": 2}, {"on_disk": 9, "seen": 8}])
def test_impossible_progress_is_refused_among_few_and_many(count: int, wrong: dict[str, int]) -> None:
    """Few ledgers are read one by one, and many by columns."""
    message = stored(*(Progress(Ledger(5, 0, lane), 1, 2) for lane in range(count)))
    assert decode_stored(message.encode()) is not None
    for name, value in wrong.items():
        message.ledgers[count // 2][name] = value
    assert decode_stored(message.encode()) is None


@pytest.mark.parametrize("count", [0, 1, 8, 60])
def test_counts_are_those_of_one_producer(count: int) -> None:
    own = [Progress(Ledger(5, 1, lane), lane, lane + 2) for lane in range(count)]
    others = [Progress(Ledger(6, 1, lane), 7, 8) for lane in range(count)]
    message = stored(*(each for pair in zip(own, others, strict=True) for each in pair))
    assert message.counts_of(5) == [(ledger, on_disk, seen) for ledger, on_disk, seen, _ in own]
    assert not message.counts_of(4)


def test_many_ledgers_decode_by_columns() -> None:
    progresses = [Progress(Ledger(number, 0, 1), number, number + 1) for number in range(LEDGERS_MAX)]
    back = decode_stored(stored(*progresses, flags=int(StoredFlag.FULL)).encode())
    assert back is not None
    assert back.progresses() == progresses
    assert isinstance(back.ledgers, np.ndarray)
    assert not back.ledgers.flags.writeable  # a view of the message, not a copy
