"""Tests of elections. Votes are on disk before they are answered, one in an epoch, and only for logs that have all.
The elected one goes on for as long as the others answer."""

from typing import Any

import pytest
from single_keepers import (
    CELL_ID,
    FOUNDED,
    MEMBERS,
    Store,
    body,
    cell,
    events,
    heartbeat,
    only_stored,
    sent,
    vote_request,
)

from fjm2.base.ledger import Ledger
from fjm2.cell.cell import Cell
from fjm2.cell.outgoing import State, StateChanged
from fjm2.cell.replica import StoredEntry
from fjm2.cell.times import LEASE_S, PAUSE_S
from fjm2.cell.wire.commands import Heartbeat, HeartbeatFlag, VoteAnswer, VoteFlag, VoteRequest
from fjm2.cell.wire.fields import Member
from fjm2.cell.wire.ranges import DECISION_LANE
from fjm2.cell.wire.records import OpenRecord, TimeRecord
from fjm2.cell.wire.stored import Progress, Stored, progress_array

LATER = 10.0
"""A time at which members vote again after their start."""
EPOCH = 2
NODE = 2


def votes(keeper: Cell) -> list[VoteAnswer]:
    return [message for message in sent(keeper) if isinstance(message, VoteAnswer)]


def granted(keeper: Cell) -> list[bool]:
    return [bool(answer.flags & VoteFlag.GRANTED) for answer in votes(keeper)]


def answer(voter: Member, epoch: int, flags: int) -> bytes:
    return VoteAnswer(
        flags=flags,
        epoch=epoch,
        cell_id=CELL_ID,
        candidate=MEMBERS[0].keeper_id,
        configuration=1,
        last_epoch=0,
        last_index=1,
        voter=voter,
    ).encode()


def test_a_vote_is_answered_when_it_is_on_disk() -> None:
    keeper, store = cell()
    keeper.receive(vote_request(2), 2, LATER)
    assert votes(keeper) == []
    keeper.handle_synced(store.lsn, LATER)
    (vote,) = votes(keeper)
    assert (vote.epoch, vote.voter, vote.flags) == (2, MEMBERS[0], VoteFlag.GRANTED)


def test_a_member_votes_once_in_an_epoch() -> None:
    keeper, store = cell()
    keeper.receive(vote_request(2), 2, LATER)
    keeper.receive(vote_request(2, candidate=2), 3, LATER)
    keeper.handle_synced(store.lsn, LATER)
    answers = votes(keeper)
    assert [(vote.candidate, bool(vote.flags)) for vote in answers] == [
        (MEMBERS[2].keeper_id, False),
        (MEMBERS[1].keeper_id, True),
    ]
    keeper.receive(vote_request(2), 2, LATER)  # the same candidate asks again, as its answer got lost
    assert granted(keeper) == [True]


def test_an_older_promise_on_disk_answers_for_no_newer_vote() -> None:
    keeper, _ = cell()
    keeper.receive(heartbeat(2), 2, 1.0)
    keeper.receive(vote_request(3), 2, LATER)
    keeper.receive(vote_request(3), 2, LATER)
    sent(keeper)
    keeper.handle_synced(1, LATER)  # the promise of epoch 2
    keeper.receive(vote_request(3), 2, LATER)
    assert granted(keeper) == []
    keeper.handle_synced(2, LATER)
    assert granted(keeper) == [True]


def test_a_vote_that_was_given_before_a_restart_counts_after_it() -> None:
    keeper, _ = cell(promised=2)  # for nobody that asks
    keeper.receive(vote_request(2), 2, LATER)
    assert granted(keeper) == [False]


def test_a_vote_is_not_given_if_it_cannot_be_stored() -> None:
    keeper, store = cell()
    store.is_full, store.has_reserve = True, False
    keeper.receive(vote_request(2), 2, LATER)
    keeper.handle_synced(5, LATER)
    assert granted(keeper) == []


def test_votes_go_to_logs_that_are_as_new() -> None:
    newer = StoredEntry(1, 2, body(0, OpenRecord()))
    for last, expected in (((0, 9), False), ((1, 1), False), ((1, 2), True), ((2, 1), True)):
        keeper, _ = cell(newer)
        keeper.receive(vote_request(2, flags=VoteFlag.PRE_VOTE, last=last), 2, LATER)
        assert granted(keeper) == [expected], last
        keeper, store = cell(newer)
        keeper.receive(vote_request(2, last=last), 2, LATER)
        keeper.handle_synced(store.lsn, LATER)
        assert granted(keeper) == [expected], last


