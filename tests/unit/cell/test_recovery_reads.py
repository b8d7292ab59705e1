"""Tests of a new manager's reading: only a report that is younger than its election, and whole, is a read."""

import pytest
from single_keepers import CELL_ID, LEDGER, MEMBERS, heartbeat, only_stored, replica, sent, vote_request
from single_keepers import cell as keeper_of_three

from fjm2.base.ledger import Ledger
from fjm2.cell.manager import Manager
from fjm2.cell.outgoing import SendEntry
from fjm2.cell.replica import Replica
from fjm2.cell.reports import Reports
from fjm2.cell.service.clients import Clients
from fjm2.cell.service.section import ServiceSection
from fjm2.cell.wire.ranges import DECISION_LANE, Spans
from fjm2.cell.wire.stored import Progress, Stored, progress_array

EPOCH = 2
DECISIONS = Progress(Ledger(CELL_ID, EPOCH, DECISION_LANE), 0, 0)
CONFIRMED = Progress(LEDGER, 62, 62)
"""Frames that the other two members confirmed before the election."""


def stored(heartbeat: int, *progresses: Progress) -> Stored:
    """Return a STORED of the second member in the manager's epoch."""
    return Stored(
        flags=0,
        configuration=1,
        cell_id=CELL_ID,
        keeper_id=MEMBERS[1].keeper_id,
        incarnation=1,
        table_version=0,
        durable_lsn=1,
        promised_epoch=EPOCH,
        heartbeat=heartbeat,
        ledgers=progress_array(progresses),
    )


NO_READS = {
    "a stranger's or a candidate's empty one": stored(0),
    "an empty one with a heartbeat": stored(1),
    "one for a writer": stored(1, Progress(LEDGER, 0, 0)),
    "one that names the log of another epoch": stored(
        1, Progress(DECISIONS.ledger._replace(producer_epoch=EPOCH - 1), 0, 0)
    ),
    "one from before the election": stored(0, DECISIONS),
}


def has_opened(stored: Stored, final: Spans | None = None) -> bool:
    """Return True if a new manager that gets a STORED goes on as if it had read a member's holdings.

    `final` is the final set of the ledger, if the manager knows that it is closed.
    """
    held, store, context = replica(promised=EPOCH)
    if final is not None:
        held.ledgers.close(LEDGER, final, 0.0, 0)
    manager = Manager(context, held, Clients(context, held, ServiceSection()), EPOCH, 1.0)
    manager.handle_timeout(1.0)
    manager.receive_stored(stored, 2, 1.001)
    held.handle_synced(store.lsn)
    return any(isinstance(message, SendEntry) for message in context.outgoing)


@pytest.mark.parametrize("name", NO_READS)
def test_a_stored_that_is_no_report_is_no_read(name: str) -> None:
    assert not has_opened(NO_READS[name])
    reports = Reports(EPOCH, CELL_ID)
    held, _, _ = replica(promised=EPOCH)
    assert reports.note(NO_READS[name], 2, 1.0, held.log.membership) is None
    assert reports.get(MEMBERS[1]) is None


def test_a_manager_reads_a_report_and_fetches_what_it_names() -> None:
    assert has_opened(stored(1, DECISIONS))  # the member has nothing
    assert not has_opened(stored(1, DECISIONS, CONFIRMED))  # it has something that is not here yet


def test_a_frame_outside_a_final_set_is_not_waited_for() -> None:
    """A member that restarted does not know yet that the ledger is closed. The manager refuses the frame for ever."""
    assert has_opened(stored(1, DECISIONS, CONFIRMED), final=((1, 61),))


def test_nothing_of_a_closed_ledger_is_fetched() -> None:
    held, _, _ = replica(promised=EPOCH)
    assert lacking(held, 1.0) == [(1, 62)]
    held.ledgers.close(LEDGER, ((1, 61),), 0.0, 0)
    assert lacking(held, 1.0) == []


def lacking(held: Replica, now: float) -> list[tuple[int, int]]:
    """Return what a member fetches of what another one has on disk."""
    return [(each.first, each.last) for each in held.lacking([CONFIRMED], now) if each.ledger == LEDGER]


def test_frames_that_are_still_coming_are_not_fetched() -> None:
    held, _, _ = replica(promised=EPOCH)
    held.ledgers.accept(LEDGER, 1, 20, 1.0)
    held.ledgers.accept(LEDGER, 31, 10, 1.0)
    assert lacking(held, 1.1) == [(21, 30)]  # a hole: the lane has gone on
    assert lacking(held, 1.5) == [(21, 30), (41, 62)]  # the writer is silent
    held.ledgers.accept(LEDGER, 21, 10, 2.0, is_fetched=True)
    assert lacking(held, 2.0) == [(41, 62)]  # the writer did not send that
    held.ledgers.accept(LEDGER, 41, 1, 2.0)
    assert lacking(held, 2.1) == []


def test_frames_of_a_fenced_ledger_are_fetched_although_the_writer_goes_on() -> None:
    held, _, _ = replica(promised=EPOCH)
    held.ledgers.accept(LEDGER, 1, 20, 1.0)
    held.ledgers.fence(LEDGER, 1.0)
    held.ledgers.accept(LEDGER, 21, 20, 1.1)
    assert lacking(held, 1.1) == [(21, 62)]


def test_a_follower_s_answer_to_a_heartbeat_is_a_report() -> None:
    follower, store = keeper_of_three(me=MEMBERS[1])
    follower.receive_frames(LEDGER, 1, [b"x"] * 3, 7, 0.0)
    follower.receive(heartbeat(EPOCH, flags=0, configuration=0, members=()), 1, 1.0)
    sent(follower)
    follower.handle_synced(store.lsn, 1.0)
    (_, answer) = only_stored(sent(follower))  # the first one is for the writer
    held, _, _ = replica(promised=EPOCH)
    report = Reports(EPOCH, CELL_ID).note(answer, 2, 1.0, held.log.membership)
    assert report is not None
    assert report.on_disk_through(LEDGER) == 3


def test_a_candidate_that_refuses_an_older_manager_reports_nothing() -> None:
    """Its promise of the manager's epoch is on disk, and that of its own candidacy is not yet."""
    candidate, store = keeper_of_three(promised=EPOCH, me=MEMBERS[1])
    candidate.receive_frames(LEDGER, 1, [b"x"] * 62, 7, 0.0)
    candidate.handle_synced(store.lsn, 0.0)
    candidate.receive(vote_request(EPOCH + 1, candidate=2), 3, 10.0)
    sent(candidate)
    candidate.receive(heartbeat(EPOCH, flags=0, configuration=0, members=()), 1, 10.0)
    (refusal,) = only_stored(sent(candidate))
    assert refusal.promised_epoch == EPOCH
    assert not has_opened(refusal)
