"""Tests of what a member answers for: nothing before it is on disk, and no decision without what it refers to."""

from random import Random

from single_keepers import CELL_ID, FOUNDED, LEDGER, MEMBERS, Store, body, only_stored, replica

from fjm2.base.ledger import Ledger
from fjm2.cell.context import Context
from fjm2.cell.decision_log import Appended
from fjm2.cell.ledger_table import Span
from fjm2.cell.outgoing import SendCommand, SendStored
from fjm2.cell.replica import Remembered, Replica, StoredEntry, last_chain
from fjm2.cell.times import REMEMBERED_MS
from fjm2.cell.wire.commands import Fetch
from fjm2.cell.wire.fields import Member
from fjm2.cell.wire.ranges import DECISION_LANE, Range
from fjm2.cell.wire.records import (
    ApplyRecord,
    CloseRecord,
    ConfigureRecord,
    EntryBody,
    FenceRecord,
    Hand,
    HandRecord,
    OpenRecord,
    Subscription,
    TableRecord,
    TimeRecord,
    Verdict,
)
from fjm2.cell.wire.requests import Place
from fjm2.cell.wire.stored import Progress, StoredFlag

DECISIONS = Ledger(CELL_ID, 1, DECISION_LANE)


def test_frames_and_promises_count_once_they_are_on_disk() -> None:
    held, _, _ = replica()
    held.store_frames(LEDGER, 1, [b"a", b"b"], 0.0, is_fetched=False)
    held.store_promise(2, MEMBERS[1].keeper_id)
    assert held.ledgers.progress(LEDGER) == Progress(LEDGER, 0, 2)
    assert held.promised_on_disk == 1
    synced = held.handle_synced(1)
    assert (synced.producers, synced.has_promise) == ({LEDGER.producer_id}, False)
    assert held.ledgers.progress(LEDGER).on_disk == 2
    assert held.promised_on_disk == 1
    assert held.handle_synced(2).has_promise
    assert held.promised_on_disk == 2


def test_a_full_store_takes_frames_again_later() -> None:
    held, store, context = replica()
    store.is_full = True
    held.store_frames(LEDGER, 1, [b"a"], 0.0, is_fetched=False)
    held.send_stored(7, [])
    store.is_full = False
    held.store_frames(LEDGER, 1, [b"a"], 0.0, is_fetched=False)
    held.send_stored(7, [])
    full, free = (message.stored for message in context.outgoing if isinstance(message, SendStored))
    assert full.flags == StoredFlag.FULL
    assert free.flags == 0
    held.handle_synced(1)
    assert held.ledgers.progress(LEDGER).on_disk == 1


def test_a_full_store_is_told_until_there_is_room_for_messages() -> None:
    """A request, which uses the reserve, does not tell that there is; and nobody sends messages meanwhile."""
    held, store, context = replica()
    store.is_full = True
    held.store_frames(LEDGER, 1, [b"a"], 0.0, is_fetched=False)
    held.store_frames(LEDGER, 1, [b"request"], 0.0, is_fetched=False, is_urgent=True)
    held.send_stored(7, [])
    store.is_full = False
    held.send_stored(7, [])
    assert [message.stored.flags for message in context.outgoing if isinstance(message, SendStored)] == [
        StoredFlag.FULL,
        0,
    ]


def test_closed_ledgers_are_forgotten_unless_their_frames_may_be_needed() -> None:
    closed = CloseRecord(LEDGER, ((1, 1),))
    later = TimeRecord(REMEMBERED_MS + 1)
    for kept, forgotten in ((), [LEDGER]), ({LEDGER}, []):
        store = Store()
        entries = (FOUNDED, StoredEntry(1, 2, body(0, OpenRecord(), closed, later)), StoredEntry(1, 3, committing(2)))
        remembered = Remembered(CELL_ID, 1, entries=entries, spans=(Span(LEDGER, 1, 2),), kept=kept)
        held = Replica(Context(MEMBERS[0], 1, 1, store, Random(1)), remembered, 0.0)
        assert (LEDGER in held.ledgers) == bool(kept)
        assert store.forgotten == forgotten


def committing(index: int) -> bytes:
    """Return an entry whose manager knew that an index is committed."""
    return EntryBody(1, index, ()).encode()