def test_no_vote_after_a_start_or_a_heartbeat() -> None:
    for flags in (0, VoteFlag.PRE_VOTE):
        keeper, _ = cell()
        keeper.receive(vote_request(2, flags=flags), 2, 0.74)
        assert granted(keeper) == [False]
        keeper.receive(heartbeat(1), 3, LATER)
        sent(keeper)
        keeper.receive(vote_request(2, flags=flags), 2, LATER + 0.74)
        assert granted(keeper) == [False]


def test_a_pre_vote_promises_nothing() -> None:
    keeper, store = cell()
    keeper.receive(vote_request(5, flags=VoteFlag.PRE_VOTE), 2, LATER)
    assert granted(keeper) == [True]
    assert (keeper.epoch, store.lsn) == (1, 0)


def elected(keeper: Cell, lsn: int, voter: Member) -> State:
    """Give a candidate a pre-vote and a vote, and return its state."""
    keeper.handle_timeout(0.8)
    keeper.receive(answer(voter, 2, VoteFlag.PRE_VOTE | VoteFlag.GRANTED), 2, 1.0)
    assert [bool(each.flags) for each in sent(keeper) if isinstance(each, VoteRequest)] == [True]
    keeper.handle_synced(lsn, 1.0)
    keeper.receive(answer(voter, 2, VoteFlag.GRANTED), 2, 1.0)
    return keeper.state


def test_w_votes_make_a_manager() -> None:
    keeper, _ = cell()
    assert elected(keeper, 1, MEMBERS[1]) is State.RECOVERING
    assert [event.state for event in events(keeper) if isinstance(event, StateChanged)] == [
        State.CANDIDATE,
        State.RECOVERING,
    ]


def test_votes_before_one_s_own_is_on_disk_do_not_count() -> None:
    keeper, _ = cell()
    assert elected(keeper, 0, MEMBERS[1]) is State.CANDIDATE
    keeper.receive(answer(MEMBERS[2], 2, VoteFlag.GRANTED), 3, 1.0)
    assert keeper.state is State.CANDIDATE


def test_a_candidate_asks_for_votes_when_its_own_is_on_disk() -> None:
    keeper, _ = cell()
    keeper.receive(answer(MEMBERS[1], 2, VoteFlag.PRE_VOTE), 2, 0.5)
    keeper.receive(heartbeat(2), 2, 0.5)
    keeper.handle_timeout(1.3)
    keeper.receive(answer(MEMBERS[1], 3, VoteFlag.PRE_VOTE | VoteFlag.GRANTED), 2, 1.3)
    sent(keeper)
    keeper.handle_synced(1, 1.4)  # the promise of epoch 2
    assert not any(isinstance(each, VoteRequest) for each in sent(keeper))
    keeper.handle_synced(2, 1.4)
    assert [each.epoch for each in sent(keeper) if isinstance(each, VoteRequest)] == [3]


def asks(keeper: Cell) -> list[tuple[int, bool]]:
    """Return the epochs that a candidate asks for, and True for each pre-vote."""
    return [(each.epoch, bool(each.flags)) for each in sent(keeper) if isinstance(each, VoteRequest)]


def test_a_member_that_was_held_up_listens_before_it_asks() -> None:
    """Heartbeats that came meanwhile are heard after the timer: its own lateness is no silence of the manager."""
    keeper, _ = cell()
    keeper.handle_timeout(1.5)
    assert asks(keeper) == []
    keeper.receive(heartbeat(1), 2, 1.5)
    keeper.handle_timeout(2.2)
    assert asks(keeper) == []
    keeper.handle_timeout(3.0)
    assert asks(keeper) == []
    keeper.handle_timeout(9.0)  # it is always late: the next time counts
    assert asks(keeper) == [(2, True)]


def test_a_candidate_asks_again_for_the_same_epoch() -> None:
    keeper, store = cell()
    keeper.handle_timeout(0.8)
    keeper.receive(answer(MEMBERS[1], 2, VoteFlag.PRE_VOTE | VoteFlag.GRANTED), 2, 0.8)
    keeper.handle_synced(store.lsn, 0.8)
    assert asks(keeper) == [(2, True), (2, False)]
    for _ in range(3):
        keeper.handle_timeout(keeper.poll_timeout())
        assert asks(keeper) == [(2, False)]
    keeper.handle_timeout(keeper.poll_timeout())
    assert asks(keeper) == [(3, True)]


