"""Hypothesis strategies for the messages of a cell."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from strategies import u8, u32, u64

from fjm2.base.ledger import Ledger
from fjm2.cell.wire import catch_up, commands, records, replacement, requests, table
from fjm2.cell.wire.fields import Member
from fjm2.cell.wire.ranges import Position, Range, Spans
from fjm2.cell.wire.stored import Progress, Stored, progress_array

keeper_ids = st.binary(min_size=16, max_size=16)
texts = st.text(max_size=12)
ledgers = st.builds(Ledger, u64, u32, u8)
ranges = st.builds(Range, ledgers, st.integers(1, 1 << 63), st.integers(1, 0xFFFFFFFF), u32, u8)
range_tuples = st.lists(ranges, max_size=4).map(tuple)
positions = st.lists(st.builds(Position, ledgers, u64), max_size=4).map(tuple)
members = st.builds(Member, keeper_ids, u64)


def member_tuples(most: int) -> SearchStrategy[tuple[Member, ...]]:
    """Return a strategy for one to `most` members with different keeper ids."""
    return st.lists(members, min_size=1, max_size=most, unique_by=lambda member: member.keeper_id).map(tuple)


def _spans(steps: list[tuple[int, int]]) -> Spans:
    found, at = [], -1
    for gap, length in steps:
        first = at + 1 + gap
        at = first + length - 1
        found.append((first, at))
    return tuple(found)


spans = st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99)), max_size=5).map(_spans)


def _progress(ledger: Ledger, counts: tuple[int, int], is_closed: bool) -> Progress:
    return Progress(ledger, min(counts), max(counts), is_closed)


progresses = st.builds(_progress, ledgers, st.tuples(u64, u64), st.booleans())
stored = st.builds(
    Stored,
    flags=st.integers(0, 7),
    configuration=u32,
    cell_id=u64,
    keeper_id=keeper_ids,
    incarnation=u64,
    table_version=u64,
    durable_lsn=u64,
    promised_epoch=u32,
    heartbeat=u32,
    ledgers=st.lists(progresses, max_size=5).map(progress_array),
)

_heartbeat_members = st.builds(commands.HeartbeatMember, keeper_ids, u32, st.integers(0, 3), u64, u64)
_vote = {
    "epoch": u32,
    "cell_id": u64,
    "candidate": keeper_ids,
    "configuration": u32,
    "last_epoch": u32,
    "last_index": u64,
}


def page_of(ledger: Ledger, *, is_successor: bool, **fields: Any) -> catch_up.CatchUpPage:
    """Return a page that names the ledger before its own, if there is one."""
    has_older = is_successor and ledger.producer_epoch
    older = ledger._replace(producer_epoch=ledger.producer_epoch - 1) if has_older else None
    return catch_up.CatchUpPage(ledger=ledger, older_ledger=older, **fields)


command_strategy: SearchStrategy[commands.Command] = st.one_of(
    st.builds(
        commands.Heartbeat,
        flags=st.integers(0, 1),
        epoch=u32,
        cell_id=u64,
        configuration=u32,
        number=u32,
        committed=u64,
        table_version=u64,
        members=st.lists(_heartbeat_members, max_size=commands.MEMBERS_MAX).map(tuple),
        committed_epoch=u32,
    ),
    st.builds(commands.VoteRequest, flags=st.integers(0, 1), **_vote),
    st.builds(commands.VoteAnswer, flags=st.integers(0, 3), **_vote, voter=members),
    st.builds(commands.Fetch, reply_to=u32, cell_id=u64, ranges=st.lists(ranges, min_size=1, max_size=4).map(tuple)),
    st.builds(
        commands.Founding,
        step=st.sampled_from(commands.FoundingStep),
        members_wanted=st.integers(1, commands.FOUNDERS_MAX),
        cell_id=u64,
        members=member_tuples(commands.FOUNDERS_MAX),
    ),
    st.builds(
        commands.Counted, cell_id=u64, table_version=u64, ranges=st.lists(ranges, min_size=1, max_size=4).map(tuple)
    ),
    st.builds(
        table.TableHashes,
        part=st.integers(0, 3),
        parts=st.integers(4, 9),
        cell_id=u64,
        version=u64,
        hashes=st.sets(u64, max_size=5).map(lambda hashes: tuple(sorted(hashes))),
    ),
    st.builds(table.TableQuery, node_id=u32, cell_id=u64, version=u64),
    st.builds(replacement.Replacement, cell_id=u64, lost=keeper_ids, spare=members),
    st.builds(
        catch_up.CatchUpQuery,
        is_exact=st.booleans(),
        reply_to=u32,
        keeper_node=u32,
        consumer=u32,
        cell_id=u64,
        session=u64,
        ledger=ledgers,
        first=st.integers(1, (1 << 64) - 1),
    ),
    st.builds(
        page_of,
        is_hint=st.booleans(),
        reply_to=u32,
        consumer=u32,
        cell_id=u64,
        session=u64,
        ledger=ledgers,
        first=st.just(1),
        through=st.integers(1000, (1 << 64) - 1),
        acknowledged=u64,
        is_final=st.booleans(),
        is_successor=st.booleans(),
        next_ledger=st.none() | ledgers,
        spans=spans,
    ),
)

_places = st.builds(requests.Place, u8, texts)
request_strategy: SearchStrategy[requests.Request] = st.one_of(
    st.builds(requests.Open, u64, u8, texts),
    st.builds(requests.Subscribe, u64, st.integers(0, 7), u32, _places, texts, texts),
    st.builds(requests.Ack, u64, range_tuples),
    st.builds(requests.Commit, u64, u64, range_tuples, range_tuples),
    st.builds(requests.Return, u64, range_tuples),
    st.builds(requests.Claim, u64, range_tuples),
    st.builds(requests.Close, u64, st.lists(u32, max_size=4).map(tuple)),
    st.builds(requests.Unsubscribe, u64, texts),
    st.builds(requests.Outcome, u64, u64),
)

subscriptions = st.builds(records.Subscription, st.integers(0, 7), _places, texts, texts, texts)
record_strategy: SearchStrategy[records.Record] = st.one_of(
    st.builds(records.OpenRecord),
    st.builds(records.ConfigureRecord, u32, u8, member_tuples(records.CONFIGURED_MAX), st.booleans()),
    st.builds(records.TableRecord, u64, st.booleans(), subscriptions, positions),
    st.builds(records.ApplyRecord, ledgers, u64, st.lists(st.builds(records.Verdict, u64, u8), max_size=4).map(tuple)),
    st.builds(records.HandRecord, st.lists(st.builds(records.Hand, ranges, u64), max_size=4).map(tuple)),
    st.builds(records.ReturnRecord, u64, u8),
    st.builds(records.MoveRecord, ranges, _places),
    st.builds(records.ExpireRecord, ranges),
    st.builds(records.FenceRecord, ledgers),
    st.builds(records.CloseRecord, ledgers, spans),
    st.builds(records.TimeRecord, u64),
)
section_strategy = st.builds(records.SectionRecord, texts, st.binary(max_size=40))
entries = st.builds(
    records.EntryBody,
    u32,
    u64,
    st.one_of(st.lists(record_strategy, max_size=4), st.lists(section_strategy, max_size=4)).map(tuple),
)
