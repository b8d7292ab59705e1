"""Tests of STOREDs that are longer than a datagram."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fjm2.base.ledger import Ledger
from fjm2.cell.wire.ranges import DECISION_LANE
from fjm2.cell.wire.stored import STORED_TYPE, Progress, Stored, decode_stored, progress_array
from fjm2.keeper.long_stored import PART_TYPE, StoredJoiner, StoredSplitter

BYTES_MAX = 1400
OF_DECISIONS = Progress(Ledger(9, 2, DECISION_LANE), 3, 3)


def stored(*progresses: Progress) -> Stored:
    return Stored(
        flags=0,
        configuration=1,
        cell_id=9,
        keeper_id=bytes(16),
        incarnation=1,
        table_version=0,
        durable_lsn=5,
        promised_epoch=2,
        heartbeat=7,
        ledgers=progress_array(progresses),
    )


def ledgers(count: int) -> list[Progress]:
    return [Progress(Ledger(number, 0, 1), number, number) for number in range(1, count + 1)]


def test_a_short_one_is_sent_as_it_is() -> None:
    one = stored(OF_DECISIONS, *ledgers(40))
    assert StoredSplitter(BYTES_MAX).acks(one) == [(STORED_TYPE, one.encode())]


def test_a_long_one_about_ledgers_becomes_several() -> None:
    acks = StoredSplitter(BYTES_MAX).acks(stored(*ledgers(100)))
    assert all(kind == STORED_TYPE and len(content) <= BYTES_MAX for kind, content in acks)
    found = [decode_stored(content) for _, content in acks]
    assert [each for one in found if one is not None for each in one.progresses()] == ledgers(100)


@given(st.integers(42, 1999), st.integers(512, 1400), st.randoms(use_true_random=False))
def test_a_report_counts_only_as_a_whole(count: int, bytes_max: int, random: Random) -> None:
    report = stored(OF_DECISIONS, *ledgers(count))
    acks = StoredSplitter(bytes_max).acks(report)
    joiner = StoredJoiner()
    random.shuffle(acks)
    assert all(kind == PART_TYPE and len(content) <= bytes_max for kind, content in acks)
    *before, last = acks
    assert all(joiner.receive(1, content) is None for _, content in before)
    assert joiner.receive(2, last[1]) is None
    assert joiner.receive(1, last[1]) == report.encode()


def test_parts_of_two_reports_are_never_joined() -> None:
    splitter, joiner = StoredSplitter(BYTES_MAX), StoredJoiner()
    first, second = (splitter.acks(stored(OF_DECISIONS, *ledgers(count))) for count in (60, 61))
    assert [joiner.receive(1, first[0][1]), joiner.receive(1, second[1][1])] == [None, None]
    assert joiner.receive(1, first[1][1]) is None
    assert joiner.receive(1, first[0][1]) is not None


@given(st.lists(st.tuples(st.integers(0, 40), st.binary(max_size=80)), max_size=60))
def test_forged_parts_do_no_harm(parts: list[tuple[int, bytes]]) -> None:
    joiner = StoredJoiner()
    for node_id, content in parts:
        joiner.receive(node_id, content)
