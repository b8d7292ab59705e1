"""Tests of the decision log: which entries follow, which replace others, and which configurations count."""

from single_keepers import MEMBERS

from fjm2.cell.configuration import Membership
from fjm2.cell.decision_log import Appended, DecisionLog, Entry
from fjm2.cell.replica import StoredEntry, last_chain
from fjm2.cell.wire.fields import Member
from fjm2.cell.wire.records import ConfigureRecord, EntryBody, OpenRecord, Record


def entry(epoch: int, before: int, *records: Record) -> Entry:
    body = EntryBody(before, 0, records or (OpenRecord(),))
    return Entry(epoch, body, body.encode())


def log_of(*epochs: int) -> DecisionLog:
    """Return a log whose entries have these epochs."""
    log, before = DecisionLog(), 0
    for epoch in epochs:
        log.add(entry(epoch, before))
        before = epoch
    log.on_disk = log.last_index
    return log


def epochs(log: DecisionLog) -> list[int]:
    return [log.epoch_at(index) for index in range(1, log.last_index + 1)]


def test_an_entry_follows_the_one_that_its_manager_had() -> None:
    log = log_of(1, 1)
    assert log.offer(2, 3, entry(2, 1), promised=2) is Appended.ADDED
    assert log.offer(2, 3, entry(2, 1), promised=2) is Appended.KNOWN
    assert log.offer(2, 5, entry(2, 2), promised=2) is Appended.GAP
    assert epochs(log) == [1, 1, 2]


def test_the_promised_epoch_replaces_what_its_manager_did_not_have() -> None:
    log = log_of(1, 2, 2)
    assert log.offer(3, 2, entry(3, 1), promised=3) is Appended.ADDED
    assert epochs(log) == [1, 3]
    assert log.on_disk == 1


def test_an_older_epoch_replaces_nothing() -> None:
    """An entry of a deposed manager may come late. It must not take the place of a newer one."""
    log = log_of(1, 3)
    assert log.offer(2, 2, entry(2, 1), promised=3) is Appended.REFUSED
    log = log_of(1, 2)
    assert log.offer(3, 2, entry(3, 1), promised=4) is Appended.REFUSED
    assert epochs(log) == [1, 2]


def test_nothing_replaces_what_is_committed() -> None:
    log = log_of(1, 2)
    log.committed = 2
    assert log.offer(3, 2, entry(3, 1), promised=3) is Appended.REFUSED
    assert log.offer(3, 3, entry(3, 1), promised=3) is Appended.REFUSED
    assert epochs(log) == [1, 2]


def test_a_log_that_parted_long_ago_is_led_back_entry_by_entry() -> None:
    """The manager's log is 1 2 2 4, the follower's 1 3 3. Only what an entry of epoch 4 names may replace."""
    log = log_of(1, 3, 3)
    theirs = {1: entry(1, 0), 2: entry(2, 1), 3: entry(2, 2), 4: entry(4, 2)}
    for _ in range(8):
        for index in range(min(log.next_wanted(4), 4), 5):
            log.offer(theirs[index].epoch, index, theirs[index], promised=4)
    assert epochs(log) == [1, 2, 2, 4]


def test_entries_contradict_themselves() -> None:
    log = DecisionLog()
    assert log.offer(1, 0, entry(1, 0), promised=1) is Appended.REFUSED
    assert log.offer(1, 1, entry(1, 1), promised=1) is Appended.REFUSED
    log = log_of(1, 2)
    assert log.offer(1, 3, entry(1, 2), promised=1) is Appended.REFUSED


def test_both_configurations_count_while_a_change_is_begun() -> None:
    old, new = MEMBERS[:3], (*MEMBERS[:2], MEMBERS[3])
    log = DecisionLog()
    log.add(entry(0, 0, ConfigureRecord(1, 3, old, True)))
    log.add(entry(1, 0, ConfigureRecord(257, 3, new, False)))
    membership = log.membership
    assert membership.has_majority({MEMBERS[0], MEMBERS[1]})
    assert not membership.has_majority({MEMBERS[0], MEMBERS[2]})
    assert not membership.has_majority({MEMBERS[0], MEMBERS[3]})
    assert not membership.can_read({MEMBERS[0], MEMBERS[3]})
    log.add(entry(1, 1, ConfigureRecord(257, 3, new, True)))
    assert log.membership.has_majority({MEMBERS[0], MEMBERS[3]})
    assert log.offer(2, 3, entry(2, 1), promised=2) is Appended.ADDED
    assert log.membership == membership


def test_an_incarnation_that_no_configuration_names_makes_no_majority() -> None:
    membership = Membership((ConfigureRecord(1, 3, MEMBERS[:3], True),))
    wiped = Member(MEMBERS[1].keeper_id, 2)
    assert not membership.has_majority({MEMBERS[0], wiped})
    assert not membership.can_read({MEMBERS[0], wiped})
    assert membership.names(wiped.keeper_id)
    assert wiped not in membership


def test_majorities_and_readers_meet() -> None:
    for size in range(1, 6):
        members = tuple(Member(bytes((number,)) * 16, 1) for number in range(size))
        membership = Membership((ConfigureRecord(1, 3, members, True),))
        majority = next(n for n in range(size + 1) if membership.has_majority(set(members[:n])))
        readers = next(n for n in range(size + 1) if membership.can_read(set(members[:n])))
        assert majority == size // 2 + 1
        assert readers == size - majority + 1


def test_no_configuration_makes_no_majority() -> None:
    assert not Membership().has_majority(set(MEMBERS))
    assert not Membership().can_read(set(MEMBERS))


def test_the_newest_chain_is_the_log_of_a_store() -> None:
    """Replaced entries stay in the store. Which ones count follows from what each entry says was before it."""
    kept = [
        StoredEntry(1, 1, entry(1, 0).data),
        StoredEntry(2, 2, entry(2, 1).data),
        StoredEntry(4, 3, entry(4, 2).data),
    ]
    replaced = [StoredEntry(3, 2, entry(3, 1).data), StoredEntry(3, 3, entry(3, 3).data)]
    assert last_chain([*replaced, *kept]) == kept
    assert last_chain([*kept[1:], *replaced]) == []  # without its beginning
    assert last_chain([]) == []
    assert last_chain([StoredEntry(1, 1, b"damage")]) == []
