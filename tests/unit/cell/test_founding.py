"""Tests of the founding of a cell: by K keepers that all have the configuration on disk, once and for ever."""

from random import Random

import pytest
from single_keepers import FOUNDED, Store, events, sent

from fjm2.cell.cell import Cell
from fjm2.cell.configuration import bus_key, distance
from fjm2.cell.outgoing import CellJoined, State
from fjm2.cell.replica import Remembered
from fjm2.cell.wire.commands import Founding, FoundingStep
from fjm2.cell.wire.fields import Member

MEMBERS = tuple(Member(bytes((number,)) * 16, 1) for number in range(1, 6))
CELL_ID = 77


def keeper(number: int = 0, members_wanted: int = 3) -> tuple[Cell, Store]:
    """Return a keeper with an empty store. The first one is the closest to the bus."""
    store = Store()
    key = int.from_bytes(MEMBERS[0].keeper_id)
    return Cell(MEMBERS[number], number, key, store, Random(1), 0.0, members_wanted=members_wanted), store


def here(number: int, members_wanted: int = 3) -> bytes:
    return Founding(
        step=FoundingStep.HERE, members_wanted=members_wanted, cell_id=0, members=(MEMBERS[number],)
    ).encode()


def step(kind: FoundingStep, *members: int, cell_id: int = CELL_ID) -> bytes:
    named = tuple(MEMBERS[number] for number in members)
    return Founding(step=kind, members_wanted=3, cell_id=cell_id, members=named).encode()


def steps(cell: Cell) -> list[FoundingStep]:
    return [FoundingStep(message.step) for message in sent(cell) if isinstance(message, Founding)]


def listen(cell: Cell, seconds: float, heard: list[bytes], began: float = 0.0) -> None:
    """Let a keeper hear the same candidates for a while."""
    for turn in range(int(seconds / 0.5)):
        now = began + turn * 0.5
        for message in heard:
            cell.receive(message, 9, now)
        cell.handle_timeout(now)


def test_the_closest_candidate_proposes_the_closest_three() -> None:
    cell, _ = keeper(0)
    listen(cell, 4.5, [here(4), here(2), here(1)])
    proposals = [each for each in sent(cell) if isinstance(each, Founding) and each.step == FoundingStep.PREPARE]
    assert proposals
    assert proposals[0].members == MEMBERS[:3]


def test_others_wait_for_the_closest() -> None:
    cell, _ = keeper(1)
    listen(cell, 9.0, [here(0), here(2)])
    assert set(steps(cell)) == {FoundingStep.HERE}


def test_no_keeper_founds_a_cell_of_three_alone_or_with_one_other() -> None:
    for heard in ([], [here(1)], [here(1), here(2, members_wanted=5)]):
        cell, _ = keeper(0)
        listen(cell, 30.0, heard)
        assert set(steps(cell)) == {FoundingStep.HERE}
        assert cell.state is State.EMPTY


def test_changing_candidates_begin_the_wait_anew() -> None:
    cell, _ = keeper(0)
    listen(cell, 2.5, [here(1), here(2)])
    listen(cell, 2.5, [here(1), here(2), here(3)], began=2.5)
    assert set(steps(cell)) == {FoundingStep.HERE}


def test_a_founder_answers_when_the_configuration_is_on_disk() -> None:
    cell, store = keeper(1)
    cell.receive(step(FoundingStep.PREPARE, 0, 1, 2), 9, 0.0)
    assert steps(cell) == []
    cell.handle_synced(store.lsn, 0.0)
    assert FoundingStep.PREPARED in steps(cell)
    assert cell.state is State.EMPTY  # others may not have it
    cell.receive(step(FoundingStep.FOUND, 0, 1, 2), 9, 0.0)
    assert cell.state is State.FOLLOWER


def test_a_founder_accepts_one_founding_for_ever() -> None:
    cell, store = keeper(1)
    cell.receive(step(FoundingStep.PREPARE, 0, 1, 2), 9, 0.0)
    cell.handle_synced(store.lsn, 0.0)
    sent(cell)
    written = store.lsn
    cell.receive(step(FoundingStep.PREPARE, 1, 2, 3, cell_id=5), 9, 0.0)
    cell.receive(step(FoundingStep.FOUND, 1, 2, 3, cell_id=5), 9, 0.0)
    cell.handle_synced(store.lsn, 0.0)
    assert (cell.cell_id, store.lsn, steps(cell), cell.state) == (CELL_ID, written, [], State.EMPTY)


def test_a_founding_that_leaves_the_keeper_out_is_none_of_its_own() -> None:
    cell, store = keeper(1)
    cell.receive(step(FoundingStep.PREPARE, 0, 2, 3), 9, 0.0)
    assert (cell.cell_id, store.lsn) == (0, 0)


def test_a_cell_is_found_when_all_have_answered() -> None:
    cell, store = keeper(0)
    listen(cell, 4.0, [here(1), here(2)])
    cell.handle_synced(store.lsn, 4.0)
    for number in (1, 3, 1):
        cell.receive(step(FoundingStep.PREPARED, number, cell_id=cell.cell_id), 9, 4.0)
    assert FoundingStep.FOUND not in steps(cell)
    cell.receive(step(FoundingStep.PREPARED, 2, cell_id=cell.cell_id), 9, 4.0)
    assert FoundingStep.FOUND in steps(cell)
    assert cell.state is State.FOLLOWER


def test_a_cell_of_one_founds_and_serves_alone() -> None:
    cell, store = keeper(0, members_wanted=1)
    now = 0.0
    while cell.state is not State.SERVING:
        now = max(cell.poll_timeout(), now + 0.001)
        assert now < 8.0
        cell.handle_timeout(now)
        cell.handle_synced(store.lsn, now)
    assert now > 3.0  # it has listened for a cell first


def test_sizes_that_no_cell_has_raise() -> None:
    with pytest.raises(ValueError, match="members_wanted=6: expected 1 to 5"):
        keeper(0, members_wanted=6)


def test_distance_goes_round_the_ring() -> None:
    top, bottom = b"\xff" * 16, bytes(15) + b"\x01"
    assert distance(top, 0)[0] == 1
    assert distance(bottom, 0)[0] == 1
    assert distance(top, 0) != distance(bottom, 0)
    assert bus_key("239.1.2.3", 6003) != bus_key("239.1.2.3", 6004)
    assert 0 <= bus_key("239.1.2.3", 6003) < 1 << 128


def test_the_identity_names_the_cell_only_when_the_configuration_is_on_disk() -> None:
    cell, store = keeper(1)
    cell.receive(step(FoundingStep.PREPARE, 0, 1, 2), 9, 0.0)
    cell.receive(step(FoundingStep.PREPARED, 0), 9, 0.0)
    assert CellJoined(CELL_ID) not in events(cell)
    cell.handle_synced(store.lsn, 0.1)
    cell.receive(step(FoundingStep.PREPARE, 0, 1, 2), 9, 0.2)
    assert [event for event in events(cell) if isinstance(event, CellJoined)] == [CellJoined(CELL_ID)]


def test_a_keeper_that_returns_to_its_cell_says_so_that_the_identity_names_it() -> None:
    """The identity is written after the configuration, perhaps not before the process ends."""
    remembered = Remembered(CELL_ID, entries=(FOUNDED,))
    cell = Cell(MEMBERS[0], 1, 1, Store(), Random(1), 0.0, remembered=remembered)
    assert CellJoined(CELL_ID) in events(cell)