def test_a_decision_is_confirmed_only_with_what_it_refers_to() -> None:
    refering = [
        HandRecord((Hand(Range(LEDGER, 2, 2), 1),)),
        ApplyRecord(LEDGER, 3, (Verdict(2, 0), Verdict(3, 5))),
        CloseRecord(LEDGER, ((1, 3),)),
    ]
    for record in refering:
        held, _, _ = replica()
        assert held.offer_entry(1, 2, body(0, OpenRecord()), 0.0) is Appended.ADDED
        assert held.offer_entry(1, 3, body(1, record), 0.0) is Appended.ADDED
        held.handle_synced(2)
        assert held.decision_progress() == Progress(DECISIONS, 2, 3)
        assert {each.ledger for each in held.lacking_references()} == {LEDGER}
        held.store_frames(LEDGER, 1, [b"a", b"b", b"c"], 0.0, is_fetched=True)
        assert held.decision_progress().on_disk == 2
        held.handle_synced(3)
        assert held.decision_progress() == Progress(DECISIONS, 3, 3)
        assert held.lacking_references() == []


def test_the_log_of_an_older_epoch_is_not_confirmed_to_a_newer_manager() -> None:
    held, _, _ = replica()
    held.offer_entry(1, 2, body(0, OpenRecord()), 0.0)
    held.handle_synced(1)
    assert held.decision_progress().on_disk == 2
    held.store_promise(2, bytes(16))
    held.handle_synced(2)
    assert held.decision_progress() == Progress(DECISIONS._replace(producer_epoch=2), 0, 0)


def test_a_fence_of_the_log_stops_frames_and_answers_at_once() -> None:
    held, _, _ = replica()
    held.store_frames(LEDGER, 1, [b"a"], 0.0, is_fetched=False)
    held.offer_entry(1, 2, body(0, FenceRecord(LEDGER)), 0.0)
    held.store_frames(LEDGER, 2, [b"b"], 0.0, is_fetched=False)
    held.handle_synced(9)
    assert held.ledgers.progress(LEDGER).on_disk == 1
    assert held.ledgers.progress_of(LEDGER.producer_id) == []
    assert Progress(LEDGER, 1, 1) in held.full_progress()  # the manager hears of it


def test_a_closed_ledger_is_confirmed_as_far_as_its_final_set() -> None:
    held, _, _ = replica()
    held.store_frames(LEDGER, 1, [b"a", b"b", b"c"], 0.0, is_fetched=False)
    held.offer_entry(1, 2, body(0, CloseRecord(LEDGER, ((1, 2),))), 0.0)
    held.handle_synced(9)
    held.commit(2, 0.0)
    assert held.ledgers.progress_of(LEDGER.producer_id) == [Progress(LEDGER, 2, 2, is_closed=True)]


def test_a_member_counts_by_the_configuration_on_its_disk() -> None:
    held, _, context = replica()
    replaced = (MEMBERS[1], MEMBERS[2], MEMBERS[3])
    held.offer_entry(1, 2, body(0, ConfigureRecord(257, 3, replaced, False)), 0.0)
    held.send_stored(7, [])
    held.handle_synced(1)
    held.send_stored(7, [])
    before, after = only_stored([message.stored for message in context.outgoing if isinstance(message, SendStored)])
    assert (before.configuration, before.flags) == (1, 0)
    assert (after.configuration, after.flags) == (257, StoredFlag.DOES_NOT_COUNT)


def test_an_incarnation_that_is_not_named_does_not_count() -> None:
    held, _, context = replica(me=Member(MEMBERS[0].keeper_id, 2))
    held.send_stored(7, [])
    (message,) = context.outgoing
    assert isinstance(message, SendStored)
    assert message.stored.flags == StoredFlag.DOES_NOT_COUNT


def test_a_table_is_reported_when_its_frames_are_kept_and_never_goes_back() -> None:
    held, _, context = replica()
    subscription = Subscription(1, Place(0, "topic"), "client", "name", "")
    held.offer_entry(1, 2, body(0, TableRecord(1, True, subscription, ()), TableRecord(3, True, subscription, ())), 0.0)
    held.commit(2, 0.0)
    assert held.table.version == 1  # a version that does not follow is no change
    held.send_stored(7, [])
    held.readiness.reach(9)
    held.send_stored(7, [])
    held.readiness.reach(0)
    held.send_stored(7, [])
    versions = [message.stored.table_version for message in context.outgoing if isinstance(message, SendStored)]
    assert versions == [0, 1, 1]


def test_fetches_are_bounded_in_size_and_rate() -> None:
    held, _, context = replica()
    wanted = [Range(LEDGER, 2 * number + 1, 1) for number in range(500)]
    for at in (0.0, 0.01, 0.05, 0.2):
        held.fetches.ask_for_frames(wanted, at)
    commands = [message.command for message in context.outgoing if isinstance(message, SendCommand)]
    assert [len(command.ranges) for command in commands if isinstance(command, Fetch)] == [40, 40]


def test_damaged_entries_are_refused() -> None:
    held, _, _ = replica()
    assert held.offer_entry(1, 2, b"damage", 0.0) is Appended.REFUSED
    assert held.log.last_index == 1