def test_a_candidate_that_is_refused_asks_for_another_epoch() -> None:
    keeper, store = cell()
    keeper.handle_timeout(0.8)
    keeper.receive(answer(MEMBERS[1], 2, VoteFlag.PRE_VOTE | VoteFlag.GRANTED), 2, 0.8)
    keeper.handle_synced(store.lsn, 0.8)
    keeper.receive(answer(MEMBERS[2], 2, 0), 3, 0.8)
    sent(keeper)
    keeper.handle_timeout(keeper.poll_timeout())
    assert asks(keeper) == [(3, True)]


def test_a_vote_lets_nobody_else_begin_an_election_for_a_while() -> None:
    keeper, store = cell()
    keeper.receive(vote_request(2), 2, LATER)
    keeper.handle_synced(store.lsn, LATER)
    assert granted(keeper) == [True]
    for after, expected in ((0.4, False), (0.5, True)):
        keeper.receive(vote_request(3, candidate=2, flags=VoteFlag.PRE_VOTE), 3, LATER + after)
        assert granted(keeper) == [expected]


def test_votes_of_strangers_and_of_lost_stores_do_not_count() -> None:
    for voter in (MEMBERS[3], Member(MEMBERS[1].keeper_id, 2)):
        keeper, _ = cell()
        keeper.handle_timeout(0.8)
        for _ in range(3):
            keeper.receive(answer(voter, 2, VoteFlag.PRE_VOTE | VoteFlag.GRANTED), 2, 1.0)
        keeper.handle_synced(1, 1.0)
        assert (keeper.state, keeper.epoch) == (State.CANDIDATE, 1)


def test_a_refusal_tells_a_higher_epoch() -> None:
    keeper, _ = cell()
    keeper.handle_timeout(0.8)
    keeper.receive(answer(MEMBERS[1], 7, VoteFlag.PRE_VOTE), 2, 1.0)
    assert keeper.epoch == 7
    assert keeper.state is State.FOLLOWER


def test_a_keeper_that_no_configuration_names_is_no_candidate() -> None:
    keeper, _ = cell(me=Member(MEMBERS[0].keeper_id, 2))
    for second in range(1, 30):
        keeper.handle_timeout(float(second))
    assert sent(keeper) == []
    assert keeper.state is State.AMNESIAC


def test_a_heartbeat_of_an_older_manager_is_answered_with_the_newer_epoch() -> None:
    keeper, _ = cell(promised=3)
    keeper.receive(heartbeat(2), 2, LATER)
    (stored,) = only_stored(sent(keeper))
    assert (stored.promised_epoch, stored.heartbeat) == (3, 0)


def test_the_manager_before_is_told_nothing_of_a_promise_to_a_candidate() -> None:
    """It would promise the epoch as well, and give the candidate no vote."""
    keeper, store = cell()
    keeper.receive(heartbeat(1), 2, 1.0)
    sent(keeper)
    keeper.receive(vote_request(2, candidate=2), 3, LATER)
    keeper.handle_synced(store.lsn, LATER)
    assert [type(message) for message in sent(keeper)] == [VoteAnswer]
    keeper, store = cell()
    keeper.receive(heartbeat(1), 2, 0.1)
    keeper.handle_timeout(0.9)
    keeper.receive(answer(MEMBERS[1], 2, VoteFlag.PRE_VOTE | VoteFlag.GRANTED), 2, 1.0)
    sent(keeper)
    keeper.handle_synced(store.lsn, 1.0)
    assert [type(message) for message in sent(keeper)] == [VoteRequest]


def test_a_lease_is_renewed_only_by_a_promise_on_disk() -> None:
    keeper, store = cell()
    keeper.receive(heartbeat(2, number=4), 2, LATER)
    (early,) = only_stored(sent(keeper))
    assert (early.promised_epoch, early.heartbeat) == (1, 0)
    keeper.handle_synced(store.lsn, LATER)
    assert (2, 4) in {(stored.promised_epoch, stored.heartbeat) for stored in only_stored(sent(keeper))}


