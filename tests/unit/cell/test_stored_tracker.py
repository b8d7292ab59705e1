"""Tests of the writer's side of STORED: who counts, how far, and when the cell is full or silent."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.base.ledger import Ledger
from fjm2.cell.stored_tracker import ASK_AFTER_S, NEVER, Standing, StoredTracker
from fjm2.cell.wire.commands import Heartbeat, HeartbeatMember, MemberFlag
from fjm2.cell.wire.stored import Progress, Stored, StoredFlag, progress_array

PRODUCER = 42
LEDGER = Ledger(PRODUCER, 0, 1)
KEEPERS = tuple(bytes((number,)) * 16 for number in range(1, 6))
TIMEOUT_S = 10.0


def heartbeat(size: int = 3, amnesiacs: tuple[int, ...] = (), **changes: Any) -> Heartbeat:
    """Return a heartbeat that names members, each of which is in incarnation 1."""
    members = tuple(
        HeartbeatMember(KEEPERS[at], at, MemberFlag.AMNESIAC if at in amnesiacs else MemberFlag.LIVE, 1, 0)
        for at in range(size)
    )
    fields = {
        "flags": 1,
        "epoch": 1,
        "cell_id": 7,
        "configuration": 257,
        "number": 1,
        "committed": 3,
        "table_version": 5,
        "members": members,
    }
    return Heartbeat(**{**fields, **changes})


def stored(keeper: int, on_disk: int, seen: int | None = None, **changes: Any) -> Stored:
    """Return the STORED of a member that counts."""
    fields = {
        "flags": 0,
        "configuration": 257,
        "cell_id": 7,
        "keeper_id": KEEPERS[keeper],
        "incarnation": 1,
        "table_version": 5,
        "durable_lsn": 1,
        "promised_epoch": 1,
        "heartbeat": 1,
        "ledgers": progress_array([Progress(LEDGER, on_disk, on_disk if seen is None else seen)]),
    }
    return Stored(**{**fields, **changes})


def tracker(size: int = 3, sent: int = 100) -> StoredTracker:
    """Return a tracker that has heard a manager and waits for the confirmation of `sent` frames."""
    made = StoredTracker(PRODUCER, TIMEOUT_S)
    made.receive_heartbeat(heartbeat(size), 0.0)
    made.note_sent(LEDGER, sent, 0.0)
    return made


# Confirmation


@pytest.mark.parametrize(("size", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_w_members_confirm_and_fewer_do_not(size: int, majority: int) -> None:
    confirming = tracker(size)
    for keeper in range(majority - 1):
        confirming.receive_stored(stored(keeper, 50), 0.0)
        assert confirming.confirmed(LEDGER) == 0
    confirming.receive_stored(stored(majority - 1, 40), 0.0)
    assert confirming.confirmed(LEDGER) == 40


def test_seen_and_on_disk_are_confirmed_apart() -> None:
    confirming = tracker()
    confirming.receive_stored(stored(0, 5, 30), 0.0)
    confirming.receive_stored(stored(1, 9, 20), 0.0)
    assert confirming.confirmed(LEDGER) == 5
    assert confirming.confirmed(LEDGER, on_disk=False) == 20


def test_a_repeated_answer_of_one_member_is_one_answer() -> None:
    confirming = tracker()
    for _ in range(5):
        confirming.receive_stored(stored(0, 50), 0.0)
    assert confirming.confirmed(LEDGER) == 0


def test_answers_that_were_overtaken_change_nothing() -> None:
    confirming = tracker()
    for keeper in (0, 1):
        confirming.receive_stored(stored(keeper, 50), 0.0)
        confirming.receive_stored(stored(keeper, 20), 0.0)
    assert confirming.confirmed(LEDGER) == 50


def test_nothing_is_confirmed_that_was_not_sent() -> None:
    confirming = tracker(sent=10)
    for keeper in (0, 1):
        confirming.receive_stored(stored(keeper, 1 << 40), 0.0)
    assert confirming.confirmed(LEDGER) == 10


@pytest.mark.parametrize(
    "changes",
    [
        {"configuration": 258},
        {"configuration": 256},
        {"table_version": 4},
        {"table_version": 6},
        {"incarnation": 2},
        {"flags": StoredFlag.DOES_NOT_COUNT},
        {"cell_id": 8},
        {"keeper_id": b"stranger".ljust(16)},
    ],
    ids=repr,
)
def test_an_answer_that_differs_does_not_count(changes: dict[str, Any]) -> None:
    confirming = tracker()
    confirming.receive_stored(stored(0, 50), 0.0)
    confirming.receive_stored(stored(1, 50, **changes), 0.0)
    assert confirming.confirmed(LEDGER) == 0
    confirming.receive_stored(stored(2, 50), 0.0)
    assert confirming.confirmed(LEDGER) == 50


def test_w_members_with_a_newer_table_confirm() -> None:
    confirming = tracker()
    confirming.receive_stored(stored(0, 50, table_version=6), 0.0)
    confirming.receive_stored(stored(1, 50, table_version=6), 0.0)
    assert confirming.confirmed(LEDGER) == 50


def test_an_old_table_confirms_nothing_once_a_newer_one_was_heard() -> None:
    confirming = tracker()
    confirming.receive_stored(stored(0, 50), 0.0)
    confirming.receive_heartbeat(heartbeat(number=2, table_version=6), 0.0)
    confirming.receive_stored(stored(1, 50), 0.0)
    assert confirming.confirmed(LEDGER) == 0
    for keeper in (0, 1):
        confirming.receive_stored(stored(keeper, 40, table_version=6), 0.0)
    assert confirming.confirmed(LEDGER) == 40


def test_an_amnesiac_of_the_heartbeat_does_not_count() -> None:
    confirming = tracker()
    confirming.receive_heartbeat(heartbeat(number=2, amnesiacs=(1,)), 0.0)
    confirming.receive_stored(stored(0, 50), 0.0)
    confirming.receive_stored(stored(1, 50), 0.0)
    assert confirming.confirmed(LEDGER) == 0


def test_an_earlier_incarnation_counts_no_more_once_the_manager_names_the_new_one() -> None:
    confirming = tracker()
    confirming.receive_stored(stored(0, 50), 0.0)
    members = list(heartbeat().members)
    members[0] = members[0]._replace(incarnation=2)
    confirming.receive_heartbeat(heartbeat(number=2, members=tuple(members)), 0.0)
    confirming.receive_stored(stored(1, 50), 0.0)
    assert confirming.confirmed(LEDGER) == 0
    confirming.receive_stored(stored(0, 30, incarnation=2), 0.0)
    assert confirming.confirmed(LEDGER) == 30


def test_answers_from_before_a_change_of_members_count_no_more() -> None:
    """A configuration counts once a heartbeat names it: only then is it committed."""
    confirming = tracker()
    confirming.receive_stored(stored(0, 50, configuration=258), 0.0)
    confirming.receive_stored(stored(1, 50, configuration=258), 0.0)
    assert confirming.confirmed(LEDGER) == 0
    confirming.receive_heartbeat(heartbeat(number=2, configuration=258), 0.0)
    assert confirming.confirmed(LEDGER) == 50


def test_confirmation_never_falls() -> None:
    confirming = tracker()
    for keeper in (0, 1):
        confirming.receive_stored(stored(keeper, 50), 0.0)
    confirming.receive_heartbeat(heartbeat(number=2, configuration=258), 0.0)
    for keeper in (0, 1):
        confirming.receive_stored(stored(keeper, 30, configuration=258), 0.0)
    assert confirming.confirmed(LEDGER) == 50


def test_an_older_manager_is_ignored() -> None:
    confirming = tracker()
    confirming.receive_heartbeat(heartbeat(epoch=3, configuration=770), 0.0)
    confirming.receive_heartbeat(heartbeat(epoch=2, number=99, configuration=257), 0.0)
    for keeper in (0, 1):
        confirming.receive_stored(stored(keeper, 50, configuration=257), 0.0)
    assert confirming.confirmed(LEDGER) == 0


def test_other_writers_and_unsent_ledgers_take_no_memory() -> None:
    confirming = tracker()
    strangers = [Progress(Ledger(number, 0, 0), 9, 9) for number in range(1000) if number != PRODUCER]
    own = [Progress(Ledger(PRODUCER, epoch, 0), 9, 9) for epoch in range(500)]
    for keeper in (0, 1):
        confirming.receive_stored(stored(keeper, 0, ledgers=progress_array(strangers + own)), 0.0)
    ledger = Ledger(PRODUCER, 3, 0)
    confirming.note_sent(ledger, 9, 0.0)
    confirming.receive_heartbeat(heartbeat(number=2), 0.0)
    assert confirming.confirmed(ledger) == 0  # nothing was kept of what had not been sent
    for keeper in (0, 1):
        confirming.receive_stored(stored(keeper, 0, ledgers=progress_array(own)), 0.0)
    assert confirming.confirmed(ledger) == 9


def test_a_forgotten_ledger_begins_anew() -> None:
    confirming = tracker()
    for keeper in (0, 1):
        confirming.receive_stored(stored(keeper, 50), 0.0)
    confirming.forget(LEDGER)
    confirming.note_sent(LEDGER, 100, 0.0)
    confirming.receive_stored(stored(0, 9), 0.0)
    assert confirming.confirmed(LEDGER) == 0


# Full and silent


def test_no_manager_was_heard() -> None:
    assert StoredTracker(PRODUCER, TIMEOUT_S).standing(99.0) is Standing.UNKNOWN


def test_a_cell_is_silent_when_fewer_than_w_answer_for_the_timeout() -> None:
    confirming = tracker()
    assert confirming.standing(TIMEOUT_S - 0.1) is Standing.ABLE
    assert confirming.standing(TIMEOUT_S) is Standing.SILENT
    confirming.receive_stored(stored(0, 1), 11.0)
    assert confirming.standing(11.0) is Standing.SILENT
    confirming.receive_stored(stored(1, 1), 12.0)
    assert confirming.standing(12.0) is Standing.ABLE
    assert confirming.standing(20.9) is Standing.ABLE
    assert confirming.standing(21.0) is Standing.SILENT


def test_learners_and_earlier_incarnations_do_not_break_the_silence() -> None:
    confirming = tracker()
    for keeper in range(3):
        confirming.receive_stored(stored(keeper, 1, flags=StoredFlag.DOES_NOT_COUNT), 11.0)
    assert confirming.standing(11.0) is Standing.SILENT
    for keeper in range(3):
        confirming.receive_stored(stored(keeper, 1, incarnation=9), 11.0)
    assert confirming.standing(11.0) is Standing.SILENT


def test_a_cell_is_full_when_fewer_than_w_take_messages_for_the_timeout() -> None:
    confirming = tracker()
    for second in range(12):
        confirming.receive_stored(stored(0, 1), float(second))
        confirming.receive_stored(stored(1, 1, flags=StoredFlag.FULL), float(second))
        confirming.receive_stored(stored(2, 1, flags=StoredFlag.FULL), float(second))
        assert confirming.standing(float(second)) is (Standing.FULL if second >= 10 else Standing.ABLE)
    confirming.receive_stored(stored(2, 1), 12.0)
    assert confirming.standing(12.0) is Standing.ABLE


# Asking


def test_a_writer_asks_while_it_waits() -> None:
    confirming = StoredTracker(PRODUCER, TIMEOUT_S)
    confirming.receive_heartbeat(heartbeat(), 0.0)
    assert confirming.poll_timeout() == NEVER
    confirming.note_sent(LEDGER, 5, 1.0)
    assert not confirming.poll_request(1.0)
    assert confirming.poll_timeout() == 1.0 + ASK_AFTER_S
    assert confirming.poll_request(1.0 + ASK_AFTER_S)
    assert confirming.poll_timeout() == pytest.approx(1.0 + 2 * ASK_AFTER_S)
    for keeper in (0, 1):
        confirming.receive_stored(stored(keeper, 5), 1.15)
    assert confirming.poll_timeout() == NEVER
    assert not confirming.poll_request(99.0)


# A model


@given(
    st.lists(
        st.tuples(
            st.integers(0, 4),
            st.integers(0, 60),
            st.sampled_from([257, 258]),
            st.integers(5, 6),
            st.integers(1, 2),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_confirmed_frames_are_with_w_members_that_agree(
    answers: list[tuple[int, int, int, int, int, bool]],
) -> None:
    """A plain count over all answers ever given finds W members for what the tracker confirms, and nothing less."""
    confirming = tracker(5, sent=50)
    latest: dict[int, tuple[tuple[int, int, int], int]] = {}
    uncounted: set[int] = set()
    expected = 0
    for keeper, on_disk, configuration, table, incarnation, counts in answers:
        flags = 0 if counts else StoredFlag.DOES_NOT_COUNT
        confirming.receive_stored(
            stored(
                keeper,
                on_disk,
                configuration=configuration,
                table_version=table,
                incarnation=incarnation,
                flags=flags,
            ),
            0.0,
        )
        key = (configuration, table, incarnation)
        before = latest.get(keeper)
        most = max(on_disk, before[1]) if before is not None and before[0] == key else on_disk
        latest[keeper] = (key, most)
        uncounted = uncounted - {keeper} if counts else uncounted | {keeper}
        for version in (5, 6):
            good = [n for k, (key, n) in latest.items() if key == (257, version, 1) and k not in uncounted]
            expected = max(expected, *(min(50, n) for n in good if sum(m >= n for m in good) >= 3), 0)
        assert confirming.confirmed(LEDGER) == expected