def test_counted_sequences_count_once_they_are_on_disk_and_fill_no_hole_twice() -> None:
    held, store, _ = replica()
    held.store_frames(LEDGER, 1, [b"a"], 0.0, is_fetched=False)
    held.store_counted(LEDGER, 1, 3, 0.0, is_fetched=False)
    assert store.writes == [(LEDGER, 1, [b"a"]), (LEDGER, 2, 2)]
    held.handle_synced(1)
    assert held.ledgers.progress(LEDGER) == Progress(LEDGER, 1, 3)
    held.handle_synced(2)
    assert held.ledgers.progress(LEDGER) == Progress(LEDGER, 3, 3)


def test_an_entry_without_room_is_written_later_and_before_the_next_one() -> None:
    held, store, _ = replica()
    store.is_full, store.has_reserve = True, False
    held.offer_entry(1, 2, body(0, OpenRecord()), 0.0)
    held.handle_synced(1)
    assert held.log.on_disk == 1
    store.is_full = False
    held.offer_entry(1, 3, body(1), 0.0)
    assert [index for _, index, _ in store.writes] == [2, 3]  # type: ignore[misc]
    held.handle_synced(1)
    assert held.log.on_disk == 2
    held.handle_synced(2)
    assert held.log.on_disk == 3


def test_decisions_and_requests_are_stored_by_a_full_store() -> None:
    held, store, _ = replica()
    store.is_full = True
    held.offer_entry(1, 2, body(0, OpenRecord()), 0.0)
    held.store_frames(LEDGER, 1, [b"request"], 0.0, is_fetched=False, is_urgent=True)
    held.store_frames(LEDGER, 2, [b"frame"], 0.0, is_fetched=False)
    held.handle_synced(2)
    assert (held.log.on_disk, held.ledgers.progress(LEDGER).on_disk) == (2, 1)


def test_a_store_without_room_for_what_others_hold_fetches_little() -> None:
    held, store, context = replica()
    wanted = [Range(LEDGER, 1, 5000), Range(LEDGER, 9000, 1)]

    def fetched(now: float) -> list[Range]:
        context.outgoing.clear()
        held.fetches.ask_for_frames(wanted, now)
        return [each for message in context.outgoing for each in message.command.ranges]  # type: ignore[union-attr]

    assert fetched(0.0) == wanted
    store.is_full = store.has_fetch_reserve = True
    held.store_frames(LEDGER, 1, [b"live"], 0.2, is_fetched=False)
    held.store_frames(LEDGER, 2, [b"fetched"], 0.2, is_fetched=True)
    held.store_counted(LEDGER, 3, 1, 0.2, is_fetched=True)
    assert held.is_full, "what uses the reserve does not tell that there is room for messages"
    assert not held.fetches.lack_room(0.2)
    assert fetched(0.2) == wanted
    store.has_fetch_reserve = False
    held.store_frames(LEDGER, 4, [b"fetched"], 0.3, is_fetched=True)
    assert held.fetches.lack_room(0.3)
    assert [fetched(at) for at in (0.4, 0.5, 0.8, 0.9)] == [[Range(LEDGER, 1, 16)], [], [], [Range(LEDGER, 1, 16)]]
    assert not held.fetches.lack_room(1.5)
    assert [fetched(at)[0].count for at in (1.5, 2.0, 2.5)] == [16, 64, 256]


def test_a_refused_batch_counts_for_nothing_and_its_content_may_come_again() -> None:
    held, store, _ = replica()
    held.store_frames(LEDGER, 1, [b"a"], 0.0, is_fetched=False)
    held.offer_entry(1, 2, body(0, OpenRecord()), 0.0)
    held.offer_entry(1, 3, body(1), 0.0)
    store.refused = [1, 2]
    held.handle_synced(3)
    assert held.is_full
    assert held.ledgers.progress(LEDGER) == Progress(LEDGER, 0, 0)
    assert held.log.on_disk == 1  # entry 3 is on disk, and the one before it is not
    held.store_frames(LEDGER, 1, [b"a"], 0.0, is_fetched=False)
    held.write_entries()
    held.handle_synced(6)
    assert held.ledgers.progress(LEDGER) == Progress(LEDGER, 1, 1)
    assert held.log.on_disk == 3


def test_an_entry_whose_predecessor_was_never_written_is_not_remembered() -> None:
    entries = [FOUNDED, StoredEntry(1, 2, body(0, OpenRecord())), StoredEntry(1, 4, body(1))]
    assert last_chain(entries) == entries[:2]
    assert last_chain([*entries, StoredEntry(1, 3, body(1))])[-1].index == 4
    assert last_chain(entries[1:]) == []