def test_epochs_far_ahead_are_not_believed() -> None:
    """A forged epoch must not use up all that are left."""
    keeper, _ = cell()
    keeper.receive(heartbeat(0xFFFFFFFF), 2, LATER)
    keeper.receive_entry(0xFFFFFFFF, 2, body(0, OpenRecord()), LATER)
    keeper.receive(vote_request(0xFFFFFFFF), 2, LATER)
    assert keeper.epoch == 1
    assert FOUNDED.epoch == 0


class Managing:
    """A manager of three, and one follower that answers when the test says so."""

    def __init__(self) -> None:
        self.cell: Cell
        self.store: Store
        self.cell, self.store = cell()
        self.now = 0.8
        self.heartbeats: list[Heartbeat] = []
        self.cell.handle_timeout(self.now)
        for flags in (VoteFlag.PRE_VOTE | VoteFlag.GRANTED, VoteFlag.GRANTED):
            self.cell.receive(self._vote(flags), NODE, self.now)
            self.settle()
        for _ in range(10):
            self.go(0.1)
            self.answer()
        assert self.cell.is_serving

    @staticmethod
    def _vote(flags: int) -> bytes:
        return VoteAnswer(
            flags=flags,
            epoch=EPOCH,
            cell_id=CELL_ID,
            candidate=MEMBERS[0].keeper_id,
            configuration=1,
            last_epoch=0,
            last_index=1,
            voter=MEMBERS[1],
        ).encode()

    def settle(self) -> None:
        while self.cell.replica.durable_lsn < self.store.lsn:
            self.cell.handle_synced(self.store.lsn, self.now)
        self.heartbeats += [each for each in sent(self.cell) if isinstance(each, Heartbeat)]

    def go(self, seconds: float) -> None:
        """Let time go by, in which the process does nothing."""
        self.now += seconds
        self.cell.handle_timeout(self.now)
        self.settle()

    def answer(self, **changed: Any) -> None:
        """Let the follower answer the newest heartbeat, with all decisions on its disk."""
        log = self.cell.replica.log
        index = log.last_index if log.last_epoch == EPOCH else 0
        fields = {
            "flags": 0,
            "configuration": 1,
            "cell_id": CELL_ID,
            "keeper_id": MEMBERS[1].keeper_id,
            "incarnation": 1,
            "table_version": 0,
            "durable_lsn": 1,
            "promised_epoch": EPOCH,
            "heartbeat": self.heartbeats[-1].number,
            "ledgers": progress_array([Progress(Ledger(CELL_ID, EPOCH, DECISION_LANE), index, index)]),
        }
        self.cell.receive(Stored(**fields | changed).encode(), NODE, self.now)  # type: ignore[arg-type]
        self.settle()

    def propose(self) -> int | None:
        return self.cell.propose((TimeRecord(1),), self.now)


@pytest.mark.parametrize("held_up_s", [LEASE_S + 0.05, 3.0])
def test_a_manager_that_was_held_up_goes_on_in_its_epoch(held_up_s: float) -> None:
    managing = Managing()
    managing.go(held_up_s)
    assert not managing.cell.is_serving
    assert managing.propose() is None
    assert not managing.heartbeats[-1].flags & HeartbeatFlag.SERVING
    managing.answer()
    assert managing.cell.is_serving
    assert managing.cell.epoch == EPOCH
    assert managing.propose() is not None


def test_late_answers_to_old_heartbeats_renew_nothing() -> None:
    managing = Managing()
    old = managing.heartbeats[-1].number
    managing.go(LEASE_S + 0.05)
    managing.answer(heartbeat=old)
    assert not managing.cell.is_serving
    assert managing.propose() is None


def test_a_manager_that_nobody_answers_gives_up() -> None:
    managing = Managing()
    managing.go(LEASE_S + 0.05)
    lost_at = managing.now
    while managing.cell.state is State.CLAIMING:
        assert managing.cell.poll_timeout() > managing.now, "expected a wait"
        managing.go(managing.cell.poll_timeout() - managing.now)
    assert managing.now == pytest.approx(lost_at + PAUSE_S)
    assert managing.cell.state is State.FOLLOWER


def test_a_manager_that_was_held_up_follows_a_newer_one() -> None:
    managing = Managing()
    managing.go(LEASE_S + 0.05)
    managing.answer(promised_epoch=EPOCH + 1)
    assert managing.cell.state is State.FOLLOWER
    assert managing.cell.epoch == EPOCH + 1
